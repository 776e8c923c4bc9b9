// What all functions that work on whole models share.

import * as check from './arguments';
import type { DType } from './dtypes';
import { ArgumentError } from './errors';
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

/** Which weights of a directory to use. */
export interface DirectoryOptions {
  /** One component of a diffusers pipeline, such as "unet". */
  component?: string;
  /** The weights of a variant, such as "fp16": model.fp16.safetensors. */
  variant?: string;
}

/** A LoRA adapter to merge. */
export type Lora = ModelPath | { path: ModelPath; scale?: number };

/** What was done with a component of a pipeline. */
export interface ComponentReport {
  name: string;
  className: string;
  /** "copied": it has no weights. */
  action: 'converted' | 'quantized' | 'unquantized' | 'dequantized' | 'copied';
  tensors: number;
  /** Of its weight files. */
  bytes: number;
}

export const DIRECTORY_CHECKS = { component: check.word, variant: check.word };
export const WORK_CHECKS = { progress, signal: check.signal };
export const THREADS = check.whole(1024);
export const MEMORY_LIMIT = 384 * 2 ** 20;

/** Checks a model or a path. Call it last: reading options runs the caller's code, which may close the model. */
export function sourceOf(name: string, source: unknown, directory: DirectoryOptions = {}): NativePath | NativeModel {
  if (source instanceof Model) {
    const option = directory.component !== undefined ? 'component' : 'variant';
    if (directory[option] !== undefined) throw new ArgumentError(`${option} is ${check.quote(directory[option])}, but the model is already open; give its path`);
    return handleOf(source);
  }
  if (typeof source === 'object' && !(source instanceof URL) && !(source instanceof Uint8Array)) {
    throw new TypeError(`${name} must be a Model, a string, a Buffer or a URL, not ${check.kindOf(source)}`);
  }
  return check.path(name, source);
}

export type Source = ModelPath | Model;
