import { useSessionMessages, type WhenBusy } from '@spool-run/react';
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState, useSyncExternalStore, type ReactNode } from 'react';
import { Announcer } from './announcer';
import { addressOf, sessionFromAddress, type Message, type ServerInfo } from './api';
import { Composer } from './composer';
import { Guard } from './guard';
import { IconBranch, IconDown, IconPlus } from './icons';
import { MessageView, type History } from './message';
import { Waiting } from './progress';
import { Queue } from './queue';
import type { Session } from './session';
import { ChildNote, rootOf } from './subagent';
import { Welcome } from './welcome';

const states = { live: 'Connected', recovering: 'Recovering…', reconnecting: 'Reconnecting…', offline: 'Offline', lost: 'Disconnected' };

interface Props {
  session: Session;
  info: ServerInfo | undefined;
  /** The server's storage does not answer. */
  away: boolean;
  /** Something else lies over it. */
  behind: boolean;
  title: string | undefined;
  menu: ReactNode;
  onFirst(): void;
  onNew(): void;
  onOpen(session: string): void;
  /** What a chat is called, if the list knows it. */
  nameOf(session: string): string | undefined;
}

const whenBusyKey = 'spool:when-busy';
const remembered = (): WhenBusy => {
  try {
    const value = localStorage.getItem(whenBusyKey);
    if (value === 'steer' || value === 'interrupt') return value;
  } catch {
    // The browser keeps nothing for this page.
  }
  return 'queue';
};

export function Conversation({ session, info, away, behind, title, menu, onFirst, onNew, onOpen, nameOf }: Props) {
  const state = useSyncExternalStore(session.subscribe, session.getState);
  const messages = useSessionMessages<Message>(session);
  const { status } = state;
  const [draft, setDraft] = useState('');
  const [eager, setEager] = useState(false); // to send, before the session was here
  const [whenBusy, setWhenBusy] = useState(remembered);
  const busy = status === 'submitted' || status === 'streaming' || state.recovering;
  const idle = !busy && state.phase === 'ready' && state.connection !== 'lost';

  const send = useCallback(
    (text: string) => {
      if (text.trim() === '') return;
      onFirst();
      setDraft('');
      session.send(text.trim(), busy ? { whenBusy } : {});
    },
    [session, onFirst, busy, whenBusy],
  );

  useEffect(() => {
    if (!eager || !(idle || busy)) return;
    setEager(false);
    send(draft);
  }, [eager, idle, busy, send, draft]);

  useEffect(() => {
    if (state.returned === undefined) return;
    const back = state.returned;
    setDraft(d => d || back);
    session.took();
  }, [state.returned, session]);

  const heading = title || state.title || (messages.length > 0 ? firstWords(messages) : 'New chat');
  useEffect(() => {
    document.title = messages.length > 0 ? `${heading} · Spool` : 'Spool';
  }, [heading, messages.length]);

  const view = useStickyScroll(messages);
  const onEdit = useCallback((id: string, text: string) => session.send(text, { messageId: id }), [session]);
  const onRegenerate = useCallback((id: string) => session.regenerate(id), [session]);
  const onStop = useCallback(() => void session.stop(), [session]);
  const { interrupting, timeline } = state;
  const onPause = useCallback(() => void session.interrupt(), [session]);
  const onWhenBusy = (value: WhenBusy) => {
    setWhenBusy(value);
    try {
      localStorage.setItem(whenBusyKey, value);
    } catch {
      // Then it is asked again next time.
    }
  };
  const history = useMemo<History>(
    () => ({
      checkpoints: timeline.checkpoints,
      branch: id => void session.branch(id).then(made => made && onOpen(made)),
      rewind: idle ? id => void session.rewind(id) : undefined,
      goOn: idle ? how => void (how === 'retry' ? session.retry() : session.continue()) : undefined,
    }),
    [session, timeline.checkpoints, idle, onOpen],
  );
  const editLast = () => {
    const edits = view.scroller.current?.querySelectorAll<HTMLButtonElement>('.user [aria-label="Edit"]');
    edits?.[edits.length - 1]?.click();
  };

  // The card that was picked goes away with the focus. A phone's keyboard should not jump up by itself.
  const pick = (text: string) => {
    send(text);
    const next = matchMedia('(pointer: fine)').matches ? '.composer textarea' : '.scroller';
    view.scroller.current?.closest('main')?.querySelector<HTMLElement>(next)?.focus();
  };

  const connection = state.connection === 'live' && state.recovering ? 'recovering' : state.connection;
  const root = rootOf(session.id);
  const last = messages.at(-1);
  const waiting = busy && last?.role === 'user';

  return (
    <main className="main" data-status={status} data-phase={state.phase} data-connection={state.connection} data-recovering={state.recovering || undefined} data-child={root !== undefined || undefined} inert={behind}>
      <header>
        {menu}
        <h1>{heading}</h1>
        <span className="connection" data-state={connection} role="status">
          <span className="light" />
          <span className="connection-word">{states[connection]}</span>
        </span>
        <button type="button" className="icon header-new" aria-label="New chat" onClick={onNew}>
          <IconPlus />
        </button>
      </header>
      {info?.demo && (
        <p className="demo">
          Scripted demo: the answers are always the same. <span>Set <code>OPENAI_API_KEY</code> to talk to a model.</span>
        </p>
      )}
      {away && (
        <p className="away" role="status">
          The server's storage is not answering. The run goes on when it is back.
        </p>
      )}
      <div className="scroller" tabIndex={-1} ref={view.scroller}>
        <div className="thread" role="log" aria-live="off" aria-label="Conversation" ref={view.content}>
          {state.phase === 'loading' && <p className="loading">Loading…</p>}
          {state.phase === 'ready' && messages.length === 0 && !busy && sessionFromAddress() === session.id && (
            <p className="unknown" role="status">
              There are no messages in the chat <code>{session.id.slice(0, 100)}</code>. If you expected some, the address is wrong or the chat was deleted.
            </p>
          )}
          {state.phase === 'ready' && messages.length === 0 && !busy && <Welcome info={info} onPick={pick} />}
          {timeline.origin && (
            <p className="origin">
              <IconBranch /> Branched from{' '}
              <a
                href={addressOf(timeline.origin.sessionId)}
                onClick={e => {
                  if (e.metaKey || e.ctrlKey || e.shiftKey || e.button !== 0) return;
                  e.preventDefault();
                  onOpen(timeline.origin!.sessionId);
                }}
              >
                {nameOf(timeline.origin.sessionId) || 'another chat'}
              </a>
            </p>
          )}
          {messages.map((message, i) => (
            <MessageView
              key={message.id}
              session={session}
              message={message}
              live={busy && i === messages.length - 1}
              recovering={state.recovering && i === messages.length - 1}
              held={state.held?.id === message.id ? state.held : undefined}
              idle={idle}
              last={i === messages.length - 1}
              onEdit={onEdit}
              onRegenerate={onRegenerate}
              history={history}
            />
          ))}
          {waiting && (
            <article className="message assistant">
              <Waiting />
            </article>
          )}
          <Guard source={timeline.waiting}>
            <Queue waiting={timeline.waiting.filter(w => !messages.some(m => m.id === w.id))} />
          </Guard>
        </div>
      </div>
      <Guard source={last} instead={null}>
        <Announcer messages={messages} busy={busy} />
      </Guard>
      <div className="foot">
        {!view.atEnd && messages.length > 0 && (
          <button type="button" className="icon to-end" aria-label="Scroll to the end" onClick={view.toEnd}>
            <IconDown />
          </button>
        )}
        {state.connection === 'lost' && (
          <p className="callout failure problem" role="alert">
            <span>The server cannot be reached. What is shown is stored, and an answer that is being written goes on without this page.</span>
            <button type="button" onClick={session.reconnect}>
              Try again
            </button>
          </p>
        )}
        {state.problem && (
          <p className="callout failure problem" role="alert">
            <span>{state.problem.message.slice(0, 400)}</span>
            <button type="button" onClick={session.dismiss}>
              Dismiss
            </button>
          </p>
        )}
        {root !== undefined ? <ChildNote root={root} onOpen={onOpen} /> : <Composer
          value={draft}
          onChange={text => {
            setDraft(text);
            setEager(false);
          }}
          busy={busy}
          stopping={state.stopping}
          pausing={interrupting}
          whenBusy={whenBusy}
          onWhenBusy={onWhenBusy}
          onSend={() => (idle || busy ? send(draft) : setEager(true))}
          onStop={onStop}
          onPause={onPause}
          onEditLast={editLast}
        />}
      </div>
    </main>
  );
}

