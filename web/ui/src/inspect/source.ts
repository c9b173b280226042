import { base, chatAPI } from '../api';

/** A record of a log. */
export interface StoredRecord {
  sequence: number;
  time: number;
  class: 'kept' | 'trace';
  chunk: Chunk;
  frames?: string[];
}

/** A chunk, of which only the type is certain. */
export interface Chunk {
  type: string;
  agentId?: string;
  agentType?: string;
  runId?: string;
  step?: number;
  [member: string]: unknown;
}

/** How far a log goes. */
export interface Extent {
  head: number;
  traceFloor: number;
  floor: number;
}

export interface Page extends Extent {
  records: StoredRecord[];
  next: number;
  hasMore: boolean;
}

/** Where the records of one session come from. */
export interface Source {
  readonly session: string;
  /** A server's session goes on, and has snapshots and frames; a file's does not. */
  readonly live: boolean;
  page(after: number, limit: number, kept?: boolean, signal?: AbortSignal): Promise<Page>;
}

export async function getJSON<T>(url: string, signal?: AbortSignal): Promise<T> {
  const response = await fetch(url, { cache: 'no-store', ...(signal && { signal }) });
  if (!response.ok) {
    const problem = (await response.json().catch(() => ({}))) as { error?: string; code?: string };
    throw new Error(problem.error ?? `HTTP ${response.status}`);
  }
  return (await response.json()) as T;
}

export class ServerSource implements Source {
  readonly live = true;
  readonly api: string;
  constructor(readonly session: string) {
    this.api = chatAPI(session);
  }
  page(after: number, limit: number, kept = false, signal?: AbortSignal): Promise<Page> {
    return getJSON(`${this.api}/records?after=${after}&limit=${limit}${kept ? '&kept=1' : ''}`, signal);
  }
}

/** The wires whose frames the server shows, with the options that a reader may have. */
export const wires: [label: string, query: string][] = [
  ['Native', 'native'],
  ['AI SDK 6', 'aisdk&ui=6'],
  ['AI SDK 7', 'aisdk&ui=7'],
  ['Merlin V1', 'merlin-v1'],
  ['Merlin V2', 'merlin-v2'],
];

/** A session that was saved to a file: by `spool export`, or by the inspector. */
export class FileSource implements Source {
  readonly live = false;
  readonly #records: StoredRecord[];
  readonly #extent: Extent;
  constructor(
    readonly session: string,
    records: StoredRecord[],
    extent: Omit<Extent, 'head'>,
  ) {
    this.#records = records;
    this.#extent = { head: records.at(-1)?.sequence ?? 0, ...extent };
  }
  page(after: number, limit: number, kept = false): Promise<Page> {
    const records: StoredRecord[] = [];
    let at = firstAfter(this.#records, after);
    let next = after;
    for (; at < this.#records.length && records.length < limit; at++) {
      const record = this.#records[at]!;
      next = record.sequence;
      if (!kept || record.class === 'kept') records.push(record);
    }
    return Promise.resolve({ records, ...this.#extent, next, hasMore: at < this.#records.length });
  }
}

/** The index of the first record behind a sequence. */
export function firstAfter(records: readonly StoredRecord[], after: number): number {
  let [low, high] = [0, records.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (records[middle]!.sequence <= after) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Reads a session's file. Fails with what is wrong with it. */
export function readFile(text: string): FileSource {
  const records: StoredRecord[] = [];
  let head: { session?: unknown; traceFloor?: unknown; floor?: unknown } | undefined;
  for (const [at, line] of text.split('\n').entries()) {
    if (line === '') continue;
    let value: Record<string, unknown>;
    try {
      value = JSON.parse(line) as Record<string, unknown>;
    } catch {
      throw new Error(`Line ${at + 1} is not JSON.`);
    }
    if (head === undefined) {
      if (value['spool'] !== 'session' || typeof value['session'] !== 'string') throw new Error('This is not a session’s file.');
      head = value;
    } else if (typeof value['seq'] === 'number') {
      const chunk = value['data'] ?? { type: value['type'], note: 'The chunk is stored in a form that this page does not read.' };
      const sequence = value['seq'];
      if (sequence <= (records.at(-1)?.sequence ?? 0) || typeof value['time'] !== 'number' || (chunk as Chunk).type !== value['type']) throw new Error(`Line ${at + 1} is not a record.`);
      records.push({ sequence, time: value['time'], class: value['class'] === 'kept' ? 'kept' : 'trace', chunk: chunk as Chunk });
    }
  }
  if (head === undefined || records.length === 0) throw new Error('The file has no records.');
  return new FileSource(head.session as string, records, { traceFloor: Number(head.traceFloor ?? 0), floor: Number(head.floor ?? 0) });
}

/** Writes a session's records in the form of `spool export`, without its large values and its end. */
export async function writeFile(source: Source, progress: (done: number, of: number) => void): Promise<Blob> {
  const lines: string[] = [];
  for (let after = 0, more = true; more; ) {
    const page = await source.page(after, 1000);
    if (lines.length === 0) lines.push(JSON.stringify({ spool: 'session', version: 1, session: source.session, seq: page.head, traceFloor: page.traceFloor || undefined, floor: page.floor || undefined }));
    for (const r of page.records) lines.push(JSON.stringify({ seq: r.sequence, type: r.chunk.type, agent: r.chunk.agentId, time: r.time, class: r.class, data: r.chunk }));
    progress(page.next, page.head);
    [after, more] = [page.next, page.hasMore];
  }
  return new Blob([`${lines.join('\n')}\n`], { type: 'application/x-ndjson' });
}

export interface SessionRow {
  session: string;
  title?: string;
  status?: string;
  agent?: string;
  updated?: number;
  bytes?: number;
  streamSequence?: number;
}

export const loadSessions = (after: string, status: string) =>
  getJSON<{ sessions: SessionRow[] | null; nextAfter?: string }>(`${base}sessions?limit=200${after && `&after=${encodeURIComponent(after)}`}${status && `&status=${status}`}`);
