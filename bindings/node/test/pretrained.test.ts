import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { ArchitectureError, convertModel, LlamaModel, loadPretrained, MissingError, MistralModel, Model, PretrainedModel, Qwen2Model, Qwen3Model, quantizeModel } from 'ballast';
import { describe, expect, test, vi } from 'vitest';

import { elements, QWEN3_CONFIG, qwen3Shapes, tempFolder, writeQwen3 } from './support';

const folder = tempFolder();
const PARAMETERS = Object.values(qwen3Shapes()).reduce((sum, shape) => sum + elements(shape), 0);

describe('Qwen3Model', () => {
  test('counts its parameters, and prints a summary', async () => {
    const directory = await writeQwen3(join(folder, 'tiny'));
    const said = vi.spyOn(console, 'log').mockImplementation(() => undefined);
    const model = await Qwen3Model.loadPretrained(directory);
    expect(said.mock.calls).toEqual([[`24 tensors, ${PARAMETERS} parameters, safetensors, ${join(directory, 'model.safetensors')}`]]);
    said.mockClear();
    await Qwen3Model.loadPretrained(directory, { log: false });
    await loadPretrained(directory);
    expect(said).not.toHaveBeenCalled();
    said.mockRestore();
    expect(model).toBeInstanceOf(Model);
    expect(model).toBeInstanceOf(PretrainedModel);
    expect(model.numParameters()).toBe(PARAMETERS);
    expect(model.config).toMatchObject({ hidden_size: 32, num_hidden_layers: 2, max_position_embeddings: 2048, tie_word_embeddings: true });
  });

  test('has its numbers under their usual names', async () => {
    const { hidden_size: hiddenSize, num_hidden_layers: numLayers, ...rest } = QWEN3_CONFIG;
    const directory = await writeQwen3(join(folder, 'camel'), undefined, undefined, { ...rest, hiddenSize, numLayers });
    const model = await Qwen3Model.loadPretrained(directory, { log: false });
    expect(model.config).toMatchObject({ hidden_size: 32, num_hidden_layers: 2, hiddenSize: 32 });
  });

  test('lists missing, unexpected and misshaped tensors', async () => {
    const { 'model.norm.weight': _, ...shapes } = qwen3Shapes();
    const wrong = { ...shapes, 'model.layers.0.mlp.up_proj.weight': [65, 32], 'lm_tail.weight': [4] };
    const directory = await writeQwen3(join(folder, 'wrong'), wrong);
    const error = (await Qwen3Model.loadPretrained(directory, { log: false }).catch((each: unknown) => each)) as ArchitectureError;
    expect(error).toBeInstanceOf(ArchitectureError);
    expect(error).toMatchObject({
      code: 'ERR_BALLAST_ARCHITECTURE', missing: ['model.norm.weight'], unexpected: ['lm_tail.weight'],
      misshaped: [{ name: 'model.layers.0.mlp.up_proj.weight', expected: [64, 32], found: [65, 32] }],
    });
    expect(error.message).toBe(
      `${directory}: 1 missing: 'model.norm.weight'; 1 unexpected: 'lm_tail.weight'; ` +
        "1 with the wrong shape: 'model.layers.0.mlp.up_proj.weight' [65, 32] instead of [64, 32]",
    );
    expect((await loadPretrained(directory)).size).toBe(24);
  });

  test('is loaded by its class', async () => {
    const { loadPretrained: unbound } = Qwen3Model;
    for (const [it, value] of Object.entries({ undefined, Date, Model })) {
      await expect(unbound.call(value as never, folder), it).rejects.toThrow('loadPretrained() must be called on a class, such as Qwen3Model');
    }
  });

  test('refuses the config of another model, or one without a size', async () => {
    const directory = await writeQwen3(join(folder, 'other'));
    for (const other of [LlamaModel, Qwen2Model, MistralModel]) {
      await expect(other.loadPretrained(directory, { log: false })).rejects.toThrow(
        `${directory}: model_type in config.json is 'qwen3', ${other.name} needs '${other.modelType}'`);
    }
    const { vocab_size: _, ...lacking } = QWEN3_CONFIG;
    const small = await writeQwen3(join(folder, 'lacking'), undefined, undefined, lacking);
    await expect(Qwen3Model.loadPretrained(small, { log: false })).rejects.toThrow(/lacking: .*vocab_size/);
  });

  test('does not check a quantized model', async () => {
    const directory = await writeQwen3(join(folder, 'whole'));
    await quantizeModel(directory, join(folder, 'quantized'), { format: 'mlx', groupSize: 32, sync: false });
    expect((await Qwen3Model.loadPretrained(join(folder, 'quantized'), { log: false })).size).toBeGreaterThan(24);
  });
});

describe('loadPretrained()', () => {
  test('prefers the index to single files, and these in their order', async () => {
    const directory = await writeQwen3(join(folder, 'order'), undefined, 'weights.safetensors');
    const load = async () => {
      const said: string[] = [];
      const model = await loadPretrained(directory, { log: (line) => said.push(line) });
      return { file: model.files[0], said };
    };
    expect((await load()).file).toBe(join(directory, 'weights.safetensors'));
    await convertModel(join(directory, 'weights.safetensors'), join(directory, 'weights.mlx'), { sync: false });
    expect((await load()).file).toBe(join(directory, 'weights.safetensors'));
    await writeQwen3(directory);
    expect((await load()).file).toBe(join(directory, 'model.safetensors'));
    const shards = join(folder, 'shards');
    await convertModel(directory, shards, { maxShardSize: 20_000, sync: false });
    await writeQwen3(shards);
    const model = await loadPretrained(shards);
    expect(model.files.length).toBeGreaterThan(1);
    const said: string[] = [];
    await Qwen3Model.loadPretrained(shards, { log: (line) => said.push(line) });
    expect(said).toHaveLength(2);
    expect(said[0]).toMatch(/^warning: .*model\.safetensors/);
    expect(said[1]).toBe(`24 tensors, ${PARAMETERS} parameters, safetensors, ${shards} (${model.files.length} files)`);
  });

  test('names all files that it looked for', async () => {
    const directory = join(folder, 'none');
    mkdirSync(directory);
    await expect(loadPretrained(directory)).rejects.toThrow(/config\.json/);
    writeFileSync(join(directory, 'config.json'), JSON.stringify(QWEN3_CONFIG));
    const error = (await loadPretrained(directory).catch((each: unknown) => each)) as Error;
    expect(error).toBeInstanceOf(MissingError);
    for (const name of ['model.safetensors.index.json', 'model.safetensors', 'weights.safetensors', 'weights.mlx']) expect(error.message).toContain(name);
  });
});

// Programs written for other loaders, with only the import changed.
test('resolves relative paths in the working directory', async () => {
  process.chdir(await writeQwen3(join(folder, 'first/models/qwen3-0.6b')).then(() => join(folder, 'first')));
  const model = await Qwen3Model.loadPretrained('./models/qwen3-0.6b', { log: false });
  expect(model.numParameters()).toBe(PARAMETERS);
});

test('should load model from SafeTensors', async () => {
  process.chdir(await writeQwen3(join(folder, 'second/test-models/qwen3-tiny')).then(() => join(folder, 'second')));
  const model = await Qwen3Model.loadPretrained('./test-models/qwen3-tiny');
  expect(model).toBeDefined();
  expect(model.numParameters()).toBeGreaterThan(0);
});
