import type { StoredRecord } from './source';
import { textsOf } from './words';

/** What happened from one record to another. */
export interface Span {
  kind: 'model' | 'tool' | 'agent' | 'pause';
  label: string;
  /** Whose: the root's session, or a sub-agent's. */
  agent: string;
  from: number; // Unix milliseconds
  to: number | undefined; // undefined: it goes on
  failed: boolean;
  first: number; // sequences
  last: number;
}

/** Something at one moment. */
export interface Mark {
  kind: 'retry' | 'owner' | 'resync' | 'checkpoint' | 'command' | 'error';
  label: string;
  at: number;
  sequence: number;
}

/** A message of the user and everything until its answer is settled. */
export interface Turn {
  id: string;
  said: string;
  from: number;
  to: number | undefined;
  first: number;
  last: number;
  outcome: string; // running, waiting, or that of its last run
  steps: number;
  input: number; // tokens
  output: number;
  spans: Span[];
  marks: Mark[];
}

const waitWords: Record<string, string> = { interrupted: 'Paused', awaiting_approval: 'Waits for an approval', awaiting_client_tool: 'Waits for a client’s tool', awaiting_children: 'Waits for sub-agents' };

const string = (value: unknown): string => (typeof value === 'string' ? value : '');
const number = (value: unknown): number => (typeof value === 'number' ? value : 0);

const commands: Record<string, string> = {
  stop_requested: 'Stop',
  interrupt_requested: 'Pause asked for',
  resume_requested: 'Resume',
  tool_approval_response: 'Decision',
  tool_result_submitted: 'Result of a client’s tool',
  history_rewound: 'Rewound',
  history_replaced: 'History replaced',
};

/**
 * Lays the kept records of a session out in time. It says when things began and ended, and
 * nothing of what the session's messages or its state are: the server says that.
 */
export class Timeline {
  readonly turns: Turn[] = [];
  /** When the log's last record was written, while a run is at work: what is open lasts until then. */
  now = 0;
  #said = new Map<string, string>(); // by command
  #open = new Map<string, Span>(); // by what ends them
  #turn: Turn | undefined;
  #root = '';

  constructor(root: string) {
    this.#root = root;
  }

  add(records: readonly StoredRecord[]): void {
    for (const r of records) this.#take(r);
  }

