// Runs the samples of docs/node.md and the README, and checks their types.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import * as ballast from 'ballast';
import ts from 'typescript';
import { beforeAll, describe, expect, test } from 'vitest';

import { PACKAGE, ROOT, runNode, tempFolder, withPackage, writeQwen3, writeSample } from './support';

const guide = readFileSync(join(ROOT, 'docs/node.md'), 'utf8');
const readme = readFileSync(join(ROOT, 'README.md'), 'utf8');
const packageReadme = readFileSync(join(PACKAGE, 'README.md'), 'utf8');
const blocks = (text: string) => [...text.matchAll(/^```ts\n(.*?)^```$/gms)].map(([, code]) => code!);
const folder = withPackage(tempFolder());

beforeAll(async () => {
  await writeSample(join(folder, 'model.safetensors'));
  await writeQwen3(join(folder, 'qwen3-tiny'));
});

async function run(name: string, code: string): Promise<string> {
  writeFileSync(join(folder, `${name}.mts`), code);
  const { outputText } = ts.transpileModule(code, { compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 } });
  writeFileSync(join(folder, `${name}.mjs`), outputText);
  const { code: exit, printed } = await runNode(folder, `${name}.mjs`);
  expect(exit, printed).toBe(0);
  return printed;
}

describe('samples', () => {
  test('in the guide run', async () => {
    const samples = blocks(guide);
    expect(samples.length).toBeGreaterThan(4);
    const printed = await run('guide', samples.join('\n'));
    for (const line of [
      "Model('model.safetensors', 2 tensors, 2,112 parameters)", 'embed.weight BF16 [ 64, 32 ]', '2112 64 2048 2048 128 32',
      '2 [ 64, 32 ]', '24 tensors, 20672 parameters, safetensors, ./qwen3-tiny/model.safetensors', '20672 2', 'true', "true [ 'header', 'values' ]",
    ]) expect(printed.split('\n')).toContain(line);
    expect(printed).toContain(': 4352 of 4352 bytes\n');
  });

  test('in the READMEs run', async () => {
    for (const [name, text] of [['readme', readme], ['package', packageReadme]] as const) {
      const [sample, ...others] = blocks(text);
      expect(others).toEqual([]);
      expect(await run(name, sample!)).toContain('[ 64, 32 ]');
    }
  });

  test('have no type errors', () => {
    for (const [name, code] of [['guide', blocks(guide).join('\n')], ['readme', blocks(readme).join('\n')], ['package', blocks(packageReadme).join('\n')]] as const) {
      writeFileSync(join(folder, `${name}.mts`), code);
    }
    const program = ts.createProgram(['guide', 'readme', 'package'].map((name) => join(folder, `${name}.mts`)), {
      strict: true, noEmit: true, module: ts.ModuleKind.Node16, moduleResolution: ts.ModuleResolutionKind.Node16, target: ts.ScriptTarget.ES2022,
      types: ['node'], typeRoots: [join(PACKAGE, 'node_modules/@types')], lib: ['lib.es2022.d.ts', 'lib.esnext.disposable.d.ts'], skipLibCheck: true,
    });
    const said = ts.getPreEmitDiagnostics(program).map((each) => ts.flattenDiagnosticMessageText(each.messageText, '\n'));
    expect(said).toEqual([]);
  });
});

test('the guide lists all errors', () => {
  const rows = [...guide.matchAll(/^\| `(\w+Error)` \| `(\w+)` \|/gm)].map(([, name, code]) => [name, code]);
  const errors = Object.entries(ballast).filter(([name]) => name.endsWith('Error') && name !== 'BallastError');
  const codes = errors.map(([name, value]) => [name, new (value as new (message: string) => ballast.BallastError)('').code]);
  expect(rows.sort()).toEqual(codes.sort());
  for (const [, value] of errors) expect((value as { prototype: unknown }).prototype).toBeInstanceOf(ballast.BallastError);
});

test('the version equals that in package.json', () => {
  const { version } = JSON.parse(readFileSync(join(PACKAGE, 'package.json'), 'utf8')) as { version: string };
  expect(ballast.version).toBe(version);
});

test('npm install names Debian packages that scripts/setup installs', async () => {
  const { DEBIAN_PACKAGES } = (await import(join(PACKAGE, 'scripts/install.mjs'))) as { DEBIAN_PACKAGES: string[] };
  const setup = readFileSync(join(ROOT, 'scripts/setup'), 'utf8').split(/\s+/);
  for (const name of DEBIAN_PACKAGES) expect(setup).toContain(name);
});
