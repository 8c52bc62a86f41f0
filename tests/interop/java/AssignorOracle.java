// Kafka's own assignors, asked over stdin and stdout, one group after the other, until the input ends.
//
// A group is lines of fields: "assign <range|uniform> <HOMOGENEOUS|HETEROGENEOUS>", "topic <number> <partitions>",
// "member <id> <instance id or -> <topics> <assigned>", and "end". Topics are "1,2" and assignments "1:0,1;2:3"; "-" is
// none. The answer is a line "<member id> <assignment>" for each member, and "end".

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

public class AssignorOracle {
    private static final Map<String, ConsumerGroupPartitionAssignor> ASSIGNORS =
        Map.of("range", new RangeAssignor(), "uniform", new UniformAssignor());

    private String assignor;
    private SubscriptionType subscriptionType;
    private final Map<Uuid, Integer> topics = new HashMap<>();
    private final Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
    private final Map<Uuid, Map<Integer, String>> owners = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        AssignorOracle group = new AssignorOracle();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] fields = line.split(" ");
            switch (fields[0]) {
                case "assign" -> group = new AssignorOracle().with(fields[1], fields[2]);
                case "topic" -> group.topics.put(uuid(fields[1]), Integer.parseInt(fields[2]));
                case "member" -> group.addMember(fields[1], fields[2], fields[3], fields[4]);
                case "end" -> group.answer();
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private AssignorOracle with(String name, String type) {
        assignor = name;
        subscriptionType = SubscriptionType.valueOf(type);
        return this;
    }

    private void addMember(String id, String instance, String subscribed, String assigned) {
        Set<Uuid> topicIds = new TreeSet<>();
        for (String topic : split(subscribed, ",")) topicIds.add(uuid(topic));
        Map<Uuid, Set<Integer>> partitions = new TreeMap<>();
        for (String part : split(assigned, ";")) {
            Uuid topic = uuid(part.split(":")[0]);
            for (String partition : part.split(":")[1].split(",")) {
                partitions.computeIfAbsent(topic, ignored -> new TreeSet<>()).add(Integer.parseInt(partition));
                owners.computeIfAbsent(topic, ignored -> new HashMap<>()).put(Integer.parseInt(partition), id);
            }
        }
        Optional<String> instanceId = instance.equals("-") ? Optional.empty() : Optional.of(instance);
        Assignment has = new Assignment(Collections.unmodifiableMap(partitions));
        members.put(id, new MemberSubscriptionAndAssignmentImpl(Optional.empty(), instanceId, topicIds, has));
    }

    private void answer() {
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topicId) {
                return topics.getOrDefault(topicId, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topicId, int partition) {
                return Set.of();
            }
        };
        GroupAssignment result =
            ASSIGNORS.get(assignor).assign(new GroupSpecImpl(members, subscriptionType, owners), describer);
        for (Map.Entry<String, MemberAssignment> member : result.members().entrySet()) {
            StringBuilder text = new StringBuilder();
            member.getValue().partitions().forEach((topic, partitions) -> {
                if (partitions.isEmpty()) return;
                text.append(text.isEmpty() ? "" : ";").append(topic.getLeastSignificantBits()).append(':');
                text.append(String.join(",", partitions.stream().map(String::valueOf).toList()));
            });
            System.out.println(member.getKey() + " " + (text.isEmpty() ? "-" : text));
        }
        System.out.println("end");
        System.out.flush();
    }

    private static Uuid uuid(String number) {
        return new Uuid(0L, Long.parseLong(number));
    }

    private static String[] split(String text, String by) {
        return text.equals("-") ? new String[0] : text.split(by);
    }
}
