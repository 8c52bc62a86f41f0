import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What Kafka's own Java client must find in a broker. One check per argument; prints "ok NAME" or throws. */
public class ClientContract {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long DEADLINE_MS = 30_000;
    private final String bootstrap;
    private final String topic;

    ClientContract(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
    }

    public static void main(String[] args) throws Exception {
        for (String check : Arrays.asList(args).subList(2, args.length)) {
            ClientContract contract = new ClientContract(args[0], args[1] + "-" + check);
            switch (check) {
                case "codecs" -> contract.codecs();
                case "headers" -> contract.headersAndNulls();
                case "large" -> contract.largeRecords();
                case "offsets" -> contract.offsetsBySpec();
                case "admin" -> contract.administration();
                case "sessions" -> contract.fetchSessions();
                case "range" -> contract.outOfRange();
                default -> throw new IllegalArgumentException(check);
            }
            System.out.println("ok " + check);
        }
    }

    void codecs() throws Exception {
        create(1, Map.of());
        int sent = 0;
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            try (var producer = producer(Map.of("compression.type", codec, "linger.ms", "20"))) {
                List<Future<RecordMetadata>> acks = new ArrayList<>();
                for (int n = 0; n < 200; n++) {
                    acks.add(producer.send(new ProducerRecord<>(topic, 0, null, bytes(codec + n + "x".repeat(100)))));
                }
                for (Future<RecordMetadata> ack : acks) {
                    same(sent++, (int) ack.get().offset());
                }
            }
        }
        List<ConsumerRecord<byte[], byte[]>> records = read(1_000, 0, 0);
        same("none0" + "x".repeat(100), text(records.get(0).value()));
        same("zstd199" + "x".repeat(100), text(records.get(999).value()));
    }

    void headersAndNulls() throws Exception {
        create(1, Map.of());
        try (var producer = producer(Map.of())) {
            var record = new ProducerRecord<>(topic, 0, 1_700_000_000_123L, bytes("k"), bytes("v"));
            record.headers().add("trace", new byte[] {0, -1}).add("none", null).add("trace", bytes("again"));
            producer.send(record).get();
            producer.send(new ProducerRecord<>(topic, 0, bytes("tombstone"), null)).get();
            producer.send(new ProducerRecord<>(topic, 0, null, new byte[0])).get();
        }
        List<ConsumerRecord<byte[], byte[]>> records = read(3, 0, 0);
        same(3, records.get(0).headers().toArray().length);
        same("again", text(records.get(0).headers().lastHeader("trace").value()));
        same(null, records.get(0).headers().lastHeader("none").value());
        same(1_700_000_000_123L, records.get(0).timestamp());
        same(null, records.get(1).value());
        same(null, records.get(2).key());
        same(0, records.get(2).value().length);
    }

    void largeRecords() throws Exception {
        create(1, Map.of("max.message.bytes", "12000000"));
        Map<String, Object> limits = Map.of("max.request.size", "12000000", "buffer.memory", "40000000");
        byte[] large = new byte[10_000_000];
        Arrays.fill(large, (byte) 7);
        try (var producer = producer(limits)) {
            producer.send(new ProducerRecord<>(topic, 0, null, large)).get();
            try {
                producer.send(new ProducerRecord<>(topic, 0, null, new byte[11_999_950])).get();
                throw new AssertionError("a record over max.message.bytes was taken");
            } catch (ExecutionException refused) {
                same(RecordTooLargeException.class, refused.getCause().getClass());
            }
        }
        same(true, Arrays.equals(large, read(1, 0, 0).get(0).value()));
    }

    void offsetsBySpec() throws Exception {
        create(1, Map.of());
        try (var producer = producer(Map.of("linger.ms", "50"))) {
            for (long timestamp : new long[] {1_000, 2_000, 9_000, 3_000, 4_000}) {
                producer.send(new ProducerRecord<>(topic, 0, timestamp, null, bytes("v")));
            }
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = admin()) {
            same(0L, listed(admin, partition, OffsetSpec.earliest()).offset());
            same(5L, listed(admin, partition, OffsetSpec.latest()).offset());
            same(2L, listed(admin, partition, OffsetSpec.maxTimestamp()).offset());
            same(9_000L, listed(admin, partition, OffsetSpec.maxTimestamp()).timestamp());
            same(1L, listed(admin, partition, OffsetSpec.forTimestamp(1_500)).offset());
            same(-1L, listed(admin, partition, OffsetSpec.forTimestamp(9_001)).offset());
            same(0L, listed(admin, partition, OffsetSpec.earliestLocal()).offset());
            same(-1L, listed(admin, partition, OffsetSpec.latestTiered()).offset());
        }
        try (var consumer = consumer(Map.of())) {
            consumer.assign(List.of(partition));
            same(2L, consumer.offsetsForTimes(Map.of(partition, 2_500L)).get(partition).offset());
            same(0L, consumer.beginningOffsets(List.of(partition)).get(partition));
            same(5L, consumer.endOffsets(List.of(partition)).get(partition));
            same(1, consumer.partitionsFor(topic).size());
        }
    }

    void administration() throws Exception {
        create(2, Map.of("retention.ms", "60000"));
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = admin(); var producer = producer(Map.of())) {
            TopicDescription described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            same(topic, admin.describeTopics(topicIds(described)).allTopicIds().get().get(described.topicId()).name());
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            var operation = new AlterConfigOp(new ConfigEntry("retention.ms", "70000"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(operation))).all().get();
            until(() -> retention(admin, resource).equals("70000"), "retention.ms is altered");
            until(() -> partitions(admin) == 3, "there are three partitions");
            for (int n = 0; n < 10; n++) {
                producer.send(new ProducerRecord<>(topic, 0, null, bytes("v"))).get();
            }
            same(1, admin.describeProducers(List.of(partition)).all().get().get(partition).activeProducers().size());
            var deleted = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(4))).lowWatermarks();
            same(4L, deleted.get(partition).get().lowWatermark());
            int node = admin.describeCluster().nodes().get().iterator().next().id();
            var dirs = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).values();
            same(true, dirs.stream().anyMatch(dir -> dir.replicaInfos().containsKey(partition)));
            admin.deleteTopics(List.of(topic)).all().get();
            until(() -> !admin.listTopics().names().get().contains(topic), "the topic is gone");
        }
    }

    /** A session (KIP-227) remembers 100 partitions; records of the few that change must come, each once. */
    void fetchSessions() throws Exception {
        create(100, Map.of());
        List<TopicPartition> all = new ArrayList<>();
        for (int p = 0; p < 100; p++) {
            all.add(new TopicPartition(topic, p));
        }
        Set<String> seen = new HashSet<>();
        try (var producer = producer(Map.of("linger.ms", "5")); var consumer = consumer(Map.of())) {
            consumer.assign(all);
            consumer.seekToBeginning(all);
            for (int round = 0; round < 10; round++) {
                for (int n = 0; n < 50; n++) {
                    String value = round + "/" + n;
                    producer.send(new ProducerRecord<>(topic, (round * 7 + n * 13) % 100, null, bytes(value)));
                }
                producer.flush();
                int expected = (round + 1) * 50;
                long deadline = System.currentTimeMillis() + DEADLINE_MS;
                while (seen.size() < expected && System.currentTimeMillis() < deadline) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                        same(true, seen.add(text(record.value())));
                    }
                }
                same(expected, seen.size());
            }
        }
    }

    void outOfRange() throws Exception {
        create(1, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var consumer = consumer(Map.of("auto.offset.reset", "none"))) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 99);
            long deadline = System.currentTimeMillis() + DEADLINE_MS;
            while (System.currentTimeMillis() < deadline) {
                consumer.poll(POLL);
            }
            throw new AssertionError("an offset out of range was not refused");
        } catch (OffsetOutOfRangeException refused) {
            same(Set.of(partition), refused.partitions());
        }
    }

    private List<ConsumerRecord<byte[], byte[]>> read(int count, int partition, long offset) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        TopicPartition assigned = new TopicPartition(topic, partition);
        try (var consumer = consumer(Map.of("check.crcs", "true"))) {
            consumer.assign(List.of(assigned));
            consumer.seek(assigned, offset);
            long deadline = System.currentTimeMillis() + DEADLINE_MS;
            while (records.size() < count && System.currentTimeMillis() < deadline) {
                consumer.poll(POLL).forEach(records::add);
            }
        }
        same(count, records.size());
        return records;
    }

    private void create(int partitions, Map<String, String> config) throws Exception {
        try (Admin admin = admin()) {
            NewTopic wanted = new NewTopic(topic, partitions, (short) 1).configs(config);
            admin.createTopics(List.of(wanted)).all().get();
            until(() -> partitions(admin) == partitions, "the topic exists");
        }
    }

    private int partitions(Admin admin) throws Exception {
        try {
            return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
        } catch (ExecutionException unknownYet) {
            return 0;
        }
    }

    private static TopicCollection topicIds(TopicDescription described) {
        return TopicCollection.ofTopicIds(List.of(described.topicId()));
    }

    private static String retention(Admin admin, ConfigResource resource) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value();
    }

    private static ListOffsetsResultInfo listed(Admin admin, TopicPartition partition, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get();
    }

    private Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> config) {
        Map<String, Object> all = new HashMap<>(config);
        all.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> config) {
        Map<String, Object> all = new HashMap<>(config);
        all.put("bootstrap.servers", bootstrap);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void until(Condition condition, String what) throws Exception {
        long deadline = System.currentTimeMillis() + DEADLINE_MS;
        while (!condition.holds()) {
            if (System.currentTimeMillis() > deadline) {
                throw new AssertionError("waited in vain until " + what);
            }
            Thread.sleep(20);
        }
    }

    private static void same(Object expected, Object found) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
