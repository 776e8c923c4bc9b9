import { constants } from 'node:buffer';
import { existsSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { inspect } from 'node:util';
import * as vm from 'node:vm';
import * as workers from 'node:worker_threads';

import {
  ArgumentError, BF16Array, ClosedError, convertModel, F8Array, F8E4M3Array, loadPretrained, Model, openModel, quantizeModel, Qwen3Model, saveFile,
  TensorNotFoundError, tensorOf, UnsupportedError, validateModel,
} from 'ballast';
import { beforeAll, describe, expect, test, vi } from 'vitest';

import { bf16, noise, tempFolder, writeQwen3, writeRaw, writeSample } from './support';

const folder = tempFolder();
const sample = join(folder, 'model.safetensors');

beforeAll(() => writeSample(sample));

describe('a model', () => {
  test('describes its contents', async () => {
    const model = await openModel(sample);
    expect(model).toMatchObject({ path: sample, format: 'safetensors', size: 2, nbytes: 4352, files: [sample], warnings: [], config: null });
    expect(model.numParameters()).toBe(64 * 32 + 64);
    expect([...model]).toEqual(model.names);
    expect(model.names).toBe(model.names);
    expect(model.info('embed.weight')).toEqual({
      name: 'embed.weight', dtype: 'BF16', shape: [64, 32], size: 2048, nbytes: 4096, file: sample, dataOffsets: [256, 4352],
    });
    expect(model.has('bias')).toBe(true);
    expect(model.has('no')).toBe(false);
    expect(model.has('\ud800')).toBe(false);
    expect(inspect(model)).toBe(`Model('${sample}', 2 tensors, 2,112 parameters)`);
  });

  test('has the config and modality of its directory', async () => {
    const model = await openModel(await writeQwen3(join(folder, 'qwen3')));
    expect(model.config).toMatchObject({ model_type: 'qwen3', hidden_size: 32 });
    expect(model.modality).toBe('text');
    expect((await openModel(sample)).modality).toBe(null);
  });

  test('opens by path, bytes of a path, and URL', async () => {
    for (const place of [sample, Buffer.from(sample), pathToFileURL(sample)]) expect((await openModel(place)).size).toBe(2);
  });

  // Later versions of Node allow arrays of petabytes, more than any sparse file can have.
  test.skipIf(constants.MAX_LENGTH > 2 ** 40)('throws for a tensor that is longer than an array can be', async () => {
    const nbytes = constants.MAX_LENGTH + 1;
    const path = writeRaw(join(folder, 'long.safetensors'), { long: { dtype: 'U8', shape: [nbytes], data_offsets: [0, nbytes] } }, new Uint8Array());
    truncateSync(path, readFileSync(path).length + nbytes);
    const model = await openModel(path);
    expect(() => model.tensor('long')).toThrow(UnsupportedError);
    await expect(model.read('long')).rejects.toThrow(UnsupportedError);
    await expect(model.slice('long')).rejects.toThrow(/read parts of it with slice\(\)/);
    expect((await model.slice('long', [-2, null])).data).toEqual(new Uint8Array(2));
  });

  test('reads as other dtypes, in upper or lower case', async () => {
    const model = await openModel(sample);
    const small: Float64Array = await model.read('bias', { dtype: 'f64' });
    const capital: Float64Array = await model.read('bias', { dtype: 'F64' });
    expect(small).toEqual(capital);
  });

  test('accepts signals of old polyfills', async () => {
    const signal = { aborted: false, reason: undefined, addEventListener() {}, removeEventListener() {} } as unknown as AbortSignal;
    expect((await openModel(sample, { signal })).size).toBe(2);
  });

  test('stops slice() when the signal is aborted', async () => {
    const model = await openModel(sample);
    const { signal } = new AbortController();
    expect((await model.slice('embed.weight', [0, 2], { signal })).data).toEqual((await model.slice('embed.weight', [0, 2])).data);
    expect((await model.slice('bias', { signal })).data).toEqual(noise(64));
    const reason = new Error('enough');
    await expect(model.slice('bias', [0, 2], { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    await expect(model.slice('bias', [0, 2], { stop: 1 } as object)).rejects.toThrow(new TypeError("unknown option 'stop'"));
  });

  test('refuses paths that are too long', async () => {
    await expect(openModel('x'.repeat(1_000_000))).rejects.toThrow(new ArgumentError('path has a length of 1000000, the limit is 65536'));
    await expect(openModel('x'.repeat(5000))).rejects.toMatchObject({ code: 'ERR_BALLAST_READ' });
  });

  test('ignores properties of Object.prototype', async () => {
    const qwen3 = await writeQwen3(join(folder, 'unpolluted'));
    const polluted = Object.prototype as Partial<Record<'mmap' | 'dtype' | 'include' | 'signal' | 'progress', unknown>>;
    Object.assign(polluted, { mmap: false, dtype: 'F64', include: ['nothing'], signal: AbortSignal.abort(), progress: 1 });
    try {
      expect((await openModel(sample)).tensor('bias')).toBeInstanceOf(Float32Array);
      expect((await loadPretrained(qwen3)).tensor('model.norm.weight')).toBeInstanceOf(BF16Array);
      expect((await convertModel(sample, join(folder, 'unpolluted.safetensors'), { sync: false })).converted).toBe(0);
    } finally {
      for (const name of ['mmap', 'dtype', 'include', 'signal', 'progress'] as const) delete polluted[name];
    }
  });

  // Older versions of Node cannot refuse, and clone it as an empty object.
  test.skipIf(!('markAsUncloneable' in workers))('cannot be cloned', async () => {
    const model = await openModel(sample);
    expect(() => structuredClone(model)).toThrow(expect.objectContaining({ name: 'DataCloneError' }));
  });

  test('cannot be made by new', async () => {
    expect(() => new Model({})).toThrow(new TypeError('Model has no public constructor; call openModel()'));
    const model = await openModel(sample);
    expect(() => new Model(model)).toThrow(TypeError);
    expect(() => new Qwen3Model(model)).toThrow(TypeError);
    expect(() => new Model(null as unknown as object)).toThrow(TypeError);
  });

  test('throws once it is closed, but its arrays stay valid', async () => {
    const model = await openModel(sample);
    const bias = model.tensor('bias');
    const names = model.names;
    model.close();
    model.close();
    expect(model.closed).toBe(true);
    expect(inspect(model)).toBe('Model(closed)');
    expect(bias).toEqual(noise(64));
    expect(names).toHaveLength(2);
    const closed = new ClosedError(`'${sample}': the model is closed`);
    for (const use of [() => model.tensor('bias'), () => model.names, () => model.info('bias'), () => model.has('bias'), () => model.metadata,
      () => model.config, () => model.files, () => model.warnings]) expect(use).toThrow(closed);
    await expect(model.read('bias')).rejects.toThrow(closed);
    await expect(model.slice('bias')).rejects.toThrow(closed);
  });

  test('may be closed while arguments are checked', async () => {
    const closing = async (name: string, value: unknown, use: (model: Model, options: object) => Promise<unknown>) => {
      const model = await openModel(sample);
      const options = Object.defineProperty({}, name, { enumerable: true, get: () => { model.close(); return value; } });
      await expect(use(model, options)).rejects.toBeInstanceOf(ClosedError);
    };
    await closing('dtype', 'F64', (model, options) => model.read('bias', options));
    await closing('signal', undefined, (model, options) => model.slice('bias', options));
    await closing('dtype', 'F64', (model, options) => convertModel(model, join(folder, 'never.safetensors'), options));
    await closing('groupSize', 32, (model, options) => quantizeModel(model, join(folder, 'never'), options));
    await closing('threads', 1, (model, options) => validateModel(model, join(folder, 'never'), options));
    const model = await openModel(sample);
    const bounds = Object.defineProperty([0, 1], 0, { get: () => { model.close(); return 0; } }) as [number, number];
    await expect(model.slice('bias', bounds)).rejects.toBeInstanceOf(ClosedError);
    expect(existsSync(join(folder, 'never'))).toBe(false);
  });

  test('accepts only plain objects as options', async () => {
    const model = await openModel(sample);
    const signal = AbortSignal.abort() as object;
    const wrong = new TypeError('options must be a plain object, not an AbortSignal');
    await expect(openModel(sample, signal)).rejects.toThrow(wrong);
    await expect(model.read('bias', signal)).rejects.toThrow(wrong);
    await expect(model.slice('bias', signal)).rejects.toThrow(wrong);
    await expect(model.read('bias', new Map([['dtype', 'F64']]) as object)).rejects.toThrow(TypeError);
    expect(await model.read('bias', vm.runInNewContext("({ dtype: 'F64' })") as object)).toBeInstanceOf(Float64Array); // from another realm
  });

  test('has messages of one line for any path and name', async () => {
    const path = join(folder, 'a\nb.safetensors');
    await saveFile({ 'c\nd': new Uint8Array(2) }, path, { sync: false });
    const model = await openModel(path);
    expect(() => model.tensor('x')).toThrow(/^.*a\\nb\.safetensors: no tensor 'x' among 1$/);
    await expect(model.slice('c\nd', 99)).rejects.toThrow(/^index 99 .* of tensor 'c\\u\{a\}d'$/);
  });

  test('causes no warning if many reads share a signal', async () => {
    const warned = vi.spyOn(process, 'emitWarning');
    const model = await openModel(sample);
    const { signal } = new AbortController();
    await Promise.all(Array.from({ length: 30 }, () => model.read('bias', { signal })));
    expect(warned).not.toHaveBeenCalled();
    warned.mockRestore();
  });

  test('may be closed while it is read', async () => {
    const model = await openModel(sample);
    const reading = model.read('bias');
    model.close();
    expect(await reading).toEqual(noise(64));
  });

  test('closes when it is disposed', async () => {
    const model = await openModel(sample);
    (model as unknown as Record<symbol, () => void>)[Symbol.dispose]!();
    expect(model.closed).toBe(true);
  });

  test('of 100,000 tensors opens without creating their names', async () => {
    const header = Object.fromEntries(Array.from({ length: 100_000 }, (_, i) => [`t${i}`, { dtype: 'U8', shape: [1], data_offsets: [i, i + 1] }]));
    const model = await openModel(writeRaw(join(folder, 'many.safetensors'), header, new Uint8Array(100_000).fill(7)));
    expect(model.size).toBe(100_000);
    expect(model.tensor('t99999')).toEqual(Uint8Array.of(7));
    expect(model.names).toHaveLength(100_000);
  });
});

test('each kind of F8Array converts by its own format', () => {
  expect(F8E4M3Array.of(0x38).length).toBe(1);
  const some = new (F8Array as unknown as new (values: number[]) => F8E4M3Array)([1, 2]);
  expect(() => some.toFloat32()).toThrow(TypeError);
});

describe('tensor()', () => {
  test('returns the same memory each time', async () => {
    const model = await openModel(sample);
    const first = model.tensor('embed.weight');
    expect(first).toBeInstanceOf(BF16Array);
    expect(model.tensor('embed.weight').buffer).toBe(first.buffer);
    expect(first.byteOffset).toBe(0);
    expect(first).toEqual(bf16(noise(2048)));
  });

  test('is writable, without changing the file', async () => {
    const model = await openModel(sample);
    const before = readFileSync(sample);
    const bias = model.tensor('bias');
    bias.fill(7 as never);
    expect(model.tensor('bias')[0]).toBe(7);
    expect(await model.read('bias')).toEqual(noise(64));
    expect((await openModel(sample)).tensor('bias')).toEqual(noise(64));
    expect(readFileSync(sample).equals(before)).toBe(true);
  });

  test('keeps its class in subarrays', async () => {
    const embed = (await openModel(sample)).tensor('embed.weight') as BF16Array;
    const part = embed.subarray(2, 4) as BF16Array;
    expect(part).toBeInstanceOf(BF16Array);
    expect(part.buffer).toBe(embed.buffer);
    expect(part.toFloat32()).toEqual(embed.toFloat32().slice(2, 4));
    expect((embed.slice(0, 2) as BF16Array).toFloat32()).toEqual(embed.toFloat32().slice(0, 2));
    expect(new F8E4M3Array([0x38]).map((code) => code + 8)).toBeInstanceOf(F8E4M3Array);
  });

  test('is a copy if no typed array can start at its address', async () => {
    const header = { a: { dtype: 'U8', shape: [1], data_offsets: [0, 1] }, b: { dtype: 'F32', shape: [2], data_offsets: [1, 9] } };
    const data = Buffer.concat([Buffer.of(9), Buffer.from(Float32Array.of(1.5, -2).buffer)]);
    const model = await openModel(writeRaw(join(folder, 'odd.safetensors'), header, data));
    expect(model.tensor('b')).toEqual(Float32Array.of(1.5, -2));
    expect(model.tensor('a')).toEqual(Uint8Array.of(9));
  });

  test('may be empty', async () => {
    const path = join(folder, 'empty.safetensors');
    await saveFile({ a: tensorOf(new Float32Array(0), [0, 3]), b: new BigInt64Array(0) }, path);
    const model = await openModel(path);
    expect(model.tensor('a')).toEqual(new Float32Array(0));
    expect(await model.read('b')).toEqual(new BigInt64Array(0));
    expect((await model.slice('a', [0, 5], 1)).data).toEqual(new Float32Array(0));
  });

  test('can be cloned, and survives an attempt to transfer it', async () => {
    const array = (await openModel(sample)).tensor('bias');
    expect(structuredClone(array)).toEqual(noise(64));
    try {
      expect(structuredClone(array, { transfer: [array.buffer as ArrayBuffer] })).toEqual(noise(64));
    } catch (error) {
      expect((error as Error).name).toBe('DataCloneError');
    }
    expect(array).toEqual(noise(64));
  });

  test('may be moved by ArrayBuffer.transfer()', async () => {
    const model = await openModel(sample);
    const buffer = model.tensor('bias').buffer as ArrayBuffer & { transfer?: () => ArrayBuffer };
    if (buffer.transfer === undefined) return;
    const moved = buffer.transfer();
    expect(model.tensor('bias')).toEqual(noise(64));
    model.close();
    expect(new Float32Array(moved)).toEqual(noise(64));
  });

  test('throws for an unknown name', async () => {
    const model = await openModel(sample);
    const missing = new TensorNotFoundError(`${sample}: no tensor 'no' among 2`);
    expect(() => model.tensor('no')).toThrow(missing);
    expect(() => model.info('no')).toThrow(missing);
    await expect(model.read('no')).rejects.toThrow(missing);
    await expect(model.slice('no')).rejects.toThrow(missing);
    expect(() => model.tensor('a\nb')).toThrow(`${sample}: no tensor 'a\\u{a}b' among 2`);
  });

  test('throws without mmap, where read() works', async () => {
    const model = await openModel(sample, { mmap: false });
    expect(() => model.tensor('bias')).toThrow(UnsupportedError);
    expect(await model.read('bias')).toEqual(noise(64));
  });
});

describe('read()', () => {
  test('converts', async () => {
    const model = await openModel(sample);
    expect(await model.read('embed.weight', { dtype: 'f32' })).toEqual(bf16(noise(2048)).toFloat32());
    expect(await model.read('bias', { dtype: 'F64' })).toEqual(Float64Array.from(noise(64)));
    expect((await model.read('bias', { dtype: 'BF16' })).dtype).toBe('BF16');
    await expect(model.read('bias', { dtype: 'I8' })).rejects.toThrow(/64 of 64 values of F32 cannot be represented as I8/);
    expect(await model.read('bias', { dtype: 'I8', allowLoss: true })).toEqual(new Int8Array(64));
    await expect(model.read('bias', { dtype: 'C64' })).rejects.toThrow(/cannot convert F32 to C64/);
  });

  test('returns memory that can be transferred', async () => {
    const values = await (await openModel(sample)).read('bias');
    expect(structuredClone(values, { transfer: [values.buffer as ArrayBuffer] })).toEqual(noise(64));
    expect(values.length).toBe(0);
  });

  test('works a thousand times at once', async () => {
    const model = await openModel(sample);
    const all = await Promise.all(Array.from({ length: 1000 }, () => model.read('bias')));
    expect(all.every((each) => each[63] === noise(64)[63])).toBe(true);
  });

  test('rejects with the reason of the signal', async () => {
    const model = await openModel(sample);
    const reason = new Error('enough');
    await expect(model.read('bias', { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    await expect(openModel(sample, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    const controller = new AbortController();
    const reading = model.read('bias', { signal: controller.signal });
    controller.abort(reason);
    await expect(reading).rejects.toBe(reason);
    const other = new AbortController();
    const opening = openModel(sample, { signal: other.signal });
    other.abort(reason);
    await expect(opening).rejects.toBe(reason);
  });

  test('of a truncated file is an error', async () => {
    const path = await writeSample(join(folder, 'short.safetensors'));
    const model = await openModel(path);
    writeFileSync(path, readFileSync(path).subarray(0, 200));
    await expect(model.read('embed.weight')).rejects.toMatchObject({ code: 'ERR_BALLAST_READ' });
    expect(() => model.tensor('embed.weight')).toThrow(/was truncated while open/);
  });
});

test.each([
  ['embed.wieght', "; did you mean 'embed.weight'?"],
  ['embeds.weight', "; did you mean 'embed.weight'?"],
  ['bais', ''], // two edits are too many for four characters
  ['biass', "; did you mean 'bias'?"],
  ['lm_head', ''],
])('the error for tensor %j names the closest one', async (name, hint) => {
  const model = await openModel(sample);
  expect(() => model.tensor(name)).toThrow(new TensorNotFoundError(`${sample}: no tensor '${name}' among 2${hint}`));
  await expect(model.slice(name, 0)).rejects.toThrow(TensorNotFoundError);
});

describe('slice()', () => {
  test.each<[number[][] | unknown[], RegExp]>([
    [[64], /index 64 is out of bounds for dimension 0 with size 64 of tensor 'embed.weight'/],
    [[-65], /index -65 is out of bounds/],
    [[0, 0, 0], /has 2 dimensions, 3 slices were given/],
    [[[0, 1, 0]], /the step of a slice cannot be 0/],
    [[[0.5, 1]], /start is 0.5, it must be an integer/],
    [[[NaN]], /start is NaN/],
    [[Infinity], /index is Infinity/],
    [[[0, 1, 1, 1]], /a slice must be \[start, stop, step\], not 4 numbers/],
    [['0:1'], /a slice must be a number, \[start, stop, step\] or null, not a string/],
    [[{}, 0], /not an object/],
    [[{ start: 1 }], /unknown option 'start'/],
    [[['0']], /start must be an integer, not a string/],
  ])('refuses %j', async (slices, message) => {
    const model = await openModel(sample);
    await expect(model.slice('embed.weight', ...(slices as [])).catch((error: Error) => {
      expect([TypeError, RangeError]).toContain(error.constructor);
      throw error;
    })).rejects.toThrow(message);
  });

  test('returns shape and dtype, which saveFile() accepts', async () => {
    const model = await openModel(sample);
    const all = bf16(noise(64 * 32));
    expect(await model.slice('embed.weight', [1, 3])).toEqual({ data: all.slice(32, 96), shape: [2, 32], dtype: 'BF16' });
    expect(await model.slice('embed.weight', -1)).toEqual({ data: all.slice(63 * 32), shape: [32], dtype: 'BF16' });
    expect(await model.slice('embed.weight', 0, 1)).toEqual({ data: all.slice(1, 2), shape: [], dtype: 'BF16' });
    expect((await model.slice('embed.weight', [5, 5], [null, null, -2])).shape).toEqual([0, 16]);
    const path = join(folder, 'part.safetensors');
    await saveFile({ part: await model.slice('embed.weight', [0, 4], [0, 8]) }, path, { sync: false });
    expect((await openModel(path)).info('part')).toMatchObject({ dtype: 'BF16', shape: [4, 8] });
  });

  test('accepts bounds of any size', async () => {
    const model = await openModel(sample);
    expect((await model.slice('bias', [-1e300, 1e300, 2 ** 60])).data).toEqual(noise(64).slice(0, 1));
    expect((await model.slice('bias', [null, null, -1])).data).toEqual(noise(64).reverse());
    expect((await model.slice('bias')).data).toEqual(noise(64));
    expect((await model.slice('bias', [])).data).toEqual(noise(64));
  });
});
