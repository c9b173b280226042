import { nothingStale, overlay, type Stale, type Timeline } from '@spool-run/react';
import { isToolUIPart } from 'ai';
import { memo, useEffect, useMemo, useRef, useState, type ReactNode } from 'react';
import type { Message } from './api';
import { CheckpointMark } from './checkpoints';
import { Copy } from './copy';
import { asText, Guard } from './guard';
import { IconChevron, IconEdit, IconPlay, IconRedo } from './icons';
import { Markdown } from './markdown';
import { asProgress, ProgressTree, Waiting, type ProgressEntry } from './progress';
import type { Session } from './session';
import { familyOf, grouped, SubAgentView, type Family } from './subagent';
import { ToolCall, Value } from './tool';

/** What of the session's past the page can go back to, and how an answer that broke off goes on. */
export interface History {
  checkpoints: Timeline['checkpoints'];
  branch(checkpoint: string): void;
  rewind: ((checkpoint: string) => void) | undefined;
  goOn: ((how: 'continue' | 'retry') => void) | undefined;
}

interface Props {
  session: Session;
  message: Message;
  live: boolean;
  /** Its run is taken over, and has said nothing new yet. */
  recovering: boolean;
  /** What the page has shown of it, where it may say less now. */
  held: Message | undefined;
  idle: boolean;
  last: boolean;
  onEdit(id: string, text: string): void;
  onRegenerate(id: string): void;
  history: History;
}

export const MessageView = memo(function MessageView(props: Props) {
  return <Guard source={props.message}>{props.message.role === 'user' ? <UserMessage {...props} /> : <AssistantMessage {...props} />}</Guard>;
});

const textOf = (message: Message) => message.parts.map(p => (p.type === 'text' ? p.text : '')).join('');

function UserMessage({ message, idle, onEdit }: Props) {
  const [draft, setDraft] = useState<string>();
  const area = useRef<HTMLTextAreaElement>(null);
  const editing = draft !== undefined;
  useEffect(() => {
    if (!editing || !area.current) return;
    area.current.focus();
    area.current.setSelectionRange(area.current.value.length, area.current.value.length);
  }, [editing]);
  if (draft === undefined) {
    return (
      <article className="message user" data-role="user" data-id={message.id}>
        <div className="bubble" dir="auto">
          {textOf(message)}
        </div>
        <div className="actions">
          <Copy text={() => textOf(message)} />
          {idle && (
            <button type="button" className="icon" aria-label="Edit" title="Edit" onClick={() => setDraft(textOf(message))}>
              <IconEdit />
            </button>
          )}
        </div>
      </article>
    );
  }
  const save = () => {
    if (draft.trim() === '') return;
    setDraft(undefined);
    onEdit(message.id, draft.trim());
  };
  return (
    <article className="message user" data-role="user" data-id={message.id}>
      <form
        className="edit"
        onSubmit={e => {
          e.preventDefault();
          save();
        }}
      >
        <textarea
          ref={area}
          aria-label="Edit message"
          dir="auto"
          rows={Math.min(10, draft.split('\n').length)}
          value={draft}
          onChange={e => setDraft(e.target.value)}
          onKeyDown={e => {
            if (e.key === 'Escape') {
              e.stopPropagation();
              setDraft(undefined);
            } else if (e.key === 'Enter' && !e.shiftKey && !e.nativeEvent.isComposing) {
              e.preventDefault();
              save();
            }
          }}
        />
        <div className="edit-actions">
          <button type="button" onClick={() => setDraft(undefined)}>
            Cancel
          </button>
          <button type="submit" className="primary">
            Send
          </button>
        </div>
      </form>
    </article>
  );
}

