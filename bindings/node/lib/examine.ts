// Functions that read models and write nothing.

import * as check from './arguments';
import type { DType } from './dtypes';
import { run, settled } from './jobs';
import type { Modality, ModelConfig, ModelPath } from './model';
import { native, type NativeConfig } from './native';
import { DIRECTORY_CHECKS, type DirectoryOptions, type Source, sourceOf, THREADS, WORK_CHECKS, type WorkOptions } from './work';

export interface VerifyOptions extends WorkOptions, DirectoryOptions {
  /** Read every value, and report NaN, Inf and weights that are constant or almost all zero. */
  values?: boolean;
  /** Compute the SHA-256 of every file. */
  sha256?: boolean;
  /** Default: one per core. */
  threads?: number;
}

/** A problem found in a model. */
export interface Defect {
  /** One of `VerifyReport.checks`. */
  check: string;
  message: string;
}

export interface VerifiedFile {
  path: string;
  size: number;
  tensors: number;
  /** Hexadecimal; null unless requested. */
  sha256: string | null;
}

/** The result of `verifyModel()`. */
export interface VerifyReport {
  /** There are no defects. */
  ok: boolean;
  /** The checks that were made. */
  checks: string[];
  defects: Defect[];
  /** What was not checked, and why. */
  skipped: string[];
  warnings: string[];
  files: VerifiedFile[];
  tensors: number;
  bytes: number;
  /** The components that were checked. Of a pipeline only. */
  components?: string[];
}

/**
 * Check headers, offsets, shards against the index, tensors against the config and, with `values`, every value.
 *
 * Lists all defects instead of throwing at the first. Rejects only if the model cannot be checked, for example if it does not exist.
 */
export async function verifyModel(path: ModelPath, options?: VerifyOptions): Promise<VerifyReport> {
  const from = check.path('path', path);
  const checks = { ...WORK_CHECKS, ...DIRECTORY_CHECKS, values: check.flag, sha256: check.flag, threads: THREADS };
  const { progress, signal, values = false, sha256 = false, threads = 0, ...directory } = check.optionsOf(options, checks);
  return await run(progress, signal, (report) => native.verify(from, { values, sha256, threads, ...directory }, report));
}

export interface InspectOptions extends WorkOptions, DirectoryOptions {
  /** Read all values, and give each tensor `stats`, or each weight if the model is quantized. */
  stats?: boolean;
  /** For `stats`. Default: one per core. */
  threads?: number;
}

/** Statistics of the values of a tensor. `min`, `max`, `mean`, `std`, `l2Norm` and `histogram` cover the finite values only. */
export interface TensorStats {
  count: number;
  zeros: number;
  nan: number;
  inf: number;
  min: number;
  max: number;
  mean: number;
  std: number;
  l2Norm: number;
  /** Counts in 16 equal bins from `min` to `max`. */
  histogram: number[];
}

export interface InspectedTensor {
  name: string;
  /** For Parquet, the original dtype of the weight. */
  dtype: DType;
  shape: number[];
  /** As stored. */
  bytes: number;
  file: string;
  /** Where its bytes are in the data of the file. Not for Parquet. */
  dataOffsets?: [begin: number, end: number];
  /** Parquet only: bits per weight; 0 if it is not quantized. */
  bits?: number;
  /** Parquet only: weights that share a scale. */
  groupSize?: number;
  /** Parquet only: columns were scaled before quantizing. */
  equalized?: boolean;
  /** With the option `stats`, unless the model is quantized. Null for F6, which has no standard packing. */
  stats?: TensorStats | null;
}

/** A weight of a model, independent of how it is stored. */
export interface InspectedWeight {
  name: string;
  /** The original dtype, or the best guess. */
  dtype: DType;
  shape: number[];
  /** How it is stored: "plain", "mlx", "gptq" and so on. */
  scheme: string;
  mode: string | null;
  /** Bits per code; 0 if it is not quantized. */
  bits: number;
  groupSize: number;
  /** The stored tensors that it consists of. */
  tensors: string[];
  bytes: number;
  /** Of the decoded values, with the option `stats`, if the model is quantized. */
  stats?: TensorStats | null;
}

export interface Totals {
  tensors: number;
  parameters: number;
  bytes: number;
}

