import { isSubAgentData, type SubAgentData } from '@spool-run/client';
import type { UIMessage } from 'ai';

type MessagePart = UIMessage['parts'][number];
export type Agent = SubAgentData<MessagePart>;

/** The sub-agent that a part tells of, if it does. */
export function agentOf(part: MessagePart): Agent | undefined {
  const data: unknown = part.type === 'data-subagent' ? (part as { data?: unknown }).data : undefined;
  return isSubAgentData<MessagePart>(data) ? data : undefined;
}
