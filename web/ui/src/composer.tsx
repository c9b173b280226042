import type { WhenBusy } from '@spool-run/react';
import { useEffect, useLayoutEffect, useRef } from 'react';
import { IconPause, IconSend, IconStop } from './icons';
import { WhenBusyChoice } from './queue';

interface Props {
  value: string;
  onChange(value: string): void;
  busy: boolean;
  stopping: boolean;
  pausing: boolean;
  whenBusy: WhenBusy;
  onWhenBusy(value: WhenBusy): void;
  onSend(): void;
  onStop(): void;
  onPause(): void;
  onEditLast(): void;
}

export function Composer({ value, onChange, busy, stopping, pausing, whenBusy, onWhenBusy, onSend, onStop, onPause, onEditLast }: Props) {
  const area = useRef<HTMLTextAreaElement>(null);

  useLayoutEffect(() => {
    const el = area.current;
    if (!el) return;
    el.style.height = 'auto';
    el.style.height = `${Math.min(el.scrollHeight, 220)}px`;
  }, [value]);

  useEffect(() => {
    // A phone's keyboard should not jump up by itself.
    if (matchMedia('(pointer: fine)').matches) area.current?.focus();
    const key = (e: KeyboardEvent) => {
      const typing = e.target instanceof HTMLElement && /^(TEXTAREA|INPUT)$/.test(e.target.tagName);
      if (e.key === '/' && !typing && !e.ctrlKey && !e.metaKey) {
        e.preventDefault();
        area.current?.focus();
      }
    };
    addEventListener('keydown', key);
    return () => removeEventListener('keydown', key);
  }, []);

  useEffect(() => {
    if (!busy) return;
    const key = (e: KeyboardEvent) => {
      if (e.defaultPrevented) return;
      if (e.key === 'Escape') onStop();
      else if (e.key === '.' && (e.ctrlKey || e.metaKey)) onPause();
    };
    addEventListener('keydown', key);
    return () => removeEventListener('keydown', key);
  }, [busy, onStop, onPause]);

  return (
    <form
      onSubmit={e => {
        e.preventDefault();
        onSend();
      }}
    >
      {busy && value.trim() !== '' && <WhenBusyChoice value={whenBusy} onChange={onWhenBusy} />}
      <div className="composer">
      <textarea
        ref={area}
        rows={1}
        aria-label="Message"
        placeholder="Message"
        dir="auto"
        enterKeyHint="send"
        value={value}
        onChange={e => onChange(e.target.value)}
        onKeyDown={e => {
          if (e.key === 'Enter' && !e.shiftKey && !e.nativeEvent.isComposing) {
            e.preventDefault();
            onSend();
          } else if (e.key === 'ArrowUp' && value === '' && !busy) {
            e.preventDefault();
            onEditLast();
          }
        }}
      />
      {busy && (
        <button
          type="button"
          className="send pause"
          onClick={onPause}
          disabled={pausing || stopping}
          aria-label={pausing ? 'Pausing' : 'Pause'}
          title={pausing ? 'Pausing after this step' : 'Pause after this step (Ctrl .)'}
        >
          <IconPause />
        </button>
      )}
      {busy && (
        <button type="button" className="send stop" onClick={onStop} disabled={stopping} aria-label={stopping ? 'Stopping' : 'Stop'} title="Stop (Esc)">
          <IconStop />
        </button>
      )}
      {(!busy || value.trim() !== '') && (
        <button type="submit" className="send" disabled={value.trim() === ''} aria-label="Send" title="Send (Enter)">
          <IconSend />
        </button>
      )}
      </div>
    </form>
  );
}
