// Slices of tensors, by Python's rules.

import { integer, kindOf, quote } from './arguments';
import type { Bounds } from './native';

/** A part of one dimension: an index, which drops the dimension; [start, stop, step]; or null for all of it. */
export type Slice = number | readonly [start?: number | null, stop?: number | null, step?: number | null] | null;

const FAR = 2 ** 53; // beyond the length of any tensor

/** The bounds of each dimension, and the shape and the number of the values inside. */
export function boundsOf(name: string, shape: number[], slices: readonly unknown[]): { bounds: Bounds[]; shape: number[]; count: number } {
  if (slices.length > shape.length) {
    throw new RangeError(`tensor ${quote(name)} has ${shape.length} dimensions, ${slices.length} slices were given`);
  }
  const lengths: number[] = [];
  const bounds = shape.map((size, dimension) => {
    const bound = boundOf(name, dimension, size, slices[dimension]);
    if (typeof slices[dimension] !== 'number') lengths.push(lengthOf(bound, size));
    return bound;
  });
  return { bounds, shape: lengths, count: lengths.reduce((count, length) => count * length, 1) };
}

function boundOf(name: string, dimension: number, size: number, slice: unknown): Bounds {
  if (slice === null || slice === undefined) return [null, null, 1];
  if (Array.isArray(slice)) {
    if (slice.length > 3) throw new TypeError(`a slice must be [start, stop, step], not ${slice.length} numbers`);
    const [start, stop, step] = ['start', 'stop', 'step'].map((each, i) => boundary(each, slice[i]));
    if (step === 0) throw new RangeError('the step of a slice cannot be 0');
    return [start!, stop!, step ?? 1];
  }
  if (typeof slice !== 'number') throw new TypeError(`a slice must be a number, [start, stop, step] or null, not ${kindOf(slice)}`);
  const place = integer('index', slice);
  if (place < -size || place >= size) {
    throw new RangeError(`index ${place} is out of bounds for dimension ${dimension} with size ${size} of tensor ${quote(name)}`);
  }
  const from = place < 0 ? place + size : place;
  return [from, from + 1, 1];
}

function boundary(name: string, value: unknown): number | null {
  if (value === null || value === undefined) return null;
  return Math.max(-FAR, Math.min(FAR, integer(name, value)));
}

function lengthOf([start, stop, step]: Bounds, size: number): number {
  const [low, high] = step > 0 ? [0, size] : [-1, size - 1];
  const at = (given: number | null, missing: number) =>
    given === null ? missing : Math.max(low, Math.min(high, given < 0 ? given + size : given));
  const from = at(start, step > 0 ? low : high);
  const to = at(stop, step > 0 ? high : low);
  return Math.max(0, Math.ceil((to - from) / step));
}
