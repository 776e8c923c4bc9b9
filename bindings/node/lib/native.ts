// The native addon. Its arguments are checked before, in arguments.ts.

import { existsSync } from 'node:fs';
import { join } from 'node:path';

import { errorOf } from './errors';

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
}

interface Native {
  version: string;
  setErrorFactory(make: typeof errorOf): void;
  shutDown(): void;
  open(path: NativePath, options: NativeOpenOptions): Job<NativeModel>;
  createSink(path: NativePath, tensors: [name: string, dtype: string, shape: number[]][], options: object): Job<NativeSink>;
  convert(source: NativePath | NativeModel, path: NativePath, options: object, progress: NativeProgress): Job<unknown>;
  quantize(source: NativePath | NativeModel, directory: NativePath, options: object, progress: NativeProgress): Job<unknown>;
  dequantize(quantized: NativePath, path: NativePath, options: object, progress: NativeProgress): Job<unknown>;
  validate(source: NativePath | NativeModel, quantized: NativePath, options: object, progress: NativeProgress): Job<unknown>;
  verify(path: NativePath, options: object, progress: NativeProgress): Job<unknown>;
  inspect(path: NativePath, options: object, progress: NativeProgress): Job<unknown>;
  diff(a: NativePath | NativeModel, b: NativePath | NativeModel, options: object, progress: NativeProgress): Job<unknown>;
  download(uri: string, folder: NativePath, options: object, progress: NativeProgress): Job<unknown>;
  toFloat32(dtype: string, bytes: Uint8Array, floats: Float32Array): void;
}

function load(): Native {
  const addon = join(__dirname, '../../../build/release/node/ballast.node');
  if (!existsSync(addon)) throw new Error(`${addon} is not there: run \`npm install\` in bindings/node, or scripts/build`);
  return require(addon) as Native;
}

export const native = load();
native.setErrorFactory(errorOf);
process.once('exit', () => native.shutDown()); // waits until running work has stopped
