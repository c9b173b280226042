// Arguments that are nested deeper than the clients' own parsers take.
import assert from 'node:assert/strict';
import { after, before, test } from './lib/test.mjs';
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

const calls = (chat, client) => answers(chat, client)[0]?.parts.filter(p => p.toolCallId !== undefined) ?? [];

for (const client of all) {
  test(`arguments of 90 kB of brackets, with ${client.name}`, async () => {
    const session = newSession(`deep-${client.name}`);
    const say = await claim(spool.url, session);
    const attach = () => {
      const reader = open(client, { url: spool.url, session });
      return { ...reader, done: reader.chat.resumeStream() };
    };
    await say({ type: 'tool_arg_stream_start', toolCallId: 'c', toolName: 'look' });
    const early = attach();
    await eventually(() => assert.equal(calls(early.chat)[0]?.state, 'input-streaming'));
    for (let i = 0; i < 3; i++) await say({ type: 'tool_arg_stream_delta', toolCallId: 'c', delta: '['.repeat(30_000) });
    await eventually(() => assert.equal(calls(early.chat)[0]?.state, 'output-error'));
    const late = attach();
    await eventually(() => assert.deepEqual(calls(late.chat), calls(early.chat)));
    await say({ type: 'tool_input_error', toolCallId: 'c', toolName: 'look', input: '['.repeat(90_000), error: 'nested too deep' }, { type: 'text_delta', delta: 'the last words' }, { type: 'end' });
    await Promise.all([early.done, late.done]);
    const snapshot = await snapshotOf(spool.url, session);
    for (const { chat, errors } of [early, late]) {
      assert.deepEqual(errors, []);
      assert.equal(chat.status, 'ready');
      assert.deepEqual(answers(chat), answers(snapshot, client));
      assert.equal(calls(chat)[0].errorText, 'nested too deep');
    }
  });
}
