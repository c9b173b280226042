import { useEffect, useState } from 'react';
import { asText } from '../guard';
import { getJSON, ServerSource, type Source } from './source';
import { difference } from './difference';
import { why } from './words';

interface Past {
  status: string;
  reason?: string;
  code?: string;
  state: unknown;
  messages: { id: string; role: string; parts: Record<string, unknown>[] }[];
  then?: { status: string; reason?: string; code?: string };
}

/** The session as it was after a record, and what that record changed. */
export function Position({ source, at, head, onMove }: { source: Source; at: number; head: number; onMove(sequence: number): void }) {
  const [past, setPast] = useState<{ at: number; now: Past; before: Past | undefined }>();
  const [error, setError] = useState<string>();
  const api = source instanceof ServerSource ? source.api : undefined;
  useEffect(() => {
    if (api === undefined || at < 1) return;
    const left = new AbortController();
    // While the slider moves, only where it rests is asked for.
    const timer = setTimeout(() => {
      const of = (n: number) => getJSON<Past>(`${api}/snapshot?at=${n}`, left.signal);
      Promise.all([of(at), at > 1 ? of(at - 1) : undefined]).then(
        ([now, before]) => {
          setPast({ at, now, before });
          setError(undefined);
        },
        (e: Error) => left.signal.aborted || setError(e.message),
      );
    }, 120);
    return () => {
      clearTimeout(timer);
      left.abort();
    };
  }, [api, at]);
  if (api === undefined) return <p className="quiet">A file has no states: they are made by a server.</p>;
  const changes = past && difference({ messages: past.before?.messages ?? [], state: past.before?.state ?? null }, { messages: past.now.messages, state: past.now.state });
  return (
    <>
      <label className="slider">
        <span>
          After record {at} of {head}
        </span>
        <input type="range" min={1} max={Math.max(1, head)} value={at} onChange={e => onMove(Number(e.target.value))} />
      </label>
      {error && (
        <p className="trouble" role="alert">
          {error}
        </p>
      )}
      {past && (
        <div aria-busy={past.at !== at}>
          <p>{why(past.now.then ?? past.now)}</p>
          <h3>What record {past.at} changed</h3>
          {changes!.length === 0 ? (
            <p className="quiet">Nothing of the messages and the state.</p>
          ) : (
            <ul className="changes">
              {changes!.map(c => (
                <li key={c.path}>
                  <code>{c.path}</code>
                  {c.before !== undefined && <del>{c.before}</del>}
                  {c.after !== undefined && <ins>{c.after}</ins>}
                </li>
              ))}
            </ul>
          )}
          <h3>Messages</h3>
          {past.now.messages.map(m => (
            <details key={m.id} open={m === past.now.messages.at(-1)}>
              <summary>
                {m.role} <span className="quiet">{m.id}</span>
              </summary>
              <pre className="json">{asText(m.parts)}</pre>
            </details>
          ))}
          <h3>State</h3>
          <pre className="json">{asText(past.now.state)}</pre>
        </div>
      )}
    </>
  );
}
