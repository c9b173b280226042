import { eventually, renderHook } from './dom.mjs';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { useResumeClientTools } from '../dist/index.js';

const call = (toolCallId, toolName, more) => ({ type: 'dynamic-tool', toolCallId, toolName, state: 'input-available', input: { n: 1 }, ...more });
const answer = parts => ({ id: 'a', role: 'assistant', parts });

test('each waiting call of a known tool is executed once', async () => {
  const ran = [];
  const outputs = [];
  const errors = [];
  const toolHandlers = {
    place: (input, { toolCallId }) => {
      ran.push([toolCallId, input.n]);
      return { at: 'here' };
    },
    broken: () => {
      throw new Error('no camera');
    },
  };
  const parts = [
    call('1', 'place'),
    { ...call('2', 'x'), type: 'tool-place', toolName: undefined },
    call('3', 'unknown'),
    call('4', 'toString'),
    call('5', 'place', { state: 'output-available', output: 1 }),
    call('6', 'place', { providerExecuted: true }),
    call('7', 'broken'),
  ];
  const chat = status => ({ status, messages: [answer(parts)], addToolOutput: async o => void outputs.push(o) });
  const hook = await renderHook(chat => useResumeClientTools({ chat, toolHandlers, onError: (e, c) => errors.push([e.message, c.toolName]) }), chat('streaming'));
  assert.deepEqual(ran, [], 'the answer is still being written');
  await hook.rerender(chat('ready'));
  await hook.rerender(chat('ready'));
  await eventually(() => assert.equal(outputs.length, 3));
  assert.deepEqual(ran, [['1', 1], ['2', 1]]);
  const by = Object.fromEntries(outputs.map(o => [o.toolCallId, o]));
  assert.deepEqual(by['1'], { tool: 'place', toolCallId: '1', output: { at: 'here' } });
  assert.deepEqual(by['7'], { tool: 'broken', toolCallId: '7', state: 'output-error', errorText: 'no camera' });
  assert.deepEqual(errors, [['no camera', 'broken']]);
});

test('calls of earlier answers, and of a page without any, are left alone', async () => {
  const chat = messages => ({ status: 'ready', messages, addToolOutput: () => assert.fail('it was executed') });
  const toolHandlers = { place: () => assert.fail('it was executed') };
  const hook = await renderHook(chat => useResumeClientTools({ chat, toolHandlers }), chat([]));
  await hook.rerender(chat([answer([call('1', 'place')]), { id: 'u', role: 'user', parts: [] }]));
});
