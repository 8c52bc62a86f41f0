import java.time.Duration;
import java.time.Instant;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Kafka's own consumer as a group of one, with its default settings: `BOOTSTRAP GROUP TOPIC PROTOCOL`.
 * See `latency_member.py` for its events.
 */
public class LatencyMember {
    public static void main(String[] args) {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", args[0],
            "group.id", args[1],
            "group.protocol", args[3],
            "auto.offset.reset", "earliest");
        KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(args[2]), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                System.out.println("{\"event\": \"assigned\"}");
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            }
        });
        while (true) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                Instant now = Instant.now();
                double nowMs = now.getEpochSecond() * 1e3 + now.getNano() / 1e6;
                double latencyMs = nowMs - Double.parseDouble(record.value());
                System.out.println(String.format(Locale.ROOT, "{\"event\": \"record\", \"latency_ms\": %.3f}", latencyMs));
            }
        }
    }
}
