import assert from 'node:assert/strict';
import { test } from 'node:test';
import { joinDeltas } from '../dist/index.js';

const delta = (id, text) => ({ type: 'text-delta', id, delta: text });

async function joined(chunks, ms) {
  const out = [];
  for await (const chunk of ReadableStream.from(chunks).pipeThrough(joinDeltas(ms))) out.push(chunk);
  return out;
}

test('deltas of one part that follow each other are joined, and nothing else', async () => {
  const chunks = [
    { type: 'text-start', id: 'a' },
    ...['1', '2', '3'].map(t => delta('a', t)),
    ...['4', '5'].map(t => delta('b', t)),
    { type: 'tool-input-delta', toolCallId: 'c', inputTextDelta: '{' },
    { type: 'tool-input-delta', toolCallId: 'c', inputTextDelta: '}' },
    { type: 'tool-input-delta', toolCallId: 'd', inputTextDelta: '[' },
    { type: 'text-delta', id: 'b', delta: '6', providerMetadata: {} },
    { type: 'finish' },
  ];
  const out = await joined(chunks, 60_000);
  const whole = list => list.reduce((all, c) => ({ ...all, [c.id ?? c.toolCallId ?? '']: (all[c.id ?? c.toolCallId ?? ''] ?? '') + (c.delta ?? c.inputTextDelta ?? '') }), {});
  assert.deepEqual(whole(out), whole(chunks));
  assert.ok(out.length < chunks.length);
  assert.deepEqual(out.at(-1), { type: 'finish' });
});

test('a reader may leave while a delta waits', async () => {
  const problems = [];
  const heard = error => problems.push(error);
  process.on('uncaughtException', heard);
  let source;
  const reader = new ReadableStream({ start: c => void (source = c) }).pipeThrough(joinDeltas(20)).getReader();
  source.enqueue(delta('a', '1'));
  await reader.read();
  source.enqueue(delta('a', '2'));
  await new Promise(done => setTimeout(done, 5));
  await reader.cancel();
  await new Promise(done => setTimeout(done, 60));
  process.off('uncaughtException', heard);
  assert.deepEqual(problems, []);
});
