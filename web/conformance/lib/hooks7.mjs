// Loads the hooks with the client of the 7 line: a module whose address ends in ?7, and those
// that it imports, get that client in place of the workspace's. React stays the one it is.
import { register } from 'node:module';

const clients = new URL('../clients/package.json', import.meta.url).href;
const source = `
const clients = ${JSON.stringify(clients)};
const other = { ai: 'ai7', '@ai-sdk/react': 'react7' };
export async function resolve(specifier, context, next) {
  const { parentURL = '' } = context;
  if (specifier === 'react' && parentURL.includes('/clients/')) return next(specifier, { ...context, parentURL: ${JSON.stringify(import.meta.url)} });
  if (!parentURL.endsWith('?7')) return next(specifier, context);
  if (other[specifier]) return next(other[specifier], { ...context, parentURL: clients });
  const found = await next(specifier, context);
  return found.url.startsWith('file:') && !found.url.includes('/node_modules/') ? { ...found, url: found.url + '?7' } : found;
}`;
register(`data:text/javascript,${encodeURIComponent(source)}`);

export const hooks7 = () => import(`${import.meta.resolve('@spool-run/react')}?7`);
