import type { Checkpoint } from '@spool-run/client';
import { useEffect, useRef, useState, type KeyboardEvent } from 'react';
import { IconBranch, IconHistory, IconRewind } from './icons';

/** What the page can do at a checkpoint. Without `rewind` the session is at work, or there already. */
export interface AtCheckpoint {
  checkpoint: Checkpoint;
  rewind: (() => void) | undefined;
  branch(): void;
}

/** A quiet mark behind a step, and what can be done there. */
export function CheckpointMark({ at, between }: { at: AtCheckpoint; between: boolean }) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const step = at.checkpoint.stepIndex + 1;

  useEffect(() => {
    if (!open) return;
    root.current?.querySelector<HTMLButtonElement>('[role=menuitem]')?.focus();
    const away = (e: Event) => {
      if (e.target instanceof Node && !root.current?.contains(e.target)) setOpen(false);
    };
    addEventListener('pointerdown', away);
    return () => removeEventListener('pointerdown', away);
  }, [open]);

  const close = () => {
    setOpen(false);
    button.current?.focus();
  };
  const key = (e: KeyboardEvent) => {
    if (!open) return;
    if (e.key === 'Escape') {
      e.preventDefault();
      e.stopPropagation();
      close();
    } else if (e.key === 'Tab') {
      setOpen(false);
    } else if (e.key === 'ArrowDown' || e.key === 'ArrowUp') {
      e.preventDefault();
      const items = Array.from(root.current?.querySelectorAll<HTMLButtonElement>('[role=menuitem]') ?? []);
      const to = items.findIndex(i => i === document.activeElement) + (e.key === 'ArrowDown' ? 1 : -1);
      items.at(to % items.length)?.focus();
    }
  };
  const choose = (act: () => void) => () => {
    close();
    act();
  };

  return (
    <div className="checkpoint" data-between={between || undefined} data-open={open || undefined} data-checkpoint={at.checkpoint.id} ref={root} onKeyDown={key}>
      <button
        ref={button}
        type="button"
        className="icon checkpoint-mark"
        aria-haspopup="menu"
        aria-expanded={open}
        aria-label={`Checkpoint after step ${step}`}
        title={`After step ${step}: rewind or branch`}
        onClick={() => setOpen(o => !o)}
      >
        <IconHistory />
      </button>
      {open && (
        <div className="checkpoint-menu" role="menu" aria-label={`After step ${step}`}>
          <button type="button" role="menuitem" onClick={choose(at.branch)}>
            <IconBranch /> Branch from here
          </button>
          {at.rewind && (
            <button type="button" role="menuitem" onClick={choose(at.rewind)}>
              <IconRewind /> Rewind to here
            </button>
          )}
        </div>
      )}
    </div>
  );
}
