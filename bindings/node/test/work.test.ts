import { AsyncLocalStorage } from 'node:async_hooks';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

import {
  type BF16Array, BelowMinimumError, CancelledError, convertModel, type ConvertOptions, dequantizeModel, type DequantizeOptions, diffModels, type DiffOptions,
  inspectModel, type InspectOptions, MissingError, openModel, type Progress, type ProgressReport, quantizeModel, type QuantizeOptions, saveFile, tensorOf,
  UnsupportedError, validateModel, verifyModel, type VerifyOptions,
} from 'ballast';
import { beforeAll, describe, expect, test } from 'vitest';

import { filesIn, noise, tempFolder, writeQwen3, writeSample, writeSparse } from './support';

const folder = tempFolder();
const sample = join(folder, 'model.safetensors');
const large = join(folder, 'large.safetensors');

beforeAll(async () => {
  await writeSample(sample);
  // 32 MiB
  await saveFile(Object.fromEntries(Array.from({ length: 8 }, (_, i) => [`up.${i}.weight`, tensorOf(noise(1 << 20), [1024, 1024])])), large, { sync: false });
  await quantizeModel(large, join(folder, 'large-mlx'), { format: 'mlx', method: 'rtn', sync: false });
});

describe('convertModel()', () => {
  test('converts files and open models', async () => {
    const model = await openModel(sample);
    for (const source of [sample, model]) {
      const report = await convertModel(source, join(folder, 'half.safetensors'), { dtype: 'f16', dtypeRules: { '*bias': 'F32' } });
      expect(report).toEqual({ files: [join(folder, 'half.safetensors')], tensors: 2, converted: 1, dataBytes: 4352, notCopied: [], notes: [], warnings: [] });
    }
    const half = await openModel(join(folder, 'half.safetensors'));
    expect(half.info('embed.weight').dtype).toBe('F16');
    expect(half.tensor('embed.weight')).toEqual(await model.read('embed.weight', { dtype: 'F16' }));
  });

  test('selects, renames and changes metadata', async () => {
    const path = join(folder, 'renamed.safetensors');
    await convertModel(sample, path, { exclude: ['bias'], rename: { 'embed.*': 'tokens.*' }, metadata: { a: 'b' }, threads: 1 });
    const model = await openModel(path);
    expect(model.names).toEqual(['tokens.weight']);
    expect(model.metadata).toEqual({ a: 'b' });
  });

  test('writes MLX JSON to a path with any extension', async () => {
    await convertModel(sample, join(folder, 'as-mlx'), { format: 'mlx-json' });
    expect((await openModel(join(folder, 'as-mlx'))).format).toBe('mlx-json');
  });

  test('merges adapters', async () => {
    const [base, lora] = [join(folder, 'base.safetensors'), join(folder, 'lora.safetensors')];
    await saveFile({ 'q.weight': tensorOf(new Float32Array([1, 2, 3, 4]), [2, 2]) }, base);
    const [down, up] = [tensorOf(new Float32Array([1, 0.5]), [1, 2]), tensorOf(new Float32Array([2, -1]), [2, 1])];
    await saveFile({ 'lora_unet_q.lora_down.weight': down, 'lora_unet_q.lora_up.weight': up, 'lora_unet_q.alpha': new Float32Array([4]) }, lora);
    for (const [given, values] of [[lora, [9, 6, -1, 2]], [{ path: lora, scale: 0.5 }, [5, 4, 1, 3]], [[lora, { path: lora, scale: -1 }], [1, 2, 3, 4]]] as const) {
      const report = await convertModel(base, join(folder, 'merged.safetensors'), { lora: given as never });
      expect(report.converted).toBe(1);
      expect(report.notes[0]).toBe(`${lora}: merged into 1 weight`);
      expect([...((await (await openModel(join(folder, 'merged.safetensors'))).read('q.weight')) as Float32Array)]).toEqual(values);
    }
  });

  test('has an error class for each kind of mistake', async () => {
    await expect(convertModel(join(folder, 'no'), join(folder, 'out'))).rejects.toBeInstanceOf(MissingError);
    await expect(convertModel(sample, join(folder, 'out'), { include: ['x*'] })).rejects.toMatchObject({ code: 'ERR_BALLAST_ARGUMENT' });
    await expect(convertModel(sample, join(folder, 'out.safetensors'), { dtypeRules: { bias: 'U8' } })).rejects.toBeInstanceOf(UnsupportedError);
    await expect(convertModel(sample, join(sample, 'out.safetensors'))).rejects.toMatchObject({ code: 'ERR_BALLAST_WRITE' });
    expect(existsSync(join(folder, 'out'))).toBe(false);
  });
});

