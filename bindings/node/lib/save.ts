// Writes tensors in memory to files.

import * as check from './arguments';
import { bitsOf, type DType, dtypeOfArray, holds } from './dtypes';
import { ArgumentError, CancelledError } from './errors';
import { type Progress, progress, settled, throwIfAborted, Watcher } from './jobs';
import type { ModelPath } from './model';
import { native, type NativeSink } from './native';

/** A tensor to save. Arrays of numbers keep their dtype; buffers and arrays of bytes may have any dtype. */
export interface TensorData {
  /** Default: the dtype of the array. */
  dtype?: DType | Lowercase<DType>;
  /** Default: one dimension. */
  shape?: readonly number[];
  data: ArrayBufferView | ArrayBuffer | SharedArrayBuffer;
}

export type Tensors = Record<string, ArrayBufferView | TensorData> | ReadonlyMap<string, ArrayBufferView | TensorData>;

export interface SaveOptions {
  metadata?: Record<string, string>;
  /** The largest file of a directory: a number of bytes, or a size such as "5GB". */
  maxShardSize?: number | string;
  /** Flush the output to disk before returning. Default: true. */
  sync?: boolean;
  progress?: Progress;
  signal?: AbortSignal;
}

interface Item {
  name: string;
  dtype: DType;
  shape: number[];
  nbytes: number;
  /** Throws if the buffer was detached or resized. */
  bytes: () => Uint8Array;
}

const dimension = check.whole(Number.MAX_SAFE_INTEGER);
const TENSOR_CHECKS = {
  dtype: check.dtype,
  shape: ((name, value) => {
    if (!Array.isArray(value)) throw new TypeError(`${name} must be an array of integers, not ${check.kindOf(value)}`);
    return Array.from(value, (each: unknown) => dimension(name, each));
  }) as check.Check<number[]>,
  data: ((name, value) => {
    if (ArrayBuffer.isView(value)) return value;
    if (isBuffer(value)) return new DataView(value as ArrayBuffer);
    throw new TypeError(`${name} must be a typed array or a buffer, not ${check.kindOf(value)}`);
  }) as check.Check<ArrayBufferView>,
};
const SAVE_CHECKS = {
  metadata: check.pairs(check.text),
  maxShardSize: check.size,
  sync: check.flag,
  progress,
  signal: check.signal,
};

function isBuffer(value: unknown): boolean {
  return /^\[object (Shared)?ArrayBuffer\]$/.test(Object.prototype.toString.call(value));
}

function isDetached(data: ArrayBufferView): boolean {
  if (data.buffer.byteLength > 0) return false;
  try {
    new Uint8Array(data.buffer);
    return false;
  } catch {
    return true;
  }
}

/** Make a tensor with a shape, and with a dtype that JavaScript may have no array for. */
export function tensorOf(data: TensorData['data'], shape: readonly number[], dtype?: DType | Lowercase<DType>): TensorData {
  const made: TensorData = dtype === undefined ? { data, shape } : { data, shape, dtype };
  itemOf('tensor', made);
  return made;
}

function itemOf(name: string, value: unknown): Item {
  const given = ArrayBuffer.isView(value) || isBuffer(value) ? { data: value } : value;
  const tensor = `tensor ${check.quote(name)}`;
  if (typeof given !== 'object' || given === null || !('data' in given)) {
    throw new TypeError(`${tensor} must be a typed array or {dtype, shape, data}, not ${check.kindOf(value)}`);
  }
  const { dtype, shape, data } = check.optionsOf(given, TENSOR_CHECKS);
  if (data === undefined) throw new TypeError(`${tensor} has no data`);
  const found = dtype ?? dtypeOfArray(data);
  if (found === undefined) throw new TypeError(`${tensor} is a buffer without a dtype; give { data, dtype }`);
  if (!holds(data, found)) throw new TypeError(`${tensor} is ${check.kindOf(data)}, which does not hold ${found}`);
  if (isDetached(data)) throw new ArgumentError(`${tensor} has a detached buffer`);
  const nbytes = data.byteLength;
  const dims = shape ?? [(nbytes * 8) / bitsOf(found)];
  const needed = (dims.reduce((count, dim) => count * dim, 1) * bitsOf(found)) / 8;
  if (needed !== nbytes || !dims.every(Number.isInteger)) {
    throw new ArgumentError(`${tensor} has ${nbytes} bytes, ${found} [${dims.join(', ')}] needs ${needed}`);
  }
  const bytes = () => {
    if (data.byteLength !== nbytes) {
      throw new ArgumentError(`${tensor} had ${nbytes} bytes and has ${data.byteLength}: its buffer was detached or resized while it was saved`);
    }
    return new Uint8Array(data.buffer, data.byteOffset, nbytes);
  };
  return { name, dtype: found, shape: dims, nbytes, bytes };
}

