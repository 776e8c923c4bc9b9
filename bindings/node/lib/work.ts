// What is done to whole models.

import * as check from './arguments';
import type { DType } from './dtypes';
import { ArgumentError } from './errors';
import { type Progress, progress, run } from './jobs';
import { handleOf, type Modality, Model, type ModelPath } from './model';
import { native, type NativeModel, type NativePath } from './native';

interface WorkOptions {
  progress?: Progress;
  signal?: AbortSignal;
}

type DTypeName = DType | Lowercase<DType>;

export interface ConvertOptions extends WorkOptions {
  /** For all tensors of its kind: a float for floats, an integer for integers. */
  dtype?: DTypeName;
  /** For tensors whose names match a glob, whatever they are. */
  dtypeRules?: Record<string, DTypeName>;
  format?: 'safetensors' | 'mlx-json';
  /** A number of bytes, or a size such as "5GB". */
  maxShardBytes?: number | string;
  include?: string[];
  exclude?: string[];
  rename?: Record<string, string>;
  /** In place of the model's. */
  metadata?: Record<string, string>;
  allowLoss?: boolean;
  sync?: boolean;
  resume?: boolean;
  threads?: number;
  /** Likewise; 384 MiB by default. */
  memoryLimit?: number | string;
}

export interface ConvertReport {
  files: string[];
  tensors: number;
  /** Tensors whose dtype changed. */
  converted: number;
  dataBytes: number;
  warnings: string[];
}

/** How a model is to be quantized. What is not given is as the deployment profile has it, by default "local". */
export interface QuantizeSettings {
  deploymentProfile?: 'edge' | 'local' | 'cloud';
  bitWidth?: number;
  /** Another name for `bitWidth`. */
  bits?: number;
  groupSize?: number;
  method?: 'rtn' | 'search' | 'hqq';
  format?: 'parquet' | 'mlx';
  recipe?: string;
  modality?: Modality;
  minAccuracy?: number;
  failFast?: boolean;
  skipSensitiveLayers?: boolean;
  sensitiveLayerNames?: string[];
  sensitiveLayerPatterns?: string[];
  layerBitWidths?: Record<string, number>;
  numThreads?: number;
  maxMemoryLimitMb?: number;
  targetModelSizeMb?: number;
  enableTimeAware?: boolean;
  enableSpatial?: boolean;
  numTimeGroups?: number;
  calibrationSamples?: number;
}

export interface QuantizeOptions extends QuantizeSettings, WorkOptions {
  /** A file of statistics of the model's activations. */
  calibration?: ModelPath;
  sync?: boolean;
  resume?: boolean;
}

/** What became of one tensor. */
export interface LayerReport {
  name: string;
  dtype: DType;
  shape: number[];
  bits: number;
  plannedBits: number;
  groupSize: number;
  parameters: number;
  bytes: number;
  method: string;
  equalized: boolean;
  cosineSimilarity: number;
  relativeRmse: number;
  sqnrDb: number;
  maxError: number;
  outputError: number | null;
}

/** What statistics of activations were good for. */
export interface CalibrationReport {
  covered: number;
  uncovered: string[];
  timesteps: number;
  recordedTimesteps: number;
  timeGroups: number;
  boundaries: number[];
}

/** What was written, or validated. All figures are of the bytes in the files. */
export interface QuantizeReport {
  layers: LayerReport[];
  kept: number;
  files: string[];
  sourceBytes: number;
  bytes: number;
  modelSizeMb: number;
  compressionRatio: number;
  bitsPerWeight: number;
  cosineSimilarity: number;
  relativeRmse: number;
  sqnrDb: number;
  maxError: number;
  modality: Modality | null;
  calibration: CalibrationReport | null;
  passed: boolean;
  wasDone: boolean;
  warnings: string[];
}

export interface ValidateOptions extends WorkOptions {
  minAccuracy?: number;
  threads?: number;
}

export interface DownloadOptions extends WorkOptions {
  include?: string[];
  exclude?: string[];
  sync?: boolean;
}

export interface DownloadedFile {
  path: string;
  size: number;
  /** It was whole before. */
  wasThere: boolean;
  /** The kind of sum that it was compared by, if the server told one. */
  checked: 'sha256' | 'git' | null;
}

export interface DownloadReport {
  folder: string;
  files: DownloadedFile[];
  fetchedBytes: number;
}

const THREADS = check.whole(1024);
const WORK_CHECKS = { progress, signal: check.signal };

/** To be called last: to read options may close the model. */
function sourceOf(name: string, source: unknown): NativePath | NativeModel {
  if (source instanceof Model) return handleOf(source);
  if (typeof source === 'object' && !(source instanceof URL) && !(source instanceof Uint8Array)) {
    throw new TypeError(`${name} must be a Model, a string, a Buffer or a URL, not ${check.kindOf(source)}`);
  }
  return check.path(name, source);
}

const CONVERT_CHECKS = {
  ...WORK_CHECKS,
  dtype: check.dtype,
  dtypeRules: check.pairs(check.dtype),
  format: check.oneOf('safetensors', 'mlx-json'),
  maxShardBytes: check.size,
  include: check.texts,
  exclude: check.texts,
  rename: check.pairs(check.text),
  metadata: check.pairs(check.text),
  allowLoss: check.flag,
  sync: check.flag,
  resume: check.flag,
  threads: THREADS,
  memoryLimit: check.size,
};

