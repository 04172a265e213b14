// What the Node speakers share: commands come in as lines of JSON, replies go out as lines of JSON.
import { createInterface } from "node:readline";

/** Calls `run(words)` for each line, one after the other. */
export async function speak(run) {
  for await (const line of createInterface({ input: process.stdin })) {
    const words = JSON.parse(line).map((word) => Buffer.from(word, "latin1"));
    let answer;
    try {
      answer = { reply: told(await run(words)) };
    } catch (error) {
      answer = { error: error.message };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
}

function told(reply) {
  if (Buffer.isBuffer(reply)) return reply.toString("latin1");
  if (Array.isArray(reply)) return reply.map(told);
  if (reply instanceof Map) return [...reply].flat(1).map(told);
  if (reply instanceof Set) return [...reply].map(told);
  if (reply !== null && typeof reply === "object") return Object.entries(reply).flat(1).map(told);
  return reply ?? null;
}
