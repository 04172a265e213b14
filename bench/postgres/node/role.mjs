// node role.mjs CONTENDER prepare URL
// node role.mjs CONTENDER send|take URL TALLY SLOT BATCH MOST: one producing or consuming process, as role.py is for others.
// node role.mjs CONTENDER handlers URL COUNT: fill a queue, run handlers that do nothing over it; prints messages per second.
// node role.mjs CONTENDER latency URL SECONDS PER_SECOND: prints the milliseconds from send to handler of each message.
import fs from "node:fs";
import { Logger, run, runMigrations, makeWorkerUtils } from "graphile-worker";
import PgBoss from "pg-boss";

const SLOT_BYTES = 8;
const FIRST_SENDER = 1;
const FIRST_TAKER = 8;
const QUEUE = "bench";
// More handlers at once than this only wait for each other.
const MOST_HANDLERS = 24;
const silent = new Logger(() => (level, message) => level === "error" && console.error(message));

const [contender, role, url, ...rest] = process.argv.slice(2);
const [tallyPath, slotText, batchText, mostText] = rest;
const slot = Number(slotText);
const batch = Number(batchText);
const mostWaiting = Number(mostText);
const FILL_BATCH = 1000;
const payload = (number) => ({ p: String(number).padStart(20, "0") + "x".repeat(180) });
const payloads = Array.from({ length: batch || 0 }, (_, number) => payload(number));
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

class Tally {
  constructor(path) {
    this.file = fs.openSync(path, "r+");
    this.bytes = Buffer.alloc(fs.fstatSync(this.file).size);
    this.own = Buffer.alloc(SLOT_BYTES);
    this.count = 0n;
  }
  add(count) {
    this.count += BigInt(count);
    this.own.writeBigUInt64LE(this.count);
    fs.writeSync(this.file, this.own, 0, SLOT_BYTES, slot * SLOT_BYTES);
  }
  read() {
    fs.readSync(this.file, this.bytes, 0, this.bytes.length, 0);
    const slots = Array.from({ length: this.bytes.length / SLOT_BYTES }, (_, place) =>
      Number(this.bytes.readBigUInt64LE(place * SLOT_BYTES)),
    );
    const sum = (from, to) => slots.slice(from, to).reduce((total, one) => total + one, 0);
    return { over: slots[0] !== 0, waiting: sum(FIRST_SENDER, FIRST_TAKER) - sum(FIRST_TAKER) };
  }
}

