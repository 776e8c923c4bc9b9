import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, mkdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import {
  convertModel, CorruptError, dequantizeModel, diffModels, inspectModel, MissingError, openModel, quantizeModel, saveFile, tensorOf, UnsupportedError, verifyModel,
} from 'ballast';
import { beforeAll, describe, expect, test } from 'vitest';

import { noise, ROOT, tempFolder, writeQwen3, writeSample } from './support';

const folder = tempFolder();
const sample = join(folder, 'model.safetensors');
const qwen3 = join(folder, 'qwen3');
const mlx = join(folder, 'mlx');
const parquet = join(folder, 'parquet');

beforeAll(async () => {
  await writeSample(sample);
  await writeQwen3(qwen3);
  await quantizeModel(qwen3, mlx, { format: 'mlx', groupSize: 32, sync: false });
  await quantizeModel(qwen3, parquet, { format: 'parquet', groupSize: 32, sync: false });
});

/** What a command of the program prints as JSON, with keys in camelCase except those of `config` and `metadata`. */
function programJson(...given: string[]): Record<string, unknown> {
  let printed: string;
  try {
    printed = execFileSync(join(ROOT, 'build/release/ballast'), [...given, '--json'], { encoding: 'utf8', env: {}, stdio: ['ignore', 'pipe', 'ignore'] });
  } catch (error) {
    printed = (error as { stdout: string }).stdout; // exit code 1: something differs
  }
  return camel(JSON.parse(printed)) as Record<string, unknown>;
}

function camel(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(camel);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => {
    const plain = key === 'config' || key === 'metadata' ? each : camel(each);
    return [/^[a-z_0-9]+$/.test(key) ? key.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase()) : key, plain];
  }));
}

const byName = (a: { name: string }, b: { name: string }) => (a.name < b.name ? -1 : 1);

describe('verifyModel()', () => {
  test('reports what it checked', async () => {
    const report = await verifyModel(sample, { values: true, sha256: true });
    expect(report).toMatchObject({ ok: true, defects: [], warnings: [], tensors: 2, bytes: readFileSync(sample).length });
    expect(report.checks).toEqual(['header', 'values', 'sha256']);
    const sha256 = createHash('sha256').update(readFileSync(sample)).digest('hex');
    expect(report.files).toEqual([{ path: sample, size: readFileSync(sample).length, tensors: 2, sha256 }]);
    expect((await verifyModel(sample)).files[0]!.sha256).toBe(null);
  });

  test('agrees with the program, also about quantized models', async () => {
    for (const path of [qwen3, mlx, parquet]) {
      const { path: shown, checks, tensorCount, files, ...rest } = programJson('verify', path);
      const report = await verifyModel(path);
      expect(shown).toBe(path);
      expect(report).toMatchObject({ ...rest, tensors: tensorCount, checks: (checks as { name: string }[]).map((each) => each.name) });
      expect(report.files).toEqual((files as object[]).map((each) => ({ ...each, sha256: null })));
    }
  });

  test('lists defects instead of throwing', async () => {
    const short = join(folder, 'short.safetensors');
    copyFileSync(sample, short);
    truncateSync(short, readFileSync(sample).length - 1);
    const report = await verifyModel(short);
    expect(report.ok).toBe(false);
    expect(report.defects).toHaveLength(1);
    expect(report.defects[0]!.check).toBe('header');
    expect(report.defects[0]!.message).toContain('file is truncated');
  });

  test('finds NaN only with values', async () => {
    const path = join(folder, 'nan.safetensors');
    await saveFile({ 'a.weight': tensorOf(new Float32Array([1, NaN, 2, 3]), [2, 2]) }, path, { sync: false });
    expect((await verifyModel(path)).ok).toBe(true);
    const { ok, defects } = await verifyModel(path, { values: true });
    expect(ok).toBe(false);
    expect(defects).toEqual([{ check: 'values', message: expect.stringContaining('NaN') as string }]);
  });

  test('rejects if there is nothing to check', async () => {
    await expect(verifyModel(join(folder, 'no'))).rejects.toBeInstanceOf(MissingError);
  });
});

