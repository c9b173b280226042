import { agentOf, extentOf, type Agent } from '@spool-run/react';
import { isToolUIPart } from 'ai';
import { isValidElement, useEffect, useState, useSyncExternalStore, type ReactElement, type ReactNode } from 'react';
import { addressOf, type Message } from './api';
import { Guard } from './guard';
import { IconAgent, IconCheck, IconChevron, IconCross, IconOpen } from './icons';
import { Waiting } from './progress';
import { viewOf, type Session } from './session';

type MessagePart = Message['parts'][number];

/** The sub-agents of one message, as seen by the agent whose parts are shown. */
export interface Family {
  readonly session: Session;
  /** A run of the message is at work. */
  readonly live: boolean;
  readonly agents: Agent[];
  readonly self: string;
  /** The sub-agent to show in a part's place; null if the part is shown elsewhere; undefined if it is no sub-agent's. */
  at(part: MessagePart): Agent | null | undefined;
  /** The family as seen by one of the agents. */
  of(agent: Agent): Family;
}

export function familyOf(session: Session, message: Message, live: boolean): Family {
  const agents = message.parts.map(agentOf).filter(a => a !== undefined);
  const calls = new Map<string, Agent>();
  for (const a of agents) if (a.callId) calls.set(`${a.parentSessionId}/${a.callId}`, a);
  const sessions = new Set(agents.map(a => a.sessionId));
  const seenBy = (self: string): Family => ({
    session,
    live,
    agents,
    self,
    of: agent => seenBy(agent.sessionId),
    at(part) {
      if (isToolUIPart(part)) {
        const agent = calls.get(`${self}/${part.toolCallId}`);
        if (agent) return agent;
        // A call of a sub-agent that waits is answered where the agent shows it.
        const slash = part.toolCallId.indexOf('/');
        return self === session.id && slash > 0 && sessions.has(part.toolCallId.slice(0, slash)) ? null : undefined;
      }
      const agent = agentOf(part);
      return agent?.callId ? null : agent; // without a call it is one that an earlier answer began
    },
  });
  return seenBy(session.id);
}

/** Puts sub-agents that follow each other side by side. */
export function grouped(nodes: ReactNode[]): ReactNode[] {
  const out: ReactNode[] = [];
  let row: ReactElement[] = [];
  const flush = () => {
    if (row.length > 0) out.push(<div key={`agents-${row[0]!.key}`} className="subagents">{row}</div>);
    row = [];
  };
  for (const node of nodes) {
    if (isValidElement(node) && node.type === SubAgentView) row.push(node);
    else if (node !== null && node !== undefined && node !== false) {
      flush();
      out.push(node);
    }
  }
  flush();
  return out;
}

const words: Record<string, string> = { active: 'working', paused: 'waiting', ended: 'done', failed: 'failed' };

function stateOf({ status, reason, pending }: Agent): string {
  if (status === 'paused' && (pending?.length ?? 0) > 0) return 'needs your answer';
  if (status === 'ended' && reason === 'stopped') return 'stopped';
  return words[status] ?? status;
}

const textOf = (parts: MessagePart[]) => parts.map(p => (p.type === 'text' ? p.text : '')).join('');

/** Shows a message's parts; sub-agents' among them, so that it comes from who shows these. */
type PartsOf = (message: Message, live: boolean, session: Session | undefined, mark: () => null, goOn: undefined, family: Family) => ReactNode[];

interface Props {
  data: Agent;
  family: Family;
  partsOf: PartsOf;
}

/** A sub-agent: who it is, what it was told, and what it does, while it does it. */
export function SubAgentView(props: Props) {
  return (
    <Guard source={props.data}>
      <SubAgentSection {...props} />
    </Guard>
  );
}

