// Writes docs/img/recovery-*: a server is killed in the middle of an answer whose provider cannot resume it.
import { launch, openPage, same, say } from '../lib/browser.mjs';
import { newSession } from '../lib/cut.mjs';
import { startGate } from '../lib/gate.mjs';
import { devices, shoot as picture } from '../lib/pictures.mjs';
import { freePort, start, tempDir } from '../lib/spool.mjs';

const browser = await launch();

for (const [device, options] of Object.entries(devices)) {
  const [before, after] = [await startGate(), await startGate()];
  const server = { port: await freePort(), store: `${tempDir()}/spool.db` };
  const session = newSession('log');
  const shoot = (page, name) => picture(page, `recovery-${name}-${device}`);
  before.allow(session, 250);
  let spool = await start({ ...server, env: { SPOOL_TEST_GATE: before.url } });
  const page = await openPage(browser, `${spool.url}/?session=${session}`, { ...options, reducedMotion: 'reduce' });
  await say(page, 'long');
  await before.asked(session, 251);
  await page.locator('.assistant .block').nth(5).waitFor();
  await shoot(page, 'before');
  await spool.kill9();
  await page.locator('main[data-connection=reconnecting]').waitFor();
  await shoot(page, 'killed');
  after.allow(session, 120);
  spool = await start({ ...server, env: { SPOOL_TEST_GATE: after.url } });
  await after.asked(session, 121);
  await page.locator('.recovering').filter({ hasText: 'dimmed' }).waitFor();
  await page.locator('.assistant .block:not([data-stale])').nth(2).waitFor();
  await shoot(page, 'again');
  after.allow(session, 280);
  await after.asked(session, 281);
  await page.locator('main:not([data-recovering])').waitFor();
  await shoot(page, 'after');
  after.allow(session, Infinity);
  await same(page, spool.url);
  await page.context().close();
  await spool.stop();
  before.close();
  after.close();
}
await browser.close();
