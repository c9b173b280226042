import { IconCheck, IconCross } from './icons';

export interface ProgressEntry {
  id: string;
  parent?: string;
  label?: string;
  state?: string;
  percent?: number;
}

/** Steps of work as a tree; an entry whose parent is unknown stands at the top. */
export function ProgressTree({ entries, live }: { entries: ProgressEntry[]; live: boolean }) {
  const known = new Set(entries.map(e => e.id));
  const children = new Map<string, ProgressEntry[]>();
  for (const entry of entries) {
    const parent = entry.parent !== undefined && entry.parent !== entry.id && known.has(entry.parent) ? entry.parent : '';
    children.set(parent, [...(children.get(parent) ?? []), entry]);
  }
  const level = (parent: string, depth: number) => {
    const list = children.get(parent);
    if (!list || depth > 12) return null;
    return (
      <ul>
        {list.map(entry => (
          <li key={entry.id}>
            <Entry entry={entry} live={live} />
            {level(entry.id, depth + 1)}
          </li>
        ))}
      </ul>
    );
  };
  return (
    <div className="progress" role="group" aria-label="Progress">
      {level('', 0)}
    </div>
  );
}

function Entry({ entry, live }: { entry: ProgressEntry; live: boolean }) {
  const state = entry.state ?? 'running';
  return (
    <div className="progress-entry" data-state={state}>
      <span className="progress-icon">
        {state === 'done' ? <IconCheck /> : state === 'failed' ? <IconCross /> : state === 'running' && live ? <span className="spinner" /> : <span className="dot" />}
      </span>
      <span className="progress-label">{entry.label || entry.id}</span>
      {state !== 'done' && <Bar percent={entry.percent} />}
    </div>
  );
}

export function Bar({ label, percent }: { label?: string | undefined; percent: number | undefined }) {
  const at = percent === undefined ? undefined : Math.max(0, Math.min(100, percent));
  return (
    <span className="bar-line">
      {label && <span className="bar-label">{label}</span>}
      {at !== undefined && (
        <>
          <span className="bar" role="progressbar" aria-label={label ?? 'Progress'} aria-valuenow={at} aria-valuemin={0} aria-valuemax={100}>
            <span style={{ width: `${at}%` }} />
          </span>
          <span className="progress-percent">{Math.round(at)}%</span>
        </>
      )}
    </span>
  );
}

/** Nothing of the answer is there yet. */
export function Waiting() {
  return (
    <p className="waiting" role="img" aria-label="Waiting for the answer">
      <span />
      <span />
      <span />
    </p>
  );
}
