import { copyFileSync, cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { expect, test } from 'vitest';

import { PACKAGE, ROOT, runNode, tempFolder } from './support';

const ADDON = `${process.platform}-${process.arch}/ballast.node`;

/** Copies the package as npm installs it, with an addon in `prebuilds` and one in the build of its sources. */
function installed(prebuilt: 'none' | 'good' | 'damaged', built: 'none' | 'good'): string {
  const folder = tempFolder();
  const own = join(folder, 'node_modules/ballast');
  cpSync(join(PACKAGE, 'dist'), join(own, 'dist'), { recursive: true });
  copyFileSync(join(PACKAGE, 'package.json'), join(own, 'package.json'));
  const places = [[prebuilt, join(own, 'prebuilds', ADDON)], [built, join(own, 'source/build/release/node/ballast.node')]] as const;
  for (const [state, addon] of places) {
    mkdirSync(join(addon, '..'), { recursive: true });
    if (state === 'good') copyFileSync(join(ROOT, 'build/release/node/ballast.node'), addon);
    if (state === 'damaged') writeFileSync(addon, 'not a library');
  }
  return folder;
}

const use = (folder: string) => runNode(folder, '-p', 'try { require("ballast").version } catch (error) { error.message }');

test.each([['good', 'none'], ['none', 'good'], ['damaged', 'good']] as const)('loads with a prebuilt addon: %s, one built from source: %s', async (prebuilt, built) => {
  expect((await use(installed(prebuilt, built))).printed).toMatch(/^\d+\.\d+\.\d+\n$/);
});

test('says why no addon loads, and what to do', async () => {
  const folder = installed('damaged', 'none');
  expect((await use(folder)).printed).toBe(
    `cannot load ${join(folder, 'node_modules/ballast/prebuilds', ADDON)}: file too short; `
    + 'run `npm rebuild ballast` to build it from source, or `npm install` in a clone\n');
  const empty = installed('none', 'none');
  expect((await use(empty)).printed).toContain(`${join(empty, 'node_modules/ballast')} contains no addon for ${process.platform}-${process.arch}; run`);
});
