import assert from 'node:assert/strict';
import { test } from 'node:test';
import { applyLive, SubAgentTracker } from '../dist/index.js';

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
