// A speaker (see ../client_programs.py) that uses ioredis: `commands_ioredis.mjs PORT [PASSWORD]`.
import Redis from "ioredis";
import { speak } from "./json_lines.mjs";

const [port, password] = process.argv.slice(2);
const client = new Redis({ host: "127.0.0.1", port: Number(port), password, maxRetriesPerRequest: 0 });

await speak((words) => client.callBuffer(words[0].toString(), ...words.slice(1)));
client.disconnect();
