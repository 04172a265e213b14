// A Streams round trip as a user of ioredis writes it: `streams_ioredis.mjs PORT STREAM`.
// It prints what it saw as JSON, and knows nothing of Penstock: the same program runs against Redis, to compare.
import Redis from "ioredis";

const [port, stream] = [Number(process.argv[2]), process.argv[3]];
const client = new Redis({ host: "127.0.0.1", port });
const other = client.duplicate(); // a connection that waits answers nothing else
const seen = {};

seen.create = await client.xgroup("CREATE", stream, "workers", "0", "MKSTREAM");
seen.add = [];
for (let number = 0; number < 4; number++) seen.add.push(await client.xadd(stream, "*", "task", `t${number}`, "of", "day"));
const [first, second, third, fourth] = seen.add;
seen.len = await client.xlen(stream);
seen.range = await client.xrange(stream, "-", "+");
seen.read = await client.xreadgroup("GROUP", "workers", "alice", "COUNT", 3, "STREAMS", stream, ">");
seen.pending = await client.xpending(stream, "workers");
seen.ack = [await client.xack(stream, "workers", first), await client.xack(stream, "workers", first)];

seen.claim = await client.xclaim(stream, "workers", "bob", 0, second);
seen.claimIds = await client.xclaim(stream, "workers", "bob", 0, third, "JUSTID");
seen.autoclaim = await client.xautoclaim(stream, "workers", "carol", 0, "0-0", "COUNT", 10);
seen.history = await client.xreadgroup("GROUP", "workers", "carol", "STREAMS", stream, "0");
const rows = await client.xpending(stream, "workers", "-", "+", 10);
seen.pendingList = rows.map(([id, consumer, , deliveries]) => [id, consumer, deliveries]);
seen.ackRest = await client.xack(stream, "workers", second, third);

seen.multi = await client.multi().xadd(stream, "*", "n", "1").xadd(stream, "*", "n", "2").xlen(stream).exec();
seen.pipeline = await client.pipeline().xadd(stream, "*", "n", "3").xlen(stream).ping().exec();
seen.noack = await client.xreadgroup("GROUP", "workers", "alice", "COUNT", 10, "NOACK", "STREAMS", stream, ">");
seen.nothing = await client.xreadgroup("GROUP", "workers", "alice", "BLOCK", 20, "STREAMS", stream, ">");

const waiting = other.xreadgroup("GROUP", "workers", "alice", "BLOCK", 4000, "STREAMS", stream, ">");
seen.wokenBy = await client.xadd(stream, "*", "wake", "up");
seen.woken = await waiting;

seen.noGroup = await client.xreadgroup("GROUP", "nobody", "x", "STREAMS", stream, ">").catch((error) => error.message);
seen.groupExists = await client.xgroup("CREATE", stream, "workers", "0").catch((error) => error.message);
seen.ackLast = await client.xack(stream, "workers", seen.wokenBy);
seen.del = await client.xdel(stream, fourth);
seen.trim = await client.xtrim(stream, "MAXLEN", 2);
seen.rangeAfterTrim = await client.xrange(stream, "-", "+");
seen.destroy = await client.xgroup("DESTROY", stream, "workers");

const missing = `${stream}-none`;
seen.exists = await client.exists(stream, missing, stream);
seen.types = [await client.type(stream), await client.type(missing)];
seen.times = [await client.ttl(stream), await client.pttl(missing), await client.persist(stream)];
seen.encoding = await client.object("ENCODING", stream);
seen.keys = await client.keys(stream);
seen.scanned = [];
for await (const found of client.scanStream({ match: stream })) seen.scanned.push(...found);
seen.remaining = [await client.unlink(stream), await client.del(stream), await client.exists(stream)];

const number = await other.client("ID");
const unblocked = other.xread("BLOCK", 20000, "STREAMS", missing, "$");
const unblock = async () => (await client.client("UNBLOCK", number)) || unblock();
seen.unblock = [await unblock(), await unblocked];
other.disconnect(false);
const again = client.duplicate({ retryStrategy: null });
again.on("error", () => {});
const ended = new Promise((resolve) => again.once("end", resolve));
seen.kill = await client.client("KILL", "ID", await again.client("ID"));
await ended;

console.log(JSON.stringify(seen));
client.disconnect();
other.disconnect();