  #take(r: StoredRecord): void {
    const c = r.chunk;
    const agent = string(c.agentId) || this.#root;
    const root = agent === this.#root;
    if (c.type === 'user_message') {
      const message = c['message'] as { parts?: unknown } | undefined;
      if (root) this.#said.set(string(c['commandId']), textsOf(message?.parts));
      return;
    }
    if (c.type === 'run_started' && root) this.#runs(r);
    const turn = this.#turn;
    if (!turn) return;
    if (turn.to === undefined) turn.last = r.sequence;
    switch (c.type) {
      case 'run_started':
        if (!root) this.#begin(`agent ${agent}`, { kind: 'agent', label: string(c.agentType) || 'agent', agent }, r);
        return;
      case 'step_started':
        if (root) turn.steps++;
        return this.#begin(`model ${agent}`, { kind: 'model', label: `Step ${number(c.step)}`, agent }, r);
      case 'assistant_message': {
        const usage = c['usage'] as { inputTokens?: unknown; outputTokens?: unknown } | undefined;
        turn.input += number(usage?.inputTokens);
        turn.output += number(usage?.outputTokens);
        return this.#end(`model ${agent}`, r, false);
      }
      case 'step_discarded':
        this.#end(`model ${agent}`, r, true);
        return this.#mark('retry', string(c['reason']) || 'The model is asked again', r);
      case 'tool_start':
        return this.#begin(`tool ${agent} ${string(c['toolCallId'])}`, { kind: 'tool', label: string(c['toolName']) || 'tool', agent }, r);
      case 'tool_end':
        return this.#end(`tool ${agent} ${string(c['toolCallId'])}`, r, c['success'] === false || Boolean(c['error']));
      case 'tool_approval_request':
        return this.#mark('command', `Asks for approval of ${string(c['toolName']) || 'a call'}`, r);
      case 'checkpoint_created':
        return this.#mark('checkpoint', 'Checkpoint', r);
      case 'stream_resync':
        return this.#mark('resync', `Set back: ${string(c['reason'])}`, r);
      case 'executor_superseded':
        return this.#mark('owner', 'Another process took over', r);
      case 'executor_handed_over':
        return this.#mark('owner', 'Handed over to another process', r);
      case 'error':
        return this.#mark('error', string(c['error']) || string(c['code']) || 'Error', r);
      case 'run_suspended':
        this.#closeRun(agent, r);
        if (root) {
          turn.outcome = 'waiting';
          this.#begin('pause', { kind: 'pause', label: waitWords[string(c['kind'])] ?? 'Waiting', agent }, r);
        }
        return;
      case 'run_finished':
        this.#closeRun(agent, r);
        if (root) [turn.outcome, turn.to] = [string(c['outcome']) || 'completed', r.time];
        return;
      default:
        if (commands[c.type]) this.#mark('command', commands[c.type]!, r);
    }
  }

  /** A run of the root begins a turn, or goes on with the latest. */
  #runs(r: StoredRecord): void {
    const id = string(r.chunk['turnId']);
    if (this.#turn?.id !== id) {
      const ids = Array.isArray(r.chunk['commands']) ? r.chunk['commands'].map(string) : [];
      const said = ids.map(c => this.#said.get(c) ?? '').find(text => text !== '') ?? '';
      this.#turn = { id, said, from: r.time, to: undefined, first: r.sequence, last: r.sequence, outcome: 'running', steps: 0, input: 0, output: 0, spans: [], marks: [] };
      this.turns.push(this.#turn);
    }
    this.#end('pause', r, false);
    [this.#turn.outcome, this.#turn.to] = ['running', undefined];
  }

  #begin(key: string, span: Pick<Span, 'kind' | 'label' | 'agent'>, r: StoredRecord): void {
    const begun: Span = { ...span, from: r.time, to: undefined, failed: false, first: r.sequence, last: r.sequence };
    this.#open.set(key, begun);
    this.#turn?.spans.push(begun);
  }

  #end(key: string, r: StoredRecord, failed: boolean): void {
    const span = this.#open.get(key);
    if (!span) return;
    this.#open.delete(key);
    Object.assign(span, { to: r.time, last: r.sequence, failed });
  }

  /** What is open of an agent ends with its run, and so do the runs of the agents below it. */
  #closeRun(agent: string, r: StoredRecord): void {
    for (const [key, span] of this.#open) {
      if (span.agent === agent || span.agent.startsWith(`${agent}.`)) this.#end(key, r, false);
    }
  }

  #mark(kind: Mark['kind'], label: string, r: StoredRecord): void {
    this.#turn?.marks.push({ kind, label, at: r.time, sequence: r.sequence });
  }
}

/** When a turn was last seen to do something, by now. */
export function endOf(turn: Turn, now: number): number {
  if (turn.to !== undefined) return turn.to;
  let end = Math.max(turn.from, turn.outcome === 'running' ? now : 0);
  for (const s of turn.spans) end = Math.max(end, s.from, s.to ?? 0);
  for (const m of turn.marks) end = Math.max(end, m.at);
  return end;
}

/** Gives each span a row: of its agent, in the first that is free. */
export function rowsOf(turn: Turn): { span: Span; row: number }[] {
  const free: { agent: string; until: number }[] = [];
  return turn.spans.map(span => {
    const pause = span.kind === 'pause';
    let row = free.findIndex(f => f.agent === span.agent && f.until <= span.from && !pause);
    if (row < 0) row = free.push({ agent: span.agent, until: 0 }) - 1;
    free[row]!.until = span.to ?? Infinity;
    return { span, row };
  });
}
