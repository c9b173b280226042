// The real clients, each with the Chat class that its React hook is built on.
import * as sdks from '../clients/index.mjs';

class State {
  status = 'ready';
  error = undefined;
  constructor(messages) {
    this.messages = messages;
  }
  pushMessage = message => {
    this.messages = [...this.messages, message];
  };
  popMessage = () => {
    this.messages = this.messages.slice(0, -1);
  };
  replaceMessage = (i, message) => {
    this.messages = this.messages.with(i, message); // React's copies it on each chunk; what it holds in the end is the same
  };
  snapshot = structuredClone;
}

function client(name) {
  const sdk = sdks[name];
  const it = { name, sdk };
  it.Chat = class extends sdk.AbstractChat {
    client = it;
    constructor({ messages = [], ...init }) {
      super({ ...init, state: new State(messages) });
    }
  };
  return it;
}

export const oldest = client('oldest');
export const newest6 = client('newest6');
export const newest7 = client('newest7');
export const all = [oldest, newest6, newest7];

/**
 * A chat of a client on a session. Errors are collected; a lost network is not
 * counted among them.
 */
export function open(client, { url, session, fetch, messages, headers, init }) {
  const errors = [];
  const chat = new client.Chat({
    id: session,
    messages,
    transport: new client.sdk.DefaultChatTransport({ api: `${url}/api/chat/${encodeURIComponent(session)}`, fetch, headers }),
    onError: error => {
      if (!(error instanceof TypeError && error.message === 'network error')) errors.push(error);
    },
    ...init,
  });
  return { chat, errors };
}

export const userMessage = (id, text) => ({ id, role: 'user', parts: [{ type: 'text', text }] });

/** What a chat, or a snapshot as a client would show it, has of the assistant, as JSON has it. */
export const answers = (chat, client = chat.client) => plain(chat.messages.filter(m => m.role === 'assistant'), client);

/** The oldest client does not keep a reasoning part's id. Its snapshots have one all the same. */
export const plain = (messages, client) =>
  JSON.parse(JSON.stringify(messages)).map(m => ({
    ...m,
    parts: m.parts.map(p => (p.type === 'reasoning' && client === oldest ? { ...p, id: undefined } : p)),
  }));