/**
 * Write tensors to a file (.safetensors, .mlx) or else to a model directory.
 *
 * The output appears under its name when it is complete. The arrays are read while the file is written: do not change them before the
 * promise resolves.
 */
export async function saveFile(tensors: Tensors, path: ModelPath, options?: SaveOptions): Promise<void> {
  const place = check.path('path', path);
  const { metadata, maxShardSize = 0, sync = true, progress, signal } = check.optionsOf(options, SAVE_CHECKS);
  const items = check.entries('tensors', tensors).map(([name, value]) => itemOf(check.text('tensor name', name), value));
  throwIfAborted(signal);
  const specs = items.map(({ name, dtype, shape }): [string, string, number[]] => [name, dtype, shape]);
  const sink = await settled(native.createSink(place, specs, { metadata, maxShardSize, sync }));
  try {
    await fill(sink, items, progress, signal);
  } catch (error) {
    await sink.discard().promise;
    throw error;
  }
  await settled(sink.commit());
}

/** Bytes that the main thread copies at a time, in less than a millisecond. */
const BATCH = 1 << 20;

/** Pieces of tensors that one job writes: a job for each of many tiny tensors would be slow. */
class Batch {
  #pieces: number[] = [];
  readonly #bytes: Uint8Array<ArrayBuffer>;
  #used = 0;

  constructor(room: number) {
    this.#bytes = new Uint8Array(room);
  }

  get isFull(): boolean {
    return this.#used === this.#bytes.length;
  }

  /** Copies as much of a tensor as fits, starting at an offset, and returns how much that is. */
  add(tensor: number, bytes: Uint8Array, offset: number): number {
    const piece = bytes.subarray(offset, offset + this.#bytes.length - this.#used);
    this.#bytes.set(piece, this.#used);
    this.#pieces.push(tensor, offset, piece.length);
    this.#used += piece.length;
    return piece.length;
  }

  /** Writes the pieces. The batch may be filled again when the promise resolves. */
  write(sink: NativeSink): Promise<void> {
    const pieces = Float64Array.from(this.#pieces);
    this.#pieces = [];
    this.#used = 0;
    return settled(sink.write(pieces, this.#bytes.buffer));
  }
}

/** Writes copies, because the caller may change or detach the arrays at any time. One batch is written while the next is copied. */
async function fill(sink: NativeSink, items: Item[], progress: Progress | undefined, signal: AbortSignal | undefined): Promise<void> {
  const watcher = new Watcher(progress);
  const total = items.reduce((sum, item) => sum + item.nbytes, 0);
  let done = 0;
  let writing: Promise<void> = Promise.resolve();
  const room = Math.min(BATCH, total);
  let [batch, other] = [new Batch(room), new Batch(room)];
  for (const [i, item] of items.entries()) {
    for (let offset = 0; offset < item.nbytes; ) {
      const added = batch.add(i, item.bytes(), offset);
      offset += added;
      done += added;
      if (!batch.isFull && done < total) continue;
      await writing;
      throwIfAborted(signal);
      writing = batch.write(sink);
      writing.catch(() => undefined); // awaited above or below, unless another error comes first
      if (watcher.callback?.(done, total, item.name) === false) {
        await writing;
        watcher.rethrow();
        throw new CancelledError('cancelled');
      }
      [batch, other] = [other, batch];
    }
  }
  await writing;
  throwIfAborted(signal);
}
