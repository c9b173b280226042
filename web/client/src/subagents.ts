/** A part of a message, of which only the type is certain. */
type Part = { type: string; text?: string; inputText?: string; state?: string };
type PartMessage<P> = { id: string; role: 'system' | 'user' | 'assistant'; parts: P[] };

/** The data of a `data-subagent` part: a sub-agent, and what it was told and said. */
export interface SubAgentData<P = Part> {
  /** Its session, which is also the part's id: `/api/chat/{sessionId}/…` reads it like any other. */
  sessionId: string;
  /** Whose sub-agent it is: the chat's own session, or another sub-agent's. */
  parentSessionId: string;
  type?: string;
  /** The parent's call that began it. */
  callId?: string;
  status: 'active' | 'paused' | 'ended' | 'failed';
  /** How its last run ended, or what it waits for. */
  reason?: string;
  /** The ids, among the tool parts of the chat's message, of its calls that wait for an answer. */
  pending?: string[];
  messages: PartMessage<P>[];
}

/** The data of a transient `data-subagent-live` part: what the sub-agent has done since its `data-subagent`. */
export interface SubAgentLive<P = Part> {
  sessionId: string;
  messageId: string;
  /** Of the part that is meant, among its message's. */
  index: number;
  part?: P;
  /** More of the part's text or, of a call whose arguments are written, of their text. */
  delta?: string;
  /** The part and those after it are gone. */
  retracted?: boolean;
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);

const textual = ['text', 'inputText', 'state'] as const;
const isPart = (value: unknown): value is Part => isObject(value) && typeof value['type'] === 'string' && textual.every(k => value[k] === undefined || typeof value[k] === 'string');

const isMessage = (value: unknown) => isObject(value) && typeof value['id'] === 'string' && Array.isArray(value['parts']) && value['parts'].every(isPart);

/** Whether the data of a `data-subagent` part is a sub-agent's: any tool can send a custom event with that name. */
export function isSubAgentData<P extends { type: string } = Part>(value: unknown): value is SubAgentData<P> {
  return isObject(value) && typeof value['sessionId'] === 'string' && typeof value['status'] === 'string' && Array.isArray(value['messages']) && value['messages'].every(isMessage);
}

/** Whether a live part can be applied to a message of so many parts; its index is theirs, or the next one. */
function fits(live: SubAgentLive<{ type: string }>, parts: number): boolean {
  return (
    isObject(live) &&
    typeof live.messageId === 'string' &&
    Number.isInteger(live.index) &&
    live.index >= 0 &&
    live.index <= parts &&
    (live.part === undefined || isPart(live.part)) &&
    (live.delta === undefined || typeof live.delta === 'string')
  );
}

/**
 * Returns the sub-agent as it is after a live part; the one given stays as it is. A live
 * part that is malformed, or whose index is beyond the message's next part, changes nothing.
 */
export function applyLive<P extends { type: string }>(data: SubAgentData<P>, live: SubAgentLive<P>): SubAgentData<P> {
  const messages = data.messages.slice();
  let at = messages.findIndex(m => m.id === live?.messageId);
  if (!fits(live, messages[at]?.parts.length ?? 0)) return data;
  if (at < 0) at = messages.push({ id: live.messageId, role: 'assistant', parts: [] }) - 1;
  const parts = messages[at]!.parts.slice();
  if (live.retracted) parts.splice(live.index);
  if (live.part !== undefined) {
    parts[live.index] = live.part;
    const before = parts[live.index - 1] as (P & Part) | undefined; // what was written before it is whole
    if (before?.state === 'streaming') parts[live.index - 1] = { ...before, state: 'done' };
  }
  const part = parts[live.index] as (P & Part) | undefined;
  if (live.delta !== undefined && part !== undefined) {
    const text = part.type === 'text' || part.type === 'reasoning' ? 'text' : 'inputText';
    parts[live.index] = { ...part, [text]: (part[text] ?? '') + live.delta };
  }
  messages[at] = { ...messages[at]!, parts };
  return { ...data, messages };
}

/** Follows the sub-agents of a chat by its data parts: pass each to `take` from the chat's `onData`. */
export class SubAgentTracker<P extends { type: string } = Part> {
  #agents = new Map<string, SubAgentData<P>>();
  #listeners = new Set<() => void>();
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Takes a data part; false if it is about no sub-agent. */
  take(part: { type: string; data?: unknown }): boolean {
    if (part.type === 'data-subagent') {
      if (isSubAgentData<P>(part.data)) this.#agents.set(part.data.sessionId, part.data);
    } else if (part.type === 'data-subagent-live') {
      const live = part.data as SubAgentLive<P>;
      const data = this.#agents.get(live?.sessionId);
      if (data) this.#agents.set(live.sessionId, applyLive(data, live));
    } else {
      return false;
    }
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      for (const listener of this.#listeners) listener();
    }, 30);
    return true;
  }

  /** The sub-agent as it is now; undefined if nothing was heard of it. */
  get = (sessionId: string): SubAgentData<P> | undefined => this.#agents.get(sessionId);

  /** Forgets all, when the chat's messages are loaded again. */
  clear() {
    this.#agents.clear();
  }

  /** Calls a listener some time after something has changed. */
  subscribe = (listener: () => void) => {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  };
}
