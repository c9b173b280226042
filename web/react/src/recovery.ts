import type { SubAgentTracker } from '@spool-run/client';
import { isToolUIPart, type UIMessage } from 'ai';
import { agentOf } from './subagent-data.js';

// A run that another process takes over may take words back and write them again, and a
// stream that is replayed begins with nothing. Until what comes says as much as what was
// shown, the page shows what it has shown.

type Part = UIMessage['parts'][number];

/** Parts that are shown though the log has them no more, and how many of their first characters it has again. */
export type Stale = ReadonlyMap<Part, number>;

export const nothingStale: Stale = new Map();

const states = ['input-streaming', 'input-available', 'approval-requested', 'approval-responded'];

/** How much a part says, among parts of its kind. */
function extent(part: Part): number {
  if (part.type === 'text' || part.type === 'reasoning') return part.text.length;
  if (part.type === 'step-start') return 0;
  if (isToolUIPart(part)) {
    const state = states.indexOf(part.state);
    return 1 + (state < 0 ? states.length : state);
  }
  return 1 + extentOf(agentOf(part)?.messages);
}

/** How much the parts of messages say together. */
export function extentOf(messages: readonly { parts: Part[] }[] | undefined): number {
  let sum = 0;
  for (const { parts } of messages ?? []) for (const part of parts) sum += extent(part);
  return sum;
}

/** A message as it is shown, with what its sub-agents have said meanwhile. */
export function asShown<Message extends UIMessage>(message: Message, agents: SubAgentTracker<Message['parts'][number]>): Message {
  const parts = message.parts.map(part => {
    const data = agentOf(part);
    const told = data && agents.get(data.sessionId);
    return told && extentOf([...told.messages]) > extentOf(data.messages) ? ({ ...part, data: told } as Part) : part;
  });
  return { ...message, parts };
}

/**
 * Lays what has come over what was shown: each part takes the place of the first of its
 * kind that it says as much as. Nothing of what has come is left out but parts that say
 * less than those they will replace.
 */
export function overlay<Message extends UIMessage>(shown: Message, come: Message): { message: Message; stale: Stale } {
  const waiting = new Map<string, Part[]>();
  for (const part of come.parts) {
    const list = waiting.get(part.type);
    if (list) list.push(part);
    else waiting.set(part.type, [part]);
  }
  const used = new Set<Part>();
  const stale = new Map<Part, number>();
  const parts = shown.parts.map(old => {
    const now = waiting.get(old.type)?.shift();
    if (now) used.add(now);
    if (now && extent(now) >= extent(old)) return now;
    stale.set(old, now ? common(old, now) : 0);
    return old;
  });
  return { message: { ...come, parts: [...parts, ...come.parts.filter(p => !used.has(p))] }, stale };
}

/** Whether what has come says all that was shown, and more. */
export function overtakes(come: UIMessage, shown: UIMessage): boolean {
  return overlay(shown, come).stale.size === 0 && extentOf([come]) > extentOf([shown]);
}

/** How many characters two texts have in common, from their beginning. */
function common(a: Part, b: Part): number {
  if (!('text' in a) || !('text' in b) || typeof a.text !== 'string' || typeof b.text !== 'string') return 0;
  if (a.text.startsWith(b.text)) return b.text.length;
  let n = 0;
  while (n < b.text.length && a.text.charCodeAt(n) === b.text.charCodeAt(n)) n++;
  return n;
}