describe('inspectModel()', () => {
  test.each([['a model', () => qwen3], ['MLX', () => mlx], ['Parquet', () => parquet], ['a lone file', () => sample]])('agrees with the program about %s', async (_, path) => {
    const { tensors, modality, weights, ...rest } = programJson('inspect', '--tensors', path());
    const { tensors: found, weights: foundWeights, ...report } = await inspectModel(path());
    expect(report).toEqual({ quantization: null, timeBoundaries: null, ...rest, modality: modality === 'unknown' ? null : modality });
    expect(foundWeights.sort(byName)).toEqual((weights as { name: string }[]).sort(byName));
    const without = found.map(({ bytes, dataOffsets, ...tensor }) => {
      if (dataOffsets !== undefined) expect(bytes).toBe(dataOffsets[1] - dataOffsets[0]);
      return dataOffsets === undefined ? { ...tensor, bytes } : { ...tensor, dataOffsets };
    });
    expect(without.sort(byName)).toEqual((tensors as { name: string }[]).sort(byName));
  });

  test('gives statistics if asked', async () => {
    const values = new Float32Array([0, 1, -3, NaN, Infinity, 2]);
    const path = join(folder, 'stats.safetensors');
    await saveFile({ a: values, b: tensorOf(new Uint8Array(3), [4], 'F6_E2M3') }, path, { sync: false });
    const { tensors } = await inspectModel(path, { stats: true, threads: 1 });
    const { stats } = tensors.find(({ name }) => name === 'a')!;
    expect(stats).toMatchObject({ count: 6, zeros: 1, nan: 1, inf: 1, min: -3, max: 2, mean: 0 });
    expect(stats!.l2Norm).toBeCloseTo(Math.sqrt(14));
    expect(stats!.std).toBeCloseTo(Math.sqrt(14 / 4));
    expect(stats!.histogram.reduce((sum, each) => sum + each)).toBe(4);
    expect(tensors.find(({ name }) => name === 'b')!.stats).toBe(null);
    expect((await inspectModel(path)).tensors[0]).not.toHaveProperty('stats');
  });

  test.each([['MLX', () => mlx], ['Parquet', () => parquet]])('gives statistics of the decoded weights of %s', async (_, path) => {
    const { tensors, weights } = await inspectModel(path(), { stats: true });
    const model = await openModel(path(), { decode: true });
    for (const { name, stats } of weights) {
      const values = await model.read(name, { dtype: 'F32' });
      expect([stats!.count, stats!.min, stats!.max]).toEqual([values.length, Math.min(...values), Math.max(...values)]);
    }
    expect(weights.some(({ scheme }) => scheme !== 'plain')).toBe(true);
    for (const tensor of tensors) expect(tensor).not.toHaveProperty('stats');
  });

  test('gives the statistics of the program', async () => {
    const named = (all: { name: string; stats?: object | null }[]) => new Map(all.map(({ name, stats }) => [name, stats]));
    const { weights } = programJson('inspect', '--stats', mlx) as { weights: { name: string; stats: object }[] };
    expect(named((await inspectModel(mlx, { stats: true })).weights)).toEqual(named(weights));
  });

  test('shows the tensors of what no scheme decodes, with a warning', async () => {
    const aqlm = join(folder, 'aqlm');
    mkdirSync(aqlm);
    writeFileSync(join(aqlm, 'config.json'), JSON.stringify({ model_type: 'llama', quantization_config: { quant_method: 'aqlm' } }));
    await saveFile({ 'a.codes': tensorOf(new Int32Array(8), [2, 4]) }, join(aqlm, 'model.safetensors'), { sync: false });
    const report = await inspectModel(aqlm);
    expect(report.tensors.map(({ name }) => name)).toEqual(['a.codes']);
    expect(report.warnings).toHaveLength(1);
    expect(report.quantization).toBe(null);
    const same = await diffModels(aqlm, aqlm);
    expect(same).toMatchObject({ equal: true, same: 1 });
    expect(same.warnings).toEqual([`${report.warnings[0]!}; the stored tensors are compared`, `${report.warnings[0]!}; the stored tensors are compared`]);
  });

  test('has metadata of any name', async () => {
    const path = join(folder, 'names.safetensors');
    await saveFile({ a: new Float32Array(1) }, path, { metadata: JSON.parse('{"__proto__": "x"}') as Record<string, string>, sync: false });
    expect(Object.entries((await inspectModel(path)).metadata)).toEqual([['__proto__', 'x']]);
  });

  test('rejects a file that is not a model', async () => {
    const path = join(folder, 'text.safetensors');
    writeFileSync(path, 'not a model');
    await expect(inspectModel(path)).rejects.toBeInstanceOf(CorruptError);
  });
});

