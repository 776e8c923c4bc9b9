// Work in other threads, watched and stopped.

import { AsyncResource } from 'node:async_hooks';

import { type Check, kindOf } from './arguments';
import { CancelledError } from './errors';
import type { Job, NativeProgress } from './native';

/** How far long work is, in bytes. */
export interface ProgressReport {
  done: number;
  total: number;
  /** What is at hand. */
  what: string;
}

/** Is told the latest now and then, and at last that all is done; returning false stops the work, and so does throwing. */
export type Progress = (report: ProgressReport) => unknown;

export const progress: Check<Progress> = (name, value) => {
  if (typeof value !== 'function') throw new TypeError(`${name} must be a function, not ${kindOf(value)}`);
  if (Object.prototype.toString.call(value) === '[object AsyncFunction]') {
    throw new TypeError(`${name} must be a synchronous function, not an async one`);
  }
  return value as Progress;
};

/** Asks no more of a signal than those of old polyfills have. */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw signal.reason as Error;
}

/** What is to be called for a signal: it has one listener for all, as Node warns of more than ten. */
const waiting = new WeakMap<AbortSignal, { calls: Set<() => void>; listener: () => void }>();

/** Calls a function of its own back when the signal is aborted, unless what this returns is called before. */
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

/** Waits for a job. Its error, which comes from another thread, is given the stack of those who await it. */
export async function settled<T>(job: Job<T>): Promise<T> {
  try {
    return await job.promise;
  } catch (error) {
    Error.captureStackTrace(error as Error, settled);
    throw error;
  }
}

/** Waits for a job that changes nothing, and no longer than until the signal. */
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

/** Waits until a job has ended, even if it is to stop: then nothing is left of what it began. */
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

/** Calls a callback, and keeps what it throws. */
export class Watcher {
  #thrown: { error: unknown } | undefined;
  readonly callback: NativeProgress;

  constructor(progress: Progress | undefined) {
    if (progress === undefined) return;
    const call = AsyncResource.bind(progress); // in the context of the caller, as what is awaited is
    this.callback = (done, total, what) => {
      if (this.#thrown !== undefined) return false;
      try {
        const answer: unknown = call({ done, total, what });
        if (answer instanceof Promise) {
          answer.catch(() => undefined); // this error is the one that is told
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
