// The page in Debian's headless Chromium.
import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';
import { snapshotOf } from './cut.mjs';

export const launch = () =>
  chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell',
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

/** A page whose errors fail the test that asks for them. */
export async function openPage(browser, url, options = {}) {
  const context = options.context ?? (await browser.newContext(options));
  const page = await context.newPage();
  page.problems = [];
  page.on('pageerror', error => page.problems.push(String(error)));
  await page.goto(url);
  return page;
}

export async function say(page, text) {
  await page.getByRole('textbox', { name: 'Message', exact: true }).fill(text);
  await page.keyboard.press('Enter');
}

export const settled = (page, timeout = 60_000) => page.locator('main:is([data-status=ready],[data-status=error])').waitFor({ timeout });

/** Asserts that the page shows what the snapshot holds, without errors, and returns the snapshot. */
export async function same(page, url, answers = 1) {
  const { seen, stored, snapshot } = await compare(page, url);
  assert.deepEqual(seen, stored);
  assert.equal(stored.filter(m => m.role === 'assistant').length, answers);
  assert.deepEqual(page.problems, []);
  return snapshot;
}

/** Waits until the last answer says so many characters. */
export const shows = (page, characters) =>
  page.waitForFunction(n => (Array.from(document.querySelectorAll('.assistant')).at(-1)?.textContent.length ?? 0) >= n, characters);

export const sessionOf = page => new URL(page.url()).searchParams.get('session');

/** The page's answers and the snapshot's, as bare words: Markdown's signs and line ends left out. */
export async function compare(page, url) {
  const seen = await page.evaluate(() =>
    Array.from(document.querySelectorAll('.message')).map(m => ({
      role: m.dataset.role,
      id: m.dataset.id,
      text: Array.from(m.querySelectorAll(':scope > .md, .bubble'), e => e.textContent).join(' '),
    })),
  );
  const snapshot = await snapshotOf(url, sessionOf(page));
  const stored = snapshot.messages.map(m => ({
    role: m.role,
    id: m.id,
    text: m.parts
      .filter(p => p.type === 'text')
      .map(p => p.text)
      .join(' '),
  }));
  return { seen: seen.map(plain), stored: stored.map(plain), snapshot };
}

function plain({ role, id, text }) {
  return { role, id, text: text.replace(/^\s*(\d+\.|-|#+|```\w*)\s/gm, ' ').replace(/[*`]/g, '').replace(/\s+/g, ' ').trim() };
}
