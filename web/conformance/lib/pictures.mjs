// Pictures of the page for docs/img, on a desk and on a phone.
import { mkdirSync } from 'node:fs';
import { resolve } from 'node:path';

const out = resolve(import.meta.dirname, '../../../docs/img');
mkdirSync(out, { recursive: true });

export const devices = {
  desktop: { viewport: { width: 1180, height: 780 }, colorScheme: 'light' },
  phone: { viewport: { width: 390, height: 780 }, colorScheme: 'dark', hasTouch: true, isMobile: true, deviceScaleFactor: 2 },
};

export async function shoot(page, name, options) {
  await page.screenshot({ path: `${out}/${name}.png`, ...options });
  console.log(`${name}.png`);
}
