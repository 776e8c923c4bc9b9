// What all functions that work on whole models share.

import * as check from './arguments';
import type { DType } from './dtypes';
import { type Progress, progress } from './jobs';
import { handleOf, Model, type ModelPath } from './model';
import type { NativeModel, NativePath } from './native';

export interface WorkOptions {
  /** Called from time to time with the bytes done; returning false cancels the work. */
  progress?: Progress;
  /** Cancels the work when it is aborted. */
  signal?: AbortSignal;
}

export type DTypeName = DType | Lowercase<DType>;

export const WORK_CHECKS = { progress, signal: check.signal };
export const THREADS = check.whole(1024);
export const MEMORY_LIMIT = 384 * 2 ** 20;

/** Checks a model or a path. Call it last: reading options runs the caller's code, which may close the model. */
export function sourceOf(name: string, source: unknown): NativePath | NativeModel {
  if (source instanceof Model) return handleOf(source);
  if (typeof source === 'object' && !(source instanceof URL) && !(source instanceof Uint8Array)) {
    throw new TypeError(`${name} must be a Model, a string, a Buffer or a URL, not ${check.kindOf(source)}`);
  }
  return check.path(name, source);
}

export type Source = ModelPath | Model;
