// A client of the stored-procedure conventions with `pg`: a connection for each call, literals in the text.
import { randomUUID } from "node:crypto";
import pg from "pg";

const [connectionString] = process.argv.slice(2);
const clientId = randomUUID();

async function query(sql) {
  const client = new pg.Client({ connectionString });
  await client.connect();
  try {
    return await client.query(sql);
  } finally {
    await client.end();
  }
}

const settle = {
  ack: (id) => query(`call test01.message_ack('${id}', '${clientId}', 'ACK-Test');`),
  nak: (id) => query(`call test01.message_nak('${id}', '${clientId}', 'NAK-Test');`),
  rej: (id) => query(`call test01.message_rej('${id}', '${clientId}', 'REJ-Test');`),
  rsh: (id) => query(`call test01.message_reschedule('${id}', 3600, '${clientId}', 'RSH-Test');`),
};

await query("CALL test01.reset_queue();");
for (const how of Object.keys(settle)) {
  await query(`call test01.enqueue('{"how": "${how}"}', '${randomUUID()}', 0, '${clientId}', 4320);`);
}
const { rows } = await query("select count(1) as CT from test01.message_queue;");
if (rows[0].ct !== "4") throw new Error(`4 messages were sent, not ${rows[0].ct}`);

const settled = [];
for (;;) {
  const taken = await query(`select b.msg_id, b.expires, b.msg_json from test01.dequeue('${clientId}', -1) as b;`);
  const { msg_id, expires, msg_json } = taken.rows[0];
  if (expires === null) {
    console.log(JSON.stringify({ settled: settled.sort(), empty: msg_id }));
    break;
  }
  if (!(expires > new Date())) throw new Error(`the lease has ended: ${expires}`);
  await settle[msg_json.how](msg_id);
  settled.push(msg_json.how);
}