describe.each(['mlx', 'parquet'] as const)('openModel() of %s', (format) => {
  const out = join(folder, `coded-${format}`);
  beforeAll(() => quantizeModel(sample, out, { format, bitWidth: 4, groupSize: 32, sync: false }));

  test('decodes weights when they are read', async () => {
    const original = await openModel(sample);
    const model = await openModel(out, { decode: true });
    expect([...model.names].sort()).toEqual([...original.names].sort());
    expect(model.info('embed.weight')).toMatchObject({ dtype: 'BF16', shape: original.info('embed.weight').shape });
    const values = (await model.read('embed.weight', { dtype: 'F32' })) as Float32Array;
    const wanted = (await original.read('embed.weight', { dtype: 'F32' })) as Float32Array;
    const worst = Math.max(...values.map((value, i) => Math.abs(value - wanted[i]!)));
    expect(worst).toBeGreaterThan(0);
    expect(worst).toBeLessThan(0.5);
    const rows = ((await model.slice('embed.weight', [1, 3])).data) as BF16Array;
    expect(rows.toFloat32()).toEqual(values.slice(32, 96));
    expect(() => model.tensor('embed.weight')).toThrow(/decoded on reading/);
  });

  test('gives the stored tensors without decode', async () => {
    const model = await openModel(out);
    expect(model.has('embed.scales')).toBe(format === 'mlx');
    expect(model.info('embed.weight').dtype).toBe(format === 'mlx' ? 'U32' : 'BF16');
  });
});

describe('quantizeModel()', () => {
  test('reports the same metrics as validateModel()', async () => {
    const out = join(folder, 'q');
    const report = await quantizeModel(sample, out, { bitWidth: 4, groupSize: 32, layerBitWidths: { embed: 8 } });
    expect(report).toMatchObject({ unquantized: 1, passed: true, upToDate: false, modality: null, calibration: null, bitsPerWeight: 9 });
    expect(report.bitsPerWeightTotal).toBeGreaterThan(9);
    expect([report.notes, report.leftOut]).toEqual([[], []]);
    expect(report.layers).toMatchObject([{ name: 'embed.weight', bits: 8, groupSize: 32, shape: [64, 32], dtype: 'BF16', outputError: null }]);
    expect(report.modelSizeMb).toBe(report.bytes / 1e6);
    const validated = await validateModel(await openModel(sample), out, { minAccuracy: 0.99 });
    expect(validated.cosineSimilarity).toBe(report.cosineSimilarity);
    expect(validated.passed).toBe(true);
    expect((await validateModel(sample, out, { minAccuracy: 1 })).passed).toBe(false);
  });

  test.each<[QuantizeOptions, string]>([
    [{ bitWidth: 7 }, 'bitWidth is 7, it must be 2, 3, 4, 5, 6 or 8'],
    [{ groupSize: 31 }, 'groupSize is 31'],
    [{ minAccuracy: 2 }, 'minAccuracy is 2'],
    [{ method: 'best' as 'rtn' }, "method is 'best'"],
    [{ sensitiveLayerPatterns: ['('] }, 'sensitiveLayerPatterns'],
    [{ layerBitWidths: { nothing: 4 } }, 'nothing'],
  ])('refuses %j', async (options, message) => {
    const out = join(folder, 'refused');
    const error = (await quantizeModel(sample, out, options).catch((each: unknown) => each)) as Error;
    expect(error).toMatchObject({ code: 'ERR_BALLAST_ARGUMENT' });
    expect(error.message).toContain(message);
    expect(existsSync(out)).toBe(false);
  });

  test('accepts bits for bitWidth', async () => {
    const report = await quantizeModel(sample, join(folder, 'bits'), { bits: 8, bitWidth: 8, groupSize: 32, sync: false });
    expect(report.layers[0]).toMatchObject({ bits: 8 });
    expect((await quantizeModel(sample, join(folder, 'bits'), { bits: 3, groupSize: 32, sync: false })).layers[0]).toMatchObject({ bits: 3 });
  });

  test('with failFast refuses layers below minAccuracy', async () => {
    const out = join(folder, 'low');
    await expect(quantizeModel(sample, out, { bitWidth: 2, groupSize: 32, minAccuracy: 0.999, failFast: true })).rejects.toBeInstanceOf(BelowMinimumError);
    expect(existsSync(out)).toBe(false);
  });

  test('copies the config of a directory', async () => {
    const out = join(folder, 'mlx');
    await quantizeModel(await writeQwen3(join(folder, 'qwen3')), out, { format: 'mlx', groupSize: 32 });
    const model = await openModel(out);
    expect(model.config).toMatchObject({ model_type: 'qwen3', quantization: { bits: 4, group_size: 32 } });
  });
});

test('ten conversions at once may write to one path', async () => {
  const out = join(folder, 'same.safetensors');
  await Promise.all(Array.from({ length: 10 }, () => convertModel(sample, out, { dtype: 'f16' })));
  expect((await openModel(out)).info('embed.weight').dtype).toBe('F16');
});

type Work = (out: string, options: { progress?: Progress; signal?: AbortSignal }, source?: string) => Promise<unknown>;
const WORKS: [string, Work][] = [
  ['convertModel', (out, options, source = large) => convertModel(source, out, { dtype: 'bf16', ...options } as ConvertOptions)],
  ['quantizeModel', (out, options, source = large) => quantizeModel(source, out, { format: 'mlx', ...options } as QuantizeOptions)],
  ['dequantizeModel', (out, options) => dequantizeModel(join(folder, 'large-mlx'), out, { dtype: 'bf16', ...options } as DequantizeOptions)],
  ['verifyModel', (_, options, source = large) => verifyModel(source, { values: true, ...options } as VerifyOptions)],
  ['inspectModel', (_, options, source = large) => inspectModel(source, { stats: true, ...options } as InspectOptions)],
  ['diffModels', (_, options, source = large) => diffModels(source, source, options as DiffOptions)],
];

