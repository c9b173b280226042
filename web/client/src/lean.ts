/** A record of a session's log: what was said, and its sequence. */
export interface LogRecord {
  type: 'chunk';
  chunk: { type: string; agentId: string; agentType: string; timestamp: number; step: number; runId?: string; [member: string]: unknown };
  sequence: number;
}

/** What the data of a native stream's event is: a record, or what the stream ends with. */
export type LogEvent =
  | LogRecord
  | { type: 'end'; status?: 'paused'; reason?: string }
  | { type: 'fail'; error: string; reason?: string }
  | { type: 'resync'; reason: string };

/** The event is malformed, or it needs one before it that the decoder was not given. */
export class MalformedEventError extends Error {
  override readonly name = 'MalformedEventError';
  readonly code = 'invalid_chunk';
}

/** Tells a MalformedEventError also when it crossed a bundle's border. */
export function isMalformedEvent(error: unknown): error is MalformedEventError {
  return error instanceof Error && error.name === 'MalformedEventError';
}

/** How a record begins: the members that its neighbours mostly have, too, as they are written. */
interface Head {
  kind: string;
  agent: string;
  time: number;
  place: string;
  call: string;
}

const text = String.raw`"[^"\\]*"`;
const number = String.raw`-?\d{1,16}`;
const kind = `"type":${text}`;
const agent = `"agentId":${text},"agentType":${text}`;
const place = `"step":${number}(?:,"runId":${text})?`;
const call = `"toolCallId":${text}`;
const whole = new RegExp(`^\\{(${kind}),(${agent}),"timestamp":(${number}),(${place})(?:,(${call}))?(?=[,}])`);
const members = [kind, agent, place, call].map(member => new RegExp(`^,${member}(?=,|$)`));
const ofHead = /^,"(?:type|agentId|agentType|timestamp|step|runId|toolCallId)"/;
const lean = /^\[(0|-?[1-9]\d{0,15}),(?:([1-9]\d{0,15}),)?\{(.*)\}\]$/s;
const opening = '{"type":"chunk","chunk":';

/**
 * Reads the native wire in lean framing (`GET /stream/{session}?framing=lean`), in which an
 * event says of a record what differs from the one before. Give it the data of every event of
 * the stream, in order. It reads `event` framing, too. After a reconnect it can be used again.
 */
export class LeanDecoder {
  #before: Head | undefined;
  #sequence = 0;

  /** @throws MalformedEventError */
  decode(data: string): LogEvent {
    if (data.startsWith('[')) return this.#lean(data);
    const event = parse(data) as LogEvent;
    if (event?.type === 'chunk') {
      if (typeof event.chunk !== 'object' || event.chunk === null || !Number.isSafeInteger(event.sequence)) throw new MalformedEventError('the event contains no chunk');
      this.#sequence = event.sequence;
      this.#before = data.startsWith(opening) ? headOf(data.slice(opening.length)) : undefined;
    } else if (event?.type !== 'end' && event?.type !== 'fail' && event?.type !== 'resync') {
      throw new MalformedEventError('the event is none of the lean or the event framing');
    }
    return event;
  }

  #lean(data: string): LogRecord {
    const before = this.#before;
    if (!before) throw new MalformedEventError('a lean record has no record before it');
    const [, later, gap, body] = lean.exec(data) ?? [];
    const head = { ...before, time: before.time + Number(later) };
    const sequence = this.#sequence + Number(gap ?? 1);
    let rest = body ? `,${body}` : '';
    const take = (member: RegExp): string | undefined => {
      const found = member.exec(rest)?.[0];
      if (found) rest = rest.slice(found.length);
      return found?.slice(1);
    };
    const [kind, agent, place, call] = members.map(take);
    Object.assign(head, kind && { kind }, agent && { agent }, place && { place }, call && { call });
    if (body === undefined || Math.abs(head.time) >= 1e15 || sequence >= 1e15 || ofHead.test(rest)) throw new MalformedEventError('a lean record is malformed');
    const chunk = parse(`{${head.kind},${head.agent},"timestamp":${head.time},${head.place}${head.call && `,${head.call}`}${rest}}`) as LogRecord['chunk'];
    this.#before = head;
    this.#sequence = sequence;
    return { type: 'chunk', chunk, sequence };
  }
}

function headOf(chunk: string): Head | undefined {
  const [, kind, agent, time, place, call = ''] = whole.exec(chunk) ?? [];
  if (!kind || !agent || !time || !place || Math.abs(Number(time)) >= 1e15) return undefined;
  return { kind, agent, time: Number(time), place, call };
}

function parse(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch (cause) {
    throw new MalformedEventError('the event is not JSON', { cause });
  }
}
