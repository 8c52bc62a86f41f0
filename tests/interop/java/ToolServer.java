import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other in one JVM, which spares each of them the start of its own.
 * A line of stdin has a class and its arguments, with tabs between; a line with NUL and the exit code ends each output.
 */
public class ToolServer {
    /** A tool may catch it and exit once more: the first code counts. */
    private static final class ToolExit extends RuntimeException {
        ToolExit() {
            super(null, null, false, false);
        }
    }

    private static Integer exitCode;

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((code, message) -> {
            exitCode = exitCode == null ? code : exitCode;
            throw new ToolExit();
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            int code = run(line.split("\t", -1));
            System.out.println("\0" + code);
            System.out.flush();
        }
    }

    private static int run(String[] words) throws Exception {
        String[] arguments = Arrays.copyOfRange(words, 1, words.length);
        exitCode = null;
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException failed) {
            if (failed.getCause() instanceof ToolExit) {
                return exitCode;
            }
            failed.getCause().printStackTrace();
            return 1;
        }
    }
}
