// Random messages of the kind that a model, a tool or a producer could write to break a page.

/** Numbers below n, always the same for a seed. */
export function random(seed) {
  let state = seed >>> 0;
  return n => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) % n;
  };
}

const pieces = ['> ', '- ', '1. ', '+ ', '> - ', '[', '![', '[a](', ']', '*', '_', '**a *', 'a_b_', '~~', '`', '```\n', '    ', '\t', '\n', '\n\n', '<', '<b>', '<!--', '<svg onload=x>', '<table><tr>', '&', '&#0;', '\\', '|', '| a |\n| - |\n', '# ', '---\n', '[a]: b\n', 'http://a.b/', 'www.', 'a@b.c', '\u202e', '\u0000', '\ud800', '👩‍👩‍👧', 'e\u0301', 'مرحبا ', 'word ', 'x'.repeat(50)];
const names = ['progress', 'subagent', 'subagent-live', 'error', 'run-interrupted', 'checkpoint-created', 'stream-resync', 'executor-superseded', 'step-discarded', 'constructor', 'x'];
// Without __proto__: the clients' own parser ends a stream that has such a key.
const keys = ['id', 'parent', 'label', 'state', 'percent', 'sessionId', 'parentSessionId', 'callId', 'status', 'reason', 'pending', 'messages', 'messageId', 'index', 'part', 'delta', 'retracted', 'parts', 'type', 'text', 'error', 'code', 'toString', 'length', 'key', 'ref', '$$typeof'];
const states = ['input-streaming', 'input-available', 'approval-requested', 'approval-responded', 'output-available', 'output-error', 'output-denied', 'other'];

export function hostile(seed) {
  const n = random(seed);
  const of = list => list[n(list.length)];
  const some = (most, make) => Array.from({ length: n(most + 1) }, make);
  const string = () => {
    const unit = [...some(4, () => of(pieces)), of(pieces)].join('');
    return unit.repeat(1 + n(of([2, 2, 5, 2_000, 40_000 / unit.length])));
  };
  const deep = () => Array.from({ length: n(250) }).reduce(v => (n(2) ? [v] : { [of(keys)]: v }), 1);
  const scalar = () => of([null, true, 0, -1, 0.5, 1e308, 4_000_000_000, '', 'a', 'b', string()]);
  const value = (depth = 3) => {
    switch (n(depth > 0 ? 6 : 3)) {
      case 3:
        return some(5, () => value(depth - 1));
      case 4:
        return Object.fromEntries(some(8, () => [of(keys), value(depth - 1)]));
      case 5:
        return deep();
    }
    return scalar();
  };
  /** Mostly what it should be, and otherwise anything. */
  const odd = right => (n(6) ? right : value());
  const agent = depth => ({
    sessionId: odd(`s.${n(4)}`),
    parentSessionId: odd('s'),
    type: odd('helper'),
    ...(n(2) && { callId: odd(`call-${n(6)}`) }),
    status: odd(of(['active', 'paused', 'ended', 'failed'])),
    reason: odd('stopped'),
    pending: odd(some(3, () => `s.1/call-${n(6)}`)),
    messages: odd(some(3, () => odd({ id: odd(`m${n(3)}`), role: odd(of(['user', 'assistant'])), parts: odd(some(4, () => part(depth - 1))) }))),
  });
  const live = () => ({ sessionId: odd(`s.${n(4)}`), messageId: odd(`m${n(3)}`), index: odd(n(4)), ...(n(2) && { part: odd(part(0)) }), ...(n(2) && { delta: odd(string()) }), ...(n(5) || { retracted: odd(true) }) });
  const data = depth => {
    const name = of(names);
    const right = { progress: () => ({ id: `p${n(6)}`, parent: `p${n(6)}`, label: string().slice(0, 99), state: of(['running', 'done', 'failed', 'x']), percent: n(300) - 100 }), subagent: () => agent(depth), 'subagent-live': live, error: () => ({ error: string(), code: odd('x') }), 'run-interrupted': () => ({ reason: odd('interrupted') }) }[name];
    return { type: `data-${name}`, ...(n(2) && { id: `d${n(4)}` }), data: right && n(3) ? right() : value() };
  };
  const tool = () => ({ type: of(['dynamic-tool', 'tool-x']), toolName: odd('get_location'), toolCallId: `call-${n(6)}`, state: of(states), input: value(), output: value(), errorText: odd(string()), preliminary: odd(false), ...(n(2) && { approval: odd({ id: `a${n(3)}` }) }) });
  const part = (depth = 2) => {
    switch (n(depth > 0 ? 8 : 6)) {
      case 0:
      case 1:
        return { type: 'text', text: string() };
      case 2:
        return { type: 'reasoning', text: string(), state: of(['streaming', 'done']) };
      case 3:
        return tool();
      case 4:
        return { type: 'step-start' };
      case 5:
        return of([{ type: 'source-url', sourceId: 'u', url: odd(string()), title: odd(string()) }, { type: 'file', url: 'data:,', mediaType: odd('a/b'), filename: odd(string()) }, { type: string() }]);
    }
    return data(depth);
  };
  /** What a stream may bring: the data is free, the rest has its shape. */
  const frame = () => {
    const text = () => string().slice(0, 5_000);
    const id = `b${n(1e9)}`;
    const call = `call-${n(6)}`;
    switch (n(4)) {
      case 0:
        return [{ type: 'text-start', id }, { type: 'text-delta', id, delta: text() }, { type: 'text-delta', id, delta: text() }, { type: 'text-end', id }];
      case 1:
        return [{ type: 'tool-input-available', toolCallId: call, toolName: 'x', input: value(), dynamic: true }, { type: 'tool-output-available', toolCallId: call, output: value(), dynamic: true }];
    }
    return [{ ...data(2), ...(n(2) && { transient: true }) }];
  };
  return { part, frame, some, n };
}