function firstWords(messages: Message[]): string {
  const text = messages[0]?.parts.map(p => (p.type === 'text' ? p.text : '')).join('') ?? '';
  return text.length > 60 ? `${text.slice(0, 57)}…` : text || 'Chat';
}

/** Keeps the end in view while the reader has not scrolled away from it. */
function useStickyScroll(messages: Message[]) {
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const stick = useRef(true);
  const [atEnd, setAtEnd] = useState(true);

  const toEnd = useCallback(() => {
    const el = scroller.current;
    if (!el) return;
    stick.current = true;
    el.scrollTop = el.scrollHeight;
  }, []);

  useEffect(() => {
    const el = scroller.current;
    if (!el || !content.current) return;
    let top = el.scrollTop;
    const moved = () => {
      const gap = el.scrollHeight - el.scrollTop - el.clientHeight;
      // Only the reader scrolls up; that content grew is not a wish to stay behind.
      if (gap < 60) stick.current = true;
      else if (el.scrollTop < top - 2) stick.current = false;
      top = el.scrollTop;
      setAtEnd(stick.current || gap < 60);
    };
    const grown = new ResizeObserver(() => {
      // Without messages there is a welcome, which begins at its top.
      if (stick.current && content.current?.querySelector('.message')) el.scrollTop = el.scrollHeight;
    });
    grown.observe(content.current);
    grown.observe(el);
    el.addEventListener('scroll', moved, { passive: true });
    return () => {
      grown.disconnect();
      el.removeEventListener('scroll', moved);
    };
  }, []);

  // One's own message is always worth seeing.
  const last = messages.at(-1);
  const mine = last?.role === 'user' ? last.id : undefined;
  useLayoutEffect(() => {
    if (mine !== undefined) toEnd();
  }, [mine, toEnd]);

  return { scroller, content, atEnd, toEnd };
}
