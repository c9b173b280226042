// A document for React, and what the tests of the hooks share. Import this first.
import { JSDOM } from 'jsdom';

const { window } = new JSDOM('<!doctype html><div id="root"></div>', { url: 'http://localhost/', pretendToBeVisual: true });
globalThis.window = window;
globalThis.document = window.document;
globalThis.navigator ??= window.navigator; // Node 20 has none
globalThis.addEventListener = window.addEventListener.bind(window);
globalThis.removeEventListener = window.removeEventListener.bind(window);

const { act: reactAct, createElement, StrictMode } = await import('react');
const { createRoot } = await import('react-dom/client');

/** Does something and waits until React has shown it. Elsewhere updates come as in a browser. */
export async function act(what) {
  globalThis.IS_REACT_ACT_ENVIRONMENT = true;
  try {
    await reactAct(what);
  } finally {
    globalThis.IS_REACT_ACT_ENVIRONMENT = false;
  }
}

/** Renders a hook, twice as StrictMode does; `result()` is what it returned last. */
export async function renderHook(hook, props) {
  let last;
  let renders = 0;
  function Component({ props }) {
    renders++;
    last = hook(props);
    return null;
  }
  const root = createRoot(document.createElement('div'));
  const render = props => act(async () => root.render(createElement(StrictMode, null, createElement(Component, { props }))));
  await render(props);
  return { result: () => last, renders: () => renders, rerender: render, unmount: () => act(async () => root.unmount()) };
}

/** Repeats a check until it holds. */
export async function eventually(check) {
  for (let n = 0; ; n++) {
    try {
      return await check();
    } catch (error) {
      if (n >= 12_000) throw error; // two minutes: a machine may stand still
      await new Promise(done => setTimeout(done, 10));
    }
  }
}

/** A server of snapshots: `answer` is what the next request gets, and `asked` what it was asked. */
export function snapshots(first) {
  const asked = [];
  const server = {
    asked,
    answer: first,
    fetch: async (url, init = {}) => {
      asked.push({ url: String(url), headers: new Headers(init.headers) });
      const answer = await (typeof server.answer === 'function' ? server.answer(init) : server.answer);
      init.signal?.throwIfAborted();
      if (answer instanceof Response) return answer;
      return answer === null ? new Response('{}', { status: 404 }) : Response.json(answer);
    },
  };
  return server;
}

export const message = (id, role, text) => ({ id, role, parts: [{ type: 'text', text }] });
export const snapshot = (messages, more = {}) => ({ sessionId: 's', status: 'ended', state: null, messages, streamSequence: 7, timestamp: 1, checkpointId: null, ...more });
