// Opens model directories as an inference runtime does.

import * as check from './arguments';
import { ArchitectureError, BallastError } from './errors';
import { read } from './jobs';
import { handleOf, Model, type ModelConfig, type ModelPath, FILE_CHECKS, openAs, type OpenOptions } from './model';
import type { NativeArchitecture } from './native';

export interface LoadOptions extends Omit<OpenOptions, 'decode'> {
  /** Called with each line about what was loaded; true stands for `console.log`. */
  log?: boolean | ((line: string) => void);
}

const logCheck: check.Check<boolean | ((line: string) => void)> = (name, value) => {
  if (typeof value !== 'boolean' && typeof value !== 'function') {
    throw new TypeError(`${name} must be a function, true or false, not ${check.kindOf(value)}`);
  }
  return value as boolean | ((line: string) => void);
};
const LOAD_CHECKS = { ...FILE_CHECKS, log: logCheck };

type Loaded<M extends Model> = new (handle: object) => M;

async function load<M extends Model>(modelClass: Loaded<M>, directory: ModelPath, options: unknown, logs: boolean): Promise<M> {
  const path = check.path('directory', directory);
  const open = check.optionsOf(options, LOAD_CHECKS);
  const model = await openAs(modelClass, path, true, open);
  try {
    if (model instanceof PretrainedModel) await model.check(open.signal);
  } catch (error) {
    model.close();
    throw error;
  }
  const { log = logs } = open;
  const say = typeof log === 'function' ? log : log ? console.log : () => undefined;
  for (const warning of model.warnings) say(`warning: ${warning}`);
  const files = model.files;
  const place = files.length === 1 ? files[0]! : `${model.path} (${files.length} files)`;
  say(`${model.size} tensors, ${model.numParameters()} parameters, ${model.format}, ${place}`);
  return model;
}

/**
 * Open a model directory that has a config.json.
 *
 * Opens model.safetensors.index.json, model.safetensors, weights.safetensors or weights.mlx, the first that exists.
 */
export async function loadPretrained(directory: ModelPath, options?: LoadOptions): Promise<Model> {
  return await load(Model, directory, options, false);
}

/** A model of a known architecture. Its tensors are checked against its config. */
export abstract class PretrainedModel extends Model {
  /** The `model_type` that config.json must have. */
  static readonly modelType: string = '';

  /** Open a model directory and check its tensors against its config. Prints a summary unless `log` is given. */
  static async loadPretrained<M extends PretrainedModel>(this: Loaded<M>, directory: ModelPath, options?: LoadOptions): Promise<M> {
    if (!(this?.prototype instanceof PretrainedModel)) throw new TypeError('loadPretrained() must be called on a class, such as Qwen3Model');
    return await load(this, directory, options, true);
  }

  /** The model's config.json, with its numbers under their usual names, including defaults. */
  override get config(): ModelConfig {
    return { ...super.config, ...this.usualConfig };
  }

  /** @internal */
  async check(signal: AbortSignal | undefined): Promise<void> {
    const native = handleOf(this);
    const { modelType, shownPath } = native.summary();
    const expected = (this.constructor as typeof PretrainedModel).modelType;
    if (modelType !== expected) {
      const found = modelType ? check.quote(modelType) : 'missing';
      throw new ArchitectureError(`${shownPath}: model_type in config.json is ${found}, ${this.constructor.name} needs '${expected}'`);
    }
    let report: NativeArchitecture | null;
    try {
      report = await read(signal, () => native.checkArchitecture());
    } catch (error) {
      if (error instanceof BallastError) throw new ArchitectureError(`${shownPath}: ${error.message}`);
      throw error;
    }
    if (report === null) return; // quantized models are not checked
    const { missing, unexpected, misshaped } = report;
    const wrong = [
      list('missing', missing.map(check.quote)),
      list('unexpected', unexpected.map(check.quote)),
      list('with the wrong shape', misshaped.map((each) => `${check.quote(each.name)} [${each.found.join(', ')}] instead of [${each.expected.join(', ')}]`)),
    ].filter((each) => each !== '');
    if (wrong.length > 0) throw new ArchitectureError(`${shownPath}: ${wrong.join('; ')}`, report);
  }
}

const MOST = 10;

function list(title: string, names: string[]): string {
  if (names.length === 0) return '';
  const more = names.length > MOST ? ` and ${names.length - MOST} more` : '';
  return `${names.length} ${title}: ${names.slice(0, MOST).join(', ')}${more}`;
}

export class Qwen3Model extends PretrainedModel {
  static override readonly modelType = 'qwen3';
}

export class Qwen2Model extends PretrainedModel {
  static override readonly modelType = 'qwen2';
}

export class LlamaModel extends PretrainedModel {
  static override readonly modelType = 'llama';
}

export class MistralModel extends PretrainedModel {
  static override readonly modelType = 'mistral';
}
