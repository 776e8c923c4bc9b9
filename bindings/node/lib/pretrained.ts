// Model directories, opened as an inference runtime does.

import * as check from './arguments';
import { ArchitectureError, BallastError } from './errors';
import { read } from './jobs';
import { handleOf, Model, type ModelConfig, type ModelPath, FILE_CHECKS, openAs, type OpenOptions } from './model';
import type { NativeArchitecture } from './native';

export interface LoadOptions extends Omit<OpenOptions, 'decode'> {
  /** Who is told what was loaded: a function of a line, or `console.log` for true. */
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
 * Opens a model directory that has a config.json: model.safetensors.index.json, else model.safetensors, weights.safetensors or
 * weights.mlx.
 */
export async function loadPretrained(directory: ModelPath, options?: LoadOptions): Promise<Model> {
  return await load(Model, directory, options, false);
}

/** A model of a known architecture, whose tensors are those that its config implies. */
export abstract class PretrainedModel extends Model {
  /** What config.json must say that it is. */
  static readonly modelType: string = '';

  /** Opens a model directory, checks its tensors against its config, and tells `console.log` what it found. */
  static async loadPretrained<M extends PretrainedModel>(this: Loaded<M>, directory: ModelPath, options?: LoadOptions): Promise<M> {
    if (!(this?.prototype instanceof PretrainedModel)) throw new TypeError('loadPretrained() is called on a class, such as Qwen3Model');
    return await load(this, directory, options, true);
  }

  /** The model's config.json, with its numbers under their usual names, whatever it calls them, and the defaults of what it leaves out. */
  override get config(): ModelConfig {
    return { ...super.config, ...this.usualConfig };
  }

  /** @internal */
  async check(signal: AbortSignal | undefined): Promise<void> {
    const native = handleOf(this);
    const { modelType, shownPath } = native.summary();
    const expected = (this.constructor as typeof PretrainedModel).modelType;
    if (modelType !== expected) {
      const found = modelType ? check.quote(modelType) : 'nothing';
      throw new ArchitectureError(`${shownPath}: the model_type in its config.json is ${found}, ${this.constructor.name} needs '${expected}'`);
    }
    let report: NativeArchitecture | null;
    try {
      report = await read(signal, () => native.checkArchitecture());
    } catch (error) {
      if (error instanceof BallastError) throw new ArchitectureError(`${shownPath}: ${error.message}`);
      throw error;
    }
    if (report === null) return; // it is quantized
    const { missing, unexpected, misshaped } = report;
    const wrong = [
      list('missing', missing.map(check.quote)),
      list('unexpected', unexpected.map(check.quote)),
      list('of another shape', misshaped.map((each) => `${check.quote(each.name)} [${each.found.join(', ')}] for [${each.expected.join(', ')}]`)),
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
