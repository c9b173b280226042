import type { WhenBusy } from './session';
import type { Waiting } from './timeline';

const says: Record<string, string> = {
  queue: 'Waits for this answer',
  steer: 'Steers at the next step',
  interrupt: 'Takes its place',
};

/** The messages that wait behind a run, in the order in which they will be answered. */
export function Queue({ waiting }: { waiting: Waiting[] }) {
  if (waiting.length === 0) return null;
  return (
    <ul className="queue" aria-label="Messages that wait">
      {waiting.map(m => (
        <li key={m.id} data-id={m.id} data-when={m.whenBusy}>
          <div className="bubble" dir="auto">
            {m.parts.map(p => (p.type === 'text' ? p.text : '')).join('')}
          </div>
          <span className="queue-note">{says[m.whenBusy] ?? 'Waits'}</span>
        </li>
      ))}
    </ul>
  );
}

const choices: [WhenBusy, string, string][] = [
  ['queue', 'Queue', 'answer it after this answer'],
  ['steer', 'Steer', 'end this answer at its next step, then answer'],
  ['interrupt', 'Interrupt', 'stop this answer now, then answer'],
];

/** What a message does that is sent while an answer is written. */
export function WhenBusyChoice({ value, onChange }: { value: WhenBusy; onChange(value: WhenBusy): void }) {
  return (
    <fieldset className="when-busy">
      <legend>While it answers</legend>
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
