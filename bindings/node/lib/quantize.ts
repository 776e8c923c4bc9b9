import * as check from './arguments';
import type { ConvertReport } from './convert';
import type { DType } from './dtypes';
import { ArgumentError } from './errors';
import { run } from './jobs';
import type { Modality, ModelPath } from './model';
import { native } from './native';
import { givenTokens, type Tokens, tokens } from './tokens';
import {
  type ComponentReport, DIRECTORY_CHECKS, type DirectoryOptions, type Lora, MEMORY_LIMIT, type Source, sourceOf, THREADS, WORK_CHECKS, type WorkOptions,
} from './work';

/** Settings of `quantizeModel()`. Defaults come from the deployment profile, which is "local" unless given. */
export interface QuantizeSettings {
  deploymentProfile?: 'edge' | 'local' | 'cloud';
  bitWidth?: number;
  /** Another name for `bitWidth`. */
  bits?: number;
  groupSize?: number;
  /** The others fix bits and group size, and Parquet does not have them. Default: int. */
  type?: 'int' | 'fp8' | 'mxfp4' | 'mxfp8' | 'nvfp4';
  /** The values that share a scale in compressed-tensors. Default: group; channel for fp8. */
  strategy?: 'tensor' | 'channel' | 'group' | 'block';
  /** Store zero points in compressed-tensors. Default: false. */
  asymmetric?: boolean;
  method?: 'auto' | 'rtn' | 'search' | 'hqq';
  format?: 'parquet' | 'mlx' | 'compressed-tensors' | 'hf-fp8';
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

export interface QuantizeOptions extends QuantizeSettings, WorkOptions, DirectoryOptions {
  /** A file with activation statistics. */
  calibration?: ModelPath;
  /** Token ids with which a language model is calibrated layer by layer. */
  calibrationTokens?: Tokens;
  /** A file of these token ids: .npy, .safetensors, or numbers in a text file. */
  calibrationTokensFile?: ModelPath;
  /** LoRA adapters to merge into a model that is given by its path. */
  lora?: Lora | Lora[];
  /** Flush the output to disk before returning. Default: true. */
  sync?: boolean;
  /** Keep finished work if interrupted, and resume from it. */
  resume?: boolean;
  /** Write into a directory that has other files, which stay. */
  force?: boolean;
}

/** The result for one quantized tensor. */
export interface LayerReport {
  name: string;
  dtype: DType;
  shape: number[];
  bits: number;
  /** Less than `bits` if the layer needed more bits to reach `minAccuracy`. */
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
  /** With activation statistics only. */
  outputError: number | null;
  /** With a target size only. */
  expectedError: number | null;
}

/** How the activation statistics were used. */
export interface CalibrationReport {
  covered: number;
  uncovered: string[];
  timesteps: number;
  recordedTimesteps: number;
  timeGroups: number;
  boundaries: number[];
}

/**
 * What the bits that were chosen for a target size were expected to give. Errors are root mean squares over the quantized tensors:
 * of the relative error of the outputs, or of the weights of tensors without statistics. Tensors count by their size, those with
 * statistics by the square root of it.
 */
export interface SizeFitReport {
  /** The size of the weight files. */
  expectedBytes: number;
  /** Of up to 256 rows of each tensor. */
  expectedError: number;
  /** Of what was written; null if an earlier run wrote some of it. */
  error: number | null;
  /** "outputs" if some tensors have statistics. */
  errorOf: "outputs" | "weights";
  /** The most bits that all tensors could have in this size; 0 if not even 2 fit. */
  uniformBits: number;
  /** What would be expected then. */
  uniformBytes: number;
  uniformError: number;
}

/** The result of `quantizeModel()` or `validateModel()`. All metrics are of the bytes in the files. */
export interface QuantizeReport {
  layers: LayerReport[];
  /** Tensors left unquantized. */
  unquantized: number;
  files: string[];
  sourceBytes: number;
  bytes: number;
  modelSizeMb: number;
  compressionRatio: number;
  /** Of the quantized tensors. */
  bitsPerWeight: number;
  /** Of all tensors. */
  bitsPerWeightTotal: number;
  cosineSimilarity: number;
  relativeRmse: number;
  sqnrDb: number;
  maxError: number;
  modality: Modality | null;
  calibration: CalibrationReport | null;
  /** With a target size only. */
  sizeFit: SizeFitReport | null;
  /** Every layer reaches `minAccuracy`. */
  passed: boolean;
  /** An earlier run had finished; nothing was written. */
  upToDate: boolean;
  /** Files of the model directory that are not in the output. */
  notCopied: string[];
  notes: string[];
  warnings: string[];
  /** Tensors of the model that are not in the output. */
  leftOut: string[];
  /** Of a pipeline only, whose layers have names such as "unet/conv_in.weight". */
  components?: ComponentReport[];
}

export interface ValidateOptions extends WorkOptions, DirectoryOptions {
  /** Adapters that were merged into the original. */
  lora?: Lora | Lora[];
  /** The cosine similarity that every layer must reach. */
  minAccuracy?: number;
  /** Default: one per core. */
  threads?: number;
}

export interface DequantizeOptions extends WorkOptions, Pick<DirectoryOptions, 'component'> {
  /** Default: the original dtype of each tensor. */
  dtype?: 'F64' | 'F32' | 'F16' | 'BF16' | 'f64' | 'f32' | 'f16' | 'bf16';
  /** Default: by the extension of the path. */
  format?: 'safetensors' | 'mlx-json';
  /** The largest file of a directory: a number of bytes, or a size such as "5GB". */
  maxShardSize?: number | string;
  /** Flush the output to disk before returning. Default: true. */
  sync?: boolean;
  /** Write into a directory that has other files, which stay. */
  force?: boolean;
  /** Default: one per core. */
  threads?: number;
  /** A number of bytes, or a size such as "1GiB". Default: 384 MiB. */
  memoryLimit?: number | string;
}

type Field = [kind: 'word', value: string] | [kind: 'list', value: string[]] | [kind: 'pairs', value: [string, string][]];

/** A setting as the core takes it. The core checks its value. */
function word(inner: check.Check<string | number | boolean>): check.Check<Field> {
  return (name, value) => ['word', String(inner(name, value))];
}

const SETTINGS: Record<keyof QuantizeSettings, check.Check<Field>> = {
  deploymentProfile: word(check.text),
  bitWidth: word(check.integer),
  bits: word(check.integer),
  groupSize: word(check.integer),
  type: word(check.text),
  strategy: word(check.text),
  asymmetric: word(check.flag),
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

const QUANTIZE_CHECKS = {
  ...WORK_CHECKS, ...DIRECTORY_CHECKS, calibration: check.path, calibrationTokens: tokens, calibrationTokensFile: check.path,
  lora: check.loras, sync: check.flag, resume: check.flag, force: check.flag, ...SETTINGS,
};

const snake = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** Replaces the names of settings in a message of the core with their camelCase names. */
function withCamelNames(message: string): string {
  return [...Object.keys(SETTINGS), 'calibrationTokens'].reduce((said, name) => said.replaceAll(new RegExp(`\\b${snake(name)}\\b`, 'g'), name), message);
}

/**
 * Quantize a model into a directory, in bounded memory.
 *
 * Of a diffusers pipeline, the transformer, UNet, prior and ControlNet are quantized, and the other components copied as they are.
 */
export async function quantizeModel(source: Source, directory: ModelPath, options?: QuantizeOptions): Promise<QuantizeReport> {
  const to = check.path('directory', directory);
  const checked = check.optionsOf(options, QUANTIZE_CHECKS);
  const { progress, signal, calibration = '', calibrationTokens: ids, calibrationTokensFile: file, ...others } = checked;
  const { lora = [], sync = true, resume = false, force = false, component, variant, bits, ...settings } = others;
  const calibrationTokens = givenTokens('calibrationTokens', ids, file);
  if (bits !== undefined && settings.bitWidth !== undefined && bits[1] !== settings.bitWidth[1]) {
    throw new ArgumentError(`bits is ${bits[1]} and bitWidth is ${settings.bitWidth[1]}; give one of them`);
  }
  if (bits !== undefined) settings.bitWidth = bits;
  const from = sourceOf('source', source, checked);
  const config = Object.entries(settings).map(([name, field]) => [snake(name), ...field]);
  try {
    const work = { config, calibration, calibrationTokens, lora, sync, resume, force, component, variant };
    return await run(progress, signal, (report) => native.quantize(from, to, work, report));
  } catch (error) {
    if (!(error instanceof ArgumentError)) throw error; // other errors name paths and tensors, not settings
    const message = withCamelNames(error.message);
    throw new ArgumentError(bits === undefined ? message : message.replace(/^bitWidth\b/, 'bits'), error.errno);
  }
}

/** Compare a quantized model on disk with the original. */
export async function validateModel(original: Source, quantized: ModelPath, options?: ValidateOptions): Promise<QuantizeReport> {
  const to = check.path('quantized', quantized);
  const checks = { ...WORK_CHECKS, ...DIRECTORY_CHECKS, lora: check.loras, minAccuracy: check.number, threads: THREADS };
  const { progress, signal, lora = [], minAccuracy = 0, threads = 0, ...directory } = check.optionsOf(options, checks);
  const from = sourceOf('original', original, directory);
  return await run(progress, signal, (report) => native.validate(from, to, { lora, minAccuracy, threads, ...directory }, report));
}

const DEQUANTIZE_CHECKS = {
  ...WORK_CHECKS,
  component: check.word,
  dtype: check.dtype,
  format: check.oneOf('safetensors', 'mlx-json'),
  maxShardSize: check.size,
  sync: check.flag,
  force: check.flag,
  threads: THREADS,
  memoryLimit: check.size,
};

/** Write the float weights of a quantized model to a file (.safetensors, .mlx) or else to a model directory. */
export async function dequantizeModel(quantized: ModelPath, path: ModelPath, options?: DequantizeOptions): Promise<ConvertReport> {
  const from = check.path('quantized', quantized);
  const to = check.path('path', path);
  const { progress, signal, ...given } = check.optionsOf(options, DEQUANTIZE_CHECKS);
  const all = { __proto__: null, maxShardSize: 0, sync: true, force: false, threads: 0, memoryLimit: MEMORY_LIMIT, ...given };
  return await run(progress, signal, (report) => native.dequantize(from, to, all, report));
}
