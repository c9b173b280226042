import { decide, newID, resume, stop } from '@spool-run/client';
import { useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from 'react';
import { addressOf, base, sessionFromAddress } from '../api';
import { Guard } from '../guard';
import { Logo } from '../icons';
import { Frames, RecordDetail } from './detail';
import { Gantt } from './gantt';
import { SessionLog } from './log';
import { Position } from './position';
import { Sessions } from './sessions';
import { readFile, ServerSource, writeFile, type FileSource, type Source, type StoredRecord } from './source';
import { TurnTable, usePrices, whyOf } from './summary';
import { endOf, type Turn } from './timeline';
import { Virtual, type VirtualHandle } from './virtual';
import { brief, clock, duration } from './words';

export const inspectOf = (session: string | undefined) => (session === undefined ? `${base}inspect` : `${base}inspect?session=${encodeURIComponent(session)}`);

export function App() {
  const [id, setID] = useState(sessionFromAddress);
  const [file, setFile] = useState<FileSource>();
  const [trouble, setTrouble] = useState<string>();
  const open = useCallback((session: string | undefined) => {
    setFile(undefined);
    setID(session);
    if (inspectOf(session) !== location.pathname + location.search) history.pushState(null, '', inspectOf(session));
  }, []);
  useEffect(() => {
    const back = () => setID(sessionFromAddress());
    addEventListener('popstate', back);
    return () => removeEventListener('popstate', back);
  }, []);
  const source = useMemo<Source | undefined>(() => file ?? (id === undefined ? undefined : new ServerSource(id)), [file, id]);
  const read = async (chosen: File | undefined) => {
    if (!chosen) return;
    try {
      setFile(readFile(await chosen.text()));
      setTrouble(undefined);
    } catch (error) {
      setTrouble(`${chosen.name} cannot be opened. ${(error as Error).message}`);
    }
  };
  return (
    <div className="inspect" onDragOver={e => e.preventDefault()} onDrop={e => (e.preventDefault(), void read(e.dataTransfer.files[0]))}>
      <nav className="inspect-side" aria-label="Sessions">
        <div className="side-head">
          <Logo />
          <span className="brand">Inspector</span>
          <a href={base} className="to-chat">
            Chat
          </a>
        </div>
        <label className="file">
          Open a file
          <input type="file" accept=".spool,.ndjson,.jsonl" onChange={e => void read(e.target.files?.[0])} />
        </label>
        {trouble && (
          <p className="trouble" role="alert">
            {trouble}
          </p>
        )}
        <Guard source={id} instead={<p className="quiet">The list of sessions cannot be shown.</p>}>
          <Sessions current={file ? undefined : id} onOpen={open} />
        </Guard>
      </nav>
      <main className="inspect-main">
        {source ? (
          <SessionView key={`${source.live} ${source.session}`} source={source} onOpen={open} />
        ) : (
          <h1 className="inspect-empty">Choose a session, or open a file that <code>spool export</code> has written.</h1>
        )}
      </main>
    </div>
  );
}

type Tab = 'record' | 'state' | 'frames' | 'turn';
const tabs: [Tab, string][] = [
  ['record', 'Record'],
  ['state', 'Messages and state'],
  ['frames', 'On the wires'],
  ['turn', 'Turn'],
];

function SessionView({ source, onOpen }: { source: Source; onOpen(session: string): void }) {
  const [log, setLog] = useState<SessionLog>();
  useEffect(() => {
    const opened = new SessionLog(source);
    setLog(opened);
    const timer = source.live && setInterval(() => document.visibilityState === 'visible' && void opened.refresh(), 1000);
    return () => {
      if (timer) clearInterval(timer);
      opened.close();
    };
  }, [source]);
  return log && <LogView log={log} onOpen={onOpen} />;
}

function LogView({ log, onOpen }: { log: SessionLog; onOpen(session: string): void }) {
  const version = useSyncExternalStore(log.subscribe, log.version);
  const { source, timeline, kept, head } = log;
  const [keptOnly, setKeptOnly] = useState(false);
  const [selected, setSelected] = useState<number>(); // a sequence
  const [tab, setTab] = useState<Tab>('record');
  const [chosen, setChosen] = useState<number>(); // a turn; the latest by default
  const [beside, setBeside] = useState<number>(); // another turn
  const [prices, setPrices] = usePrices();
  const table = useRef<VirtualHandle>(null);
  const turns = timeline.turns;
  const index = Math.min(chosen ?? turns.length - 1, turns.length - 1);
  const turn = turns[index];
  const other = beside === undefined ? undefined : turns[beside];
  const why = useMemo(() => whyOf(kept, source.session), [version, kept, source]);
  const record = useRecord(log, selected, version);

  const show = useCallback(
    (sequence: number) => {
      setSelected(sequence);
      table.current?.show(log.rowOf(sequence, keptOnly));
    },
    [log, keptOnly],
  );
  return (
    <>
      <header className="inspect-head">
        <h1>{source.session}</h1>
        {!source.live && <span className="badge">file</span>}
        <p className="why">{why}</p>
        <span className="quiet">
          {head.toLocaleString()} records{log.traceFloor > 0 && `, trace kept from ${(log.traceFloor + 1).toLocaleString()}`}
          {!log.whole && !log.error && ', loading…'}
        </span>
        <Actions log={log} at={selected} onOpen={onOpen} />
      </header>
      {log.error && (
        <p className="trouble" role="alert">
          {log.error}
        </p>
      )}
      <div className="inspect-body">
        <section className="turns" aria-label="Turns">
          <Virtual rows={turns.length} height={52} label="Turns" selected={index < 0 ? undefined : index} onSelect={setChosen} stick={chosen === undefined} render={row => <TurnRow turn={turns[row]!} now={timeline.now} number={row + 1} />} />
        </section>
        <section className="run">
          {turn && <Gantt key={turn.first} turn={turn} now={timeline.now} selected={selected} onSelect={show} />}
          {other && <Gantt key={`beside ${other.first}`} turn={other} now={timeline.now} selected={selected} onSelect={show} />}
          <div className="records-head">
            <h2>Records</h2>
            <label>
              <input type="checkbox" checked={keptOnly} onChange={e => setKeptOnly(e.target.checked)} /> without trace
            </label>
          </div>
          <Virtual
            ref={table}
            rows={log.rows(keptOnly)}
            height={26}
            label="Records"
            selected={selected === undefined ? undefined : log.rowOf(selected, keptOnly)}
            onSelect={row => setSelected(log.at(row, keptOnly)?.sequence)}
            stick={source.live && selected === undefined}
            render={row => <RecordRow record={log.at(row, keptOnly)} />}
          />
        </section>
        <aside className="inspect-detail" aria-label="Details">
          <div role="tablist" aria-label="Details" className="tabs">
            {tabs.map(([name, label]) => (
              <button key={name} type="button" role="tab" id={`tab-${name}`} aria-selected={tab === name} aria-controls="tab-panel" onClick={() => setTab(name)}>
                {label}
              </button>
            ))}
          </div>
          <div role="tabpanel" id="tab-panel" aria-labelledby={`tab-${tab}`} className="tab-panel">
            <Guard source={`${tab} ${selected}`}>
              {tab === 'record' && <RecordDetail record={record} />}
              {tab === 'state' && <Position source={source} at={selected ?? head} head={head} onMove={show} />}
              {tab === 'frames' && <Frames source={source} from={selected} />}
              {tab === 'turn' && turn && (
                <>
                  <TurnTable source={source} turns={other ? [turn, other] : [turn]} now={timeline.now} prices={prices} />
                  <label className="field">
                    Beside another turn
                    <select value={beside ?? ''} onChange={e => setBeside(e.target.value === '' ? undefined : Number(e.target.value))}>
                      <option value="">none</option>
                      {turns.slice(-100).map((t, i) => {
                        const n = i + Math.max(0, turns.length - 100);
                        return (
                          <option key={t.first} value={n}>
                            {n + 1}: {t.said.slice(0, 60)}
                          </option>
                        );
                      })}
                    </select>
                  </label>
                  <fieldset className="choices">
                    <legend>Prices, in dollars for a million tokens</legend>
                    {(['input', 'output'] as const).map(side => (
                      <label key={side}>
                        {side}
                        <input type="number" min="0" step="any" value={prices[side]} onChange={e => setPrices({ ...prices, [side]: Math.max(0, Number(e.target.value) || 0) })} />
                      </label>
                    ))}
                  </fieldset>
                </>
              )}
            </Guard>
          </div>
        </aside>
      </div>
    </>
  );
}

/** The record with a sequence, wherever it is. */
function useRecord(log: SessionLog, sequence: number | undefined, version: number): StoredRecord | undefined {
  return useMemo(() => {
    if (sequence === undefined) return undefined;
    const record = log.at(log.rowOf(sequence, false), false);
    return record?.sequence === sequence ? record : undefined;
  }, [log, sequence, version]);
}

function TurnRow({ turn, now, number }: { turn: Turn; now: number; number: number }) {
  return (
    <div className="turn" data-outcome={turn.outcome}>
      <span className="turn-said">
        <span className="quiet">{number}</span> {turn.said || 'without a message'}
      </span>
      <span className="quiet">
        {turn.outcome} · {turn.steps} {turn.steps === 1 ? 'step' : 'steps'} · {duration(endOf(turn, now) - turn.from)}
        {turn.marks.some(m => m.kind === 'owner' || m.kind === 'retry') && ' · recovered'}
      </span>
    </div>
  );
}

function RecordRow({ record }: { record: StoredRecord | undefined }) {
  if (!record) return <span className="quiet">…</span>;
  return (
    <div className="record" data-class={record.class}>
      <span className="record-seq">{record.sequence}</span>
      <span className="quiet">{clock(record.time)}</span>
      <code>{record.chunk.type}</code>
      <span className="record-brief">{brief(record.chunk)}</span>
    </div>
  );
}

/** What the reader may do with the session; the server decides whether they may. */
function Actions({ log, at, onOpen }: { log: SessionLog; at: number | undefined; onOpen(session: string): void }) {
  const { source, timeline, kept } = log;
  const [said, setSaid] = useState<string>();
  const outcome = timeline.turns.at(-1)?.outcome;
  const api = source instanceof ServerSource ? source.api : '';
  const act = async (name: string, what: () => Promise<unknown>) => {
    setSaid(`${name}…`);
    try {
      await what();
      setSaid(undefined);
      await log.refresh();
    } catch (error) {
      setSaid(`${name} was refused: ${(error as Error).message}`);
    }
  };
  const download = () =>
    act('Download', async () => {
      const url = URL.createObjectURL(await writeFile(source, (done, of) => setSaid(`Download: ${done.toLocaleString()} of ${of.toLocaleString()}`)));
      const link = Object.assign(document.createElement('a'), { href: url, download: `${source.session}.spool.ndjson` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    });
  const checkpoint = at === undefined ? undefined : kept.findLast(r => r.sequence <= at && r.chunk.type === 'checkpoint_created');
  const asked = outcome === 'waiting' ? waitingApprovals(kept) : [];
  return (
    <div className="actions-bar">
      {source.live && outcome === 'running' && (
        <button type="button" onClick={() => void act('Stop', () => stop({ api }))}>
          Stop
        </button>
      )}
      {source.live && outcome === 'waiting' && asked.length === 0 && (
        <button type="button" onClick={() => void act('Resume', () => resume({ api }, { mode: 'continue', commandId: newID() }))}>
          Resume
        </button>
      )}
      {asked.map(a => (
        <span key={a.id} className="ask">
          <code>{a.tool}</code>
          <button type="button" onClick={() => void act('Approve', () => decide({ api }, a.id, { approved: true }))}>
            Approve
          </button>
          <button type="button" onClick={() => void act('Deny', () => decide({ api }, a.id, { approved: false }))}>
            Deny
          </button>
        </span>
      ))}
      {source.live && checkpoint && (
        <button
          type="button"
          title={`At the checkpoint of record ${checkpoint.sequence}`}
          onClick={() =>
            void act('Branch', async () => {
              const made = await resume({ api }, { mode: 'branch', checkpointId: String(checkpoint.chunk['checkpointId']), commandId: newID() });
              onOpen(made.sessionId);
            })
          }
        >
          Branch from here
        </button>
      )}
      <button type="button" onClick={() => void download()}>
        Download
      </button>
      {source.live && <a href={addressOf(source.session)}>Open in the chat</a>}
      {said && <span role="status">{said}</span>}
    </div>
  );
}

/** The approvals that were asked for and not decided. */
function waitingApprovals(kept: readonly StoredRecord[]): { id: string; tool: string }[] {
  const open = new Map<string, { id: string; tool: string }>();
  for (const { chunk } of kept) {
    const id = String(chunk['approvalId'] ?? '');
    if (chunk.type === 'tool_approval_request') open.set(id, { id, tool: String(chunk['toolName'] ?? 'a call') });
    if (chunk.type === 'tool_approval_response') open.delete(id);
    if (chunk.type === 'run_finished') open.clear();
  }
  return [...open.values()];
}
