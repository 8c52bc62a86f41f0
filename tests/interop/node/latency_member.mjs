// kafkajs as a group of one consumer, with its default settings: `node latency_member.mjs BOOTSTRAP GROUP TOPIC`, with
// KAFKAJS_FROM in the environment. See `latency_member.py` for its events.
import { createRequire } from "node:module";

const [bootstrap, group, topic] = process.argv.slice(2);
// The package is installed in a cache folder, not beside this file.
const { Kafka, logLevel } = createRequire(process.env.KAFKAJS_FROM)("kafkajs");
const emit = (event, fields) => console.log(JSON.stringify({ event, ...fields }));
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING });
const consumer = kafka.consumer({ groupId: group });

consumer.on(consumer.events.GROUP_JOIN, () => emit("assigned"));
consumer.on(consumer.events.CRASH, ({ payload }) => emit("error", { text: payload.error.message }));
await consumer.connect();
await consumer.subscribe({ topics: [topic], fromBeginning: true });
await consumer.run({
  eachMessage: async ({ message }) => {
    const now_ms = performance.timeOrigin + performance.now();
    emit("record", { latency_ms: now_ms - Number(message.value.toString()) });
  },
});
