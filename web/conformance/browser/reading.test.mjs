// What the page makes of a model's words, and how it is found one's way about in.
import assert from 'node:assert/strict';
import { after, before } from '../lib/test.mjs';
import { accessible } from '../lib/axe.mjs';
import { launch, openPage, say, test } from '../lib/browser.mjs';
import { newSession } from '../lib/cut.mjs';
import { claim } from '../lib/producer.mjs';
import { freePort, start, tempDir } from '../lib/spool.mjs';

let browser, spool;

before(async () => {
  [browser, spool] = await Promise.all([launch(), freePort().then(port => start({ port, store: `${tempDir()}/spool.db` }))]);
});
after(async () => {
  await browser?.close();
  await spool?.stop();
});

const phone = { viewport: { width: 390, height: 700 }, hasTouch: true, isMobile: true };

/** A session in which an agent elsewhere has said this. */
async function saying(text) {
  const session = newSession('said');
  const say = await claim(spool.url, session);
  await say({ type: 'text_delta', delta: text }, { type: 'end' });
  return session;
}

const fence = '```';
const hostile = `A [script](javascript:alert(1)), a [page](data:text/html,x), <a href="javascript:pwned=1">raw</a>,
<script>window.pwned = 2</script><img src=x onerror="window.pwned=3"><svg onload="window.pwned=4"></svg>
<iframe srcdoc="<script>parent.pwned=5</script>"></iframe><form action="/x"><button>press</button></form>
<style>body { display: none }</style>

![picture](https://example.com/read?what=you) [link](https://example.com/)

- one
  - two
- [x] done

مرحبا بالعالم

${fence}js
never(closed)
// the last words`;

test('what a model says is shown, and does nothing', async () => {
  const page = await openPage(browser, `${spool.url}/?session=${await saying(hostile)}`);
  await page.getByText('the last words').waitFor();
  const said = page.locator('.assistant .md');
  assert.equal(await said.locator('script, img, iframe, form, button:not(.copy), style, svg:not(.copy svg), input').count(), 0);
  assert.deepEqual(await said.locator('a[href]').evaluateAll(links => links.map(a => [a.href, a.rel])), [['https://example.com/', 'noopener noreferrer']]);
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  assert.equal(await said.locator('li li').innerText(), 'two');
  assert.match(await said.locator('pre code').textContent(), /^never\(closed\)/);
  assert.equal(await said.getByText('مرحبا').evaluate(e => getComputedStyle(e).direction), 'rtl');
});

test('wide words, code and tables scroll by themselves on a phone', async () => {
  const wide = `${'x'.repeat(400)}\n\n| ${'head '.repeat(8)} | b |\n| - | - |\n| ${'y'.repeat(90)} | 1 |\n\n${fence}\n${'z'.repeat(300)}\n${fence}\n\nthe last words`;
  const page = await openPage(browser, `${spool.url}/?session=${await saying(wide)}`, phone);
  await page.getByText('the last words').waitFor();
  assert.deepEqual(
    await page.evaluate(() => ['html', '.scroller'].map(s => document.querySelector(s)).map(e => e.scrollWidth - e.clientWidth)),
    [0, 0],
  );
});

test('the welcome begins at its top, and the list of chats takes the focus and gives it back', async () => {
  const page = await openPage(browser, spool.url, phone);
  await page.locator('.scenes').waitFor();
  assert.equal(await page.locator('.scroller').evaluate(e => e.scrollTop), 0);
  await page.getByRole('button', { name: 'Chats', exact: true }).click();
  await page.locator('.new:focus').waitFor();
  await page.keyboard.press('Escape');
  await page.locator('.menu:focus').waitFor();
});

test('older chats are listed when they are asked for', async () => {
  const chats = Array.from({ length: 150 }, (_, i) => ({ session: `s${i}`, title: `Chat ${i}`, status: 'ended', updated: 1_700_000_000_000 }));
  const context = await browser.newContext();
  await context.route('**/sessions?*', route => {
    const limit = Number(new URL(route.request().url()).searchParams.get('limit'));
    return route.fulfill({ json: { sessions: chats.slice(0, limit), nextAfter: limit < chats.length ? 'more' : undefined } });
  });
  const page = await openPage(browser, spool.url, { context });
  await page.getByText('Chat 99', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Older chats' }).click();
  await page.getByText('Chat 149', { exact: true }).waitFor();
  assert.equal(await page.getByRole('button', { name: 'Older chats' }).count(), 0);
});

test('an address that leads nowhere says so, and a message begins a chat there', async () => {
  const session = newSession('nowhere');
  const page = await openPage(browser, `${spool.url}/?session=${session}`);
  await page.locator('.unknown', { hasText: session }).waitFor();
  await accessible(page, 'an unknown chat');
  await say(page, 'hello');
  await page.locator('.assistant .md').waitFor();
  assert.equal(await page.locator('.unknown').count(), 0);
  await page.locator('.new').click();
  await page.locator('.scenes').waitFor();
  assert.equal(await page.locator('.unknown').count(), 0);
});

test('what is to be approved is shown with the names of its arguments', async () => {
  const page = await openPage(browser, `${spool.url}/?session=${newSession('named')}`);
  await say(page, 'approve');
  await page.getByRole('button', { name: 'Approve', exact: true }).waitFor();
  assert.match(await page.locator('.tool-hint').innerText(), /^\w+: \S+, \w+: /);
  await accessible(page, 'an approval');
});

for (const [where, options, focused] of [
  ['a desktop', {}, '.composer textarea'],
  ['a phone', phone, '.scroller'],
]) {
  test(`the focus stays in the conversation after a card of the welcome: ${where}`, async () => {
    const page = await openPage(browser, spool.url, options);
    await page.locator('.scenes button').first().press('Enter');
    await page.locator('.message.user').waitFor();
    await page.locator(`${focused}:focus`).waitFor();
  });
}

test('on a phone everything to press is at least 40 pixels high', async () => {
  const page = await openPage(browser, `${spool.url}/?session=${newSession('fingers')}`, phone);
  await say(page, 'approve');
  await page.getByRole('button', { name: 'Approve', exact: true }).waitFor();
  const low = () => page.locator('button:visible, summary:visible, .side-foot a:visible').evaluateAll(all =>
    all.map(e => [e.getAttribute('aria-label') ?? e.textContent, Math.round(e.getBoundingClientRect().height)]).filter(([, height]) => height < 40));
  assert.deepEqual(await low(), []);
  await page.getByRole('button', { name: 'Approve', exact: true }).press('Enter');
  await page.getByText('It is booked.').waitFor();
  await page.locator('main[data-status=ready]').waitFor();
  assert.deepEqual(await low(), []);
  await accessible(page, 'a phone');
});
