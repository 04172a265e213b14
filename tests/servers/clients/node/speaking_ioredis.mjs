// A speaker (see ../speakers.py) that uses ioredis: `speaking_ioredis.mjs PORT`.
import Redis from "ioredis";
import { speak } from "./speaking.mjs";

const client = new Redis({ host: "127.0.0.1", port: Number(process.argv[2]), maxRetriesPerRequest: 0 });

await speak((words) => client.callBuffer(words[0].toString(), ...words.slice(1)));
client.disconnect();
