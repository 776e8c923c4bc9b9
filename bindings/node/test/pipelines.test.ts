import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import {
  ArgumentError, convertModel, dequantizeModel, inspectModel, listComponents, openModel, quantizeModel, saveFile, tensorOf, validateModel, verifyModel,
} from 'ballast';
import { beforeAll, describe, expect, test } from 'vitest';

import { noise, tempFolder } from './support';

const folder = tempFolder();
const root = join(folder, 'pipeline');

async function addModel(name: string, file: string): Promise<void> {
  mkdirSync(join(root, name), { recursive: true });
  writeFileSync(join(root, name, 'config.json'), '{}');
  const values = noise(32 * 64);
  await saveFile({ 'to_q.weight': tensorOf(values, [32, 64]), 'to_q.bias': tensorOf(values.slice(0, 32), [32]) }, join(root, name, file));
}

beforeAll(async () => {
  await addModel('unet', 'diffusion_pytorch_model.safetensors');
  await addModel('unet', 'diffusion_pytorch_model.fp16.safetensors');
  await addModel('text_encoder', 'model.safetensors');
  mkdirSync(join(root, 'scheduler'));
  writeFileSync(join(root, 'scheduler', 'scheduler_config.json'), '{}');
  writeFileSync(join(root, 'model_index.json'), JSON.stringify({
    _class_name: 'Pipeline',
    unet: ['diffusers', 'UNet2DConditionModel'],
    text_encoder: ['transformers', 'CLIPTextModel'],
    scheduler: ['diffusers', 'PNDMScheduler'],
  }));
});

describe('a diffusers pipeline', () => {
  test('lists its components', async () => {
    const found = await listComponents(root);
    expect(found.map(({ name, className, hasWeights, isDenoiser, variants }) => [name, className, hasWeights, isDenoiser, variants])).toEqual([
      ['unet', 'UNet2DConditionModel', true, true, ['', 'fp16']],
      ['text_encoder', 'CLIPTextModel', true, false, ['']],
      ['scheduler', 'PNDMScheduler', false, false, []],
    ]);
    expect(await listComponents(join(root, 'unet'))).toEqual([]);
  });

  test('opens one component and variant', async () => {
    const model = await openModel(root, { component: 'unet', variant: 'fp16' });
    expect(model.files).toEqual([join(root, 'unet', 'diffusion_pytorch_model.fp16.safetensors')]);
    expect((await inspectModel(root, { component: 'text_encoder' })).tensorCount).toBe(2);
    await expect(openModel(root)).rejects.toThrow(/give component unet, or the path of its folder/);
    await expect(openModel(root, { component: 'unett' })).rejects.toThrow(/did you mean 'unet'/);
    await expect(openModel(root, { component: '' })).rejects.toThrow(new ArgumentError('component is empty'));
  });

  test('is converted, quantized, validated and dequantized as a whole', async () => {
    expect((await verifyModel(root)).components).toEqual(['unet', 'text_encoder']);
    const converted = await convertModel(root, join(folder, 'half'), { dtype: 'f16', sync: false });
    expect(converted.components?.map((each) => each.action)).toEqual(['converted', 'converted', 'copied']);
    const report = await quantizeModel(root, join(folder, 'small'), { format: 'mlx', groupSize: 32, sync: false });
    expect(report.components?.map((each) => each.action)).toEqual(['quantized', 'unquantized', 'copied']);
    expect(report.layers.map((layer) => layer.name)).toEqual(['unet/to_q.weight']);
    expect(existsSync(join(folder, 'small', 'scheduler', 'scheduler_config.json'))).toBe(true);
    expect((await validateModel(root, join(folder, 'small'))).passed).toBe(true);
    const floats = await dequantizeModel(join(folder, 'small'), join(folder, 'floats'), { sync: false });
    expect(floats.components?.[0]?.action).toBe('dequantized');
  });

  test('refuses a component of an open model', async () => {
    const model = await openModel(root, { component: 'unet' });
    await expect(convertModel(model, join(folder, 'x'), { component: 'unet' })).rejects.toThrow(/the model is already open; give its path/);
  });
});
