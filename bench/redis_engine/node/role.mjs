// BullMQ: `node role.mjs PORT BATCH COUNT` adds jobs in bulks and runs them; one JSON line out.
import { Queue, Worker } from "bullmq";

const [port, batch, count] = process.argv.slice(2).map(Number);
const connection = { host: "127.0.0.1", port, maxRetriesPerRequest: null };
const payload = "x".repeat(200);
const queue = new Queue("bench", { connection });
await queue.waitUntilReady();

const began = performance.now();
for (let sent = 0; sent < count; sent += batch) {
  if (batch === 1) {
    await queue.add("job", { payload });
  } else {
    await queue.addBulk(Array.from({ length: batch }, () => ({ name: "job", data: { payload } })));
  }
}
const sentAt = performance.now();

// The clock of the worker starts with its first handler: its connections are not counted.
let done = 0;
let first;
let finish;
const finished = new Promise((resolve) => (finish = resolve));
const handle = async () => {
  first ??= performance.now();
};
const worker = new Worker("bench", handle, { connection, concurrency: 100 });
worker.on("completed", () => {
  if (++done === count) finish();
});
await finished;
const seconds = [(sentAt - began) / 1000, (performance.now() - first) / 1000];
await worker.close();
await queue.close();
console.log(JSON.stringify({ send_seconds: seconds[0], work_seconds: seconds[1] }));
