/** Where a page stands: from its snapshot. */
export interface ResumeOptions {
  /** The session's endpoint, such as `/api/chat/my-session`. */
  api: string;
  /** The snapshot's `streamSequence`. */
  resumeFromSequence?: number | (() => number | undefined);
  /** The message that the server should go on with. */
  existingMessageId?: string;
  headers?: HeadersInit;
  credentials?: RequestCredentials;
}

interface SendRequest {
  id: string;
  messages: unknown[];
  trigger: string;
  messageId?: string | undefined;
  body?: Record<string, unknown> | undefined;
  headers?: HeadersInit | undefined;
  credentials?: RequestCredentials | undefined;
}

interface ReconnectRequest {
  headers?: HeadersInit | undefined;
  credentials?: RequestCredentials | undefined;
}

function resumeHeaders(options: ResumeOptions, given: HeadersInit | undefined): Record<string, string> {
  const headers = new Headers(given);
  new Headers(options.headers).forEach((value, name) => headers.set(name, value));
  const from = typeof options.resumeFromSequence === 'function' ? options.resumeFromSequence() : options.resumeFromSequence;
  if (from !== undefined) headers.set('X-Resume-From-Sequence', String(from));
  if (options.existingMessageId !== undefined) headers.set('X-Existing-Message-Id', options.existingMessageId);
  return Object.fromEntries(headers);
}

/** For the AI SDK's `prepareSendMessagesRequest`: packs the chat's fields and the resume headers onto the POST. */
export function prepareChatRequest(options: ResumeOptions) {
  return (request: SendRequest) => ({
    api: options.api,
    body: {
      ...request.body,
      id: request.id,
      messages: request.messages,
      trigger: request.trigger,
      messageId: request.messageId,
    } as object,
    headers: resumeHeaders(options, request.headers),
    credentials: options.credentials ?? request.credentials,
  });
}

/** For the AI SDK's `prepareReconnectToStreamRequest`: the same headers, on the session's single path. */
export function prepareReconnectRequest(options: ResumeOptions) {
  return (request: ReconnectRequest) => ({
    api: options.api,
    headers: resumeHeaders(options, request.headers),
    credentials: options.credentials ?? request.credentials,
  });
}

// The names under which earlier code knows these.
export { prepareChatRequest as prepareHelixChatRequest, prepareReconnectRequest as prepareHelixReconnectRequest };
