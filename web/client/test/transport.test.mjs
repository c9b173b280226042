import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HelixChatTransport, ResumableChatTransport } from '../dist/index.js';

const stream = () => new Response('data: [DONE]\n\n', { headers: { 'content-type': 'text/event-stream' } });
const message = { id: 'u', role: 'user', parts: [{ type: 'text', text: 'hi' }] };

/** What a transport with these options requests for a message and for a reload. */
async function requests(options, answer = stream) {
  const list = [];
  const transport = new ResumableChatTransport({
    api: '/api/chat/s',
    fetch: async (url, init = {}) => {
      list.push({ url: String(url), method: init.method ?? 'GET', credentials: init.credentials, headers: new Headers(init.headers), body: init.body && JSON.parse(init.body) });
      return answer();
    },
    ...options,
  });
  const sent = await transport.sendMessages({ chatId: 's', messages: [message], trigger: 'submit-message' });
  for await (const _ of sent);
  const again = await transport.reconnectToStream({ chatId: 's' });
  if (again !== null) for await (const _ of again);
  return { list, again };
}

test('a message and a reload go to one path', async () => {
  const { list } = await requests({});
  assert.deepEqual(list.map(r => `${r.method} ${r.url}`), ['POST /api/chat/s', 'GET /api/chat/s']);
  assert.equal(list[0].body.messages.at(-1).id, 'u');
  for (const r of list) assert.equal(r.headers.has('x-resume-from-sequence'), false);
});

test('headers, body, credentials and position are sent as they were given', async () => {
  const { list } = await requests({
    headers: { 'x-mine': 'a' },
    body: { tenant: 't' },
    credentials: 'include',
    resumeFromSequence: 42,
    existingMessageId: 'm',
  });
  const [post, get] = list;
  for (const r of list) {
    assert.equal(r.headers.get('x-mine'), 'a');
    assert.equal(r.credentials, 'include');
  }
  assert.equal(post.body.tenant, 't');
  assert.equal(post.body.id, 's');
  assert.equal(get.headers.get('x-resume-from-sequence'), '42');
  assert.equal(get.headers.get('x-existing-message-id'), 'm');
});

test('a position may be asked for when it is needed', async () => {
  let at;
  const { list } = await requests({ resumeFromSequence: () => at });
  assert.equal(list[1].headers.has('x-resume-from-sequence'), false);
  at = 7;
  const later = await requests({ resumeFromSequence: () => at });
  assert.equal(later.list[1].headers.get('x-resume-from-sequence'), '7');
});

test('nothing to resume is no stream', async () => {
  let n = 0;
  const { again } = await requests({}, () => (n++ === 0 ? stream() : new Response(null, { status: 204 })));
  assert.equal(again, null);
});

test('the earlier name is the same class', () => assert.equal(HelixChatTransport, ResumableChatTransport));
