// Progress and cancellation of work in other threads.

import { AsyncResource } from 'node:async_hooks';

import { type Check, kindOf } from './arguments';
import { CancelledError } from './errors';
import type { Job, NativeProgress } from './native';

/** The progress of long work, in bytes. */
export interface ProgressReport {
  done: number;
  total: number;
  /** The tensor or file at hand. */
  what: string;
}

/** Called with the latest progress from time to time, and once when all is done. Returning false or throwing cancels the work. */
export type Progress = (report: ProgressReport) => unknown;

export const progress: Check<Progress> = (name, value) => {
  if (typeof value !== 'function') throw new TypeError(`${name} must be a function, not ${kindOf(value)}`);
  if (Object.prototype.toString.call(value) === '[object AsyncFunction]') {
    throw new TypeError(`${name} must be a synchronous function, not an async one`);
  }
  return value as Progress;
};

/** Like signal.throwIfAborted(), which old polyfills do not have. */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw signal.reason as Error;
}

/** The calls to make when a signal is aborted. Each signal has one listener, because Node warns about more than ten. */
const waiting = new WeakMap<AbortSignal, { calls: Set<() => void>; listener: () => void }>();

/** Calls `call`, which must be a new function, when the signal is aborted. Returns a function that undoes this. */
function onAbort(signal: AbortSignal | undefined, call: () => void): () => void {
  if (signal === undefined) return () => undefined;
  let all = waiting.get(signal);
  if (all === undefined) {
    const calls = new Set<() => void>();
    all = { calls, listener: () => calls.forEach((each) => each()) };
    waiting.set(signal, all);
    signal.addEventListener('abort', all.listener, { once: true });
  }
  const { calls, listener } = all;
  calls.add(call);
  return () => {
    calls.delete(call);
    if (calls.size > 0) return;
    signal.removeEventListener('abort', listener);
    waiting.delete(signal);
  };
}

/** Waits for a job. Its error comes from another thread, and gets the stack of the caller. */
export async function settled<T>(job: Job<T>): Promise<T> {
  try {
    return await job.promise;
  } catch (error) {
    Error.captureStackTrace(error as Error, settled);
    throw error;
  }
}

/** Waits for a job that writes nothing, at most until the signal is aborted. */
export async function read<T>(signal: AbortSignal | undefined, start: () => Job<T>): Promise<T> {
  if (signal === undefined) return await settled(start());
  throwIfAborted(signal);
  const job = start();
  let forget!: () => void;
  const aborted = new Promise<never>((_, reject) => {
    forget = onAbort(signal, () => {
      job.cancel();
      reject(signal.reason as Error);
    });
  });
  try {
    return await Promise.race([settled(job), aborted]);
  } finally {
    forget();
  }
}

/** Waits until a job has ended, even if it is cancelled: only then its partial output is removed. */
export async function run<T>(
  progress: Progress | undefined,
  signal: AbortSignal | undefined,
  start: (progress: NativeProgress) => Job<unknown>,
): Promise<T> {
  throwIfAborted(signal);
  const watcher = new Watcher(progress);
  const job = start(watcher.callback);
  const forget = onAbort(signal, () => job.cancel());
  try {
    return (await settled(job)) as T;
  } catch (error) {
    if (!(error instanceof CancelledError)) throw error;
    watcher.rethrow();
    throw signal?.aborted ? signal.reason : error;
  } finally {
    forget();
  }
}

/** Calls a progress callback, and keeps the error that it throws. */
export class Watcher {
  #thrown: { error: unknown } | undefined;
  readonly callback: NativeProgress;

  constructor(progress: Progress | undefined) {
    if (progress === undefined) return;
    const call = AsyncResource.bind(progress); // keeps the caller's async context, such as AsyncLocalStorage
    this.callback = (done, total, what) => {
      if (this.#thrown !== undefined) return false;
      try {
        const answer: unknown = call({ done, total, what });
        if (answer instanceof Promise) {
          answer.catch(() => undefined); // the TypeError below is reported instead
          throw new TypeError('progress returned a promise; it must be synchronous');
        }
        return answer !== false;
      } catch (error) {
        this.#thrown = { error };
        return false;
      }
    };
  }

  rethrow(): void {
    if (this.#thrown !== undefined) throw this.#thrown.error;
  }
}