/** The result of `inspectModel()`. */
export interface InspectReport {
  path: string;
  format: 'safetensors' | 'mlx-json' | 'parquet';
  /** `dataStart` is where the tensor data begins; not for Parquet. */
  files: { path: string; size: number; dataStart?: number }[];
  tensorCount: number;
  /** Of the weights; of the tensors, if the weights cannot be decoded. */
  parameterCount: number;
  dataBytes: number;
  dtypes: Partial<Record<DType, Totals>>;
  /** Totals by storage, such as "int4 of 64" or "kept" for unquantized weights; null if the model is not quantized. */
  quantization: Record<string, Totals> | null;
  /** The first timestep of each group except the first; null if no parameters depend on the timestep. */
  timeBoundaries: number[] | null;
  metadata: Record<string, string>;
  modality: Modality | null;
  config: ModelConfig | null;
  warnings: string[];
  /** The stored tensors if the weights cannot be decoded; a warning says why. */
  weights: InspectedWeight[];
  /** In the order of the files. */
  tensors: InspectedTensor[];
}

/** A subfolder that the model_index.json of a diffusers pipeline names. */
export interface Component {
  name: string;
  library: string;
  className: string;
  path: string;
  /** False for a tokenizer, a scheduler and the like. */
  hasWeights: boolean;
  /** `quantizeModel()` quantizes it with the pipeline. */
  isDenoiser: boolean;
  /** Of its weights; plain weights are "". */
  variants: string[];
}

/** List the components of a diffusers pipeline. Empty for any other path. */
export async function listComponents(path: ModelPath): Promise<Component[]> {
  const from = check.path('path', path);
  return await settled(native.components(from));
}

type NativeReport = Omit<InspectReport, 'metadata' | 'config'> & { metadata: [string, string][]; config: NativeConfig | null };

/** Describe a model, quantized or not, as `ballast inspect --json --tensors` does. Reads no weights unless `stats` is true. */
export async function inspectModel(path: ModelPath, options?: InspectOptions): Promise<InspectReport> {
  const from = check.path('path', path);
  const checks = { ...WORK_CHECKS, ...DIRECTORY_CHECKS, stats: check.flag, threads: THREADS };
  const { progress, signal, stats = false, threads = 0, ...directory } = check.optionsOf(options, checks);
  const found = await run<NativeReport>(progress, signal, (report) => native.inspect(from, { stats, threads, ...directory }, report));
  const { config } = found;
  return {
    ...found,
    metadata: Object.fromEntries(found.metadata),
    config: config === null ? null : { ...(JSON.parse(config.json) as ModelConfig), ...(found.format === 'parquet' ? {} : config.usual) },
  };
}

export interface DiffOptions extends WorkOptions {
  /** Default: one per core. */
  threads?: number;
}

/** A tensor whose dtype, shape or values differ. The four numbers are null if its values cannot be compared. */
export interface TensorDifference {
  name: string;
  dtype: [a: DType, b: DType];
  shape: [a: number[], b: number[]];
  /** How many values differ. */
  differentValues: number | null;
  /** How many values were compared. */
  values: number | null;
  /** The index of the first value that differs; null if none does. */
  firstDifference: number | null;
  /** The largest |a - b|. */
  maxDifference: number | null;
}

/** The result of `diffModels()`. */
export interface DiffReport {
  /** All tensors are equal. Metadata does not count. */
  equal: boolean;
  /** Tensors with equal dtype, shape and values. */
  same: number;
  onlyInA: string[];
  onlyInB: string[];
  changed: TensorDifference[];
  /** Metadata keys whose values differ. */
  metadata: string[];
  /** From opening the models. */
  warnings: string[];
}

/**
 * Compare two models: names, dtypes, shapes and values. Ignores the order of tensors and how they are split into files.
 *
 * Quantized models that are given by path are compared by their decoded weights.
 */
export async function diffModels(a: Source, b: Source, options?: DiffOptions): Promise<DiffReport> {
  const { progress, signal, threads = 0 } = check.optionsOf(options, { ...WORK_CHECKS, threads: THREADS });
  const first = sourceOf('a', a);
  const second = sourceOf('b', b);
  return await run(progress, signal, (report) => native.diff(first, second, { threads }, report));
}
