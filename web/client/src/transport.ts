import { DefaultChatTransport, type UIMessage, type UIMessageChunk } from 'ai';
import { createResumingFetch, type ConnectionState } from './fetch.js';
import { joinDeltas } from './join.js';
import { prepareChatRequest, prepareReconnectRequest } from './prepare.js';

export interface ResumableChatTransportOptions {
  /** The session's endpoint, such as `/api/chat/my-session`. */
  api: string;
  /** The snapshot's `streamSequence`, if the page was loaded from one. */
  resumeFromSequence?: number | (() => number | undefined);
  existingMessageId?: string;
  headers?: Record<string, string> | Headers;
  /** Properties that are added to every POST's body. */
  body?: Record<string, unknown>;
  credentials?: 'omit' | 'same-origin' | 'include';
  /** What really fetches; it is wrapped, so that streams survive it. */
  fetch?: typeof fetch;
  onState?: (state: ConnectionState) => void;
  onPosition?: (id: string) => void;
  /** How many attempts may fail in a row before the chat fails with a ConnectionLostError: see `createResumingFetch`. */
  maxRetries?: number;
  /** Deltas that come within so many milliseconds are joined. Default 40; 0 leaves them as they are. */
  joinWithin?: number;
}

/** The AI SDK's transport on one path for POST and GET, with streams that survive a lost connection. */
export class ResumableChatTransport<Message extends UIMessage = UIMessage> extends DefaultChatTransport<Message> {
  readonly #joinWithin: number;

  constructor(options: ResumableChatTransportOptions) {
    const { api, headers, body, credentials, joinWithin = 40, maxRetries, onState, onPosition, resumeFromSequence, existingMessageId } = options;
    const resume = {
      api,
      ...(resumeFromSequence !== undefined && { resumeFromSequence }),
      ...(existingMessageId !== undefined && { existingMessageId }),
    };
    super({
      api,
      ...(headers !== undefined && { headers }),
      ...(body !== undefined && { body }),
      ...(credentials !== undefined && { credentials }),
      fetch: createResumingFetch({
        ...(options.fetch !== undefined && { fetch: options.fetch }),
        ...(maxRetries !== undefined && { maxRetries }),
        ...(onState !== undefined && { onState }),
        ...(onPosition !== undefined && { onPosition }),
        attachURL: () => `${api}/stream`,
      }),
      prepareSendMessagesRequest: prepareChatRequest(resume),
      prepareReconnectToStreamRequest: prepareReconnectRequest(resume),
    });
    this.#joinWithin = joinWithin;
  }

  protected override processResponseStream(stream: ReadableStream<Uint8Array<ArrayBufferLike>>): ReadableStream<UIMessageChunk> {
    const chunks = super.processResponseStream(stream);
    return this.#joinWithin === 0 ? chunks : chunks.pipeThrough(joinDeltas<UIMessageChunk>(this.#joinWithin));
  }
}

// The name under which earlier code knows it.
export { ResumableChatTransport as HelixChatTransport };
