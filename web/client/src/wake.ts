/**
 * Calls back each time that trying again may help: the browser is online again, the user
 * is back at the page, or a page that the browser had frozen runs again. Returns what
 * ends that. Outside a browser there is nothing to hear.
 */
export function onWake(wake: () => void): () => void {
  const seen = () => {
    if (document.visibilityState === 'visible') wake();
  };
  const { document } = globalThis;
  globalThis.addEventListener?.('online', wake);
  document?.addEventListener('resume', wake);
  document?.addEventListener('visibilitychange', seen);
  return () => {
    globalThis.removeEventListener?.('online', wake);
    document?.removeEventListener('resume', wake);
    document?.removeEventListener('visibilitychange', seen);
  };
}
