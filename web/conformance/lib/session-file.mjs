// A session's file, as `spool export` writes it.
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';

/** Writes the file of a session with so many turns, each of so many deltas. Returns the number of its records. */
export function writeSession(path, session, { turns, deltas }) {
  let seq = 0;
  let time = 1_795_000_000_000;
  const lines = [];
  const add = (type, cls, more, agent = session) => {
    const chunk = { type, agentId: agent, agentType: type === 'user_message' ? '' : 'demo', timestamp: ++time, step: 1, ...more };
    lines.push(JSON.stringify({ seq: ++seq, type, agent, time, class: cls, data: chunk }));
  };
  for (let n = 1; n <= turns; n++) {
    const ids = { runId: `run-${n}` };
    add('user_message', 'kept', { step: 0, commandId: `u${n}`, message: { id: `u${n}`, role: 'user', parts: [{ type: 'text', text: `Question ${n}` }] }, whenBusy: 'reject' });
    add('run_started', 'kept', { ...ids, step: 0, turnId: `u${n}`, messageId: `a${n}`, mode: 'start', commands: [`u${n}`] });
    add('step_started', 'kept', { ...ids, stepId: `run-${n}-s1` });
    const first = seq + 1;
    for (let k = 0; k < deltas; k++) add('text_delta', 'trace', { ...ids, delta: `word ${k} ` });
    const text = Array.from({ length: deltas }, (_, k) => `word ${k} `).join('');
    add('assistant_message', 'kept', { ...ids, messageId: `a${n}`, stepId: `run-${n}-s1`, parts: [{ type: 'text', first, text }], finishReason: 'stop', usage: { inputTokens: 10, outputTokens: deltas } });
    add('step_committed', 'kept', { ...ids, stepId: `run-${n}-s1` });
    add('run_finished', 'kept', { ...ids, outcome: 'completed', finishReason: 'stop' });
  }
  const body = `${JSON.stringify({ spool: 'session', version: 1, session, status: 'ended', agent: 'demo', title: 'A long session', updated: time, seq, incarnation: 1, epoch: turns })}\n${lines.join('\n')}\n`;
  const sha256 = createHash('sha256').update(body).digest('hex');
  writeFileSync(path, `${body}${JSON.stringify({ end: { records: seq, values: 0, sha256 } })}\n`);
  return seq;
}
