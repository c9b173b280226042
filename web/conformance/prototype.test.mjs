// Values with members that the clients' own parser does not take: it ends the stream at them.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { all, answers, open } from './lib/clients.mjs';
import { newSession, snapshotOf } from './lib/cut.mjs';
import { claim } from './lib/producer.mjs';
import { start } from './lib/spool.mjs';
import { eventually } from './lib/wait.mjs';

let spool;

before(async () => {
  spool = await start();
});
after(() => spool?.stop());

const bad = '{"__proto__":{"x":1},"constructor":{"prototype":{"y":1},"name":"A"},"deep":[{"constructor":null}],"kept":1}';
const good = { constructor: { name: 'A' }, deep: [{}], kept: 1 };
const arguments_ = JSON.parse(bad); // an object of its own, with __proto__ as a plain member

for (const client of all) {
  test(`values that set a prototype, with ${client.name}`, async () => {
    const session = newSession(`prototype-${client.name}`);
    const say = await claim(spool.url, session);
    const attach = () => {
      const reader = open(client, { url: spool.url, session });
      return { ...reader, done: reader.chat.resumeStream() };
    };
    await say({ type: 'text_delta', delta: 'See: ' });
    const early = attach();
    await eventually(() => assert.equal(answers(early.chat).length, 1));
    await say({ type: 'tool_arg_stream_start', toolCallId: 'c', toolName: 'look' }, { type: 'tool_arg_stream_delta', toolCallId: 'c', delta: bad });
    await say({ type: 'tool_start', toolCallId: 'c', toolName: 'look', arguments: arguments_ }, { type: 'tool_end', toolCallId: 'c', result: arguments_ });
    await say({ type: 'custom', eventName: 'note', data: arguments_ }, { type: 'text_delta', delta: 'the last words' });
    await eventually(() => assert.equal(answers(early.chat)[0].parts.at(-1).text, 'the last words'));
    const late = attach();
    await eventually(() => assert.equal(answers(late.chat)[0]?.parts.at(-1).text, 'the last words'));
    await say({ type: 'end' });
    await Promise.all([early.done, late.done]);
    const snapshot = await snapshotOf(spool.url, session);
    for (const { chat, errors } of [early, late]) {
      assert.deepEqual(errors, []);
      assert.equal(chat.status, 'ready');
      assert.deepEqual(answers(chat), answers(snapshot, client));
      const parts = answers(chat)[0].parts;
      const call = parts.find(p => p.toolCallId === 'c');
      assert.deepEqual([call.input, call.output, parts.find(p => p.type === 'data-note').data], [good, good, good]);
    }
  });
}
