// A member of a group with kafkajs: `node member.mjs '{"bootstrap": ..., "group": ..., ...}'`. It prints one JSON event a
// line (assigned, revoked, record, error, closed); {"do": "close"} on stdin ends it.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const { kafkajs_from, bootstrap, group, topics, pattern, earliest, session_ms, heartbeat_ms } = JSON.parse(process.argv[2]);
// The package is installed in a cache folder, not beside this file.
const { Kafka, logLevel } = createRequire(kafkajs_from)("kafkajs");
const emit = (event, fields) => console.log(JSON.stringify({ event, ...fields }));
const kafka = new Kafka({ brokers: [bootstrap], clientId: "member", logLevel: logLevel.NOTHING });
const consumer = kafka.consumer({
  groupId: group,
  sessionTimeout: session_ms,
  rebalanceTimeout: session_ms,
  heartbeatInterval: heartbeat_ms,
  maxWaitTimeInMs: 200,
  allowAutoTopicCreation: false,
});

let owned = [];
function now_owns(partitions) {
  if (owned.length > 0) emit("revoked", { partitions: owned });
  owned = partitions;
  if (owned.length > 0) emit("assigned", { partitions: owned });
}
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  now_owns(Object.entries(payload.memberAssignment).flatMap(([topic, numbers]) => numbers.map((number) => [topic, number])));
});
consumer.on(consumer.events.REBALANCING, () => now_owns([]));
consumer.on(consumer.events.CRASH, ({ payload }) => emit("error", { code: payload.error.name, text: payload.error.message }));

await consumer.connect();
await consumer.subscribe({ topics: pattern === null ? topics : [new RegExp(pattern)], fromBeginning: earliest });
await consumer.run({
  autoCommitThreshold: 1,
  eachMessage: async ({ topic, partition, message }) => emit("record", { topic, partition, offset: Number(message.offset) }),
});

for await (const line of createInterface({ input: process.stdin })) {
  if (JSON.parse(line).do === "close") break;
}
await consumer.disconnect();
emit("closed");
process.exit(0);
