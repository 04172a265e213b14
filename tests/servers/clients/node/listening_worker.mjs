// A worker of the LISTEN/NOTIFY conventions with `pg`, whose times have milliseconds. It ends after as many messages as told.
import pg from "pg";

const [connectionString, count] = process.argv.slice(2);
const client = new pg.Client({ connectionString });
await client.connect();

const lock = `update messages.message set lock_expires_at = current_timestamp + interval '1 minute'
  where id = $1 and (lock_expires_at is null or lock_expires_at < current_timestamp) returning *`;
const archive = `insert into messages.message_archive (created_at, message, result, handled_by, details)
  values ($1, $2, $3, 'node', null) returning *`;

let turn = Promise.resolve();
const done = [];

async function work(id) {
  const { rows } = await client.query(lock, [id]);
  if (rows.length === 0) return;
  const [message] = rows;
  if (!(message.lock_expires_at > new Date())) throw new Error(`the lock has ended: ${message.lock_expires_at}`);
  await client.query("begin");
  await client.query("delete from messages.message where id = $1", [id]);
  const archived = await client.query(archive, [message.created_at, JSON.stringify(message.message), message.message.result]);
  await client.query("commit");
  done.push([archived.rows[0].message.number, archived.rows[0].result]);
  if (done.length === Number(count)) {
    console.log(JSON.stringify(done));
    await client.end();
  }
}

client.on("notification", ({ payload }) => {
  turn = turn.then(() => work(payload));
});
await client.query("listen new_message");
console.log("listening");
