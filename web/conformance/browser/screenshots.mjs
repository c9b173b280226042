// Writes docs/img: the page's states, on a desk and on a phone.
import { launch, openPage, same, say, shows } from '../lib/browser.mjs';
import { newSession } from '../lib/cut.mjs';
import { startGate } from '../lib/gate.mjs';
import { devices, shoot as picture } from '../lib/pictures.mjs';
import { freePort, start, tempDir } from '../lib/spool.mjs';

const gate = await startGate();
const browser = await launch();

for (const [device, options] of Object.entries(devices)) {
  const server = { port: await freePort(), store: `${tempDir()}/spool.db`, env: { SPOOL_TEST_GATE: gate.url } };
  let spool = await start(server);
  const shoot = (page, name) => picture(page, `${name}-${device}`, { animations: 'disabled' });
  const open = async (name, records = Infinity) => {
    const session = newSession(name);
    gate.allow(session, records);
    return { session, page: await openPage(browser, `${spool.url}/?session=${session}`, options) };
  };

  const first = await openPage(browser, spool.url, options);
  await first.locator('.scenes').waitFor();
  await shoot(first, 'new');
  await first.context().close();

  const tools = await open('tools');
  await say(tools.page, 'tools for three days in Lisbon');
  await tools.page.getByText('That took three steps').waitFor();
  await same(tools.page, spool.url);
  await tools.page.locator('.tool summary').first().click();
  await tools.page.locator('.scroller').evaluate(e => e.scrollTo(0, 0));
  await shoot(tools.page, 'tools');
  await tools.page.locator('.user').hover();
  await tools.page.getByRole('button', { name: 'Edit' }).click();
  await shoot(tools.page, 'edit');
  await tools.page.context().close();

  const agents = await open('agents');
  await say(agents.page, 'agents');
  await agents.page.getByText('you can open it from its call above').waitFor();
  await same(agents.page, spool.url);
  await shoot(agents.page, 'agents');
  const paced = await start({ args: ['--demo-rate', '40'] }); // with spans that are as long as a model's
  await (await fetch(`${paced.url}/api/chat/agents`, { method: 'POST', body: '{"message":"agents"}' })).text();
  const inspector = await openPage(browser, `${paced.url}/inspect?session=agents`, { ...options, ...(device === 'desktop' && { viewport: { width: 1400, height: 860 } }) });
  await inspector.getByText('The answer is complete.').waitFor();
  await inspector.locator('.gantt-span', { hasText: 'get_weather' }).click();
  if (device === 'desktop') await inspector.getByRole('tab', { name: 'Turn' }).click();
  await shoot(inspector, 'inspector');
  await inspector.context().close();
  await paced.stop();
  await agents.page.context().close();

  const approve = await open('approve');
  await say(approve.page, 'approve');
  await approve.page.getByRole('button', { name: 'Approve', exact: true }).waitFor();
  await same(approve.page, spool.url);
  await shoot(approve.page, 'approve');
  await approve.page.context().close();

  const mid = 40;
  const refresh = await open('refresh', mid);
  await say(refresh.page, 'think about what a reload does');
  await gate.asked(refresh.session, mid + 1);
  await shows(refresh.page, 20);
  await refresh.page.reload();
  await shows(refresh.page, 20);
  await shoot(refresh.page, 'refresh');
  const tab = await openPage(browser, refresh.page.url(), { context: refresh.page.context() });
  await shows(tab, 20);
  await shoot(tab, 'second-tab');

  await spool.kill9();
  await refresh.page.locator('main[data-connection=reconnecting]').waitFor();
  await shoot(refresh.page, 'killed');
  gate.allow(refresh.session, Infinity);
  spool = await start(server);
  await refresh.page.getByText('survives a reload, as this text does.').waitFor();
  await same(refresh.page, spool.url);
  await shoot(refresh.page, 'restarted');
  await refresh.page.context().close();

  // A message that waits, one that is being written, and the pause after it.
  const second = 44;
  const pause = await open('pause', second);
  await say(pause.page, 'branch');
  await gate.asked(pause.session, second + 1);
  await pause.page.getByText('Then halfway').waitFor();
  await say(pause.page, 'hello, and thank you');
  await pause.page.locator('.queue li').waitFor();
  await pause.page.getByRole('textbox', { name: 'Message', exact: true }).fill('No: by train, please');
  await pause.page.getByRole('radio', { name: 'Steer' }).check();
  await shoot(pause.page, 'waiting');
  await pause.page.context().close();

  const journey = await open('journey');
  await say(journey.page, 'branch');
  await journey.page.getByText('a step each').waitFor();
  await same(journey.page, spool.url);
  const mark = journey.page.locator('.checkpoint').nth(1);
  await mark.getByRole('button').scrollIntoViewIfNeeded();
  await mark.getByRole('button').click();
  await shoot(journey.page, 'checkpoint');
  await journey.page.getByRole('menuitem', { name: 'Branch from here' }).click();
  await journey.page.getByRole('button', { name: 'Continue' }).waitFor();
  await shoot(journey.page, 'branched');
  await journey.page.context().close();

  const stopped = await open('stop', 90);
  await say(stopped.page, 'long');
  await gate.asked(stopped.session, 91);
  await shows(stopped.page, 100);
  await stopped.page.getByRole('button', { name: 'Stop' }).click();
  gate.allow(stopped.session, Infinity);
  await stopped.page.locator('.interrupted').waitFor();
  await same(stopped.page, spool.url);
  await shoot(stopped.page, 'stopped');
  if (device === 'phone') {
    await stopped.page.getByRole('button', { name: 'Chats', exact: true }).click();
    await shoot(stopped.page, 'chats');
  }
  await stopped.page.context().close();
  await spool.stop();
}
await browser.close();
gate.close();
