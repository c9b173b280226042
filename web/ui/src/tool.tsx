import type { DynamicToolUIPart, ToolUIPart } from 'ai';
import { useRef, useState } from 'react';
import { asText } from './guard';
import { IconCheck, IconChevron, IconCross } from './icons';
import { Bar, type ProgressEntry } from './progress';
import { refusal, viewOf, type Session } from './session';

const words: Record<string, string> = {
  'input-streaming': 'writing arguments',
  'input-available': 'running',
  'approval-requested': 'needs approval',
  'approval-responded': 'answered',
  'output-available': 'done',
  'output-error': 'failed',
  'output-denied': 'denied',
};

interface Props {
  part: ToolUIPart | DynamicToolUIPart;
  live: boolean;
  /** Takes an answer, where the call may wait for one. */
  session: Session | undefined;
  progress?: ProgressEntry | undefined;
  /** The log has it no more: its run is taken over. */
  stale: boolean;
}

/** A tool call, what it was given and what came of it. */
export function ToolCall({ part, live, session, progress, stale }: Props) {
  const [open, setOpen] = useState(false);
  const [sending, setSending] = useState(false);
  const refusals = session && viewOf(session).refused;
  const refused = refusals?.get(part.toolCallId);
  const [answered, setAnswered] = useState(false);
  const head = useRef<HTMLElement>(null);
  const name = part.type === 'dynamic-tool' ? part.toolName : part.type.slice('tool-'.length);
  const failed = part.state === 'output-error' || part.state === 'output-denied';
  const settled = failed || part.state === 'output-available';
  const preliminary = part.state === 'output-available' && part.preliminary === true;
  const input = part.input ?? (part as { rawInput?: unknown }).rawInput;
  // While other calls run, the stream does not tell that an answer was taken.
  const waits = session !== undefined && !stale && !(live && answered);
  const approval = waits && part.state === 'approval-requested' ? part.approval.id : undefined;
  const located = waits && part.state === 'input-available' && name === 'get_location';

  const answer = async (send: Promise<void>) => {
    setSending(true);
    refusals?.delete(part.toolCallId);
    head.current?.focus(); // what had the focus goes away
    const why = await refusal(send);
    if (why !== undefined) refusals?.set(part.toolCallId, why);
    setAnswered(why === undefined);
    setSending(false);
  };
  return (
    <div className="tool" data-state={part.state} data-stale={stale || undefined} data-waits={approval !== undefined || located || undefined}>
      <details open={open} onToggle={e => setOpen(e.currentTarget.open)}>
        <summary ref={head}>
          <span className="tool-icon">
            {failed ? <IconCross /> : settled && !preliminary ? <IconCheck /> : live ? <span className="spinner" /> : <span className="dot" />}
          </span>
          <code className="tool-name">{name}</code>
          <span className="tool-hint">{brief(input)}</span>
          {progress && !settled && <Bar label={progress.label} percent={progress.percent} />}
          <span className="tool-state">{preliminary ? 'working' : located ? 'needs your answer' : (waits || !answered || part.state !== 'approval-requested') ? words[part.state] ?? part.state : 'answered'}</span>
          <span className="chevron">
            <IconChevron />
          </span>
        </summary>
        {open && (
          <div className="tool-body">
            {input !== undefined && <Value label="Input" value={input} />}
            {part.state === 'output-available' && <Value label="Output" value={part.output} />}
            {part.state === 'output-error' && <Value label="Error" value={part.errorText} />}
          </div>
        )}
      </details>
      {approval !== undefined && (
        <div className="tool-answer" role="group" aria-label={`Decision on ${name}`}>
          <button type="button" className="primary" disabled={sending} onClick={() => void answer(session!.decide(approval, true))}>
            Approve
          </button>
          <button type="button" disabled={sending} onClick={() => void answer(session!.decide(approval, false))}>
            Deny
          </button>
        </div>
      )}
      {located && <Place sending={sending} onSend={place => void answer(session.submit(part.toolCallId, { output: { place } }))} />}
      {refused && (
        <p className="tool-refused" role="status">
          {refused}
        </p>
      )}
    </div>
  );
}

/** Answers the demo's get_location, which the page executes by asking. */
function Place({ sending, onSend }: { sending: boolean; onSend(place: string): void }) {
  const [place, setPlace] = useState('Lisbon, Portugal');
  return (
    <form
      className="tool-answer"
      onSubmit={e => {
        e.preventDefault();
        if (!sending && place.trim() !== '') onSend(place.trim());
      }}
    >
      <label>
        Share your location
        <input value={place} disabled={sending} maxLength={200} autoComplete="off" onChange={e => setPlace(e.target.value)} />
      </label>
      <button type="submit" className="primary" disabled={sending || place.trim() === ''}>
        Send
      </button>
    </form>
  );
}

export function Value({ label, value }: { label: string; value: unknown }) {
  return (
    <>
      <h4>{label}</h4>
      <pre>{asText(value)}</pre>
    </>
  );
}

const room = 80;

/** The beginning of what a call was given, with the names of its arguments. */
function brief(value: unknown): string {
  if (typeof value !== 'object' || value === null) return value === undefined || value === null ? '' : String(value).slice(0, room);
  let text = '';
  for (const key in value) {
    if (text.length >= room) break;
    text += `${text && ', '}${Array.isArray(value) ? '' : `${key}: `}${nested((value as Record<string, unknown>)[key], room)}`;
  }
  return text.slice(0, room);
}

/** A value inside another one, as JSON that may lack its end. */
function nested(value: unknown, left: number): string {
  if (typeof value === 'string') return value.slice(0, left);
  if (typeof value !== 'object' || value === null) return String(value);
  if (left < 10) return '…';
  const list = Array.isArray(value);
  let text = list ? '[' : '{';
  for (const key in value) {
    if (text.length >= left) break;
    text += `${text.length > 1 ? ',' : ''}${list ? '' : `${key}: `}${nested((value as Record<string, unknown>)[key], left - text.length)}`;
  }
  return text + (list ? ']' : '}');
}
