import * as check from './arguments';
import { run } from './jobs';
import type { ModelPath } from './model';
import { native } from './native';
import { neededTokens, TOKEN_CHECKS, type TokenOptions } from './tokens';
import { DIRECTORY_CHECKS, type DirectoryOptions, type Source, sourceOf, THREADS, WORK_CHECKS, type WorkOptions } from './work';

interface LanguageModelOptions extends TokenOptions, WorkOptions, DirectoryOptions {
  /** Default: one per core. */
  threads?: number;
  /** A number of bytes, or a size such as "2GiB". Default: 1 GiB, or two layers in F32 if these are larger. */
  memoryLimit?: number | string;
}

export interface EvaluateOptions extends LanguageModelOptions {
  /** The original that the model was made from, to measure how much its predictions differ. */
  against?: Source;
}

/** How the predictions of a model differ from those of its original. KL divergences are in nats. */
export interface AgainstReport {
  /** Of the original. */
  perplexity: number;
  /** Of the model to the original. */
  perplexityRatio: number;
  klMean: number;
  /** The standard error of `klMean`. */
  klStderr: number;
  /** 99 % of the tokens have at most this. */
  klP99: number;
  /** The share of tokens for which both find the same next token most likely. */
  top1Agreement: number;
  /** The layer after which the hidden states differ most. */
  worstLayer: number;
  /** After each layer, the relative RMS difference of the hidden states. */
  layerErrors: number[];
  /** Of each scored token, in order. */
  kl: number[];
}

/** The result of `evaluateModel()`. */
export interface EvaluateReport {
  perplexity: number;
  /** The standard error of `perplexity`. */
  perplexityStderr: number;
  /** The mean negative log likelihood of the next token. */
  loss: number;
  /** Scored tokens: all but the first of each window. */
  tokens: number;
  windows: number;
  /** Of a window. */
  length: number;
  /** Tokens at the end that fill no window. */
  unusedTokens: number;
  /** With `against` only. */
  against: AgainstReport | null;
  warnings: string[];
}

export interface CalibrateOptions extends LanguageModelOptions {
  /** Use this many windows, evenly spread. Default: all. */
  samples?: number;
  /** Also record what GPTQ needs. */
  hessian?: boolean;
  /** Keep finished layers in PATH.incomplete if interrupted, and resume from them. */
  resume?: boolean;
  /** Flush the output to disk before returning. Default: true. */
  sync?: boolean;
}

/** The result of `calibrateModel()`. */
export interface CalibrateReport {
  /** Weights with statistics. */
  weights: number;
  tokens: number;
  windows: number;
  layers: number;
  /** Layers that an earlier run finished. */
  resumedLayers: number;
  /** Tokens at the end that fill no window. */
  unusedTokens: number;
  /** The size of the file. */
  bytes: number;
  warnings: string[];
}

const CHECKS = { ...WORK_CHECKS, ...DIRECTORY_CHECKS, ...TOKEN_CHECKS, threads: THREADS, memoryLimit: check.size };

/** Measure the perplexity of a language model, layer by layer in bounded memory. Quantized weights of a path are decoded to F32. */
export async function evaluateModel(model: Source, options: EvaluateOptions): Promise<EvaluateReport> {
  const checks = { ...CHECKS, against: (_: string, value: unknown) => value };
  const { progress, signal, against, ...given } = check.optionsOf(options, checks);
  const { threads = 0, memoryLimit = 0, component, variant } = given;
  const work = { tokens: neededTokens(given), threads, memoryLimit, component, variant };
  const original = against === undefined ? undefined : sourceOf('against', against, given);
  const from = sourceOf('model', model, given);
  return await run(progress, signal, (report) => native.evaluate(from, original, work, report));
}

/** Run a language model over tokens and write statistics of its layers' inputs, for `calibration` of `quantizeModel()`. */
export async function calibrateModel(model: Source, path: ModelPath, options: CalibrateOptions): Promise<CalibrateReport> {
  const to = check.path('path', path);
  const checks = { ...CHECKS, samples: check.whole(2 ** 31), hessian: check.flag, resume: check.flag, sync: check.flag };
  const { progress, signal, samples = 0, hessian = false, resume = false, sync = true, ...given } = check.optionsOf(options, checks);
  const { threads = 0, memoryLimit = 0, component, variant } = given;
  const work = { tokens: neededTokens(given), samples, hessian, resume, sync, threads, memoryLimit, component, variant };
  const from = sourceOf('model', model, given);
  return await run(progress, signal, (report) => native.calibrate(from, to, work, report));
}
