import { constants } from 'node:buffer';
import { inspect } from 'node:util';
import * as workers from 'node:worker_threads';

import * as check from './arguments';
import { arrayOver, type Arrays, bitsOf, type DType, type TensorArray } from './dtypes';
import { ClosedError, TensorNotFoundError, UnsupportedError } from './errors';
import { read, throwIfAborted } from './jobs';
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
  /** The bytes that they take in the file. */
  nbytes: number;
  /** The file that has it. */
  file: string;
  /** Where its bytes are, counted from the start of the file's data. */
  dataOffsets: [begin: number, end: number];
}

export interface ReadOptions {
  /** Converts the values, rounding once. */
  dtype?: DType | Lowercase<DType>;
  /** Goes on where a conversion from or to integers cannot keep a value. */
  allowLoss?: boolean;
  signal?: AbortSignal;
}

export interface SliceOptions {
  signal?: AbortSignal;
}

/** A part of a tensor. `saveFile()` takes it as it is. */
export interface TensorSlice {
  data: TensorArray;
  /** Without the dimensions that were given as an index. */
  shape: number[];
  dtype: DType;
}

export interface OpenOptions {
  /** Tensors are the weights of a quantized model, decoded when they are read, not its codes and scales. Always so for Parquet. */
  decode?: boolean;
  /** False maps nothing: `tensor()` is refused, and everything copies. */
  mmap?: boolean;
  /** Accepts exactly what the reference implementation does. */
  reference?: boolean;
  /** A number of bytes, or a size such as "200MB". */
  maxHeaderBytes?: number | string;
  signal?: AbortSignal;
}

export const FILE_CHECKS = { mmap: check.flag, reference: check.flag, maxHeaderBytes: check.size, signal: check.signal };
const OPEN_CHECKS = { decode: check.flag, ...FILE_CHECKS };
const SLICE_CHECKS = { signal: check.signal };
const READ_CHECKS = { dtype: check.dtype, allowLoss: check.flag, signal: check.signal };

/** Newer Nodes refuse to clone what is marked; others give an empty object. */
const { markAsUncloneable } = workers as { markAsUncloneable?: (object: object) => void };

/** The native model of a Model; only this package has it. */
const handles = new WeakMap<Model, NativeModel>();

/** What a Model is to be made of, by a key that only this package has. */
const unclaimed = new WeakMap<object, NativeModel>();

