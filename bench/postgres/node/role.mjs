// node role.mjs CONTENDER prepare URL
// node role.mjs CONTENDER send|take URL TALLY SLOT BATCH MOST: one producing or consuming process, as role.py is for others.
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

const [contender, role, url, tallyPath, slotText, batchText, mostText] = process.argv.slice(2);
const slot = Number(slotText);
const batch = Number(batchText);
const mostWaiting = Number(mostText);
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

const chosen = CONTENDERS[contender];
if (role === "prepare") await chosen.prepare();
else if (role === "send") await sendAll(chosen, new Tally(tallyPath));
else await chosen.takeAll(new Tally(tallyPath));
process.exit(0);
