import type { Chunk } from './source';

/** A time span for people. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.round((ms % 60_000) / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export const clock = (ms: number): string => {
  const date = new Date(ms);
  return `${date.toLocaleTimeString(undefined, { hour12: false })}.${String(date.getMilliseconds()).padStart(3, '0')}`;
};

export const bytes = (n: number | undefined): string =>
  n === undefined ? '' : n < 1024 ? `${n} B` : n < 1 << 20 ? `${(n / 1024).toFixed(0)} KiB` : `${(n / (1 << 20)).toFixed(1)} MiB`;

const members = ['delta', 'content', 'text', 'label', 'title', 'toolName', 'eventName', 'outcome', 'reason', 'error', 'checkpointId', 'stepId', 'mode', 'commandId'];

/** The texts among a message's parts. */
export const textsOf = (parts: unknown): string =>
  Array.isArray(parts) ? parts.map(p => (p as { type?: unknown; text?: unknown })?.type === 'text' && typeof p.text === 'string' ? p.text : '').join('') : '';

/** What a chunk says, in a few words. */
export function brief(chunk: Chunk): string {
  const said = textsOf(chunk['parts'] ?? (chunk['message'] as { parts?: unknown } | undefined)?.parts);
  if (said !== '') return said.slice(0, 200);
  const data = chunk['data'] as { label?: unknown } | undefined;
  if (typeof data?.label === 'string') return data.label.slice(0, 200);
  for (const member of members) {
    const value = chunk[member];
    if (typeof value === 'string' && value !== '') return value.slice(0, 200);
  }
  return '';
}

const outcomes: Record<string, string> = {
  completed: 'The answer is complete.',
  stopped: 'Somebody stopped it.',
  interrupted: 'Somebody paused it.',
  superseded: 'A later message took its place.',
  expired: 'It waited for an answer for too long.',
  failed: 'It failed.',
};

const waits: Record<string, string> = {
  awaiting_approval: 'It waits for an approval.',
  awaiting_client_tool: 'It waits for the result of a tool that the client executes.',
  awaiting_children: 'It waits for its sub-agents.',
  interrupted: 'Somebody paused it. It goes on when somebody resumes it.',
};

const limits: Record<string, string> = {
  max_steps: 'It reached the limit of steps.',
  max_tokens: 'It reached the limit of tokens.',
  limit: 'It reached a limit.',
  step_timeout: 'A step took too long.',
  run_timeout: 'The run took too long.',
};

/** Why a session is as it is, in words. */
export function why(state: { status?: string | undefined; reason?: string | undefined; code?: string | undefined; error?: unknown }): string {
  const { status, reason = '', code = '' } = state;
  const said = typeof state.error === 'string' ? state.error : ((state.error as { error?: string } | null | undefined)?.error ?? '');
  if (status === 'active') return 'A run is at work.';
  if (status === 'paused') return waits[reason] ?? waits[`awaiting_${reason}`] ?? `It is paused${reason && `: ${reason}`}.`;
  const limit = limits[code];
  if (limit) return limit;
  const text = outcomes[reason] ?? (status === 'failed' ? outcomes['failed']! : reason ? `It ended: ${reason}.` : 'No run yet.');
  return said || code ? `${text} ${said}${code && ` (${code})`}` : text;
}
