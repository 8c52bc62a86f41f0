// What kafkajs must find in a broker: `node contract.mjs BOOTSTRAP TOPIC CHECK` prints "ok CHECK" or fails.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

// The package is installed in a cache folder, not beside this file.
const require = createRequire(process.env.KAFKAJS_FROM);
const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");

const [bootstrap, topic, check] = process.argv.slice(2);
const kafka = new Kafka({ brokers: [bootstrap], clientId: "contract", logLevel: logLevel.ERROR });
const admin = kafka.admin();

async function until(condition, what) {
  const deadline = Date.now() + 30_000;
  while (!(await condition())) {
    assert(Date.now() < deadline, `waited in vain until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function withProducer(settings, work) {
  const producer = kafka.producer({ allowAutoTopicCreation: false, ...settings });
  await producer.connect();
  try {
    await work(producer);
  } finally {
    await producer.disconnect();
  }
}

const numbered = (prefix, count) =>
  Array.from({ length: count }, (_, n) => ({ partition: 0, key: `k${n}`, value: `${prefix}${n}`, headers: { n: String(n) } }));

const byPartition = (offsets) => Object.fromEntries(offsets.map(({ partition, offset }) => [partition, offset]));

const checks = {
  async produce() {
    await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true });
    await withProducer({}, async (producer) => {
      const [plain] = await producer.send({ topic, messages: numbered("plain", 100) });
      assert.equal(plain.baseOffset, "0");
      const [gzip] = await producer.send({ topic, compression: CompressionTypes.GZIP, messages: numbered("gzip", 100) });
      assert.equal(gzip.baseOffset, "100");
    });
    await withProducer({ idempotent: true, maxInFlightRequests: 1 }, async (producer) => {
      for (let n = 0; n < 10; n += 1) {
        const [sent] = await producer.send({ topic, acks: -1, messages: [{ partition: 0, value: `idempotent${n}` }] });
        assert.equal(sent.baseOffset, String(200 + n));
      }
      await producer.send({ topic, messages: [{ partition: 0, key: "tombstone", value: null }] });
    });
    const [offsets] = await admin.fetchTopicOffsets(topic);
    assert.deepEqual([offsets.low, offsets.high], ["0", "211"]);
  },

  async admin() {
    const configEntries = [{ name: "retention.ms", value: "60000" }];
    assert.equal(await admin.createTopics({ topics: [{ topic, numPartitions: 2, configEntries }] }), true);
    assert.equal(await admin.createTopics({ topics: [{ topic }] }), false);
    assert((await admin.listTopics()).includes(topic));
    await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
    const partitionCount = async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length;
    await until(async () => (await partitionCount()) === 3, "the topic has three partitions");
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic };
    const retention = async () => {
      const { resources } = await admin.describeConfigs({ includeSynonyms: true, resources: [resource] });
      return resources[0].configEntries.find((entry) => entry.configName === "retention.ms").configValue;
    };
    assert.equal(await retention(), "60000");
    await admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: "retention.ms", value: "70000" }] }] });
    await until(async () => (await retention()) === "70000", "retention.ms is altered");
    assert.equal((await admin.describeCluster()).brokers.length, 1);
    await admin.deleteTopics({ topics: [topic] });
    await until(async () => !(await admin.listTopics()).includes(topic), "the topic is gone");
  },

  async offsets() {
    await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true });
    await withProducer({}, async (producer) => {
      const messages = [1_000, 2_000, 3_000].map((at) => ({ partition: 0, value: "v", timestamp: String(at) }));
      await producer.send({ topic, messages });
    });
    assert.equal((await admin.fetchTopicOffsetsByTimestamp(topic, 1_500))[0].offset, "1");
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "2" }] });
    assert.equal((await admin.fetchTopicOffsets(topic))[0].low, "2");
  },

  async groups() {
    const groupId = `group-of-${topic}`;
    await admin.createTopics({ topics: [{ topic, numPartitions: 2 }], waitForLeaders: true });
    await withProducer({}, (producer) => producer.send({ topic, messages: numbered("v", 10) }));
    const described = async () => (await admin.describeGroups([groupId])).groups[0];
    const committed = async () => byPartition((await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions);
    assert.equal((await described()).state, "Dead");
    assert.deepEqual(await committed(), { 0: "-1", 1: "-1" });

    await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: "4" }] });
    assert.deepEqual(await committed(), { 0: "4", 1: "-1" });
    assert((await admin.listGroups()).groups.some((group) => group.groupId === groupId));

    const consumer = kafka.consumer({ groupId, sessionTimeout: 6_000, heartbeatInterval: 200, maxWaitTimeInMs: 200 });
    const read = [];
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    await consumer.run({ eachBatch: async ({ batch }) => read.push(...batch.messages.map(({ offset }) => offset)) });
    await until(async () => read.length >= 6, "the consumer has read what was not committed");
    assert.deepEqual(read, ["4", "5", "6", "7", "8", "9"]);
    const group = await described();
    assert.deepEqual([group.state, group.protocolType, group.members.length], ["Stable", "consumer", 1]);
    assert.equal(group.members[0].clientId, "contract");
    await assert.rejects(admin.deleteGroups([groupId]), /DeleteGroups/);
    await assert.rejects(admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: "0" }] }));
    await consumer.disconnect();
    await until(async () => (await described()).state === "Empty", "the group is empty");

    await admin.resetOffsets({ groupId, topic, earliest: true });
    await admin.deleteGroups([groupId]);
    assert.equal((await described()).state, "Dead");
    await assert.rejects(admin.deleteGroups([groupId]), /DeleteGroups/);
  },
};

await admin.connect();
try {
  await checks[check]();
} finally {
  await admin.disconnect();
}
console.log(`ok ${check}`);
