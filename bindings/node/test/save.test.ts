import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import {
  ArgumentError, BF16Array, CancelledError, convertModel, F16Array, F8E5M2Array, openModel, type ProgressReport, saveFile, type TensorData, tensorOf,
  type Tensors, WriteError,
} from 'ballast';
import { beforeEach, describe, expect, test } from 'vitest';

import { filesIn, tempFolder } from './support';

const folder = tempFolder();
let count = 0;
let path = '';

beforeEach(() => {
  path = join(folder, `${++count}.safetensors`);
});

describe('saveFile()', () => {
  test('writes every kind of array with its own dtype', async () => {
    const tensors = {
      i8: Int8Array.of(-1), u8: Uint8Array.of(1), clamped: Uint8ClampedArray.of(300), i16: Int16Array.of(-2), u16: Uint16Array.of(2),
      i32: Int32Array.of(-3), u32: Uint32Array.of(3), f32: Float32Array.of(0.5), f64: Float64Array.of(0.25), i64: BigInt64Array.of(-4n),
      u64: BigUint64Array.of(4n), f16: F16Array.of(0x3c00), bf16: BF16Array.of(0x3f80), f8: F8E5M2Array.of(0x3c), buffer: Buffer.from('ab'),
      bool: tensorOf(Uint8Array.of(1, 0), [2], 'BOOL'), f4: tensorOf(Uint8Array.of(0x21), [2], 'F4'), c64: tensorOf(Float32Array.of(1, 2), [1], 'c64'),
      scalar: tensorOf(Float32Array.of(9), []), raw: tensorOf(new ArrayBuffer(8), [2, 1], 'I32'), half: { data: Uint16Array.of(1), dtype: 'F16' },
    } satisfies Tensors;
    await saveFile(tensors, path, { metadata: { made: 'here' } });
    const model = await openModel(path);
    const dtypes = Object.fromEntries(model.names.map((name) => [name, model.info(name).dtype]));
    expect(dtypes).toEqual({
      i8: 'I8', u8: 'U8', clamped: 'U8', i16: 'I16', u16: 'U16', i32: 'I32', u32: 'U32', f32: 'F32', f64: 'F64', i64: 'I64', u64: 'U64',
      f16: 'F16', bf16: 'BF16', f8: 'F8_E5M2', buffer: 'U8', bool: 'BOOL', f4: 'F4', c64: 'C64', scalar: 'F32', raw: 'I32', half: 'F16',
    });
    expect(model.metadata).toEqual({ made: 'here' });
    expect(model.tensor('i64')).toEqual(BigInt64Array.of(-4n));
    expect(model.tensor('clamped')).toEqual(Uint8Array.of(255));
    expect(model.info('scalar').shape).toEqual([]);
    expect(model.info('raw').shape).toEqual([2, 1]);
  });

  test('accepts a Map, subarrays and shared memory', async () => {
    const shared = new Float32Array(new SharedArrayBuffer(8)).fill(3);
    await saveFile(new Map<string, ArrayBufferView | TensorData>([['1', shared], ['0', Float32Array.of(1, 2, 3).subarray(1)]]), path);
    const model = await openModel(path);
    expect(model.tensor('0')).toEqual(Float32Array.of(2, 3));
    expect(model.tensor('1')).toEqual(Float32Array.of(3, 3));
  });

  test('writes shards and MLX JSON', async () => {
    const tensors = { a: new Float32Array(1000).fill(1), b: new Float32Array(1000).fill(2) };
    await saveFile(tensors, join(folder, 'shards'), { maxShardSize: 4500 });
    expect(filesIn(join(folder, 'shards'))).toEqual(['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors', 'model.safetensors.index.json']);
    await saveFile(tensors, join(folder, 'weights.mlx'));
    const model = await openModel(join(folder, 'weights.mlx'));
    expect(model.format).toBe('mlx-json');
    expect(await model.read('b')).toEqual(tensors.b);
    expect(() => model.tensor('b')).toThrow(expect.objectContaining({ code: 'ERR_BALLAST_UNSUPPORTED' }));
  });

  test.each([['4.5kB', 2], ['1 MB', 1], [4500, 2]])('accepts %j as the size of a shard', async (maxShardSize, files) => {
    const place = join(folder, `sized-${maxShardSize}`);
    await saveFile({ a: new Float32Array(1000), b: new Float32Array(1000) }, place, { maxShardSize, sync: false });
    expect((await openModel(place)).files).toHaveLength(files);
  });

  test('writes large tensors in pieces, and reports progress', async () => {
    const large = Uint32Array.from({ length: 3_000_001 }, (_, i) => i);
    const seen: ProgressReport[] = [];
    await saveFile({ small: Uint8Array.of(1), large }, path, { sync: false, progress: (report) => seen.push(report) });
    expect(Buffer.compare(new Uint8Array((await openModel(path)).tensor('large').buffer), new Uint8Array(large.buffer))).toBe(0);
    expect(seen.at(-1)).toEqual({ done: 12_000_005, total: 12_000_005, what: 'large' });
    expect(seen).toHaveLength(12);
  });

  test('writes many tiny tensors together', async () => {
    const tensors = Object.fromEntries(Array.from({ length: 20_000 }, (_, i) => [`t${i}`, tensorOf(Uint16Array.of(i, i + 1, 0), [3])]));
    const seen: ProgressReport[] = [];
    await saveFile({ ...tensors, empty: new Uint8Array(0) }, path, { sync: false, progress: (report) => seen.push(report) });
    const model = await openModel(path);
    expect(model.size).toBe(20_001);
    for (let i = 0; i < 20_000; i += 997) expect(model.tensor(`t${i}`)).toEqual(Uint16Array.of(i, i + 1, 0));
    expect(seen).toEqual([{ done: 120_000, total: 120_000, what: 't19999' }]);
  });

  test.each<[string, () => Tensors]>([
    ['an array', () => [1] as unknown as Tensors],
    ['null', () => null as unknown as Tensors],
    ['a promise of them', () => Promise.resolve({}) as unknown as Tensors],
    ['a set', () => new Set() as unknown as Tensors],
    ['an object of a class', () => new (class { a = new Uint8Array(1); })() as unknown as Tensors],
    ['numbers', () => ({ a: [1, 2] }) as unknown as Tensors],
    ['a text', () => ({ a: 'x' }) as unknown as Tensors],
    ['a buffer without a dtype', () => ({ a: new ArrayBuffer(4) }) as unknown as Tensors],
    ['a DataView without a dtype', () => ({ a: new DataView(new ArrayBuffer(4)) })],
    ['another dtype', () => ({ a: { data: new Float64Array(1), dtype: 'F32' } })],
    ['an unknown option', () => ({ a: { data: new Float64Array(1), dtyp: 'F32' } as TensorData })],
  ])('refuses %s with a TypeError', async (_, tensors) => {
    await expect(saveFile(tensors(), path)).rejects.toBeInstanceOf(TypeError);
    expect(existsSync(path)).toBe(false);
  });

  test.each<[string, Tensors, string]>([
    ['a shape of another size', { a: tensorOfUnchecked(new Float32Array(4), [3]) }, "tensor 'a' has 16 bytes, F32 [3] needs 12"],
    ['half a value', { a: { data: new Uint8Array(3), dtype: 'F32' } }, "tensor 'a' has 3 bytes, F32 [0.75] needs 3"],
    ['a name that is taken', { __metadata__: new Uint8Array(1) }, "a tensor cannot be named '__metadata__'"],
    ['a name that is no UTF-8', { '\ud800': new Uint8Array(1) }, "tensor name is '\\u{d800}', which is not valid UTF-8"],
  ])('refuses %s with an ArgumentError', async (_, tensors, message) => {
    await expect(saveFile(tensors, path)).rejects.toThrow(ArgumentError);
    await expect(saveFile(tensors, path)).rejects.toThrow(message);
    expect(existsSync(path)).toBe(false);
  });

  test('reports why it cannot write', async () => {
    await expect(saveFile({}, join(folder, 'no/such/folder.safetensors'))).rejects.toSatisfy((error) => error instanceof WriteError && error.errno === 2);
  });

  test('reports a buffer that is detached while it is saved', async () => {
    const array = new Float32Array(4_000_000);
    const give = () => array.length > 0 && structuredClone(array, { transfer: [array.buffer] });
    await expect(saveFile({ array }, path, { progress: () => void give() })).rejects.toThrow("tensor 'array' had 16000000 bytes and has 0: its buffer was detached or resized while it was saved");
    expect(existsSync(path)).toBe(false);
  });

  test('is cancelled by its signal or its callback, and leaves no files', async () => {
    const before = filesIn(folder);
    const large = { large: new Uint8Array(16 << 20) };
    const reason = new Error('enough');
    const controller = new AbortController();
    await expect(saveFile(large, path, { signal: controller.signal, progress: () => controller.abort(reason) })).rejects.toBe(reason);
    await expect(saveFile(large, path, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    await expect(saveFile(large, path, { progress: () => false })).rejects.toBeInstanceOf(CancelledError);
    await expect(saveFile(large, path, { progress: () => { throw reason; } })).rejects.toBe(reason);
    expect(filesIn(folder)).toEqual(before);
  });

  test('refuses a detached buffer', async () => {
    const gone = new Float32Array(8);
    structuredClone(gone.buffer, { transfer: [gone.buffer] });
    await expect(saveFile({ a: gone }, join(folder, 'gone.safetensors'))).rejects.toThrow(ArgumentError);
    await saveFile({ a: new Float32Array(0) }, join(folder, 'empty.safetensors'));
  });
});

function tensorOfUnchecked(data: Float32Array, shape: number[]): TensorData {
  expect(() => tensorOf(data, shape)).toThrow(ArgumentError);
  return { data, shape };
}

describe('output directories', () => {
  test('with other files are written to only by force', async () => {
    const source = join(folder, 'adapter_model.safetensors');
    const out = join(folder, 'occupied');
    await saveFile({ w: new Float32Array(4) }, source);
    mkdirSync(out);
    writeFileSync(join(out, 'notes.txt'), 'mine');
    await expect(convertModel(source, out, { sync: false })).rejects.toThrow(WriteError);
    await expect(convertModel(source, out, { sync: false })).rejects.toThrow("not empty: 'notes.txt' would stay beside the model");
    const report = await convertModel(source, out, { sync: false, force: true });
    expect(report).toMatchObject({ notCopied: [], notes: [], files: [join(out, 'adapter_model.safetensors')] });
    expect(filesIn(out)).toEqual(['adapter_model.safetensors', 'notes.txt']);
  });
});
