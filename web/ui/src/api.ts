import type { UIMessage } from 'ai';

export type Message = UIMessage;

/** Where the page is mounted: `/`, or the prefix that a server or a proxy put it under. */
export const base = new URL('.', document.baseURI).pathname;

/** A session's endpoint. */
export const chatAPI = (session: string) => `${base}api/chat/${encodeURIComponent(session)}`;

export interface SessionRow {
  session: string;
  title?: string;
  status?: string;
  updated?: number | string;
}

export interface ServerInfo {
  demo?: boolean;
  model?: string;
}

/** What the native wire says of a session without reading its log. */
export interface StreamInfo {
  latestSequence?: number;
  status?: string;
  incarnation?: number;
  /** How many commands wait to open a run. */
  waiting?: number;
}

async function json<T>(url: string): Promise<T> {
  const response = await fetch(url, { cache: 'no-store' });
  if (!response.ok) throw new Error(`HTTP ${response.status}`);
  return (await response.json()) as T;
}

/** The newest chats, and whether there are older ones. */
export async function loadSessions(limit: number): Promise<{ rows: SessionRow[]; more: boolean }> {
  const { sessions, nextAfter } = await json<{ sessions: SessionRow[] | null; nextAfter?: string }>(`${base}sessions?limit=${limit}`);
  return { rows: sessions ?? [], more: Boolean(nextAfter) };
}
export const loadServerInfo = () => json<ServerInfo>(`${base}api/info`);

/** Null if there is no such session (yet). */
export async function loadStreamInfo(session: string): Promise<StreamInfo | null> {
  const response = await fetch(`${base}stream/${encodeURIComponent(session)}/info`, { cache: 'no-store' });
  if (response.status === 404) return null;
  if (!response.ok) throw new Error(`HTTP ${response.status}`);
  return (await response.json()) as StreamInfo;
}

export async function deleteSession(session: string): Promise<void> {
  const response = await fetch(chatAPI(session), { method: 'DELETE' });
  if (!response.ok && response.status !== 404) throw new Error(`HTTP ${response.status}`);
}

/** Posts what a waiting call lacks. An error's message is the answer's body. */
export async function postAnswer(session: string, kind: 'approvals' | 'tools', id: string, body: unknown): Promise<void> {
  const response = await fetch(`${chatAPI(session)}/${kind}/${encodeURIComponent(id)}`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error((await response.text()) || `HTTP ${response.status}`);
}

/**
 * Says something while an answer is written. The stream that answers is left at
 * once: the page follows the session's. An error's message is the answer's body.
 */
export async function postMessage(session: string, message: Message, whenBusy: string): Promise<void> {
  const leave = new AbortController();
  const response = await fetch(chatAPI(session), {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ message, whenBusy }),
    signal: leave.signal,
  });
  if (!response.ok) throw new Error((await response.text()) || `HTTP ${response.status}`);
  leave.abort();
}

/** A random id; `crypto.randomUUID` is missing where the page was not loaded over TLS or from loopback. */
export function newID(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, b => b.toString(36).padStart(2, '0')).join('').slice(0, 20);
}

/** The session that the address names: `?session=ID` or `#ID`. */
export function sessionFromAddress(): string | undefined {
  const named = new URLSearchParams(location.search).get('session');
  if (named) return named;
  const hash = location.hash.slice(1);
  if (hash === '') return undefined;
  try {
    return decodeURIComponent(hash);
  } catch {
    return hash;
  }
}

export const addressOf = (session: string | undefined) => (session === undefined ? base : `${base}?session=${encodeURIComponent(session)}`);
