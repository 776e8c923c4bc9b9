// The native addon. Its arguments are checked before, in arguments.ts.

import { existsSync } from 'node:fs';
import { join } from 'node:path';

import { errorOf } from './errors';
import type { Component } from './examine';

/** Work in another thread. `cancel()` asks it to stop. */
export interface Job<T> {
  promise: Promise<T>;
  cancel(): void;
}

export type NativePath = string | Uint8Array;
export type NativeProgress = ((done: number, total: number, what: string) => boolean) | undefined;
export type Bounds = [start: number | null, stop: number | null, step: number];

export interface NativeSummary {
  path: string;
  /** The path, escaped for messages. */
  shownPath: string;
  format: 'safetensors' | 'mlx-json';
  fileSize: number;
  parameters: number;
  nbytes: number;
  count: number;
  modelType: string | null;
}

export interface NativeConfig {
  json: string;
  /** Its numbers under their usual names, whatever the file calls them. */
  usual: Record<string, number | boolean>;
}

export interface NativeArchitecture {
  expectedTensors: number;
  missing: string[];
  unexpected: string[];
  misshaped: { name: string; expected: number[]; found: number[] }[];
}

export interface NativeModel {
  summary(): NativeSummary;
  names(): string[];
  files(): string[];
  metadata(): [string, string][];
  config(): NativeConfig | null;
  modality(): string | null;
  warnings(): string[];
  info(name: string): [dtype: string, shape: number[], begin: number, end: number, file: number] | null;
  view(name: string): ArrayBuffer;
  read(name: string, out: ArrayBuffer, dtype: string | undefined, allowLoss: boolean): Job<void>;
  slice(name: string, bounds: Bounds[], out: ArrayBuffer): Job<void>;
  load(options: object, progress: NativeProgress): Job<ArrayBuffer[]>;
  checkArchitecture(): Job<NativeArchitecture | null>;
  close(): void;
  isClosed(): boolean;
}

export interface NativeSink {
  /** Takes (tensor, offset, length) for each piece; the pieces follow each other in the buffer. */
  write(pieces: Float64Array, bytes: ArrayBuffer): Job<void>;
  commit(): Job<void>;
  discard(): Job<void>;
}

export interface NativeOpenOptions {
  pretrained: boolean;
  decode: boolean;
  mmap: boolean;
  reference: boolean;
  maxHeaderBytes: number;
  component: string | undefined;
  variant: string | undefined;
}

interface Native {
  version: string;
  setErrorFactory(make: typeof errorOf): void;
  shutDown(): void;
  open(path: NativePath, options: NativeOpenOptions): Job<NativeModel>;
  components(path: NativePath): Job<Component[]>;
  createSink(path: NativePath, tensors: [name: string, dtype: string, shape: number[]][], options: object): Job<NativeSink>;
  convert(source: NativePath | NativeModel, path: NativePath, options: object, progress: NativeProgress): Job<unknown>;
  quantize(source: NativePath | NativeModel, directory: NativePath, options: object, progress: NativeProgress): Job<unknown>;
  dequantize(quantized: NativePath, path: NativePath, options: object, progress: NativeProgress): Job<unknown>;
  validate(source: NativePath | NativeModel, quantized: NativePath, options: object, progress: NativeProgress): Job<unknown>;
  evaluate(model: NativePath | NativeModel, against: NativePath | NativeModel | undefined, options: object, progress: NativeProgress): Job<unknown>;
  calibrate(model: NativePath | NativeModel, path: NativePath, options: object, progress: NativeProgress): Job<unknown>;
  verify(path: NativePath, options: object, progress: NativeProgress): Job<unknown>;
  inspect(path: NativePath, options: object, progress: NativeProgress): Job<unknown>;
  diff(a: NativePath | NativeModel, b: NativePath | NativeModel, options: object, progress: NativeProgress): Job<unknown>;
  download(uri: string, folder: NativePath, options: object, progress: NativeProgress): Job<unknown>;
  toFloat32(dtype: string, bytes: Uint8Array, floats: Float32Array): void;
}

/** Where the addon may be. The last is for a clone, which is the only place where the package contains its CMakeLists.txt. */
function candidates(own: string): string[] {
  const places = [join(own, 'prebuilds', `${process.platform}-${process.arch}`), join(own, 'source/build/release/node')];
  if (existsSync(join(own, 'CMakeLists.txt'))) places.push(join(own, '../../build/release/node'));
  return places.map((place) => join(place, 'ballast.node')).filter((addon) => existsSync(addon));
}

function load(): Native {
  const own = join(__dirname, '..');
  const failures: string[] = [];
  for (const addon of candidates(own)) {
    try {
      return require(addon) as Native;
    } catch (error) {
      const [reason] = String((error as Error).message).replace(`${addon}: `, '').split('\n');
      failures.push(`cannot load ${addon}: ${reason}`);
    }
  }
  const reason = failures.length > 0 ? failures.join('; ') : `${own} contains no addon for ${process.platform}-${process.arch}`;
  throw new Error(`${reason}; run \`npm rebuild ballast\` to build it from source, or \`npm install\` in a clone`);
}

export const native = load();
native.setErrorFactory(errorOf);
process.once('exit', () => native.shutDown()); // waits until running work has stopped
