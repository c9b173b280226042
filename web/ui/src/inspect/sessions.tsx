import { useEffect, useState } from 'react';
import { loadSessions, type SessionRow } from './source';
import { Virtual } from './virtual';
import { bytes } from './words';

const statuses = ['', 'active', 'paused', 'ended', 'failed'];

/** The sessions of the server: newest first, by status, and by what their id or title contains. */
export function Sessions({ current, onOpen }: { current: string | undefined; onOpen(session: string): void }) {
  const [rows, setRows] = useState<SessionRow[]>([]);
  const [next, setNext] = useState('');
  const [status, setStatus] = useState('');
  const [search, setSearch] = useState('');
  const [trouble, setTrouble] = useState<string>();

  useEffect(() => {
    let left = false;
    const load = async () => {
      try {
        const page = await loadSessions('', status);
        if (left) return;
        const fresh = page.sessions ?? [];
        const known = new Set(fresh.map(r => r.session));
        setRows(old => [...fresh, ...(old.length > fresh.length ? old.filter(r => !known.has(r.session)) : [])]);
        setNext(n => n || page.nextAfter || '');
        setTrouble(undefined);
      } catch (error) {
        if (!left) setTrouble((error as Error).message);
      }
    };
    setRows([]);
    setNext('');
    void load();
    const timer = setInterval(() => document.visibilityState === 'visible' && void load(), 3000);
    return () => {
      left = true;
      clearInterval(timer);
    };
  }, [status]);

  const more = async () => {
    const page = await loadSessions(next, status);
    setRows(old => {
      const known = new Set(old.map(r => r.session));
      return [...old, ...(page.sessions ?? []).filter(r => !known.has(r.session))];
    });
    setNext(page.nextAfter ?? '');
  };
  const words = search.toLowerCase().trim();
  const shown = words === '' ? rows : rows.filter(r => `${r.session} ${r.title ?? ''} ${r.agent ?? ''}`.toLowerCase().includes(words));
  return (
    <>
      <input type="search" className="search" placeholder="Search" aria-label="Search sessions" value={search} onChange={e => setSearch(e.target.value)} />
      <select className="status" aria-label="Status" value={status} onChange={e => setStatus(e.target.value)}>
        {statuses.map(s => (
          <option key={s} value={s}>
            {s || 'all'}
          </option>
        ))}
      </select>
      {trouble && (
        <p className="trouble" role="alert">
          {trouble}
        </p>
      )}
      <Virtual
        rows={shown.length}
        height={48}
        label="Sessions"
        selected={current === undefined ? undefined : Math.max(-1, shown.findIndex(r => r.session === current))}
        onSelect={row => onOpen(shown[row]!.session)}
        render={row => {
          const r = shown[row]!;
          return (
            <div className="inspect-session">
              <span className="turn-said">{r.title || r.session}</span>
              <span className="quiet">
                <span className={`mark mark-${r.status}`}>{r.status}</span> · {r.streamSequence?.toLocaleString()} records · {bytes(r.bytes)}
              </span>
            </div>
          );
        }}
      />
      {next && (
        <button type="button" className="sessions-more" onClick={() => void more()}>
          Older sessions
        </button>
      )}
    </>
  );
}
