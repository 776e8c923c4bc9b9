import { existsSync, truncateSync } from 'node:fs';
import { join } from 'node:path';

import { ArgumentError, CancelledError, ClosedError, F16Array, openModel, type ProgressReport, quantizeModel, saveFile, tensorOf } from 'ballast';
import { beforeAll, describe, expect, test } from 'vitest';

import { bf16, noise, runNode, tempFolder, withPackage, writeQwen3, writeRaw, writeSample, writeSparse } from './support';

const folder = tempFolder();
const sample = join(folder, 'model.safetensors');

beforeAll(() => writeSample(sample));

describe('load()', () => {
  test('copies all tensors with their shapes and dtypes', async () => {
    using model = await openModel(sample);
    const tensors = await model.load();
    expect([...tensors.keys()]).toEqual(model.names);
    expect(tensors.get('embed.weight')).toEqual({ data: bf16(noise(64 * 32)), shape: [64, 32], dtype: 'BF16' });
    expect(tensors.get('bias')).toEqual({ data: noise(64), shape: [64], dtype: 'F32' });
  });

  test('gives arrays that are writable, independent of the file, and that saveFile() accepts', async () => {
    const path = join(folder, 'own.safetensors');
    await writeSample(path);
    const tensors = await (await openModel(path)).load({ threads: 1 });
    truncateSync(path, 0);
    const bias = tensors.get('bias')!.data as Float32Array;
    bias[0] = 7;
    const out = join(folder, 'saved.safetensors');
    await saveFile(tensors, out, { sync: false });
    using saved = await openModel(out);
    expect(saved.info('embed.weight')).toMatchObject({ dtype: 'BF16', shape: [64, 32] });
    expect(saved.tensor('bias')[0]).toBe(7);
  });

  test('works for shards, tensors of any name, empty tensors and F4', async () => {
    const path = join(folder, 'shards');
    const tensors = new Map([
      ['__proto__', tensorOf(new Float32Array([1, 2]), [2])], ['7', tensorOf(new Uint8Array(0), [0, 3])], ['f4', tensorOf(new Uint8Array([1, 2]), [2, 2], 'F4')],
      ['half', tensorOf(new F16Array([0x3c00]), [])],
    ]);
    await saveFile(tensors, path, { maxShardSize: 100, sync: false });
    const model = await openModel(path);
    expect(model.files.length).toBeGreaterThan(1);
    const loaded = await model.load();
    expect(new Map([...loaded].sort())).toEqual(new Map([
      ['7', { data: new Uint8Array(0), shape: [0, 3], dtype: 'U8' }], ['__proto__', { data: new Float32Array([1, 2]), shape: [2], dtype: 'F32' }],
      ['f4', { data: new Uint8Array([1, 2]), shape: [2, 2], dtype: 'F4' }], ['half', { data: new F16Array([0x3c00]), shape: [], dtype: 'F16' }],
    ]));
  });

  test('copies a tensor at an address where no typed array can start', async () => {
    const header = { a: { dtype: 'U8', shape: [1], data_offsets: [0, 1] }, b: { dtype: 'F32', shape: [2], data_offsets: [1, 9] } };
    const data = Buffer.concat([Buffer.of(9), Buffer.from(Float32Array.of(1.5, -2).buffer)]);
    const model = await openModel(writeRaw(join(folder, 'odd.safetensors'), header, data));
    expect((await model.load()).get('b')!.data).toEqual(Float32Array.of(1.5, -2));
  });

  test.each(['mlx', 'parquet'] as const)('decodes %s', async (format) => {
    const out = join(folder, format);
    await quantizeModel(await writeQwen3(join(folder, 'qwen3')), out, { format, groupSize: 32, sync: false });
    const model = await openModel(out, { decode: true });
    for (const [name, { data }] of await model.load()) expect(data).toEqual(await model.read(name));
  });

  test('refuses to allocate more than memoryLimit', async () => {
    const model = await openModel(sample);
    await expect(model.load({ memoryLimit: '1kB' })).rejects.toBeInstanceOf(ArgumentError);
    expect((await model.load({ memoryLimit: '1MB' })).size).toBe(2);
  });

  test('reports its progress, and stops when it is told to', async () => {
    const model = await openModel(writeSparse(join(folder, 'long.safetensors'), 32));
    const seen: ProgressReport[] = [];
    await model.load({ progress: (report) => { seen.push(report); } });
    expect(seen.at(-1)).toMatchObject({ done: 32 << 22, total: 32 << 22 });
    await expect(model.load({ progress: () => false })).rejects.toBeInstanceOf(CancelledError);
    const reason = new Error('enough');
    await expect(model.load({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    const controller = new AbortController();
    await expect(model.load({ signal: controller.signal, progress: () => controller.abort(reason) })).rejects.toBe(reason);
  });

  test('throws once the model is closed, and finishes if it is closed meanwhile', async () => {
    const model = await openModel(sample);
    const loading = model.load();
    model.close();
    expect((await loading).size).toBe(2);
    await expect(model.load()).rejects.toBeInstanceOf(ClosedError);
  });

  test('frees its memory with the last array', async () => {
    const place = withPackage(tempFolder());
    const path = writeSparse(join(place, 'long.safetensors'), 64); // 256 MiB
    const program = `
      const { openModel } = require('ballast');
      const { setImmediate } = require('node:timers/promises');
      const collect = async () => { for (let i = 0; i < 5; ++i) { gc(); await setImmediate(); } };
      const rss = () => Math.round(process.memoryUsage.rss() / 2 ** 20);
      (async () => {
        const model = await openModel(${JSON.stringify(path)});
        await collect();
        const before = rss();
        let one = (await model.load()).get('up.3.weight');
        await collect();
        const held = rss() - before;
        one = undefined;
        await collect();
        console.log(JSON.stringify([held, rss() - before]));
      })();`;
    const { code, printed } = await runNode(place, '-e', program);
    expect(code, printed).toBe(0);
    const [held, after] = JSON.parse(printed) as [number, number];
    expect(held).toBeGreaterThan(200);
    expect(after).toBeLessThan(100);
    expect(existsSync(path)).toBe(true);
  });
});
