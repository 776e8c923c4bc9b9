// The test vectors in tests/vectors, which tests/python/test_vectors.py uses too.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import * as ballast from 'ballast';
import { describe, expect, test } from 'vitest';

import { ROOT, tempFolder } from './support';

interface Tensor {
  dtype: string;
  shape: number[];
  hex: string;
  slices: { of: ballast.Slice[]; hex: string }[];
  f32?: (number | string)[];
}
interface Quantized {
  settings: Record<string, string | number>;
  report: Record<string, number | boolean>;
  sha256?: string;
}
interface Expected {
  files: Record<string, { metadata: Record<string, string>; tensors: Record<string, Tensor> }>;
  bad: Record<string, { error: string; message: string }>;
  quantized: Record<string, Record<string, Quantized>>;
}

const FOLDER = join(ROOT, 'tests/vectors');
const EXPECTED = JSON.parse(readFileSync(join(FOLDER, 'expected.json'), 'utf8')) as Expected;
const folder = tempFolder();

const hex = (array: ballast.TensorArray) => Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString('hex');
const number = (value: number | string) => (typeof value === 'number' ? value : Number(value.replace('inf', 'Infinity').replace('nan', 'NaN')));
const camel = (name: string) => name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());

describe.each(Object.entries(EXPECTED.files))('%s', (file, { metadata, tensors }) => {
  test('has the names and metadata of the vectors', async () => {
    const model = await ballast.openModel(join(FOLDER, file));
    expect(model.metadata).toEqual(metadata);
    expect([...model].sort()).toEqual(Object.keys(tensors).sort());
  });

  test.each(Object.entries(tensors))('%s', async (name, expected) => {
    const model = await ballast.openModel(join(FOLDER, file));
    expect(model.info(name)).toMatchObject({ dtype: expected.dtype, shape: expected.shape, nbytes: expected.hex.length / 2 });
    expect(hex(model.tensor(name))).toBe(expected.hex);
    expect(hex(await model.read(name))).toBe(expected.hex);
    for (const each of expected.slices) expect(hex((await model.slice(name, ...each.of)).data), JSON.stringify(each.of)).toBe(each.hex);
    if (expected.f32 === undefined) return;
    const floats = Float32Array.from(expected.f32, number);
    expect(await model.read(name, { dtype: 'F32' })).toEqual(floats);
    const array = model.tensor(name);
    if ('toFloat32' in array) expect(array.toFloat32()).toEqual(floats);
  });
});

test.each(Object.entries(EXPECTED.bad))('%s is refused with the same error', async (file, { error, message }) => {
  const path = join(FOLDER, file);
  const thrown: unknown = await ballast.openModel(path).catch((each: unknown) => each);
  expect(thrown).toBeInstanceOf(ballast.BallastError);
  expect(thrown).toMatchObject({ name: error, message: `${path}: ${message}`, code: expect.stringMatching(/^ERR_BALLAST_[A-Z]+$/) });
});

test.each(['mlx', 'parquet'])('quantization to %s has the metrics of the vectors', async (format) => {
  const [file, kinds] = Object.entries(EXPECTED.quantized)[0]!;
  const { settings, report, sha256 } = kinds[format]!;
  const options = Object.fromEntries(Object.entries(settings).map(([name, value]) => [camel(name), value]));
  const made = await ballast.quantizeModel(join(FOLDER, file), join(folder, format), { ...options, sync: false });
  expect(made).toMatchObject(Object.fromEntries(Object.entries(report).map(([name, value]) => [camel(name), value])));
  if (sha256 !== undefined) expect(createHash('sha256').update(readFileSync(made.files[0]!)).digest('hex')).toBe(sha256);
});
