import { useEffect, useLayoutEffect, useRef } from 'react';
import { IconSend, IconStop } from './icons';

interface Props {
  value: string;
  onChange(value: string): void;
  busy: boolean;
  stopping: boolean;
  onSend(): void;
  onStop(): void;
  onEditLast(): void;
}

export function Composer({ value, onChange, busy, stopping, onSend, onStop, onEditLast }: Props) {
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
      if (e.key === 'Escape' && !e.defaultPrevented) onStop();
    };
    addEventListener('keydown', key);
    return () => removeEventListener('keydown', key);
  }, [busy, onStop]);

  return (
    <form
      className="composer"
      onSubmit={e => {
        e.preventDefault();
        if (!busy) onSend();
      }}
    >
      <textarea
        ref={area}
        rows={1}
        aria-label="Message"
        placeholder="Message"
        enterKeyHint="send"
        value={value}
        onChange={e => onChange(e.target.value)}
        onKeyDown={e => {
          if (e.key === 'Enter' && !e.shiftKey && !e.nativeEvent.isComposing) {
            e.preventDefault();
            if (!busy) onSend();
          } else if (e.key === 'ArrowUp' && value === '' && !busy) {
            e.preventDefault();
            onEditLast();
          }
        }}
      />
      {busy ? (
        <button type="button" className="send stop" onClick={onStop} disabled={stopping} aria-label={stopping ? 'Stopping' : 'Stop'} title="Stop (Esc)">
          <IconStop />
        </button>
      ) : (
        <button type="submit" className="send" disabled={value.trim() === ''} aria-label="Send" title="Send (Enter)">
          <IconSend />
        </button>
      )}
    </form>
  );
}
