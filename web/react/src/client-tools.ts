import { getToolName, isToolUIPart, type UIMessage } from 'ai';
import { useEffect, useRef } from 'react';
import { useLatest } from './feed.js';

/** What `useResumeClientTools` needs of a chat: the result of `useChat`, or a `Chat`. */
export interface ToolChat {
  messages: readonly UIMessage[];
  status: 'submitted' | 'streaming' | 'ready' | 'error';
  addToolOutput(output: { tool: string; toolCallId: string; output: unknown } | { tool: string; toolCallId: string; state: 'output-error'; errorText: string }): unknown;
}

/** Executes a tool in the page. What it returns is the call's output; what it throws is its error. */
export type ToolHandler = (input: unknown, call: { toolCallId: string; toolName: string; signal: AbortSignal }) => unknown;

export interface ResumeClientToolsOptions {
  chat: object; // a ToolChat; the AI SDK's own type depends on the message's type
  /** By the tool's name. Calls of other tools are left alone. */
  toolHandlers: Record<string, ToolHandler>;
  /** Called with what a handler threw, after it was given to the chat. */
  onError?: (error: unknown, call: { toolCallId: string; toolName: string }) => void;
}

/**
 * Executes the calls of client tools that wait for their output: those of an answer that
 * just ended, and those that were open when the page was loaded. Each call is executed once
 * by a page. If several tabs do, the first output counts.
 *
 * The chat sends the outputs with `sendAutomaticallyWhen:
 * lastAssistantMessageIsCompleteWithToolCalls`.
 */
export function useResumeClientTools({ chat: given, toolHandlers, onError }: ResumeClientToolsOptions): void {
  const chat = given as ToolChat;
  const latest = useLatest({ chat, toolHandlers, onError });
  const begun = useRef(new Set<string>());
  const mounted = useRef<AbortController>(undefined);

  useEffect(() => {
    const leave = (mounted.current = new AbortController());
    return () => leave.abort();
  }, []);

  useEffect(() => {
    if (chat.status !== 'ready') return;
    const last = chat.messages.at(-1);
    if (last?.role !== 'assistant') return;
    for (const part of last.parts) {
      if (!isToolUIPart(part) || part.state !== 'input-available' || part.providerExecuted) continue;
      const call = { toolCallId: part.toolCallId, toolName: getToolName(part) };
      const handler = Object.hasOwn(latest.current.toolHandlers, call.toolName) ? latest.current.toolHandlers[call.toolName] : undefined;
      if (!handler || begun.current.has(call.toolCallId)) continue;
      begun.current.add(call.toolCallId);
      void execute(handler, part.input, { ...call, signal: mounted.current!.signal });
    }

    async function execute(handler: ToolHandler, input: unknown, call: { toolCallId: string; toolName: string; signal: AbortSignal }) {
      const { toolCallId, toolName: tool } = call;
      try {
        const output = await handler(input, call);
        await latest.current.chat.addToolOutput({ tool, toolCallId, output: output ?? null });
      } catch (error) {
        const errorText = error instanceof Error ? error.message : String(error);
        await latest.current.chat.addToolOutput({ tool, toolCallId, state: 'output-error', errorText });
        latest.current.onError?.(error, { toolCallId, toolName: tool });
      }
    }
  }, [chat.status, chat.messages, latest]);
}
