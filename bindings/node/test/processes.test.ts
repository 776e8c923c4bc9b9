// Tests that need their own process: both kinds of modules, threads, garbage collection, and exits during work.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { openModel, saveFile, tensorOf } from 'ballast';
import { beforeAll, expect, test } from 'vitest';

import { filesIn, noise, runNode, tempFolder, withPackage, writeSample, writeSparse } from './support';

const folder = withPackage(tempFolder());

beforeAll(async () => {
  await writeSample(join(folder, 'model.safetensors'));
  writeSparse(join(folder, 'long.safetensors'), 256);
  await saveFile({ 'up.weight': tensorOf(noise(16 << 20), [4096, 4096]) }, join(folder, 'large.safetensors'), { sync: false });
});

/** Runs a program, which must exit with 0, and returns what it printed. */
async function run(name: string, code: string, ...flags: string[]): Promise<string> {
  writeFileSync(join(folder, name), code);
  const { code: exit, printed } = await runNode(folder, ...flags, name);
  expect({ exit, printed: exit === 0 ? '' : printed }).toEqual({ exit: 0, printed: '' });
  return printed;
}

test('works as an ES module', async () => {
  const printed = await run('a.mjs', `
    import { openModel, BF16Array, version } from 'ballast';
    const model = await openModel('model.safetensors');
    console.log(model.tensor('embed.weight') instanceof BF16Array, version);`);
  expect(printed).toMatch(/^true \d+\.\d+\.\d+\n$/);
});

test('works as a CommonJS module', async () => {
  const printed = await run('b.cjs', `
    const { openModel, BF16Array } = require('ballast');
    openModel('model.safetensors').then((model) => console.log(model.tensor('embed.weight') instanceof BF16Array));`);
  expect(printed).toBe('true\n');
});

test('gives both kinds of modules the same objects', async () => {
  const printed = await run('c.mjs', `
    import * as imported from 'ballast';
    import { createRequire } from 'node:module';
    const required = createRequire(import.meta.url)('ballast');
    const names = Object.keys(required);
    console.log(names.length > 30, names.every((name) => imported[name] === required[name]), Object.keys(imported).length - names.length);`);
  expect(printed).toMatch(/^true true [0-2]\n$/); // ES modules may also have `default` and `module.exports`
});

test('works in several threads at once', async () => {
  const printed = await run('d.cjs', `
    const { Worker, isMainThread, parentPort } = require('node:worker_threads');
    const { openModel, convertModel, quantizeModel } = require('ballast');
    async function work(name) {
      const model = await openModel('model.safetensors');
      const bias = model.tensor('bias');
      await convertModel(model, name + '.safetensors', { dtype: 'f16', sync: false });
      const { cosineSimilarity } = await quantizeModel(model, name, { groupSize: 32, sync: false });
      return { bias, cosineSimilarity };
    }
    if (!isMainThread) work('thread' + require('node:worker_threads').threadId).then((made) => parentPort.postMessage(made));
    else (async () => {
      const own = await work('main');
      const all = await Promise.all([1, 2, 3, 4].map(() => new Promise((done, fail) => new Worker(__filename).on('message', done).on('error', fail))));
      console.log(all.every(({ bias, cosineSimilarity }) => bias[63] === own.bias[63] && cosineSimilarity === own.cosineSimilarity));
    })();`);
  expect(printed).toBe('true\n');
});

test('workers that are terminated during work leave no files', async () => {
  const printed = await run('e.cjs', `
    const { Worker, isMainThread, parentPort } = require('node:worker_threads');
    const { openModel, convertModel, quantizeModel } = require('ballast');
    if (!isMainThread) (async () => {
      const model = await openModel('long.safetensors');
      model.tensor('up.0.weight');
      for (let i = 0; i < 20; ++i) model.read('up.0.weight', { dtype: 'F16' });
      convertModel(model, 'ended.safetensors', { dtype: 'bf16', progress: () => parentPort.postMessage('busy') });
      quantizeModel('long.safetensors', 'ended', { progress: () => parentPort.postMessage('busy') });
    })();
    else (async () => {
      for (let i = 0; i < 3; ++i) {
        const worker = new Worker(__filename);
        await new Promise((done) => worker.once('message', done));
        await worker.terminate();
      }
      const model = await openModel('model.safetensors');
      console.log(model.tensor('bias').length);
    })();`);
  expect(printed).toBe('64\n');
  expect(filesIn(folder).filter((name) => /ended|incomplete|tmp/.test(name) && !name.startsWith('node_modules'))).toEqual([]);
});

test('a process that exits during work leaves no partial files', async () => {
  await run('f.mjs', `
    import { convertModel, openModel, quantizeModel, saveFile } from 'ballast';
    const model = await openModel('large.safetensors');
    model.tensor('up.weight');
    model.read('up.weight');
    saveFile({ a: new Uint8Array(64 << 20) }, 'exited1.safetensors');
    convertModel(model, 'exited2.safetensors', { dtype: 'bf16', progress: () => process.exit(0) });
    quantizeModel(model, 'exited', { progress: () => process.exit(0) });`);
  const left = filesIn(folder).filter((name) => /exited|incomplete/.test(name) && !name.startsWith('node_modules'));
  for (const name of left) expect((await openModel(join(folder, name))).size, name).toBe(1); // it was complete before
});