function SubAgentSection({ data, family, partsOf }: Props) {
  const { session } = family;
  const { unfolded } = viewOf(session);
  const told = useSyncExternalStore(session.agents.subscribe, () => session.agents.get(data.sessionId));
  const agent = family.live && told && extentOf(told.messages) >= extentOf(data.messages) ? told : data;
  const [chosen, setChosen] = useState(() => unfolded.get(data.sessionId));
  const waits = agent.status === 'paused' && (agent.pending?.length ?? 0) > 0;
  const working = family.live && agent.status === 'active';
  // What one has seen at work stays open; what was done before stands aside.
  useEffect(() => {
    if ((working || waits) && !unfolded.has(data.sessionId)) unfolded.set(data.sessionId, true);
  }, [unfolded, data.sessionId, working, waits]);
  const open = chosen ?? unfolded.get(data.sessionId) ?? agent.status !== 'ended';
  const toggle = () => {
    unfolded.set(data.sessionId, !open);
    setChosen(!open);
  };
  const task = agent.messages.find(m => m.role === 'user');
  const answers = agent.messages.filter(m => m.role === 'assistant');
  const body = `agent-${agent.sessionId}`;
  return (
    <section className="subagent" data-status={agent.status} data-agent={agent.sessionId} data-waits={waits || undefined} aria-busy={working}>
      <div className="subagent-bar">
        <button type="button" className="subagent-head" aria-expanded={open} aria-controls={body} onClick={toggle}>
          <span className="tool-icon">
            {agent.status === 'failed' ? <IconCross /> : agent.status === 'ended' ? <IconCheck /> : working ? <span className="spinner" /> : <span className="dot" />}
          </span>
          <IconAgent />
          <span className="subagent-name">{agent.type ?? 'agent'}</span>
          <span className="subagent-task">{task && !open ? textOf(task.parts) : ''}</span>
          <span className="tool-state">{stateOf(agent)}</span>
          <span className="chevron">
            <IconChevron />
          </span>
        </button>
        <a className="icon subagent-open" href={addressOf(agent.sessionId)} aria-label={`Open ${agent.type ?? 'the agent'} in its own page`} title="Open in its own page">
          <IconOpen />
        </a>
      </div>
      {open && (
        <div className="subagent-body" id={body}>
          {task && <p className="subagent-told" dir="auto">{textOf(task.parts)}</p>}
          {answers.map((message, i) => {
            const shown = withAnswers(agent, message as Message);
            return (
              <div key={message.id} className="subagent-answer">
                {partsOf(shown, working && i === answers.length - 1, waits ? session : undefined, () => null, undefined, family.of(agent))}
              </div>
            );
          })}
          {working && answers.every(m => m.parts.every(p => p.type === 'step-start')) && <Waiting />}
        </div>
      )}
    </section>
  );
}

/** Gives the calls that wait the ids under which the chat's session takes their answers. */
function withAnswers(agent: Agent, message: Message): Message {
  if (!agent.pending?.length) return message;
  const pending = new Set(agent.pending);
  return {
    ...message,
    parts: message.parts.map(p => {
      if (!isToolUIPart(p)) return p;
      const id = `${agent.sessionId}/${p.toolCallId}`;
      return pending.has(id) ? { ...p, toolCallId: id } : p;
    }),
  };
}

/** The root of a sub-agent's session; undefined for any other session. */
export function rootOf(session: string): string | undefined {
  const root = session.replace(/(\.\d+)+$/, '');
  return root === session || root === '' ? undefined : root;
}

/** Stands where one writes, on the page of a sub-agent's session. */
export function ChildNote({ root, onOpen }: { root: string; onOpen(session: string): void }) {
  return (
    <p className="child-note">
      This is a sub-agent. Only its parent can send it messages.
      <a
        href={addressOf(root)}
        onClick={e => {
          if (e.metaKey || e.ctrlKey || e.shiftKey || e.button !== 0) return;
          e.preventDefault();
          onOpen(root);
        }}
      >
        Back to the chat
      </a>
    </p>
  );
}