describe('errors of work', () => {
  async function caller(work: () => Promise<unknown>): Promise<unknown> {
    return await work();
  }

  test.each<[string, () => Promise<unknown>]>([
    ['openModel', () => openModel(join(folder, 'no'))],
    ['openModel with a signal', () => openModel(join(folder, 'no'), { signal: new AbortController().signal })],
    ['convertModel', () => convertModel(join(folder, 'no'), join(folder, 'out'))],
    ['saveFile', () => saveFile({}, join(folder, 'no/such/file.safetensors'))],
    ['quantizeModel', () => quantizeModel(sample, join(folder, 'out'), { layerBitWidths: { nothing: 4 } })],
  ])('%s() has the stack of the caller', async (name, work) => {
    const error = (await caller(work).catch((each: unknown) => each)) as Error;
    expect(error.stack).toContain(`${error.name}: ${error.message}`);
    expect(error.stack).toContain(name.split(' ')[0]);
    expect(error.stack).toContain('caller');
    expect(error.stack).not.toContain('settled');
  });
});

describe.each(WORKS)('%s() with progress or a signal', (name, work) => {
  const out = join(folder, name);

  test('reports its progress, to the end, before its promise resolves', async () => {
    const seen: ProgressReport[] = [];
    let settled = false;
    await work(out, { progress: (report) => { expect(settled).toBe(false); seen.push(report); } });
    settled = true;
    expect(seen.at(-1)!.done).toBe(seen.at(-1)!.total);
    expect([8 << 21, 8 << 22, 8 << 23]).toContain(seen.at(-1)!.total); // bytes written, or read once or twice
    expect(typeof seen[0]!.what).toBe('string');
    expect(seen.map((each) => each.done)).toEqual(seen.map((each) => each.done).sort((a, b) => a - b));
  });

  test('calls progress in the async context of the caller', async () => {
    const storage = new AsyncLocalStorage<string>();
    const seen = new Set<string | undefined>();
    await storage.run('here', () => work(out, { progress: () => seen.add(storage.getStore()) }));
    expect([...seen]).toEqual(['here']);
  });

  test('is cancelled by its callback or its signal, and leaves no files', async () => {
    const long = name === 'convertModel' ? writeSparse(join(folder, 'long.safetensors'), 256) : large;
    const before = filesIn(folder);
    const gone = join(folder, `${name}-gone`);
    const reason = new Error('enough');
    await expect(work(gone, { progress: () => { throw reason; } }, long)).rejects.toBe(reason);
    await expect(work(gone, { progress: () => false }, long)).rejects.toBeInstanceOf(CancelledError);
    await expect(work(gone, { signal: AbortSignal.abort(reason) }, long)).rejects.toBe(reason);
    const controller = new AbortController();
    await expect(work(gone, { signal: controller.signal, progress: () => controller.abort(reason) }, long)).rejects.toBe(reason);
    const timed = AbortSignal.timeout(1);
    await once(timed as unknown as EventTarget, 'abort');
    await expect(work(gone, { signal: timed }, long)).rejects.toMatchObject({ name: 'TimeoutError' });
    expect(filesIn(folder)).toEqual(before);
  });

  test('can be cancelled by the last report', async () => {
    const before = filesIn(folder);
    const gone = join(folder, `${name}-late`);
    const reason = new Error('late');
    const reports: ProgressReport[] = [];
    const isLast = (report: ProgressReport) => reports.push(report) > 0 && report.done === report.total;
    await expect(work(gone, { progress: (report) => !isLast(report) })).rejects.toBeInstanceOf(CancelledError);
    await expect(work(gone, { progress: (report) => { if (isLast(report)) throw reason; } })).rejects.toBe(reason);
    expect(reports.filter((report) => report.done === report.total)).toHaveLength(2);
    expect(filesIn(folder)).toEqual(before);
  });

  test('refuses a callback that returns a promise', async () => {
    const gone = join(folder, `${name}-promised`);
    await expect(work(gone, { progress: () => Promise.reject(new Error('of nobody')) })).rejects.toThrow(
      new TypeError('progress returned a promise; it must be synchronous'));
    expect(existsSync(gone)).toBe(false);
  });

  test('leaves no listener on a signal', async () => {
    const { signal } = new AbortController();
    let listeners = 0;
    const add = signal.addEventListener.bind(signal);
    const remove = signal.removeEventListener.bind(signal);
    Object.assign(signal, {
      addEventListener: (...given: Parameters<typeof add>) => { ++listeners; add(...given); },
      removeEventListener: (...given: Parameters<typeof remove>) => { --listeners; remove(...given); },
    });
    await work(out, { signal });
    expect(listeners).toBe(0);
  });
});