/** Writes a model with other dtypes, names, shards or in another format, in bounded memory. */
export async function convertModel(source: ModelPath | Model, path: ModelPath, options?: ConvertOptions): Promise<ConvertReport> {
  const to = check.path('path', path);
  const { progress, signal, ...given } = check.optionsOf(options, CONVERT_CHECKS);
  const from = sourceOf('source', source);
  const all = {
    __proto__: null,
    dtypeRules: [],
    maxShardBytes: 0,
    include: [],
    exclude: [],
    rename: [],
    allowLoss: false,
    sync: true,
    resume: false,
    threads: 0,
    memoryLimit: 384 * 2 ** 20,
    ...given,
  };
  return await run(progress, signal, (report) => native.convert(from, to, all, report));
}

type Field = [kind: 'word', value: string] | [kind: 'list', value: string[]] | [kind: 'pairs', value: [string, string][]];

/** As the core takes settings. It says which values they may have. */
function word(inner: check.Check<string | number | boolean>): check.Check<Field> {
  return (name, value) => ['word', String(inner(name, value))];
}

const SETTINGS: Record<keyof QuantizeSettings, check.Check<Field>> = {
  deploymentProfile: word(check.text),
  bitWidth: word(check.integer),
  bits: word(check.integer),
  groupSize: word(check.integer),
  method: word(check.text),
  format: word(check.text),
  recipe: word(check.text),
  modality: word(check.text),
  minAccuracy: word(check.number),
  failFast: word(check.flag),
  skipSensitiveLayers: word(check.flag),
  sensitiveLayerNames: (name, value) => ['list', check.texts(name, value)],
  sensitiveLayerPatterns: (name, value) => ['list', check.texts(name, value)],
  layerBitWidths: (name, value) => ['pairs', check.pairs((key, bits) => String(check.integer(key, bits)))(name, value)],
  numThreads: word(check.integer),
  maxMemoryLimitMb: word(check.integer),
  targetModelSizeMb: word(check.number),
  enableTimeAware: word(check.flag),
  enableSpatial: word(check.flag),
  numTimeGroups: word(check.integer),
  calibrationSamples: word(check.integer),
};

const QUANTIZE_CHECKS = { ...WORK_CHECKS, calibration: check.path, sync: check.flag, resume: check.flag, ...SETTINGS };

const snake = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** Names of settings as they are spelled here, in what the core says of them. */
function withCamelNames(message: string): string {
  return Object.keys(SETTINGS).reduce((said, name) => said.replaceAll(new RegExp(`\\b${snake(name)}\\b`, 'g'), name), message);
}

/** Quantizes a model into a directory, in bounded memory. */
export async function quantizeModel(
  source: ModelPath | Model,
  directory: ModelPath,
  options?: QuantizeOptions,
): Promise<QuantizeReport> {
  const to = check.path('directory', directory);
  const { progress, signal, calibration = '', sync = true, resume = false, bits, ...settings } = check.optionsOf(options, QUANTIZE_CHECKS);
  if (bits !== undefined && settings.bitWidth !== undefined && bits[1] !== settings.bitWidth[1]) {
    throw new ArgumentError(`bits is ${bits[1]} and bitWidth is ${settings.bitWidth[1]}; give one of them`);
  }
  if (bits !== undefined) settings.bitWidth = bits;
  const from = sourceOf('source', source);
  const config = Object.entries(settings).map(([name, field]) => [snake(name), ...field]);
  try {
    return await run(progress, signal, (report) => native.quantize(from, to, { config, calibration, sync, resume }, report));
  } catch (error) {
    if (!(error instanceof ArgumentError)) throw error; // the others name paths and tensors
    const message = withCamelNames(error.message);
    throw new ArgumentError(bits === undefined ? message : message.replace(/^bitWidth\b/, 'bits'), error.errno);
  }
}

/** Measures a quantized model, as it is on the disk, against the original. */
export async function validateModel(
  original: ModelPath | Model,
  quantized: ModelPath,
  options?: ValidateOptions,
): Promise<QuantizeReport> {
  const to = check.path('quantized', quantized);
  const checks = { ...WORK_CHECKS, minAccuracy: check.number, threads: THREADS };
  const { progress, signal, minAccuracy = 0, threads = 0 } = check.optionsOf(options, checks);
  const from = sourceOf('original', original);
  return await run(progress, signal, (report) => native.validate(from, to, { minAccuracy, threads }, report));
}

/**
 * Fetches a file or a model's files: https://…, s3://bucket/folder or hf://org/repo[@revision][/file]. What breaks off is gone on
 * from by the next call. Without a folder, a model of the hub goes to the hub's cache.
 */
export async function downloadModel(uri: string | URL, folder?: ModelPath | null, options?: DownloadOptions): Promise<DownloadReport> {
  const from = check.uri('uri', uri instanceof URL ? uri.href : uri);
  const to = folder === undefined || folder === null ? '' : check.path('folder', folder);
  const checks = { ...WORK_CHECKS, include: check.texts, exclude: check.texts, sync: check.flag };
  const { progress, signal, include = [], exclude = [], sync = true } = check.optionsOf(options, checks);
  return await run(progress, signal, (report) => native.download(from, to, { include, exclude, sync }, report));
}
