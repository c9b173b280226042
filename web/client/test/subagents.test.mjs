import assert from 'node:assert/strict';
import { test } from 'node:test';
import { applyLive, isSubAgentData, SubAgentTracker } from '../dist/index.js';

const data = { sessionId: 's.1', parentSessionId: 's', status: 'active', messages: [{ id: 'u', role: 'user', parts: [] }] };
const live = (index, change) => ({ sessionId: 's.1', messageId: 'a', index, ...change });

test('live parts set, grow and are taken back, and the sub-agent given stays as it is', () => {
  const before = structuredClone(data);
  let now = applyLive(data, live(0, { part: { type: 'text', text: '', state: 'streaming' } }));
  now = applyLive(now, live(0, { delta: 'Hel' }));
  const half = now;
  now = applyLive(now, live(0, { delta: 'lo' }));
  now = applyLive(now, live(1, { part: { type: 'dynamic-tool', toolCallId: 'c' } }));
  now = applyLive(now, live(1, { delta: '{"a"' }));
  assert.deepEqual(now.messages[1], { id: 'a', role: 'assistant', parts: [{ type: 'text', text: 'Hello', state: 'done' }, { type: 'dynamic-tool', toolCallId: 'c', inputText: '{"a"' }] });
  assert.equal(half.messages[1].parts[0].text, 'Hel');
  assert.deepEqual(applyLive(now, live(0, { retracted: true })).messages[1].parts, []);
  assert.deepEqual(data, before);
});

test('a tracker follows its sub-agents and tells of it', async () => {
  const tracker = new SubAgentTracker();
  const told = new Promise(done => tracker.subscribe(done));
  assert.equal(tracker.take({ type: 'data-other', data: {} }), false);
  assert.equal(tracker.take({ type: 'data-subagent-live', data: live(0, { delta: 'of whom?' }) }), true);
  assert.equal(tracker.get('s.1'), undefined);
  tracker.take({ type: 'data-subagent', data });
  tracker.take({ type: 'data-subagent-live', data: live(0, { part: { type: 'text', text: 'Hi' } }) });
  await told;
  assert.equal(tracker.get('s.1').messages[1].parts[0].text, 'Hi');
  tracker.take({ type: 'data-subagent', data });
  assert.equal(tracker.get('s.1').messages.length, 1);
  tracker.clear();
  assert.equal(tracker.get('s.1'), undefined);
});

test('what is no live part, or fits no message, changes nothing', () => {
  const said = applyLive(data, live(0, { part: { type: 'text', text: 'Hi' } }));
  const far = [1, -1, 0.5, NaN, 4_000_000_000, '0', null, undefined].map(index => live(index, { delta: 'x' })).slice(1);
  const odd = [null, 7, 'x', [], {}, live(0, { part: null }), live(0, { part: { text: 'no type' } }), live(0, { part: { type: 'text', text: 3 } }), live(0, { delta: { length: 9 } })];
  for (const bad of [...far, ...odd, live(2, { part: { type: 'text', text: 'a gap' } }), { ...live(1, { part: { type: 'text' } }), messageId: 'other' }]) {
    assert.equal(applyLive(said, bad), said, JSON.stringify(bad));
  }
  assert.equal(applyLive(said, live(1, { part: { type: 'text', text: 'more' } })).messages[1].parts.length, 2);
});

test('a tracker takes no custom event for a sub-agent', () => {
  const tracker = new SubAgentTracker();
  for (const bad of [null, undefined, 3, 'x', [], {}, { ...data, sessionId: 1 }, { ...data, messages: null }, { ...data, messages: [null] }, { ...data, messages: [{ id: 'm', parts: [null] }] }]) {
    assert.equal(isSubAgentData(bad), false);
    assert.equal(tracker.take({ type: 'data-subagent', data: bad }), true);
    assert.equal(tracker.take({ type: 'data-subagent-live', data: bad }), true);
  }
  assert.equal(tracker.get('s.1'), undefined);
  assert.ok(isSubAgentData(data));
});
