// Waiting. Time decides nothing here; it only ends what hangs, so that it says what it waits for.
export const patience = 120_000;

export const pause = ms => new Promise(done => setTimeout(done, ms));

/** Tries until a check no longer fails: for states that come and stay. Returns what the check does. */
export async function eventually(check) {
  for (const end = Date.now() + patience; ; await pause(50)) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() > end) throw error;
    }
  }
}

/** The promise, or an error that says what has not happened. */
export function awaited(promise, what) {
  const late = new Promise((_, fail) => setTimeout(() => fail(new Error(`waited too long: ${what()}`)), patience).unref());
  const either = Promise.race([promise, late]);
  either.catch(() => {}); // who is gone by then need not know
  return either;
}
