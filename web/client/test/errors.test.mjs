import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isStreamError, StreamError } from '../dist/index.js';

const busy = { error: 'the provider is busy', code: 'provider_overloaded', recoverable: true };

test('an error is made of whatever tells of it', () => {
  for (const value of [
    { type: 'run_finished', runId: 'r', outcome: 'failed', ...busy },
    { type: 'chunk', sequence: 7, chunk: { type: 'run_finished', runId: 'r', outcome: 'failed', ...busy } },
    { type: 'error', runId: 'r', ...busy },
  ]) {
    const e = StreamError.from(value);
    assert.deepEqual([e.message, e.code, e.retryable, e.category, e.runId], [busy.error, busy.code, true, 'provider', 'r']);
    assert.ok(isStreamError(e));
  }
  for (const value of [busy, { type: 'data-error', data: busy }]) {
    const e = StreamError.from(value);
    assert.deepEqual([e.message, e.code, e.retryable], [busy.error, busy.code, true]);
  }
  assert.equal(StreamError.from({ type: 'fail', error: 'lost' }).message, 'lost');
  assert.equal(StreamError.from({ type: 'error', errorText: 'no' }).message, 'no');
  assert.equal(StreamError.from('no').message, 'no');
  assert.equal(StreamError.from({ code: 'tool_fatal' }).message, 'the run failed (tool_fatal)');
});

test('what tells of no error makes none', () => {
  for (const value of [undefined, null, '', 7, {}, { type: 'text_delta', delta: 'x' }, { type: 'run_finished', outcome: 'limit', code: 'max_tokens' }, { type: 'end' }]) {
    assert.equal(StreamError.from(value), null);
  }
});

test('the category follows from the code', () => {
  for (const [code, category] of Object.entries({
    provider_new: 'provider', tool_fatal: 'tool', hook_failed: 'agent', run_timeout: 'limit', executor_lost: 'executor', mine: 'unknown', '': 'unknown',
  })) {
    assert.equal(new StreamError(code, 'x', false).category, category);
  }
});
