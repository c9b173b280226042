import type { ReactNode } from 'react';
import { IconCheck, IconCross } from './icons';

export interface ProgressEntry {
  id: string;
  parent?: string;
  label?: string;
  state?: string;
  percent?: number;
}

/** The data of a progress part, as far as it is that: any tool can send a custom event with that name. */
export function asProgress(data: unknown): ProgressEntry | undefined {
  if (typeof data !== 'object' || data === null) return undefined;
  const { id, parent, label, state, percent } = data as Record<string, unknown>;
  if (typeof id !== 'string') return undefined;
  return {
    id,
    ...(typeof parent === 'string' && { parent }),
    ...(typeof label === 'string' && { label }),
    ...(typeof state === 'string' && { state }),
    ...(typeof percent === 'number' && Number.isFinite(percent) && { percent }),
  };
}

// Deeper entries stand beside those above them.
const deepest = 12;

/** Steps of work as a tree; an entry whose parent is unknown stands at the top. */
export function ProgressTree({ entries, live }: { entries: ProgressEntry[]; live: boolean }) {
  const byID = new Map(entries.map(e => [e.id, e]));
  const children = new Map<string | undefined, ProgressEntry[]>();
  for (const entry of byID.values()) {
    const parent = above(entry, byID);
    const siblings = children.get(parent);
    if (siblings) siblings.push(entry);
    else children.set(parent, [entry]);
  }
  const level = (parent: string | undefined): ReactNode => {
    const list = children.get(parent);
    return (
      list && (
        <ul>
          {list.map(entry => (
            <li key={entry.id}>
              <Entry entry={entry} live={live} />
              {level(entry.id)}
            </li>
          ))}
        </ul>
      )
    );
  };
  return (
    <div className="progress" role="group" aria-label="Progress">
      {level(undefined)}
    </div>
  );
}

/** The entry under which another one is shown: its parent, if the way from there to the top is short and no circle. */
function above(entry: ProgressEntry, byID: Map<string, ProgressEntry>): string | undefined {
  const parent = entry.parent === undefined ? undefined : byID.get(entry.parent);
  let at = parent;
  for (let steps = 0; at && steps < deepest; steps++) at = at.parent === undefined ? undefined : byID.get(at.parent);
  return at ? undefined : parent?.id;
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
