// Checks the arguments of callers before the addon sees them. A wrong type is a TypeError, a number out of range a RangeError.

import { fileURLToPath } from 'node:url';

import { type DType, DTYPE_NAMES, parseDType } from './dtypes';
import { ArgumentError } from './errors';
import type { NativePath } from './native';

/** Returns the value in the form that the addon takes, or throws an error that names the argument. */
export type Check<T> = (name: string, value: unknown) => T;

/** Describes the type of a value, for messages. */
export function kindOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'an array';
  if (typeof value === 'object') return tagOf(value);
  return typeof value === 'undefined' ? 'undefined' : `a ${typeof value}`;
}

function tagOf(value: object): string {
  try {
    const name: unknown = value.constructor?.name;
    return typeof name === 'string' && name !== '' && name !== 'Object' ? `${/^[AEIO]/.test(name) ? 'an' : 'a'} ${name}` : 'an object';
  } catch {
    return 'an object';
  }
}

/** Quotes a string for a message: on one line, at most 200 characters. */
export function quote(value: string): string {
  const shown = value.length > 200 ? `${value.slice(0, 200)}…` : value;
  if (!/[^ -~]|['\\]/.test(shown)) return `'${shown}'`;
  return `'${[...shown].map((each) => (/[\p{C}\p{Zl}\p{Zp}'\\]/u.test(each) ? escape(each) : each)).join('')}'`;
}

function escape(character: string): string {
  if (character === "'" || character === '\\') return `\\${character}`;
  return `\\u{${character.codePointAt(0)!.toString(16)}}`;
}

/** Whether a string has no lone surrogates, which UTF-8 cannot encode. */
export function isUtf8(value: string): boolean {
  return !/\p{Surrogate}/u.test(value);
}

export const text: Check<string> = (name, value) => {
  if (typeof value !== 'string') throw new TypeError(`${name} must be a string, not ${kindOf(value)}`);
  if (!isUtf8(value)) throw new ArgumentError(`${name} is ${quote(value)}, which is not valid UTF-8`);
  return value;
};

/** A string that is not empty. */
export const word: Check<string> = (name, value) => {
  const found = text(name, value);
  if (found === '') throw new ArgumentError(`${name} is empty`);
  return found;
};

/** A string that messages do not quote, because it may contain secrets. */
export const uri: Check<string> = (name, value) => {
  if (typeof value === 'string' && !isUtf8(value)) throw new ArgumentError(`${name} is not valid UTF-8`);
  return text(name, value);
};

const LONGEST = 2 ** 16; // of a path or a URI; longer than any system or server accepts

/** A path or a URI: a string, the bytes of a path, or a URL. */
export const path: Check<NativePath> = (name, value) => {
  const plain = value instanceof URL && value.protocol === 'file:' ? fileURLToPath(value) : value instanceof URL ? value.href : value;
  if (typeof plain !== 'string' && !(plain instanceof Uint8Array)) {
    throw new TypeError(`${name} must be a string, a Buffer or a URL, not ${kindOf(value)}`);
  }
  if (plain.length === 0) throw new ArgumentError(`${name} is empty`);
  if (plain.length > LONGEST) throw new ArgumentError(`${name} has a length of ${plain.length}, the limit is ${LONGEST}`);
  if (typeof plain === 'string' ? plain.includes('\0') : plain.includes(0)) throw new ArgumentError(`${name} contains a NUL character`);
  return typeof plain === 'string' ? uri(name, plain) : Uint8Array.from(plain);
};

/** Adapters to merge: a path or { path, scale }, or an array of them. */
export const loras: Check<[NativePath, number][]> = (name, value) => {
  return (Array.isArray(value) ? value : [value]).map((each: unknown): [NativePath, number] => {
    if (!isPlain(each)) return [path(name, each), 1];
    const { path: file, scale } = optionsOf(each, { path, scale: number });
    if (file === undefined) throw new TypeError(`${name} has an object without path`);
    return [file, scale ?? 1];
  });
};

export const flag: Check<boolean> = (name, value) => {
  if (typeof value !== 'boolean') throw new TypeError(`${name} must be true or false, not ${kindOf(value)}`);
  return value;
};

export const number: Check<number> = (name, value) => {
  if (typeof value !== 'number') throw new TypeError(`${name} must be a number, not ${kindOf(value)}`);
  return value;
};

export const integer: Check<number> = (name, value) => {
  if (typeof value !== 'number') throw new TypeError(`${name} must be an integer, not ${kindOf(value)}`);
  if (!Number.isInteger(value)) throw new RangeError(`${name} is ${value}, it must be an integer`);
  return value;
};

export function whole(most: number): Check<number> {
  return (name, value) => {
    const found = integer(name, value);
    if (found < 0 || found > most) throw new RangeError(`${name} is ${found}, it must be from 0 to ${most}`);
    return found;
  };
}

const UNITS: Record<string, number> = {
  '': 1, B: 1, KB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, KIB: 2 ** 10, MIB: 2 ** 20, GIB: 2 ** 30, TIB: 2 ** 40, M: 1e6, G: 1e9,
};

/** A number of bytes, or a size such as "5GB", "300 MB" or "2GiB". */
export const size: Check<number> = (name, value) => {
  if (typeof value === 'number') return whole(Number.MAX_SAFE_INTEGER)(name, value);
  if (typeof value !== 'string') throw new TypeError(`${name} must be a number of bytes or a size such as '5GB', not ${kindOf(value)}`);
  const [, digits, unit] = /^(\d+(?:\.\d*)?|\.\d+) *([a-z]*)$/i.exec(value) ?? [];
  const factor = unit !== undefined && Object.hasOwn(UNITS, unit.toUpperCase()) ? UNITS[unit.toUpperCase()]! : NaN;
  const bytes = Math.floor(Number(digits) * factor);
  if (!(bytes >= 1 && bytes <= Number.MAX_SAFE_INTEGER)) {
    throw new RangeError(`${name} is ${quote(value)}, which is not a size; write it like '300MB', '5GB' or '2GiB'`);
  }
  return bytes;
};

export const dtype: Check<DType> = (name, value) => {
  if (typeof value !== 'string') throw new TypeError(`${name} must be a dtype name, not ${kindOf(value)}`);
  const found = parseDType(value);
  if (found === undefined) throw new RangeError(`${name} is ${quote(value)}; dtypes are ${DTYPE_NAMES.join(', ')}`);
  return found;
};

export function oneOf<T extends string>(...words: T[]): Check<T> {
  return (name, value) => {
    if (typeof value !== 'string') throw new TypeError(`${name} must be a string, not ${kindOf(value)}`);
    if (!(words as string[]).includes(value)) throw new RangeError(`${name} is ${quote(value)}, it must be ${words.join(' or ')}`);
    return value as T;
  };
}

export const texts: Check<string[]> = (name, value) => {
  if (!Array.isArray(value)) throw new TypeError(`${name} must be an array of strings, not ${kindOf(value)}`);
  return Array.from(value, (each: unknown) => text(name, each));
};

/** Whether a value is a plain object of any realm. Others, such as a promise, may have no own properties and would look empty. */
export function isPlain(value: unknown): value is object {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** The entries of a plain object or a Map. */
export function entries(name: string, value: unknown): [unknown, unknown][] {
  if (value instanceof Map) return [...(value as Map<unknown, unknown>)];
  if (!isPlain(value)) throw new TypeError(`${name} must be a plain object, not ${kindOf(value)}`);
  return Object.entries(value);
}

export function pairs<T>(check: Check<T>): Check<[string, T][]> {
  return (name, value) => entries(name, value).map(([key, each]) => [text(name, key), check(name, each)]);
}

/** An AbortSignal of any realm. */
export const signal: Check<AbortSignal> = (name, value) => {
  const given = value as AbortSignal;
  if (typeof value !== 'object' || value === null || typeof given.aborted !== 'boolean' || typeof given.addEventListener !== 'function') {
    throw new TypeError(`${name} must be an AbortSignal, not ${kindOf(value)}`);
  }
  return given;
};

type Checks = Record<string, Check<unknown>>;
type Checked<C extends Checks> = { [Key in keyof C]?: ReturnType<C[Key]> };

/** Checks every given option by its name. An option that is undefined counts as not given. */
export function optionsOf<C extends Checks>(given: unknown, checks: C): Checked<C> {
  if (given === undefined) return Object.create(null) as Checked<C>;
  if (!isPlain(given)) throw new TypeError(`options must be a plain object, not ${kindOf(given)}`);
  const made = Object.create(null) as Record<string, unknown>; // so that properties added to Object.prototype are not taken for options
  for (const [key, value] of Object.entries(given)) {
    const check = Object.hasOwn(checks, key) ? checks[key] : undefined;
    if (check === undefined) throw new TypeError(`unknown option ${quote(key)}${hint(key, Object.keys(checks))}`);
    if (value !== undefined) made[key] = check(key, value);
  }
  return made as Checked<C>;
}

function hint(key: string, known: string[]): string {
  const plain = (word: string) => word.toLowerCase().replaceAll('_', '');
  const found = closest(plain(key), known.map(plain), 2);
  return found === undefined ? '' : `; did you mean ${known[found]}?`;
}

/** The index of the closest name, if it is at most `limit` edits away. */
export function closest(name: string, known: readonly string[], limit: number): number | undefined {
  let found: number | undefined;
  for (let i = 0, best = limit; i < known.length && best >= 0; ++i) {
    const edits = distance(name, known[i]!, best);
    if (edits > best) continue;
    found = i;
    best = edits - 1;
  }
  return found;
}

/** The edit distance of two strings, or limit + 1 if it is greater than `limit`. */
function distance(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) > limit) return limit + 1;
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; ++i) {
    const next = [i];
    for (let j = 1; j <= b.length; ++j) {
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    if (Math.min(...next) > limit) return limit + 1;
    row = next;
  }
  return row[b.length]!;
}
