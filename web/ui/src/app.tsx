import { newID } from '@spool-run/client';
import { useCallback, useEffect, useRef, useState } from 'react';
import { addressOf, base, deleteSession, loadServerInfo, loadSessions, sessionFromAddress, storageIsAway, type ServerInfo, type SessionRow } from './api';
import { Conversation } from './conversation';
import { Guard } from './guard';
import { IconMenu, IconPlus, Logo } from './icons';
import { openSession, type Session } from './session';
import { SessionList } from './session-list';

const sessionOf = (id: string | undefined): Session => openSession(id ?? newID(), id === undefined);

// How many chats are listed at first, and how many the server lists at once.
const page = 100;
const most = 1000;

export function App() {
  const [session, setSession] = useState(() => sessionOf(sessionFromAddress()));
  const [{ rows: sessions, more }, setSessions] = useState<{ rows: SessionRow[]; more: boolean }>({ rows: [], more: false });
  const [limit, setLimit] = useState(page);
  const [info, setInfo] = useState<ServerInfo>();
  const [away, setAway] = useState(false);
  const [drawer, setDrawer] = useState(false);
  const menu = useRef<HTMLButtonElement>(null);
  const first = useRef<HTMLButtonElement>(null);

  const refresh = useCallback(async () => {
    try {
      setSessions(await loadSessions(limit));
    } catch {
      // The connection's state is shown elsewhere; the list keeps what it had.
    }
  }, [limit]);

  useEffect(() => {
    session.onTurn = () => void refresh();
  }, [session, refresh]);

  useEffect(() => {
    session.open();
    return () => session.close();
  }, [session]);

  useEffect(() => {
    void loadServerInfo().then(setInfo, () => {});
  }, []);

  useEffect(() => {
    void refresh();
    const timer = setInterval(() => {
      if (document.visibilityState !== 'visible') return;
      void refresh();
      // A server that cannot be asked says nothing about its storage: the connection's state is shown elsewhere.
      void storageIsAway().then(setAway, () => {});
    }, 6_000);
    return () => clearInterval(timer);
  }, [refresh]);

  const go = useCallback((id: string | undefined) => {
    setDrawer(false);
    if (addressOf(id) !== location.pathname + location.search) history.pushState(null, '', addressOf(id));
    setSession(sessionOf(id));
  }, []);

  useEffect(() => {
    const back = () => setSession(sessionOf(sessionFromAddress()));
    addEventListener('popstate', back);
    addEventListener('hashchange', back);
    return () => {
      removeEventListener('popstate', back);
      removeEventListener('hashchange', back);
    };
  }, []);

  useEffect(() => {
    const key = (e: KeyboardEvent) => {
      if ((e.metaKey || e.ctrlKey) && e.shiftKey && e.key.toLowerCase() === 'o') {
        e.preventDefault();
        go(undefined);
      } else if (e.key === 'Escape' && drawer) {
        setDrawer(false);
      }
    };
    addEventListener('keydown', key);
    return () => removeEventListener('keydown', key);
  }, [go, drawer]);

  // The focus goes into the list with the reader, and back with them.
  const opened = useRef(false);
  useEffect(() => {
    if (drawer) first.current?.focus();
    else if (opened.current) menu.current?.focus();
    opened.current = drawer;
  }, [drawer]);

  const open = useCallback(
    (id: string) => {
      go(id);
      void refresh();
    },
    [go, refresh],
  );

  const remove = useCallback(
    async (id: string) => {
      await deleteSession(id).catch(() => {});
      if (id === session.id) go(undefined);
      await refresh();
    },
    [session, go, refresh],
  );

  return (
    <div className="app" data-drawer={drawer || undefined}>
      <nav className="side" aria-label="Chats">
        <div className="side-head">
          <Logo />
          <span className="brand">Spool</span>
        </div>
        <button ref={first} type="button" className="new" onClick={() => go(undefined)} title="New chat (Ctrl Shift O)">
          <IconPlus /> New chat
        </button>
        <Guard source={sessions} instead={<p className="side-empty">The list of chats cannot be shown.</p>}>
          <SessionList rows={sessions} current={session.id} onOpen={go} onDelete={remove} onMore={more && limit < most ? () => setLimit(l => Math.min(most, 2 * l)) : undefined} />
        </Guard>
        <p className="side-foot">
          {info?.model && (info.demo ? 'Scripted demo' : info.model)}
          <a href={`${base}inspect?session=${encodeURIComponent(session.id)}`}>Inspect</a>
        </p>
      </nav>
      <button type="button" className="scrim" aria-label="Close the list of chats" tabIndex={-1} onClick={() => setDrawer(false)} />
      <Conversation
        key={session.id}
        session={session}
        info={info}
        away={away}
        behind={drawer}
        title={sessions.find(s => s.session === session.id)?.title}
        onFirst={() => {
          if (sessionFromAddress() !== session.id) history.pushState(null, '', addressOf(session.id));
        }}
        menu={
          <button ref={menu} type="button" className="icon menu" aria-label="Chats" aria-expanded={drawer} onClick={() => setDrawer(d => !d)}>
            <IconMenu />
          </button>
        }
        onNew={() => go(undefined)}
        onOpen={open}
        nameOf={id => sessions.find(s => s.session === id)?.title}
      />
    </div>
  );
}