/**
 * The weights of a model, of which nothing is read before it is asked for. `openModel()` gives one.
 */
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

  /** As it was given to `openModel()`, without what is secret in a URI. */
  get path(): string {
    return this.#summary.path;
  }

  /** "safetensors" or "mlx-json". */
  get format(): 'safetensors' | 'mlx-json' {
    return this.#summary.format;
  }

  /** The bytes of all files. */
  get fileSize(): number {
    return this.#summary.fileSize;
  }

  /** The bytes of all tensors. */
  get nbytes(): number {
    return this.#summary.nbytes;
  }

  /** The number of tensors. */
  get size(): number {
    return this.#summary.count;
  }

  /** The values of all tensors. */
  numParameters(): number {
    return this.#summary.parameters;
  }

  /** What the tensors are called, by file and position. */
  get names(): readonly string[] {
    const opened = this.#open();
    return (this.#names ??= Object.freeze(opened.names()));
  }

  /** The files of weights. */
  get files(): readonly string[] {
    const opened = this.#open();
    return (this.#files ??= Object.freeze(opened.files()));
  }

  /** What the files say of themselves. */
  get metadata(): Record<string, string> {
    return Object.fromEntries(this.#open().metadata());
  }

  /** The model's config.json, or null. */
  get config(): ModelConfig | null {
    return this.#readConfig().file;
  }

  /** What the model is for, by its metadata or else by the names of its tensors; null where that is not known. */
  get modality(): Modality | null {
    return this.#open().modality() as Modality | null;
  }

  /** What opening noticed and went on from. */
  get warnings(): string[] {
    return this.#open().warnings();
  }

  /** Whether there is such a tensor. */
  has(name: string): boolean {
    const opened = this.#open();
    return typeof name === 'string' && check.isUtf8(name) && opened.info(name) !== null;
  }

  /** What is known of a tensor without reading it. */
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
   * The values where they are, without a copy: the array looks at the mapped file. Writing to it changes neither the file nor what
   * others see. It stays valid when the model is closed or gone.
   */
  tensor(name: string): TensorArray {
    const [dtype, , begin, end] = this.#find(name);
    checkLength(name, end - begin);
    let buffer = this.#buffers.get(name)?.deref();
    if (buffer === undefined || buffer.byteLength !== end - begin) { // which ArrayBuffer.transfer() makes 0
      buffer = this.#native.view(name);
      this.#buffers.set(name, new WeakRef(buffer));
    }
    return arrayOver(dtype as DType, buffer);
  }

  /** A copy of the values, perhaps as another dtype, made in another thread. */
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
   * Copies a part of a tensor with its shape, and reads little more than that part. Takes one slice per dimension, from the first
   * on; negative numbers, bounds past the end and steps work as in Python. Options may come last.
   */
  async slice(name: string, ...given: [...Slice[]] | [...Slice[], SliceOptions]): Promise<TensorSlice> {
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

  /** Lets go of the files. Arrays that look at them stay valid. */
  close(): void {
    this.#native.close();
    this.#buffers.clear();
  }

  /** Whether it was closed. */
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
  return Math.ceil((count * bitsOf(dtype)) / 8); // where that is not whole, the core says so
}

/** Engines end the process over a buffer over a file that is longer than their own Buffers can be. */
function checkLength(name: string, nbytes: number): void {
  if (nbytes <= constants.MAX_LENGTH) return;
  const most = `arrays of this Node have at most ${constants.MAX_LENGTH}`;
  throw new UnsupportedError(`tensor ${check.quote(name)}: takes ${nbytes} bytes, ${most}: slice() gives parts of it`);
}

function allocate(name: string, dtype: DType, nbytes: number): TensorArray {
  try {
    return arrayOver(dtype, new ArrayBuffer(nbytes));
  } catch {
    const why = 'more than there is memory for, or than arrays of this Node can have';
    throw new UnsupportedError(`tensor ${check.quote(name)}: takes ${nbytes} bytes, ${why}: slice() gives parts of it`);
  }
}

/** The native model of an open Model. */
export function handleOf(model: Model): NativeModel {
  const handle = handles.get(model)!;
  if (handle.isClosed()) throw new ClosedError(`${check.quote(model.path)}: the model is closed`);
  return handle;
}

/** Opens a model, as an object of the class. */
export async function openAs<M extends Model>(
  modelClass: new (handle: object) => M,
  path: NativePath,
  pretrained: boolean,
  options: { decode?: boolean; mmap?: boolean; reference?: boolean; maxHeaderBytes?: number; signal?: AbortSignal },
): Promise<M> {
  const { decode = false, mmap = true, reference = false, maxHeaderBytes = 100_000_000, signal } = options;
  let job: Job<NativeModel> | undefined;
  try {
    const opened = await read(signal, () => (job = native.open(path, { pretrained, decode, mmap, reference, maxHeaderBytes })));
    const handle = {};
    unclaimed.set(handle, opened);
    return new modelClass(handle);
  } catch (error) {
    if (signal?.aborted) job?.promise.then((opened) => opened.close(), () => undefined); // nobody wants it any more
    throw error;
  }
}

/** Opens a SafeTensors file, MLX JSON, an index of shards, a model directory, or a URI of one. Reads headers only. */
export async function openModel(path: ModelPath, options?: OpenOptions): Promise<Model> {
  return await openAs(Model, check.path('path', path), false, check.optionsOf(options, OPEN_CHECKS));
}
