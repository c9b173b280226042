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

/** Whether the server says that its storage does not answer. */
export async function storageIsAway(): Promise<boolean> {
  const response = await fetch(`${base}readyz`, { cache: 'no-store' });
  if (response.status !== 503) return false;
  const problem = (await response.json()) as { code?: string };
  return problem.code === 'unavailable' || problem.code === 'not_stored';
}

export async function deleteSession(session: string): Promise<void> {
  const response = await fetch(chatAPI(session), { method: 'DELETE' });
  if (!response.ok && response.status !== 404) throw new Error(`HTTP ${response.status}`);
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
