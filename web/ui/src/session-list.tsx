import { memo } from 'react';
import { addressOf, type SessionRow } from './api';
import { IconBranch, IconTrash } from './icons';

interface Props {
  rows: SessionRow[];
  current: string;
  onOpen(id: string): void;
  onDelete(id: string): void;
  /** Asks for older chats, if there are any. */
  onMore: (() => void) | undefined;
}

const marks: Record<string, string> = { active: 'running', failed: 'failed', paused: 'paused' };

export const SessionList = memo(function SessionList({ rows, current, onOpen, onDelete, onMore }: Props) {
  if (rows.length === 0) return <p className="side-empty">Chats appear here.</p>;
  return (
    <ul className="sessions">
      {rows.map(row => (
        <li key={row.session} data-current={row.session === current || undefined}>
          <a
            href={addressOf(row.session)}
            aria-current={row.session === current ? 'page' : undefined}
            onClick={e => {
              if (e.metaKey || e.ctrlKey || e.shiftKey || e.button !== 0) return;
              e.preventDefault();
              onOpen(row.session);
            }}
          >
            <span className="session-title" title={row.title}>{row.title || row.session}</span>
            <span className="session-meta">
              {row.session.startsWith('branch-') && (
                <span className="mark mark-branch">
                  <IconBranch /> branch
                </span>
              )}
              {row.status && marks[row.status] && <span className={`mark mark-${row.status}`}>{marks[row.status]}</span>}
              {row.updated !== undefined && <time dateTime={new Date(row.updated).toISOString()}>{ago(row.updated)}</time>}
            </span>
          </a>
          <button
            type="button"
            className="icon session-delete"
            aria-label={`Delete ${row.title || row.session}`}
            onClick={() => confirm('Delete this chat? This cannot be undone.') && onDelete(row.session)}
          >
            <IconTrash />
          </button>
        </li>
      ))}
      {onMore && (
        <li>
          <button type="button" className="sessions-more" onClick={onMore}>
            Older chats
          </button>
        </li>
      )}
    </ul>
  );
});

function ago(updated: number | string): string {
  const then = new Date(updated);
  const minutes = Math.floor((Date.now() - then.getTime()) / 60_000);
  if (Number.isNaN(minutes)) return '';
  if (minutes < 1) return 'now';
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h`;
  return then.toLocaleDateString(undefined, { day: 'numeric', month: 'short' });
}