function AssistantMessage({ session, message: come, live, recovering, held, idle, last, onRegenerate, history }: Props) {
  const { message, stale } = useMemo(() => (held ? overlay(held, come) : { message: come, stale: nothingStale }), [held, come]);
  const empty = !message.parts.some(p => p.type !== 'step-start');
  const ends = idle && last ? history.goOn : undefined;
  const mark = (step: number, between: boolean) => {
    const checkpoint = history.checkpoints.get(message.id)?.get(step);
    if (!checkpoint) return null;
    const { branch, rewind } = history;
    const there = last && !between && !message.parts.some(p => p.type === 'data-run-interrupted');
    const at = { checkpoint, branch: () => branch(checkpoint.id), rewind: rewind && !there ? () => rewind(checkpoint.id) : undefined };
    return <CheckpointMark key={`checkpoint-${step}`} at={at} between={between} />;
  };
  // A settled answer may end with a step that holds nothing.
  const said = message.parts.findLastIndex(p => p.type !== 'step-start');
  const family = familyOf(session, message, live);
  const steps = message.parts.filter((p, i) => p.type === 'step-start' && i < said).length;
  return (
    <article className="message assistant" data-role="assistant" data-id={message.id} aria-busy={live}>
      {partsOf(message, live, (idle || live) && last ? session : undefined, mark, ends, family, stale, recovering)}
      {recovering && <Recovering again={stale.size > 0} />}
      {live && empty && !recovering && <Waiting />}
      {!live && (
        <div className="actions">
          <Copy text={() => textOf(message)} />
          {idle && last && (
            <button type="button" className="icon" aria-label="Regenerate" title="Regenerate" onClick={() => onRegenerate(message.id)}>
              <IconRedo />
            </button>
          )}
          {mark(steps - 1, false)}
        </div>
      )}
    </article>
  );
}

/**
 * The parts in order. Progress that has a call's id is shown with the call; all
 * other entries become one tree at the place of the first. A call that waits for
 * the reader is answered through the session, if there is one. What cannot be
 * shown as what it says it is, is shown as its source.
 */
export function partsOf(
  message: Message,
  live: boolean,
  session: Session | undefined,
  mark: (step: number, between: boolean) => ReactNode,
  goOn: History['goOn'],
  family: Family,
  stale: Stale = nothingStale,
  recovering = false,
): ReactNode[] {
  const calls = new Set(message.parts.filter(isToolUIPart).map(p => p.toolCallId));
  const ofCalls = new Map<string, ProgressEntry>();
  const progress: ProgressEntry[] = [];
  for (const part of message.parts) {
    const entry = part.type === 'data-progress' ? asProgress(part.data) : undefined;
    if (!entry) continue;
    if (calls.has(entry.id)) ofCalls.set(entry.id, entry);
    else progress.push(entry);
  }
  let shown = false;
  let steps = 0;
  const end = message.parts.findLastIndex(p => p.type !== 'step-start');
  return grouped(message.parts.map((part, i) => {
    const agent = family.at(part);
    if (agent !== undefined) return agent && <SubAgentView key={agent.sessionId} data={agent} family={family} partsOf={partsOf} />;
    if (part.type === 'step-start') return steps++ > 0 && i < end ? mark(steps - 2, true) : null;
    let view: ReactNode;
    const entry = part.type === 'data-progress' ? asProgress(part.data) : undefined;
    if (isToolUIPart(part)) view = <ToolCall part={part} live={live} session={session} stale={stale.has(part)} progress={ofCalls.get(part.toolCallId)} />;
    else if (!entry) view = plainPart(part, live, i === end ? goOn : undefined, stale.get(part), recovering);
    else if (!shown && !calls.has(entry.id)) {
      shown = true;
      view = <ProgressTree entries={progress} live={live} />;
    }
    const key = isToolUIPart(part) ? part.toolCallId + i : entry ? 'progress' : i;
    return view ? <Guard key={key} source={part}>{view}</Guard> : null;
  }));
}

