// A Streams round trip as a user of node-redis writes it: `streams_node_redis.mjs PORT STREAM`.
// It prints what it saw as JSON, and knows nothing of Penstock: the same program runs against Redis, to compare.
import { createClient } from "redis";

const [port, stream] = [Number(process.argv[2]), process.argv[3]];
const client = await createClient({ socket: { host: "127.0.0.1", port } }).connect();
const other = await client.duplicate().connect(); // a connection that waits answers nothing else
const fresh = { key: stream, id: ">" };
const seen = {};

seen.create = await client.xGroupCreate(stream, "workers", "0", { MKSTREAM: true });
seen.add = [];
for (let number = 0; number < 4; number++) seen.add.push(await client.xAdd(stream, "*", { task: `t${number}`, of: "day" }));
const [first, second, third, fourth] = seen.add;
seen.len = await client.xLen(stream);
seen.range = await client.xRange(stream, "-", "+");
seen.read = await client.xReadGroup("workers", "alice", fresh, { COUNT: 3 });
seen.pending = await client.xPending(stream, "workers");
seen.ack = [await client.xAck(stream, "workers", first), await client.xAck(stream, "workers", first)];

seen.claim = await client.xClaim(stream, "workers", "bob", 0, second);
seen.claimIds = await client.xClaimJustId(stream, "workers", "bob", 0, third);
seen.autoclaim = await client.xAutoClaim(stream, "workers", "carol", 0, "0-0", { COUNT: 10 });
seen.history = await client.xReadGroup("workers", "carol", { key: stream, id: "0" });
const rows = await client.xPendingRange(stream, "workers", "-", "+", 10);
seen.pendingList = rows.map((row) => [row.id, row.consumer, row.deliveriesCounter]);
seen.ackRest = await client.xAck(stream, "workers", [second, third]);

const about = await client.xInfoStream(stream);
seen.infoStream = [about.length, about.groups, about["last-generated-id"], about["first-entry"]];
const [group] = await client.xInfoGroups(stream);
seen.infoGroups = [group.name, group.consumers, group.pending, group["last-delivered-id"]];
const consumers = await client.xInfoConsumers(stream, "workers");
seen.infoConsumers = consumers.map((one) => [one.name, one.pending]).sort();

seen.multi = await client.multi().xAdd(stream, "*", { n: "1" }).xAdd(stream, "*", { n: "2" }).xLen(stream).exec();
seen.pipeline = await Promise.all([client.xAdd(stream, "*", { n: "3" }), client.xLen(stream), client.ping()]);
seen.noack = await client.xReadGroup("workers", "alice", fresh, { COUNT: 10, NOACK: true });
seen.nothing = await client.xReadGroup("workers", "alice", fresh, { BLOCK: 20 });

const waiting = other.xReadGroup("workers", "alice", fresh, { BLOCK: 4000 });
seen.wokenBy = await client.xAdd(stream, "*", { wake: "up" });
seen.woken = await waiting;

seen.noGroup = await client.xReadGroup("nobody", "x", fresh).catch((error) => error.message);
seen.groupExists = await client.xGroupCreate(stream, "workers", "0").catch((error) => error.message);
seen.ackLast = await client.xAck(stream, "workers", seen.wokenBy);
seen.del = await client.xDel(stream, fourth);
seen.trim = await client.xTrim(stream, "MAXLEN", 2);
seen.rangeAfterTrim = await client.xRange(stream, "-", "+");
seen.destroy = await client.xGroupDestroy(stream, "workers");

const missing = `${stream}-none`;
seen.exists = await client.exists([stream, missing, stream]);
seen.types = [await client.type(stream), await client.type(missing)];
seen.times = [await client.ttl(stream), await client.pTTL(missing), await client.persist(stream)];
seen.encoding = await client.objectEncoding(stream);
seen.keys = await client.keys(stream);
seen.scanned = [];
for await (const found of client.scanIterator({ MATCH: stream })) seen.scanned.push(...found);
seen.remaining = [await client.unlink(stream), await client.del(stream), await client.exists(stream)];

const number = await other.clientId();
const unblocked = other.xRead({ key: missing, id: "$" }, { BLOCK: 20000 });
const unblock = async () => (await client.clientUnblock(number)) || unblock();
seen.unblock = [await unblock(), await unblocked];
seen.kill = await client.clientKill({ filter: "ID", id: 999999 });

console.log(JSON.stringify(seen));
client.destroy();
other.destroy();
