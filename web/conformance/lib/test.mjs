// `test`, `before` and `after` as node:test has them, but what they are given runs in a
// process without node:test: its hook on every promise more than doubles the processor
// time of the clients, which are made of promises. Each test file is loaded twice: by
// node --test, where a test only waits for the answer of a child, and by that child.
import { fork } from 'node:child_process';

const mark = 'SPOOL_CONFORMANCE_CHILD';

export const { test, before, after } = process.env[mark] ? performed() : asked(await import('node:test'));

/** In the process of node --test. */
function asked(node) {
  let child, heard;
  let tests = 0;
  const begin = () =>
    fork(process.argv[1], {
      execArgv: [],
      env: { ...process.env, [mark]: 'yes' },
      stdio: ['ignore', process.stderr, process.stderr, 'ipc'], // the report is on stdout
    })
      .on('message', message => heard(message))
      .on('exit', (code, signal) => heard({ left: signal ?? code }));
  /** Has the child do something, and returns when it has. */
  const ask = (what, t) =>
    new Promise((done, fail) => {
      heard = ({ diagnostic, error, left }) => {
        if (diagnostic !== undefined) return t.diagnostic(diagnostic);
        if (error) return fail(Object.assign(new Error(error.message), error));
        if (left !== undefined && !(what.end && left === 0)) return fail(new Error(`the process of the tests ended with ${left}`));
        done();
      };
      child ??= begin();
      child.send(what, error => error && fail(error));
    });
  node.after(() => child && ask({ end: true }));
  return {
    test(name) {
      const index = tests++;
      node.test(name, t => ask({ index }, t));
    },
    before() {},
    after() {},
  };
}

/** In the child. */
function performed() {
  const [tests, first, last] = [[], [], []];
  const all = async list => {
    for (const run of list) await run();
  };
  let begun;
  const perform = async index => {
    while (!tests[index]) await new Promise(done => setTimeout(done, 5)); // its file awaits something first
    await (begun ??= all(first));
    const then = [];
    try {
      await tests[index]({ after: run => then.push(run), diagnostic: diagnostic => process.send({ diagnostic }) });
    } finally {
      await all(then);
    }
  };
  process.on('message', async ({ index, end }) => {
    const error = await (end ? all(last) : perform(index)).then(
      () => undefined,
      error => ({ message: String(error?.message ?? error), stack: error?.stack }),
    );
    if (end && !error) process.exit();
    process.send({ error }, () => end && process.exit(1));
  });
  process.once('disconnect', () => process.exit()); // node --test is gone
  return {
    test: (_, run) => tests.push(run),
    before: run => first.push(run),
    after: run => last.push(run),
  };
}
