import type { Timeline, WhenBusy } from '@spool-run/react';
import type { Message } from './api';

const says: Record<string, string> = {
  queue: 'Answered after this answer',
  steer: 'Answered after the current step',
  interrupt: 'Stops this answer',
};

/** The messages that wait behind a run, in the order in which they will be answered. */
export function Queue({ waiting }: { waiting: Timeline<Message>['waiting'] }) {
  if (waiting.length === 0) return null;
  return (
    <ul className="queue" aria-label="Queued messages">
      {waiting.map(m => (
        <li key={m.id} data-id={m.id} data-when={m.whenBusy}>
          <div className="bubble" dir="auto">
            {m.parts.map(p => (p.type === 'text' ? p.text : '')).join('')}
          </div>
          <span className="queue-note">{says[m.whenBusy] ?? 'Queued'}</span>
        </li>
      ))}
    </ul>
  );
}

const choices: [WhenBusy, string, string][] = [
  ['queue', 'Queue', 'send it after this answer'],
  ['steer', 'Steer', 'end this answer after the current step, then send it'],
  ['interrupt', 'Interrupt', 'stop this answer now, then send it'],
];

/** What a message does that is sent while an answer is written. */
export function WhenBusyChoice({ value, onChange }: { value: WhenBusy; onChange(value: WhenBusy): void }) {
  return (
    <fieldset className="when-busy">
      <legend>When the answer is still running</legend>
      {choices.map(([mode, label, what]) => (
        <label key={mode} title={what} data-chosen={value === mode || undefined}>
          <input type="radio" name="when-busy" value={mode} checked={value === mode} onChange={() => onChange(mode)} />
          {label}
        </label>
      ))}
      <span className="when-busy-what">{choices.find(([mode]) => mode === value)?.[2]}</span>
    </fieldset>
  );
}