describe('diffModels()', () => {
  test('finds nothing between a model and its copy', async () => {
    const copy = join(folder, 'copy.safetensors');
    await convertModel(sample, copy, { metadata: { a: 'b' }, sync: false });
    const expected = { equal: true, same: 2, onlyInA: [], onlyInB: [], changed: [], metadata: ['a'], warnings: [] };
    expect(await diffModels(sample, copy)).toEqual(expected);
    using model = await openModel(sample);
    expect(await diffModels(model, copy, { threads: 1 })).toEqual(expected);
    expect(await diffModels(model, model)).toEqual({ ...expected, metadata: [] });
  });

  test('agrees with the program about what differs', async () => {
    const [a, b] = [join(folder, 'a.safetensors'), join(folder, 'b.safetensors')];
    const values = noise(64);
    const other = Float32Array.from(values, (value, i) => (i === 40 ? value + 1 : value));
    await saveFile({ same: values, changed: tensorOf(values, [8, 8]), shape: values, dtype: values, gone: values }, a, { sync: false });
    await saveFile({ same: values, changed: tensorOf(other, [8, 8]), shape: other.slice(1), dtype: Float64Array.from(values), come: values }, b, { sync: false });
    const { a: first, b: second, changed, ...rest } = programJson('diff', a, b);
    const report = await diffModels(a, b);
    expect([first, second]).toEqual([a, b]);
    expect(report).toMatchObject({ ...rest, warnings: [] });
    const without = report.changed.map((each) => Object.fromEntries(Object.entries(each).filter(([, value]) => value !== null)));
    expect(without).toEqual(changed);
    const one = report.changed.find(({ name }) => name === 'changed')!;
    expect(one).toMatchObject({ differentValues: 1, values: 64, firstDifference: 40, dtype: ['F32', 'F32'], shape: [[8, 8], [8, 8]] });
    expect(one.maxDifference).toBeCloseTo(1);
    expect(report.changed.find(({ name }) => name === 'shape')).toMatchObject({ differentValues: null, values: null, firstDifference: null, maxDifference: null });
  });

  test('passes on the warnings from opening', async () => {
    const both = join(folder, 'both');
    mkdirSync(both);
    for (const name of ['model.safetensors', 'weights.safetensors']) copyFileSync(sample, join(both, name));
    const { equal, warnings } = await diffModels(sample, both);
    expect([equal, warnings]).toEqual([true, (await openModel(both)).warnings]);
    expect(warnings).toHaveLength(1);
  });

  test('compares quantized models by their weights', async () => {
    const { changed, equal, onlyInA, onlyInB } = await diffModels(qwen3, mlx);
    expect([equal, onlyInA, onlyInB]).toEqual([false, [], []]);
    expect(changed.length).toBeGreaterThan(0);
    for (const { dtype, maxDifference } of changed) {
      expect(dtype).toEqual(['BF16', 'BF16']);
      expect(maxDifference).toBeLessThan(0.04);
    }
  });
});

describe.each(['mlx', 'parquet'] as const)('dequantizeModel() of %s', (format) => {
  test('writes the decoded weights', async () => {
    const out = join(folder, `${format}.restored.safetensors`);
    const from = format === 'mlx' ? mlx : parquet;
    const report = await dequantizeModel(from, out, { sync: false, threads: 2, memoryLimit: '64MiB' });
    expect(report).toMatchObject({ files: [out], tensors: 24, warnings: [] });
    expect(report.converted).toBeGreaterThan(0);
    expect(await diffModels(from, out)).toMatchObject({ equal: true, same: 24 });
  });

  test('converts, and splits a directory into shards', async () => {
    const out = join(folder, `${format}.f32`);
    const { files } = await dequantizeModel(format === 'mlx' ? mlx : parquet, out, { dtype: 'f32', maxShardSize: '20kB', sync: false });
    expect(files.length).toBeGreaterThan(1);
    expect((await openModel(out)).info('model.layers.0.mlp.up_proj.weight').dtype).toBe('F32');
  });
});

test('dequantizeModel() refuses what is not quantized, and dtypes that are not floats', async () => {
  await expect(dequantizeModel(sample, join(folder, 'out'))).rejects.toBeInstanceOf(UnsupportedError);
  await expect(dequantizeModel(mlx, join(folder, 'out'), { dtype: 'I8' as 'F32' })).rejects.toMatchObject({
    code: 'ERR_BALLAST_ARGUMENT', message: 'dtype is I8, it must be F64, F32, F16 or BF16',
  });
});
