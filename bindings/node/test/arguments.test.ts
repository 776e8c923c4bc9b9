// Calls every public function with wrong arguments. Each error must be a TypeError, a RangeError or a BallastError with a plain message.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

import * as ballast from 'ballast';
import { beforeAll, describe, expect, test, vi } from 'vitest';

import { RangeServer, tempFolder, writeQwen3, writeSample } from './support';

const folder = tempFolder();
const sample = join(folder, 'model.safetensors');
const qwen3 = join(folder, 'qwen3');
const parquet = join(folder, 'parquet');
let model: ballast.Model;
let uri = '';

beforeAll(async () => {
  vi.spyOn(console, 'log').mockImplementation(() => undefined);
  await writeSample(sample);
  await writeQwen3(qwen3);
  await ballast.quantizeModel(sample, parquet, { groupSize: 32, sync: false });
  model = await ballast.openModel(sample);
  uri = `${await new RangeServer({ '/m.safetensors': sample }).listen()}/m.safetensors`;
  mkdirSync(join(folder, 'work'));
  process.chdir(join(folder, 'work')); // so that output with a wrong path lands here
});

const trap = new Proxy({}, { get() { throw new Error('a trap'); }, ownKeys() { throw new Error('a trap'); } });
const WRONG: unknown[] = [
  null, true, false, 0, 3, -1, 1.5, 2 ** 31, 2 ** 64, NaN, Infinity, -Infinity, 10n, 'x', '', '\ud800', 'a\0b', 'x'.repeat(5000), Symbol('s'), [], [1], ['\ud800'],
  [[]], {}, { x: 1 }, { '\ud800': 'x' }, { x: '\ud800' }, new Map([[1, 2]]), new Date(), /x/, () => undefined, async () => undefined, class {}, new Uint8Array(2),
  new ArrayBuffer(3), Buffer.from([255, 0]), new URL('ftp://host/x'), Object.create(null), new Proxy({}, {}), trap, new AbortController(), Promise.resolve(1),
];

const WATCH = ['progress', 'signal'];
const DIRECTORY = ['component', 'variant'];
const FILE = ['mmap', 'reference', 'maxHeaderBytes', 'signal'];
const CONVERT = ['dtype', 'dtypeRules', 'format', 'maxShardSize', 'include', 'exclude', 'rename', 'lora', 'metadata', 'allowLoss', 'sync', 'resume', 'force', 'threads', 'memoryLimit'];
const QUANTIZE = [
  'deploymentProfile', 'bitWidth', 'bits', 'groupSize', 'type', 'method', 'format', 'recipe', 'modality', 'minAccuracy', 'failFast', 'skipSensitiveLayers', 'sensitiveLayerNames',
  'sensitiveLayerPatterns', 'layerBitWidths', 'numThreads', 'maxMemoryLimitMb', 'targetModelSizeMb', 'enableTimeAware', 'enableSpatial', 'numTimeGroups',
  'calibrationSamples', 'calibration', 'calibrationTokens', 'calibrationTokensFile', 'lora', 'sync', 'resume', 'force',
];
const DEQUANTIZE = ['dtype', 'format', 'maxShardSize', 'sync', 'force', 'threads', 'memoryLimit'];
const RUN = ['tokens', 'tokensFile', 'length', 'threads', 'memoryLimit'];
const FAST = { sync: false };
const ARRAYS = () => ({ a: new Float32Array(2) });

type Call = { use: (...given: never[]) => unknown; works: () => unknown[]; options?: string[] };

