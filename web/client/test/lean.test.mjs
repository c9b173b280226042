// The server's tests check that the vectors are what it sends.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { isMalformedEvent, LeanDecoder } from '../dist/index.js';

const vectors = JSON.parse(await readFile(resolve(import.meta.dirname, '../../../wire/native/testdata/lean.json'), 'utf8'));
const refused = error => isMalformedEvent(error) && error.code === 'invalid_chunk';

test('lean framing: what is read is what was written, from any event that is whole', () => {
  let read = 0;
  for (const { name, events, chunks, sequences, malformed } of vectors) {
    if (malformed) continue;
    for (let from = 0; from < events.length; from++) {
      if (events[from].startsWith('[')) continue;
      const decoder = new LeanDecoder();
      for (let i = from; i < events.length; i++) {
        const event = decoder.decode(events[i]);
        assert.equal(event.type, 'chunk');
        assert.equal(event.sequence, sequences[i], name);
        // In the same order, too.
        assert.equal(JSON.stringify(event.chunk), JSON.stringify(JSON.parse(chunks[i])), name);
        read++;
      }
    }
  }
  assert.ok(read > 20);
});

test('lean framing: what is malformed is refused', () => {
  const first = vectors.find(({ name }) => name === 'an answer').events[0];
  const bad = vectors.filter(({ malformed }) => malformed).map(({ events }) => events);
  for (const data of ['', '[', '[1', '{', '{}', 'null', '7', '[DONE]', '{"type":"text_delta"}', '{"type":"chunk"}', '{"type":"chunk","chunk":null,"sequence":1}', '{"type":"chunk","chunk":{}}']) bad.push([first, data]);
  assert.ok(bad.length > 15);
  for (const events of bad) {
    const decoder = new LeanDecoder();
    for (const event of events.slice(0, -1)) decoder.decode(event);
    assert.throws(() => decoder.decode(events.at(-1)), refused, events.at(-1));
  }
});

test('lean framing: the ends are those of the other framings', () => {
  for (const end of [{ type: 'end' }, { type: 'end', status: 'paused', reason: 'awaiting_approval' }, { type: 'fail', error: 'busy' }, { type: 'resync', reason: 'trimmed' }]) {
    assert.deepEqual(new LeanDecoder().decode(JSON.stringify(end)), end);
  }
});

test('lean framing: any member may be missing from a record, and any text may be in it', () => {
  const whole = (chunk, sequence) => `{"type":"chunk","chunk":${chunk},"sequence":${sequence}}`;
  const base = '"agentId":"s","agentType":"a","timestamp":5,"step":1';
  const decoder = new LeanDecoder();
  decoder.decode(whole(`{"type":"later",${base}}`, 1));
  assert.deepEqual(decoder.decode('[0,{}]').chunk, { type: 'later', agentId: 's', agentType: 'a', timestamp: 5, step: 1 });
  assert.deepEqual(decoder.decode('[-9,{"delta":",\\"step\\":7}],{\\u2028"}]').chunk, { type: 'later', agentId: 's', agentType: 'a', timestamp: -4, step: 1, delta: ',"step":7}],{\u2028' });
  decoder.decode(whole(`{"type":"later","agentId":"\\"",${base}}`, 9)); // it has no head that can be kept
  assert.throws(() => decoder.decode('[0,{}]'), refused);
});
