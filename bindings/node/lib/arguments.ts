// What callers give, checked before the addon sees it. Wrong types are a TypeError, numbers out of range a RangeError.

import { fileURLToPath } from 'node:url';

import { type DType, DTYPE_NAMES, parseDType } from './dtypes';
import { ArgumentError } from './errors';
import type { NativePath } from './native';

/** Turns a value into what the addon takes, or throws. */
export type Check<T> = (name: string, value: unknown) => T;

/** A word for what a value is. */
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

/** A text for a message: on one line, and not too long. */
export function quote(value: string): string {
  const shown = value.length > 200 ? `${value.slice(0, 200)}…` : value;
  if (!/[^ -~]|['\\]/.test(shown)) return `'${shown}'`;
  return `'${[...shown].map((each) => (/[\p{C}\p{Zl}\p{Zp}'\\]/u.test(each) ? escape(each) : each)).join('')}'`;
}

function escape(character: string): string {
  if (character === "'" || character === '\\') return `\\${character}`;
  return `\\u{${character.codePointAt(0)!.toString(16)}}`;
}

/** Whether it has no lone surrogates, which UTF-8 cannot hold. */
export function isUtf8(value: string): boolean {
  return !/\p{Surrogate}/u.test(value);
}

export const text: Check<string> = (name, value) => {
  if (typeof value !== 'string') throw new TypeError(`${name} must be a string, not ${kindOf(value)}`);
  if (!isUtf8(value)) throw new ArgumentError(`${name} is ${quote(value)}, which is not valid UTF-8`);
  return value;
};

/** A text that is not shown where it is wrong: it may have secrets. */
export const uri: Check<string> = (name, value) => {
  if (typeof value === 'string' && !isUtf8(value)) throw new ArgumentError(`${name} is not valid UTF-8`);
  return text(name, value);
};

const LONGEST = 2 ** 16; // of a path or a URI, which no system and no server takes

/** A path or a URI: a text, the bytes of a path, or a URL of a file. */
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

/** Whether it is {…}, of whatever realm: others, such as a promise or a signal, may have nothing of their own to be found. */
export function isPlain(value: unknown): value is object {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** Pairs, of a plain object or a Map. */
export function entries(name: string, value: unknown): [unknown, unknown][] {
  if (value instanceof Map) return [...(value as Map<unknown, unknown>)];
  if (!isPlain(value)) throw new TypeError(`${name} must be a plain object, not ${kindOf(value)}`);
  return Object.entries(value);
}

export function pairs<T>(check: Check<T>): Check<[string, T][]> {
  return (name, value) => entries(name, value).map(([key, each]) => [text(name, key), check(name, each)]);
}

/** An AbortSignal, of whatever realm. */
export const signal: Check<AbortSignal> = (name, value) => {
  const given = value as AbortSignal;
  if (typeof value !== 'object' || value === null || typeof given.aborted !== 'boolean' || typeof given.addEventListener !== 'function') {
    throw new TypeError(`${name} must be an AbortSignal, not ${kindOf(value)}`);
  }
  return given;
};

type Checks = Record<string, Check<unknown>>;
type Checked<C extends Checks> = { [Key in keyof C]?: ReturnType<C[Key]> };

/** The options that are given, each checked for what its name stands for. Those that are undefined count as not given. */
export function optionsOf<C extends Checks>(given: unknown, checks: C): Checked<C> {
  if (given === undefined) return Object.create(null) as Checked<C>;
  if (!isPlain(given)) throw new TypeError(`options must be a plain object, not ${kindOf(given)}`);
  const made = Object.create(null) as Record<string, unknown>; // what is not given has its default, whatever others do to Object.prototype
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

/** The index of the name with the fewest edits, if that is at most `limit`. */
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

/** The number of characters to change, insert or remove; limit + 1 stands for more than `limit`. */
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