/** Each function with arguments that work and, if it takes options last, their names. */
const CALLS: Record<string, Call> = {
  openModel: { use: ballast.openModel, works: () => [sample, {}], options: ['decode', ...FILE, ...DIRECTORY] },
  loadPretrained: { use: ballast.loadPretrained, works: () => [qwen3, {}], options: [...FILE, 'log'] },
  'Qwen3Model.loadPretrained': { use: (...given: [string]) => ballast.Qwen3Model.loadPretrained(...given), works: () => [qwen3, { log: () => undefined }], options: [...FILE, 'log'] },
  saveFile: { use: ballast.saveFile, works: () => [ARRAYS(), 'a.safetensors', FAST], options: [...WATCH, 'metadata', 'maxShardSize', 'sync'] },
  tensorOf: { use: ballast.tensorOf, works: () => [new Float32Array(2), [2], 'F32'] },
  convertModel: { use: ballast.convertModel, works: () => [sample, 'b.safetensors', FAST], options: [...WATCH, ...DIRECTORY, ...CONVERT] },
  quantizeModel: { use: ballast.quantizeModel, works: () => [sample, 'q', { groupSize: 32, ...FAST }], options: [...WATCH, ...DIRECTORY, ...QUANTIZE] },
  evaluateModel: { use: ballast.evaluateModel, works: () => [qwen3, { tokens: [1, 2, 3] }], options: [...WATCH, ...DIRECTORY, ...RUN, 'against'] },
  calibrateModel: {
    use: ballast.calibrateModel, works: () => [qwen3, 's.safetensors', { tokens: [1, 2, 3], ...FAST }],
    options: [...WATCH, ...DIRECTORY, ...RUN, 'samples', 'hessian', 'resume', 'sync'],
  },
  validateModel: { use: ballast.validateModel, works: () => [sample, parquet, {}], options: [...WATCH, ...DIRECTORY, 'lora', 'minAccuracy', 'threads'] },
  dequantizeModel: { use: ballast.dequantizeModel, works: () => [parquet, 'e.safetensors', FAST], options: [...WATCH, 'component', ...DEQUANTIZE] },
  verifyModel: { use: ballast.verifyModel, works: () => [sample, {}], options: [...WATCH, ...DIRECTORY, 'values', 'sha256', 'threads'] },
  inspectModel: { use: ballast.inspectModel, works: () => [sample, {}], options: [...WATCH, ...DIRECTORY, 'stats', 'threads'] },
  listComponents: { use: ballast.listComponents, works: () => [qwen3] },
  diffModels: { use: ballast.diffModels, works: () => [sample, model, {}], options: [...WATCH, 'threads'] },
  downloadModel: { use: ballast.downloadModel, works: () => [uri, 'd', FAST], options: [...WATCH, ...DIRECTORY, 'include', 'exclude', 'sync', 'force'] },
  'model.info': { use: (name: string) => model.info(name), works: () => ['bias'] },
  'model.has': { use: (name: string) => model.has(name), works: () => ['bias'] },
  'model.tensor': { use: (name: string) => model.tensor(name), works: () => ['bias'] },
  'model.read': { use: (name: string, options: object) => model.read(name, options), works: () => ['bias', {}], options: ['dtype', 'allowLoss', 'signal'] },
  'model.load': { use: (options: object) => model.load(options), works: () => [{}], options: [...WATCH, 'threads', 'memoryLimit'] },
  'model.slice': { use: (name: string, ...slices: ballast.Slice[]) => model.slice(name, ...slices), works: () => ['embed.weight', [0, 1], 0] },
};

async function outcome(call: Call, given: unknown[]): Promise<unknown> {
  try {
    await call.use(...(given as never[]));
    return undefined;
  } catch (error) {
    return error;
  }
}

const BAD_WORDS = /napi|native|expected|undefined is not|Cannot (read|convert)|std::|\n/i;

function expectPlain(error: unknown, what: string): void {
  if (error === undefined || (error as Error).message === 'a trap') return;
  expect(error instanceof TypeError || error instanceof RangeError || error instanceof ballast.BallastError, `${what}: ${String(error)}`).toBe(true);
  expect((error as Error).message, what).toMatch(/^.{5,}$/);
  expect((error as Error).message, what).not.toMatch(BAD_WORDS);
}

function show(value: unknown): string {
  try {
    return typeof value === 'symbol' ? 'a symbol' : `${typeof value} ${String(value).slice(0, 30)}`;
  } catch {
    return typeof value;
  }
}

test('the list has every public function', () => {
  const functions = Object.entries(ballast).filter(([name, value]) => typeof value === 'function' && /^[a-z]/.test(name)).map(([name]) => name);
  expect(Object.keys(CALLS)).toEqual(expect.arrayContaining(functions));
});

describe.each(Object.entries(CALLS))('%s()', (name, call) => {
  test('accepts valid arguments, and reports invalid ones in plain words', async () => {
    expect(await outcome(call, call.works())).toBe(undefined);
    const places = call.works().length - (call.options ? 1 : 0);
    for (const value of [...WRONG, undefined]) {
      for (let place = 0; place < places; ++place) {
        const given = call.works();
        given[place] = value;
        expectPlain(await outcome(call, given), `${name} argument ${place} ${show(value)}`);
      }
      if (call.options === undefined) continue;
      expectPlain(await outcome(call, [...call.works().slice(0, -1), value]), `${name} options ${show(value)}`);
      for (const option of call.options) {
        const options = { ...(call.works().at(-1) as object), [option]: value };
        expectPlain(await outcome(call, [...call.works().slice(0, -1), options]), `${name} ${option} ${show(value)}`);
      }
    }
  });

  test('refuses a call without arguments', async () => {
    const error = await outcome(call, []);
    if (!['model.has', 'model.load'].includes(name)) expect(error).toBeInstanceOf(TypeError);
  });

  if (call.options) {
    test('names an unknown option and the closest known one', async () => {
      const option = call.options![0]!;
      const typo = option.slice(0, -1);
      expect(await outcome(call, [...call.works().slice(0, -1), { [typo]: 1 }])).toEqual(new TypeError(`unknown option '${typo}'; did you mean ${option}?`));
      expect(await outcome(call, [...call.works().slice(0, -1), { zzzzzz: 1 }])).toEqual(new TypeError("unknown option 'zzzzzz'"));
    });
  }
});