test('a worker that exits during work ends', async () => {
  const printed = await run('k.cjs', `
    const { Worker, isMainThread } = require('node:worker_threads');
    const { quantizeModel } = require('ballast');
    if (isMainThread) new Worker(__filename).on('exit', (code) => console.log(code));
    else quantizeModel('large.safetensors', 'exited', { progress: () => process.exit(3) });`);
  expect(printed).toBe('3\n');
});

test('running work keeps the process alive, an open model does not', async () => {
  expect(await run('g.mjs', `
    import { openModel } from 'ballast';
    const model = await openModel('model.safetensors');
    model.read('bias').then(() => console.log('read'));`)).toBe('read\n');
});

const HELD = `
  import { readFileSync } from 'node:fs';
  import { setImmediate } from 'node:timers/promises';
  import { openModel } from 'ballast';
  const maps = () => readFileSync('/proc/self/maps', 'utf8').split('\\n').filter((line) => line.includes('model.safetensors')).length;
  const collect = async () => { for (let i = 0; i < 5; ++i) { gc(); await setImmediate(); } };`;

test('arrays outlive their model, and the file is unmapped with the last', async () => {
  const printed = await run('h.mjs', `${HELD}
    let array = await (async () => (await openModel('model.safetensors')).tensor('bias'))();
    await collect();
    const held = maps();
    const first = array[0];
    let other = array.subarray(2, 4);
    array = undefined;
    await collect();
    console.log(held, maps(), first < 1, other.length);
    other = undefined;
    await collect();
    console.log(maps());`);
  expect(printed).toBe('1 1 true 2\n0\n');
});

test('opens 2 GiB, and reads one tensor, with the memory of that tensor', async () => {
  writeSparse(join(folder, 'two.safetensors'), 512);
  const printed = await run('l.mjs', `${HELD}
    const warm = await openModel('model.safetensors');
    await warm.read('bias');
    warm.tensor('bias');
    await collect();
    const before = process.memoryUsage().rss;
    const model = await openModel('two.safetensors');
    const opened = process.memoryUsage().rss;
    let sum = 0;
    const array = model.tensor('up.300.weight');
    for (let i = 0; i < array.length; i += 1024) sum += array[i];
    const viewed = process.memoryUsage().rss;
    console.log(model.nbytes, sum, (opened - before) / 1e6, (viewed - before) / 1e6);`);
  const [nbytes, sum, opened, viewed] = printed.trim().split(' ').map(Number);
  expect([nbytes, sum]).toEqual([2 ** 31, 0]);
  expect(opened).toBeLessThan(5);
  expect(viewed).toBeLessThan(10); // including 4 MiB of the tensor
});

test('arrays of gigabytes are collected, or still in use when the process ends', async () => {
  const printed = await run('m.mjs', `${HELD}
    for (let i = 0; i < 3; ++i) {
      const model = await openModel('long.safetensors');
      for (const name of model.names) model.tensor(name);
      await collect();
    }
    const model = await openModel('long.safetensors');
    globalThis.kept = model.names.map((name) => model.tensor(name));
    console.log(kept.length);`);
  expect(printed).toBe('256\n');
});

test('leaks no memory and no files over 10,000 models', async () => {
  const printed = await run('i.mjs', `${HELD}
    import { readdirSync } from 'node:fs';
    async function some(count) {
      for (let i = 0; i < count; ++i) {
        const model = await openModel('model.safetensors');
        model.tensor('bias');
        if (i % 10 === 0) await model.read('embed.weight');
        if (i % 2 === 0) model.close();
      }
      await collect();
      return process.memoryUsage().rss;
    }
    const before = await some(10_000);
    const after = await some(10_000);
    console.log((after - before) / 1e6, readdirSync('/proc/self/fd').length, maps());`,
    '--max-semi-space-size=1'); // otherwise it grows by itself
  const [grown, files, maps] = printed.trim().split(' ').map(Number);
  expect(grown).toBeLessThan(10);
  expect(files).toBeLessThan(60);
  expect(maps).toBe(0);
});

test('aborted work leaks no memory', async () => {
  const printed = await run('j.mjs', `${HELD}
    import { quantizeModel } from 'ballast';
    async function some(count) {
      for (let i = 0; i < count; ++i) {
        const controller = new AbortController();
        const work = quantizeModel('model.safetensors', 'never', { signal: controller.signal, progress: () => false });
        controller.abort();
        await work.catch(() => undefined);
      }
      await collect();
      return process.memoryUsage().rss;
    }
    for (let i = 0; i < 20; ++i) await quantizeModel('model.safetensors', 'whole', { groupSize: 32, sync: false }); // loads Arrow
    const before = await some(400);
    console.log(((await some(400)) - before) / 1e6);`,
    '--max-semi-space-size=1');
  expect(Number(printed)).toBeLessThan(15);
});
