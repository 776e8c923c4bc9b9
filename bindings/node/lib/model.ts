import { constants } from 'node:buffer';
import { inspect } from 'node:util';
import * as workers from 'node:worker_threads';

import * as check from './arguments';
import { arrayOver, type Arrays, bitsOf, type DType, type TensorArray } from './dtypes';
import { ClosedError, TensorNotFoundError, UnsupportedError } from './errors';
import { type Progress, progress, read, run, throwIfAborted } from './jobs';
import { type Job, native, type NativeModel, type NativePath, type NativeSummary } from './native';
import { boundsOf, type Slice } from './slices';

/** A path, a URI, or a `file:` URL. */
export type ModelPath = string | Uint8Array | URL;

export type Modality = 'text' | 'code' | 'image' | 'audio';

/** A model's config.json. */
export type ModelConfig = Record<string, unknown>;

export interface TensorInfo {
  name: string;
  dtype: DType;
  shape: number[];
  /** The number of values. */
  size: number;
  /** Their size in the file, in bytes. */
  nbytes: number;
  /** The file that contains it. */
  file: string;
  /** Where its bytes are, counted from the start of the file's data. */
  dataOffsets: [begin: number, end: number];
}

export interface ReadOptions {
  /** Convert the values, rounding once. */
  dtype?: DType | Lowercase<DType>;
  /** Convert even if the dtype cannot hold a value. */
  allowLoss?: boolean;
  signal?: AbortSignal;
}

export interface SliceOptions {
  signal?: AbortSignal;
}

/** Values with their shape and dtype. `saveFile()` accepts it as a tensor. */
export interface TensorValues {
  data: TensorArray;
  shape: number[];
  dtype: DType;
}

export interface LoadAllOptions {
  /** Default: one per core, more where the disk is slow. */
  threads?: number;
  /** Refuse to allocate more: a number of bytes, or a size such as "8GB". Default: no limit. */
  memoryLimit?: number | string;
  progress?: Progress;
  signal?: AbortSignal;
}

export interface OpenOptions {
  /** Decode the weights of a quantized model when they are read, instead of giving its codes and scales. Parquet is always decoded. */
  decode?: boolean;
  /** False does not map files: `tensor()` throws, and all reads copy. Default: true. */
  mmap?: boolean;
  /** Accept exactly what the reference implementation accepts. */
  reference?: boolean;
  /** The largest header to accept: a number of bytes, or a size such as "200MB". Default: 100 MB. */
  maxHeaderBytes?: number | string;
  /** Open one component of a diffusers pipeline, such as "unet". */
  component?: string;
  /** Open the weights of a variant, such as "fp16": model.fp16.safetensors. */
  variant?: string;
  signal?: AbortSignal;
}

export const FILE_CHECKS = { mmap: check.flag, reference: check.flag, maxHeaderBytes: check.size, signal: check.signal };
const OPEN_CHECKS = { decode: check.flag, component: check.word, variant: check.word, ...FILE_CHECKS };
const SLICE_CHECKS = { signal: check.signal };
const LOAD_CHECKS = { threads: check.whole(1024), memoryLimit: check.size, progress, signal: check.signal };
const READ_CHECKS = { dtype: check.dtype, allowLoss: check.flag, signal: check.signal };

/** Newer versions of Node refuse to clone a marked object; older ones clone it as an empty object. */
const { markAsUncloneable } = workers as { markAsUncloneable?: (object: object) => void };

/** The native model of each Model, for this package only. */
const handles = new WeakMap<Model, NativeModel>();

/** Native models that do not have their Model yet, by a key that only this package has. */
const unclaimed = new WeakMap<object, NativeModel>();

/** An open model, returned by `openModel()`. Opening reads headers only; values are read when they are used. */
export class Model implements Iterable<string>, Disposable {
  readonly #native: NativeModel;
  readonly #summary: NativeSummary;
  readonly #buffers = new Map<string, WeakRef<ArrayBuffer>>();
  #names: readonly string[] | undefined;
  #files: readonly string[] | undefined;
  #config: { file: ModelConfig | null; usual: ModelConfig } | undefined;

  /** @internal */
  constructor(handle: object) {
    const found = typeof handle === 'object' && handle !== null ? unclaimed.get(handle) : undefined;
    if (found === undefined) throw new TypeError('Model has no public constructor; call openModel()');
    unclaimed.delete(handle);
    handles.set(this, found);
    markAsUncloneable?.(this);
    this.#native = found;
    this.#summary = found.summary();
  }

  /** As given to `openModel()`, without the secrets in a URI. */
  get path(): string {
    return this.#summary.path;
  }

  get format(): 'safetensors' | 'mlx-json' {
    return this.#summary.format;
  }

  /** The total size of the files, in bytes. */
  get fileSize(): number {
    return this.#summary.fileSize;
  }