test.each<[() => Promise<unknown> | unknown, Error]>([
  [() => ballast.openModel(3 as never), new TypeError('path must be a string, a Buffer or a URL, not a number')],
  [() => ballast.openModel(''), new ballast.ArgumentError('path is empty')],
  [() => ballast.openModel('a\0b'), new ballast.ArgumentError('path contains a NUL character')],
  [() => ballast.openModel(sample, { maxHeaderBytes: -1 }), new RangeError('maxHeaderBytes is -1, it must be from 0 to 9007199254740991')],
  [() => ballast.openModel(sample, { mmap: 1 as never }), new TypeError('mmap must be true or false, not a number')],
  [() => model.read('bias', { dtype: 'f7' as never }), new RangeError(
    "dtype is 'f7'; dtypes are BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, F8_E5M2, F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, I16, U16, F16, BF16, I32, U32, F32, C64, F64, I64, U64")],
  [() => model.tensor(7 as never), new TypeError('tensor name must be a string, not a number')],
  [() => ballast.convertModel(sample, 'x', { include: '*' as never }), new TypeError('include must be an array of strings, not a string')],
  [() => ballast.convertModel(sample, 'x', { lora: 3 as never }), new TypeError('lora must be a string, a Buffer or a URL, not a number')],
  [() => ballast.convertModel(sample, 'x', { lora: [{ scale: 1 } as never] }), new TypeError('lora has an object without path')],
  [() => ballast.convertModel(sample, 'x', { lora: { path: 'a', scale: '1' as never } }), new TypeError('scale must be a number, not a string')],
  [() => ballast.convertModel(model, 'x', { lora: 'a' }), new ballast.ArgumentError(`${sample}: lora: the model was opened without the adapters; give its path`)],
  [() => ballast.convertModel(sample, 'x', { threads: 1025 }), new RangeError('threads is 1025, it must be from 0 to 1024')],
  [() => ballast.convertModel(sample, 'x', { maxShardSize: '5 parsecs' }), new RangeError("maxShardSize is '5 parsecs', which is not a size; write it like '300MB', '5GB' or '2GiB'")],
  [() => ballast.convertModel(sample, 'x', { memoryLimit: true as never }), new TypeError("memoryLimit must be a number of bytes or a size such as '5GB', not a boolean")],
  [() => ballast.quantizeModel(sample, 'x', { bits: 4, bitWidth: 8 }), new ballast.ArgumentError('bits is 4 and bitWidth is 8; give one of them')],
  [() => ballast.quantizeModel(sample, 'x', { bits: 7 }), new ballast.ArgumentError('bits is 7, it must be 2, 3, 4, 5, 6 or 8')],
  [() => ballast.convertModel(sample, 'x', { format: 'npy' as never }), new RangeError("format is 'npy', it must be safetensors or mlx-json")],
  [() => ballast.convertModel({} as never, 'x'), new TypeError('source must be a Model, a string, a Buffer or a URL, not an object')],
  [() => ballast.quantizeModel(sample, 'x', { bitWidth: '4' as never }), new TypeError('bitWidth must be an integer, not a string')],
  [() => ballast.quantizeModel(sample, 'x', { bitWidth: 4.5 }), new RangeError('bitWidth is 4.5, it must be an integer')],
  [() => ballast.validateModel(sample, parquet, { progress: (async () => undefined) as never }), new TypeError('progress must be a synchronous function, not an async one')],
  [() => ballast.validateModel(sample, parquet, { signal: {} as never }), new TypeError('signal must be an AbortSignal, not an object')],
  [() => ballast.diffModels(sample, {} as never), new TypeError('b must be a Model, a string, a Buffer or a URL, not an object')],
  [() => ballast.verifyModel(null as never), new TypeError('path must be a string, a Buffer or a URL, not null')],
  [() => ballast.verifyModel(sample, { values: 'yes' as never }), new TypeError('values must be true or false, not a string')],
  [() => ballast.inspectModel(sample, { threads: -1 }), new RangeError('threads is -1, it must be from 0 to 1024')],
  [() => ballast.dequantizeModel(parquet, ''), new ballast.ArgumentError('path is empty')],
  [() => model.load({ memoryLimit: '8 GB RAM' }), new RangeError("memoryLimit is '8 GB RAM', which is not a size; write it like '300MB', '5GB' or '2GiB'")],
  [() => ballast.downloadModel(3 as never, 'x'), new TypeError('uri must be a string, not a number')],
  [() => ballast.loadPretrained(qwen3, { log: 'yes' as never }), new TypeError('log must be a function, true or false, not a string')],
])('%s', async (use, error) => {
  const thrown: unknown = await Promise.resolve().then(use).catch((each: unknown) => each);
  expect(thrown).toEqual(error);
  expect((thrown as Error).constructor).toBe(error.constructor);
});