/** A part that is shown by itself, whatever the others are. */
function plainPart(part: Message['parts'][number], live: boolean, goOn: History['goOn'], solid: number | undefined, recovering: boolean): ReactNode {
  switch (part.type) {
    case 'text':
      return part.text === '' ? null : <Markdown text={part.text} solid={solid} />;
    case 'reasoning':
      return <Reasoning text={part.text} writing={live && part.state === 'streaming'} solid={solid} recovering={recovering} />;
    case 'data-error':
      return <Failure data={part.data} goOn={goOn} />;
    case 'data-run-interrupted':
      return <Interrupted data={part.data} goOn={goOn} />;
    case 'source-url':
      return (
        <a className="source" href={/^https?:/.test(part.url) ? part.url : undefined} target="_blank" rel="noopener noreferrer">
          {part.title || part.url}
        </a>
      );
    case 'source-document':
      return <p className="file">{part.title || part.filename}</p>;
    case 'file':
      return <p className="file">{part.filename || part.mediaType}</p>;
  }
  return part.type.startsWith('data-') ? <Custom name={part.type.slice(5)} data={(part as { data?: unknown }).data} /> : null;
}

/** Says that the answer goes on in another process, and whether that begins with words that were shown already. */
function Recovering({ again }: { again: boolean }) {
  return (
    <p className="recovering" role="status">
      <span className="spinner" />
      {again ? 'Recovering: what is dimmed is being written again.' : 'Recovering: the answer is about to continue.'}
    </p>
  );
}

interface ReasoningProps {
  text: string;
  writing: boolean;
  solid: number | undefined;
  recovering: boolean;
}

function Reasoning({ text, writing, solid, recovering }: ReasoningProps) {
  // Open while it is written, unless the reader decided, and while what it was written by is replaced.
  const [chosen, setChosen] = useState<boolean>();
  const was = useRef(false);
  was.current = writing || (recovering && was.current);
  const open = chosen ?? was.current;
  if (text === '' && !writing) return null;
  return (
    <section className="reasoning" data-open={open || undefined} data-stale={solid !== undefined || undefined}>
      <button type="button" aria-expanded={open} onClick={() => setChosen(!open)}>
        <span className="chevron">
          <IconChevron />
        </span>
        {writing ? <span className="shimmer">Thinking</span> : 'Reasoning'}
      </button>
      {open && (
        <div className="reasoning-text">
          <Markdown text={text} solid={solid} />
        </div>
      )}
    </section>
  );
}

function Custom({ name, data }: { name: string; data: unknown }) {
  const [open, setOpen] = useState(false);
  return (
    <details className="custom" onToggle={e => setOpen(e.currentTarget.open)}>
      <summary>
        <span className="chevron">
          <IconChevron />
        </span>
        {name}
      </summary>
      {open && <Value label="Data" value={data} />}
    </details>
  );
}

/** A member of a custom event's data that should be a text. */
function member(data: unknown, name: string): string | undefined {
  const value: unknown = typeof data === 'object' && data !== null ? (data as Record<string, unknown>)[name] : undefined;
  return typeof value === 'string' ? value : undefined;
}

function Failure({ data, goOn }: { data: unknown; goOn: History['goOn'] }) {
  const code = member(data, 'code');
  return (
    <div className="callout failure" role="alert">
      <p>
        <strong>The answer failed.</strong> {member(data, 'error') ?? asText(data)} {code && <code>{code}</code>}
      </p>
      {goOn && (
        <button type="button" className="go-on" onClick={() => goOn('retry')}>
          <IconRedo /> Retry
        </button>
      )}
    </div>
  );
}

function Interrupted({ data, goOn }: { data: unknown; goOn: History['goOn'] }) {
  const reason = member(data, 'reason');
  const paused = reason === 'interrupted';
  return (
    <div className="callout interrupted">
      {paused ? 'Paused.' : reason === 'stopped' || !reason ? 'Stopped.' : `Interrupted: ${reason}`}
      {goOn && (
        <button type="button" className="go-on" onClick={() => goOn(paused ? 'continue' : 'retry')}>
          {paused ? <IconPlay /> : <IconRedo />} {paused ? 'Continue' : 'Retry'}
        </button>
      )}
    </div>
  );
}
