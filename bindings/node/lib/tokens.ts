// Token ids for language models.

import * as check from './arguments';
import { ArgumentError } from './errors';
import type { ModelPath } from './model';
import type { NativePath } from './native';

type IntegerArray =
  | Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array | Uint32Array | BigInt64Array | BigUint64Array | readonly number[] | readonly bigint[];

/** Token ids, which are cut into windows; or rows of equal length, each of which is a window. */
export type Tokens = IntegerArray | readonly IntegerArray[];

export interface TokenOptions {
  /** Token ids. Give these or `tokensFile`. */
  tokens?: Tokens;
  /** A file of token ids: .npy, .safetensors, or numbers in a text file. */
  tokensFile?: ModelPath;
  /** The number of tokens in a window, unless the ids have rows. Default: 512. */
  length?: number;
}

interface Ids {
  ids: ArrayBuffer;
  shape: number[];
}

/** As the addon takes them. */
export type GivenTokens = ({ path: NativePath } | ({ name: string } & Ids)) & { length: number };

const DEFAULT_LENGTH = 512;

function isList(value: unknown): value is ArrayLike<unknown> {
  return Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView));
}

function idOf(name: string, value: unknown): number {
  if (typeof value !== 'number' && typeof value !== 'bigint') throw new TypeError(`${name} must contain integers, not ${check.kindOf(value)}`);
  const id = Number(value);
  if (!Number.isInteger(id) || id < 0 || id > 0xffff_ffff) throw new RangeError(`${name} has ${value}, which is not a token id`);
  return id;
}

/** Copies the ids: the caller may change its arrays during the work. */
export const tokens: check.Check<Ids> = (name, value) => {
  if (!isList(value)) throw new TypeError(`${name} must be an array of integers or of rows, not ${check.kindOf(value)}`);
  if (!isList(value[0])) return { ids: Uint32Array.from(value, (each) => idOf(name, each)).buffer, shape: [value.length] };
  const width = value[0].length;
  const ids = new Uint32Array(value.length * width);
  for (let row = 0; row < value.length; ++row) {
    const given = value[row];
    if (!isList(given) || given.length !== width) throw new ArgumentError(`${name} has rows of different lengths`);
    for (let i = 0; i < width; ++i) ids[row * width + i] = idOf(name, given[i]);
  }
  return { ids: ids.buffer, shape: [value.length, width] };
};

export const TOKEN_CHECKS = { tokens, tokensFile: check.path, length: check.whole(2 ** 20) };

/** The one of ids and file that is given; undefined for neither. */
export function givenTokens(name: string, ids: Ids | undefined, path: NativePath | undefined, length = DEFAULT_LENGTH): GivenTokens | undefined {
  if (ids !== undefined && path !== undefined) throw new ArgumentError(`give ${name} or ${name}File, not both`);
  if (ids !== undefined) return { name: `<${name}>`, ...ids, length };
  return path === undefined ? undefined : { path, length };
}

export function neededTokens(given: { tokens?: Ids; tokensFile?: NativePath; length?: number }): GivenTokens {
  const found = givenTokens('tokens', given.tokens, given.tokensFile, given.length);
  if (found === undefined) throw new TypeError('give tokens or tokensFile');
  return found;
}
