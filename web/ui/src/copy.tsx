import { useState } from 'react';
import { IconCheck, IconCopy } from './icons';

/** Copies a text; it is asked for when it is needed, from the button's own place. */
export function Copy({ label = 'Copy', text }: { label?: string; text(button: HTMLElement): string }) {
  const [done, setDone] = useState(false);
  if (!navigator.clipboard) return null;
  return (
    <button
      type="button"
      className="icon copy"
      aria-label={label}
      title={label}
      onClick={async e => {
        await navigator.clipboard.writeText(text(e.currentTarget)).catch(() => {});
        setDone(true);
        setTimeout(() => setDone(false), 1200);
      }}
    >
      {done ? <IconCheck /> : <IconCopy />}
    </button>
  );
}
