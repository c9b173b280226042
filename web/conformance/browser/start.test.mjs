// Where the page begins: with a real model, under a prefix, and without a server.
import assert from 'node:assert/strict';
import { after, before } from '../lib/test.mjs';
import { counts, launch, openPage, same, say, sessionOf, shows, test } from '../lib/browser.mjs';
import { newSession } from '../lib/cut.mjs';
import { startGate } from '../lib/gate.mjs';
import { startMount } from '../lib/mount.mjs';
import { startProvider } from '../lib/provider.mjs';
import { freePort, start, tempDir } from '../lib/spool.mjs';
import { startWire } from '../lib/wire.mjs';

let browser, gate, spool, server;

before(async () => {
  gate = await startGate();
  server = { port: await freePort(), store: `${tempDir()}/spool.db`, env: { SPOOL_TEST_GATE: gate.url } };
  [browser, spool] = await Promise.all([launch(), start(server)]);
});
after(async () => {
  await browser?.close();
  await spool?.stop();
  gate?.close();
});

test('the start page of a real model names it, and suggests what any model can answer', async () => {
  const provider = await startProvider(['A needle ', 'follows the groove.']);
  const real = await start({ args: ['--model', 'openai:groove-1'], env: { OPENAI_BASE_URL: provider.url } });
  const page = await openPage(browser, real.url);
  await page.getByRole('heading', { name: 'Ask groove-1 anything' }).waitFor();
  await counts(page.locator('.demo'), 0);
  const suggestions = page.locator('.scenes button');
  assert.ok((await suggestions.count()) >= 4);
  const demo = await openPage(browser, spool.url);
  await demo.locator('.scenes button').first().waitFor();
  for (const word of await demo.locator('.scenes strong').allInnerTexts()) await counts(page.locator('.scenes strong').getByText(word, { exact: true }), 0);

  const asked = await suggestions.first().locator('span').innerText();
  await suggestions.first().click();
  await page.getByText('A needle follows the groove.').waitFor();
  await same(page, real.url);
  assert.equal(await page.locator('.bubble').innerText(), asked);
  assert.ok(JSON.stringify(provider.asked[0].messages).includes(asked));
  await real.stop();
  provider.close();
});

test('under a prefix', async () => {
  const mount = await startMount(spool.url, '/tools/chat');
  const session = newSession('mount');
  gate.allow(session, 40);
  const page = await openPage(browser, `${mount.url}/?session=${session}`);
  await say(page, 'think');
  await gate.asked(session, 41);
  await shows(page, 20);
  await page.reload();
  await shows(page, 20);
  gate.allow(session, Infinity);
  await same(page, spool.url);
  await page.locator('.sessions [aria-current=page]').waitFor();

  await page.locator('.new').click();
  await page.getByRole('heading', { name: 'Start a chat' }).waitFor();
  assert.equal(page.url(), `${mount.url}/`);
  await say(page, 'approve');
  await page.getByRole('button', { name: 'Approve', exact: true }).click();
  await page.getByText('It is booked.').waitFor();
  await same(page, spool.url);
  await page.locator('.sessions a', { hasText: 'think' }).first().click();
  await page.getByText('survives a reload, as this text does.').waitFor();
  assert.equal(sessionOf(page), session);
  assert.deepEqual(mount.strays, []);
  mount.close();
});

test('a server that did not answer is asked again within a quarter of a second, also between two answers', async () => {
  let answer = route => route.fallback();
  const page = await openPage(browser, 'about:blank');
  await page.route('**/api/chat/*/info', route => answer(route));
  await page.clock.install();
  await page.goto(`${spool.url}/?session=${newSession('idle')}`);
  await say(page, 'hello');
  await same(page, spool.url);
  await page.clock.pauseAt(Date.now() + 60_000);
  const held = new Promise(done => (answer = done));
  let look;
  while (!look) look = await Promise.race([held, page.clock.runFor(2_500)]);
  answer = route => route.fallback();
  await look.abort();
  await page.locator('main[data-connection=reconnecting]').waitFor();
  await page.clock.runFor(250);
  await page.locator('main[data-connection=live]').waitFor();
});

test('a connection that is given up is tried again by hand', async () => {
  const wire = await startWire(spool.url);
  const session = newSession('lost');
  gate.allow(session, 40);
  const page = await openPage(browser, `${wire.url}/?session=${session}`);
  await page.clock.install();
  await say(page, 'think');
  await gate.asked(session, 41);
  await page.getByText('I thought about it first: half of seven').waitFor();
  const shown = await page.locator('.assistant').innerText();
  wire.cut();
  await page.locator('main[data-connection=reconnecting]').waitFor();
  const given = page.locator('main[data-connection=lost]');
  while (!(await given.count())) await page.clock.runFor(10_000);
  assert.equal(await page.locator('.assistant').innerText().then(t => t.startsWith(shown.trim())), true, 'what was shown is gone');
  const again = page.getByRole('button', { name: 'Try again' });
  await again.click(); // without effect
  await again.waitFor();
  gate.allow(session, Infinity);
  wire.mend();
  await again.click();
  await page.getByText('survives a reload, as this text does.').waitFor();
  await page.clock.resume();
  await same(page, spool.url);
  await counts(page.locator('.problem'), 0);
  wire.close();
});
