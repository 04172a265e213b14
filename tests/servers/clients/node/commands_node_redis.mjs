// A speaker (see ../client_programs.py) that uses node-redis: `commands_node_redis.mjs PORT [PASSWORD]`.
import { createClient, RESP_TYPES } from "redis";
import { speak } from "./json_lines.mjs";

const [port, password] = process.argv.slice(2);
const client = createClient({ password, socket: { host: "127.0.0.1", port: Number(port), reconnectStrategy: false } });
client.on("error", () => {}); // the call that is under way fails with the same error
await client.connect();
const binary = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });

await speak((words) => binary.sendCommand(words));
client.destroy();