  /** The total size of the tensors, in bytes. */
  get nbytes(): number {
    return this.#summary.nbytes;
  }

  /** The number of tensors. */
  get size(): number {
    return this.#summary.count;
  }

  /** The number of values in all tensors. */
  numParameters(): number {
    return this.#summary.parameters;
  }

  /** The names of the tensors, by file and position. */
  get names(): readonly string[] {
    const opened = this.#open();
    return (this.#names ??= Object.freeze(opened.names()));
  }

  /** The weight files. */
  get files(): readonly string[] {
    const opened = this.#open();
    return (this.#files ??= Object.freeze(opened.files()));
  }

  /** The metadata of all files. */
  get metadata(): Record<string, string> {
    return Object.fromEntries(this.#open().metadata());
  }

  /** The model's config.json, or null. */
  get config(): ModelConfig | null {
    return this.#readConfig().file;
  }

  /** From the metadata, or else from the names of the tensors; null if unknown. */
  get modality(): Modality | null {
    return this.#open().modality() as Modality | null;
  }

  /** Warnings from opening the model. */
  get warnings(): string[] {
    return this.#open().warnings();
  }

  /** Whether the model has a tensor of this name. */
  has(name: string): boolean {
    const opened = this.#open();
    return typeof name === 'string' && check.isUtf8(name) && opened.info(name) !== null;
  }

  /** The dtype, shape and position of a tensor, without reading it. */
  info(name: string): TensorInfo {
    const files = this.files;
    const [dtype, shape, begin, end, file] = this.#find(name);
    const nbytes = end - begin;
    return {
      name,
      dtype: dtype as DType,
      shape,
      size: shape.reduce((count, dim) => count * dim, 1),
      nbytes,
      file: files[file]!,
      dataOffsets: [begin, end],
    };
  }

  /**
   * The values of a tensor as an array over the mapped file, without a copy.
   *
   * Writing to the array changes neither the file nor what other processes see. It stays valid after the model is closed.
   */
  tensor(name: string): TensorArray {
    const [dtype, , begin, end] = this.#find(name);
    checkLength(name, end - begin);
    let buffer = this.#buffers.get(name)?.deref();
    if (buffer === undefined || buffer.byteLength !== end - begin) { // ArrayBuffer.transfer() sets it to 0
      buffer = this.#native.view(name);
      this.#buffers.set(name, new WeakRef(buffer));
    }
    return arrayOver(dtype as DType, buffer);
  }

  /** Copy the values of a tensor, optionally converted to another dtype, in another thread. */
  read<D extends DType | Lowercase<DType>>(name: string, options: ReadOptions & { dtype: D }): Promise<Arrays[Uppercase<D>]>;
  read(name: string, options?: ReadOptions): Promise<TensorArray>;
  async read(name: string, options?: ReadOptions): Promise<TensorArray> {
    const { dtype, allowLoss = false, signal } = check.optionsOf(options, READ_CHECKS);
    const [stored, shape, begin, end] = this.#find(name);
    const to = dtype === stored ? undefined : dtype;
    const nbytes = to === undefined ? end - begin : bytesOf(shape.reduce((count, dim) => count * dim, 1), to);
    throwIfAborted(signal);
    const out = allocate(name, to ?? (stored as DType), nbytes);
    await read(signal, () => this.#native.read(name, out.buffer, to, allowLoss));
    return out;
  }

  /**
   * Copy a part of a tensor, and read little more than that part.
   *
   * Takes one slice per dimension, starting with the first; negative numbers, bounds past the end and steps work as in Python. A
   * dimension with an index instead of a slice is dropped from the shape. Options may come last.
   */
  async slice(name: string, ...given: [...Slice[]] | [...Slice[], SliceOptions]): Promise<TensorValues> {
    const last: unknown = given.at(-1);
    const hasOptions = typeof last === 'object' && last !== null && !Array.isArray(last);
    const { signal } = check.optionsOf(hasOptions ? last : undefined, SLICE_CHECKS);
    const [dtype, whole] = this.#find(name);
    const { bounds, shape, count } = boundsOf(name, whole, hasOptions ? given.slice(0, -1) : given);
    throwIfAborted(signal);
    const data = allocate(name, dtype as DType, bytesOf(count, dtype as DType));
    await read(signal, () => this.#native.slice(name, bounds, data.buffer));
    return { data, shape, dtype: dtype as DType };
  }

  /**
   * Copy all tensors into one piece of memory, in large blocks on several threads.
   *
   * The arrays may be written to. The memory is freed when the last of them is collected.
   */
  async load(options?: LoadAllOptions): Promise<Map<string, TensorValues>> {
    const { threads = 0, memoryLimit = 0, progress, signal } = check.optionsOf(options, LOAD_CHECKS);
    const opened = this.#open();
    const infos = this.names.map((name): [string, DType, number[]] => {
      const [dtype, shape, begin, end] = this.#find(name);
      checkLength(name, end - begin);
      return [name, dtype as DType, shape];
    });
    const buffers = await run<ArrayBuffer[]>(progress, signal, (report) => opened.load({ threads, memoryLimit }, report));
    return new Map(infos.map(([name, dtype, shape], i) => [name, { data: arrayOver(dtype, buffers[i]!), shape, dtype }]));
  }

  /** Close the files. Arrays from `tensor()` stay valid. */
  close(): void {
    this.#native.close();
    this.#buffers.clear();
  }

  /** Whether the model was closed. */
  get closed(): boolean {
    return this.#native.isClosed();
  }

  /** The names of the tensors. */
  [Symbol.iterator](): Iterator<string> {
    return this.names[Symbol.iterator]();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  [inspect.custom](): string {
    const { path, count, parameters } = this.#summary;
    if (this.closed) return `${this.constructor.name}(closed)`;
    return `${this.constructor.name}(${check.quote(path)}, ${count} tensors, ${parameters.toLocaleString('en')} parameters)`;
  }

  /** @internal The numbers of the config under their usual names, whatever the file calls them. */
  protected get usualConfig(): ModelConfig {
    return this.#readConfig().usual;
  }

  #open(): NativeModel {
    if (this.#native.isClosed()) throw new ClosedError(`${check.quote(this.path)}: the model is closed`);
    return this.#native;
  }

  #find(name: unknown): NonNullable<ReturnType<NativeModel['info']>> {
    if (typeof name !== 'string') throw new TypeError(`tensor name must be a string, not ${check.kindOf(name)}`);
    const found = check.isUtf8(name) ? this.#open().info(name) : null;
    if (found === null) throw new TensorNotFoundError(`${this.#summary.shownPath}: no tensor ${check.quote(name)} among ${this.size}${this.#hint(name)}`);
    return found;
  }

  #hint(name: string): string {
    const found = check.closest(name, this.names, Math.floor(name.length / 3));
    return found === undefined ? '' : `; did you mean ${check.quote(this.names[found]!)}?`;
  }

  #readConfig() {
    const opened = this.#open();
    if (this.#config === undefined) {
      const found = opened.config();
      this.#config = found === null ? { file: null, usual: {} } : { file: JSON.parse(found.json) as ModelConfig, usual: found.usual };
    }
    return this.#config;
  }
}

function bytesOf(count: number, dtype: DType): number {
  return Math.ceil((count * bitsOf(dtype)) / 8); // the core refuses tensors that do not fill whole bytes
}

/** V8 aborts the process for an external buffer that is longer than a Buffer may be. */
function checkLength(name: string, nbytes: number): void {
  if (nbytes <= constants.MAX_LENGTH) return;
  const limit = `the limit of this version of Node is ${constants.MAX_LENGTH}`;
  throw new UnsupportedError(`tensor ${check.quote(name)} has ${nbytes} bytes, ${limit}; read parts of it with slice()`);
}

function allocate(name: string, dtype: DType, nbytes: number): TensorArray {
  try {
    return arrayOver(dtype, new ArrayBuffer(nbytes));
  } catch {
    const why = 'more than the free memory or than the limit of this version of Node';
    throw new UnsupportedError(`tensor ${check.quote(name)} has ${nbytes} bytes, ${why}; read parts of it with slice()`);
  }
}

/** The native model of an open Model. */
export function handleOf(model: Model): NativeModel {
  const handle = handles.get(model)!;
  if (handle.isClosed()) throw new ClosedError(`${check.quote(model.path)}: the model is closed`);
  return handle;
}

/** Opens a model as an object of `modelClass`. */
export async function openAs<M extends Model>(
  modelClass: new (handle: object) => M,
  path: NativePath,
  pretrained: boolean,
  options: {
    decode?: boolean;
    mmap?: boolean;
    reference?: boolean;
    maxHeaderBytes?: number;
    component?: string;
    variant?: string;
    signal?: AbortSignal;
  },
): Promise<M> {
  const { decode = false, mmap = true, reference = false, maxHeaderBytes = 100_000_000, component, variant, signal } = options;
  let job: Job<NativeModel> | undefined;
  try {
    const request = { pretrained, decode, mmap, reference, maxHeaderBytes, component, variant };
    const opened = await read(signal, () => (job = native.open(path, request)));
    const handle = {};
    unclaimed.set(handle, opened);
    return new modelClass(handle);
  } catch (error) {
    if (signal?.aborted) job?.promise.then((opened) => opened.close(), () => undefined); // nobody is waiting for it
    throw error;
  }
}

/** Open a SafeTensors file, an MLX JSON file, an index of shards, a model directory, or a URI of one. Reads headers only. */
export async function openModel(path: ModelPath, options?: OpenOptions): Promise<Model> {
  return await openAs(Model, check.path('path', path), false, check.optionsOf(options, OPEN_CHECKS));
}