const CONTENDERS = {
  "graphile-worker": {
    prepare: () => runMigrations({ connectionString: url, logger: silent }),
    async sender() {
      const utils = await makeWorkerUtils({ connectionString: url, logger: silent });
      const jobs = payloads.map((one) => ({ identifier: QUEUE, payload: one }));
      const send = batch === 1 ? () => utils.addJob(QUEUE, payloads[0]) : () => utils.addJobs(jobs);
      return { send, close: () => utils.release() };
    },
    // It has no way to take jobs but its own runner, which fetches as many as it has room for.
    async takeAll(tally) {
      const runner = await run({
        connectionString: url,
        concurrency: Math.min(batch, MOST_HANDLERS),
        maxPoolSize: 10,
        noHandleSignals: true,
        logger: silent,
        taskList: { [QUEUE]: () => tally.add(1) },
        preset: batch === 1 ? undefined : { worker: { localQueue: { size: Math.max(batch, MOST_HANDLERS) }, completeJobBatchDelay: 0 } },
      });
      while (!tally.read().over) await sleep(20);
      await runner.stop();
    },
    async filler() {
      const utils = await makeWorkerUtils({ connectionString: url, logger: silent });
      return {
        send: (data) => utils.addJob(QUEUE, data),
        sendMany: (many) => utils.addJobs(many.map((data) => ({ identifier: QUEUE, payload: data }))),
        close: () => utils.release(),
      };
    },
    async work(handle) {
      const runner = await run({
        connectionString: url,
        concurrency: MOST_HANDLERS,
        maxPoolSize: 10,
        noHandleSignals: true,
        logger: silent,
        taskList: { [QUEUE]: handle },
        preset: { worker: { localQueue: { size: 500 }, completeJobBatchDelay: 0 } },
      });
      return { stop: () => runner.stop() };
    },
  },
  "pg-boss": {
    async prepare() {
      const boss = await startBoss();
      await boss.createQueue(QUEUE);
      await boss.stop({ graceful: false });
    },
    async sender() {
      const boss = await startBoss();
      const jobs = payloads.map((one) => ({ name: QUEUE, data: one }));
      const send = batch === 1 ? () => boss.send(QUEUE, payloads[0]) : () => boss.insert(jobs);
      return { send, close: () => boss.stop({ graceful: false }) };
    },
    async takeAll(tally) {
      const boss = await startBoss();
      while (!tally.read().over) {
        const jobs = await boss.fetch(QUEUE, { batchSize: batch });
        if (jobs.length) await boss.complete(QUEUE, jobs.map((job) => job.id));
        else await sleep(1);
        tally.add(jobs.length);
      }
      await boss.stop({ graceful: false });
    },
    async filler() {
      const boss = await startBoss();
      return {
        send: (data) => boss.send(QUEUE, data),
        sendMany: (many) => boss.insert(many.map((data) => ({ name: QUEUE, data }))),
        close: () => boss.stop({ graceful: false }),
      };
    },
    // It polls, at most twice a second, and completes what it fetched together.
    async work(handle) {
      const boss = await startBoss();
      await boss.work(QUEUE, { batchSize: FILL_BATCH, pollingIntervalSeconds: 0.5 }, async (jobs) => {
        for (const job of jobs) handle(job.data);
      });
      return { stop: () => boss.stop({ graceful: true, wait: true }) };
    },
  },
};

async function startBoss() {
  // Maintenance would be measured too, and the others have none running.
  const boss = new PgBoss({ connectionString: url, supervise: false, schedule: false });
  boss.on("error", console.error);
  await boss.start();
  return boss;
}

async function sendAll(chosen, tally) {
  const sender = await chosen.sender();
  for (let now = tally.read(); !now.over; now = tally.read()) {
    if (now.waiting > mostWaiting) {
      await sleep(2);
      continue;
    }
    await sender.send();
    tally.add(batch);
  }
  await sender.close();
}

async function runHandlers(chosen, count) {
  const filler = await chosen.filler();
  for (let sent = 0; sent < count; sent += FILL_BATCH)
    await filler.sendMany(Array.from({ length: Math.min(FILL_BATCH, count - sent) }, (_, number) => payload(sent + number)));
  await filler.close();
  let handled = 0;
  const began = performance.now();
  let worker;
  await new Promise((resolve) => {
    chosen.work(() => ++handled === count && resolve()).then((started) => (worker = started));
  });
  const seconds = (performance.now() - began) / 1000;
  await worker.stop();
  console.log(JSON.stringify({ per_second: count / seconds }));
}

async function measureLatency(chosen, seconds, perSecond) {
  const samples = [];
  const worker = await chosen.work((data) => samples.push(performance.now() - data.sentAt));
  const sender = await chosen.filler();
  const began = performance.now();
  const count = Math.floor(seconds * perSecond);
  for (let number = 0; number < count; number += 1) {
    const early = began + (number * 1000) / perSecond - performance.now();
    if (early > 0) await sleep(early);
    await sender.send({ sentAt: performance.now() });
  }
  const ends = performance.now() + 2000;
  while (samples.length < count && performance.now() < ends) await sleep(20);
  await worker.stop();
  await sender.close();
  console.log(JSON.stringify(samples));
}

const chosen = CONTENDERS[contender];
if (role === "prepare") await chosen.prepare();
else if (role === "send") await sendAll(chosen, new Tally(tallyPath));
else if (role === "handlers") await runHandlers(chosen, Number(rest[0]));
else if (role === "latency") await measureLatency(chosen, Number(rest[0]), Number(rest[1]));
else await chosen.takeAll(new Tally(tallyPath));
process.exit(0);
