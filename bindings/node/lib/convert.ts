import * as check from './arguments';
import { run } from './jobs';
import type { ModelPath } from './model';
import { native } from './native';
import {
  type ComponentReport, DIRECTORY_CHECKS, type DirectoryOptions, type DTypeName, type Lora, MEMORY_LIMIT, type Source, sourceOf, THREADS, WORK_CHECKS,
  type WorkOptions,
} from './work';

export interface ConvertOptions extends WorkOptions, DirectoryOptions {
  /** A float dtype applies to all float tensors, an integer dtype to all integer tensors. */
  dtype?: DTypeName;
  /** Maps globs of tensor names to dtypes. Overrides `dtype`; the last match wins. */
  dtypeRules?: Record<string, DTypeName>;
  /** Default: by the extension of the path. */
  format?: 'safetensors' | 'mlx-json';
  /** The largest file of a directory: a number of bytes, or a size such as "5GB". */
  maxShardSize?: number | string;
  /** Globs of the tensor names to write. Default: all. */
  include?: string[];
  /** Globs of the tensor names to leave out. */
  exclude?: string[];
  /** Maps globs to new names: { 'model.*': 'decoder.*' }. */
  rename?: Record<string, string>;
  /** LoRA adapters to merge into a model that is given by its path. */
  lora?: Lora | Lora[];
  /** Replaces the metadata of the model. */
  metadata?: Record<string, string>;
  /** Convert even if the new dtype cannot hold a value. */
  allowLoss?: boolean;
  /** Flush the output to disk before returning. Default: true. */
  sync?: boolean;
  /** Keep finished work if interrupted, and resume from it. */
  resume?: boolean;
  /** Write into a directory that has other files, which stay. */
  force?: boolean;
  /** Default: one per core. */
  threads?: number;
  /** A number of bytes, or a size such as "1GiB". Default: 384 MiB. */
  memoryLimit?: number | string;
}

/** The result of `convertModel()` or `dequantizeModel()`. */
export interface ConvertReport {
  /** The weight files written. */
  files: string[];
  tensors: number;
  /** Tensors whose dtype changed, or that were dequantized. */
  converted: number;
  dataBytes: number;
  /** Files of the model directory that are not in the output. */
  notCopied: string[];
  notes: string[];
  warnings: string[];
  /** Of a pipeline only. */
  components?: ComponentReport[];
}

const CONVERT_CHECKS = {
  ...WORK_CHECKS,
  ...DIRECTORY_CHECKS,
  dtype: check.dtype,
  dtypeRules: check.pairs(check.dtype),
  format: check.oneOf('safetensors', 'mlx-json'),
  maxShardSize: check.size,
  include: check.texts,
  exclude: check.texts,
  rename: check.pairs(check.text),
  lora: check.loras,
  metadata: check.pairs(check.text),
  allowLoss: check.flag,
  sync: check.flag,
  resume: check.flag,
  force: check.flag,
  threads: THREADS,
  memoryLimit: check.size,
};

/**
 * Write a model with other dtypes, names or shards, or in another format, in bounded memory.
 *
 * Of a diffusers pipeline, all components are converted, into a directory of the same structure. Quantized weights are decoded, unless MLX weights are copied to a SafeTensors directory without a change of dtype.
 */
export async function convertModel(source: Source, path: ModelPath, options?: ConvertOptions): Promise<ConvertReport> {
  const to = check.path('path', path);
  const { progress, signal, ...given } = check.optionsOf(options, CONVERT_CHECKS);
  const from = sourceOf('source', source, given);
  const all = {
    __proto__: null,
    dtypeRules: [],
    maxShardSize: 0,
    include: [],
    exclude: [],
    rename: [],
    lora: [],
    allowLoss: false,
    sync: true,
    resume: false,
    force: false,
    threads: 0,
    memoryLimit: MEMORY_LIMIT,
    ...given,
  };
  return await run(progress, signal, (report) => native.convert(from, to, all, report));
}
