// The page in Debian's headless Chromium.
import assert from 'node:assert/strict';
import { test as anyTest } from './test.mjs';
import { chromium } from 'playwright-core';
import { snapshotOf } from './cut.mjs';
import { eventually, patience, pause } from './wait.mjs';

export const launch = () =>
  chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell',
    timeout: patience,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-dev-shm-usage',
      '--disable-background-networking',
      '--no-first-run',
      '--disable-component-update',
      '--disable-sync',
    ],
  });

let pages = [];

/** A test that closes its pages, and fails if one of them had an error. If it fails, it says what they showed. */
export const test = (name, run) =>
  anyTest(name, async t => {
    try {
      await run(t);
      for (const page of pages) assert.deepEqual(page.problems, []);
    } catch (error) {
      throw new Error([error.message, ...(await Promise.all(pages.map(shownBy)))].join('\n'), { cause: error });
    } finally {
      await Promise.all(pages.map(page => page.context().close()));
      pages = [];
    }
  });

async function shownBy(page) {
  const main = page.evaluate(() => {
    const { dataset } = document.querySelector('main') ?? document.body;
    return `${JSON.stringify(dataset)}, and last: ${JSON.stringify(Array.from(document.querySelectorAll('.message')).at(-1)?.innerText.slice(-300))}`;
  });
  const shown = await Promise.race([main.catch(String), pause(10_000).then(() => 'nothing, it hangs')]);
  return `The page ${page.url()} shows ${shown}; its errors: ${JSON.stringify(page.problems)}`;
}

/** Opens a page, for the test that runs. With SPOOL_SLOW=N it gets an Nth of the processor. */
export async function openPage(browser, url, options = {}) {
  const context = options.context ?? (await browser.newContext(options));
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  page.problems = [];
  page.on('pageerror', error => page.problems.push(String(error)));
  pages.push(page);
  const rate = Number(process.env.SPOOL_SLOW ?? 1);
  if (rate > 1) await (await context.newCDPSession(page)).send('Emulation.setCPUThrottlingRate', { rate });
  await page.goto(url);
  return page;
}

/** Waits until a locator finds so many elements. */
export const counts = (locator, n) => eventually(async () => assert.equal(await locator.count(), n, String(locator)));

export async function say(page, text) {
  const box = page.getByRole('textbox', { name: 'Message', exact: true });
  await box.fill(text);
  await box.press('Enter');
}

/** Does what makes a page send a command, and waits until it is stored. Nothing else may be appended meanwhile. */
export async function stored(url, session, act) {
  const latest = async () => (await (await fetch(`${url}/stream/${session}/info`)).json()).latestSequence;
  const before = await latest();
  await act();
  await eventually(async () => assert.notEqual(await latest(), before, 'nothing was stored'));
}

/** Waits until the session is at rest and the page shows what its snapshot holds, so many answers, and returns it. */
export const same = (page, url, answers = 1) =>
  eventually(async () => {
    const snapshot = await snapshotOf(url, sessionOf(page));
    assert.ok(snapshot, 'no such session');
    assert.notEqual(snapshot.status, 'active');
    const wanted = snapshot.messages.map(m => ({ role: m.role, id: m.id, text: m.parts.filter(p => p.type === 'text').map(p => p.text).join(' ') }));
    assert.equal(wanted.filter(m => m.role === 'assistant').length, answers, 'number of answers');
    const shown = await page.evaluate(() => ({
      ...document.querySelector('main').dataset,
      messages: Array.from(document.querySelectorAll('.message')).map(m => ({
        role: m.dataset.role,
        id: m.dataset.id,
        text: Array.from(m.querySelectorAll(':scope > .md, :scope > .as-is, .bubble'), e => e.textContent).join(' '),
      })),
    }));
    assert.deepEqual(shown.messages.map(plain), wanted.map(plain));
    assert.equal(shown.phase, 'ready');
    assert.match(shown.status, /^(ready|error)$/);
    assert.equal(shown.connection, 'live');
    return snapshot;
  });

/** A message as bare words: Markdown's signs and line ends left out. */
function plain({ role, id, text }) {
  return { role, id, text: text.replace(/^[-| ]+$/gm, ' ').replace(/^\s*(\d+\.|-|>|#+|```\w*)\s/gm, ' ').replace(/[*`|]/g, '').replace(/\s+/g, ' ').trim() };
}

/** Waits until the last answer says so many characters. */
export const shows = (page, characters) =>
  page.waitForFunction(n => (Array.from(document.querySelectorAll('.assistant')).at(-1)?.textContent.length ?? 0) >= n, characters);

export const sessionOf = page => new URL(page.url()).searchParams.get('session');
