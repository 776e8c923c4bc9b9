import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import {
  ArgumentError, calibrateModel, CancelledError, CorruptError, evaluateModel, openModel, type ProgressReport, quantizeModel, type QuantizeOptions, saveFile, tensorOf,
} from 'ballast';
import { beforeAll, describe, expect, test } from 'vitest';

import { tempFolder, writeQwen3 } from './support';

const folder = tempFolder();
const model = join(folder, 'qwen3');
const ids = Int32Array.from({ length: 64 }, (_, i) => (i * 37 + (i >> 3)) % 64);
const rows = Array.from({ length: 4 }, (_, i) => ids.subarray(16 * i, 16 * i + 16));
const small: QuantizeOptions = { bits: 4, groupSize: 32, format: 'mlx', method: 'search', sync: false };

beforeAll(async () => {
  await writeQwen3(model);
  await quantizeModel(model, join(folder, 'q'), small);
});

describe('evaluateModel()', () => {
  test('measures a model, and how it differs from its original', async () => {
    const report = await evaluateModel(join(folder, 'q'), { tokens: rows, against: model });
    expect(report).toMatchObject({ tokens: 60, windows: 4, length: 16, unusedTokens: 0, warnings: [] });
    expect(report.perplexity).toBeCloseTo(Math.exp(report.loss));
    const against = report.against!;
    expect(against.klMean).toBeGreaterThan(0);
    expect(against.kl.reduce((sum, each) => sum + each, 0) / 60).toBeCloseTo(against.klMean);
    expect(against.layerErrors[against.worstLayer]).toBe(Math.max(...against.layerErrors));
    expect(against.perplexityRatio).toBeCloseTo(report.perplexity / against.perplexity);
    expect((await evaluateModel(model, { tokens: rows })).against).toBe(null);
  });

  test('takes ids as arrays of any integers, and from files', async () => {
    const expected = await evaluateModel(model, { tokens: rows });
    await saveFile({ ids: tensorOf(ids, [4, 16]) }, join(folder, 'ids.safetensors'), { sync: false });
    writeFileSync(join(folder, 'ids.txt'), ids.join(' '));
    for (const tokens of [rows.map((row) => [...row]), [...ids], Uint16Array.from(ids), BigInt64Array.from(ids, BigInt)]) {
      expect(await evaluateModel(model, { tokens, length: 16 })).toEqual(expected);
    }
    for (const name of ['ids.safetensors', 'ids.txt']) {
      expect(await evaluateModel(model, { tokensFile: join(folder, name), length: 16 })).toEqual(expected);
    }
  });

  test('cuts ids into windows', async () => {
    expect(await evaluateModel(model, { tokens: ids, length: 30 })).toMatchObject({ tokens: 58, windows: 2, length: 30, unusedTokens: 4 });
  });

  test('takes open models', async () => {
    const original = await openModel(model);
    const decoded = await openModel(join(folder, 'q'), { decode: true });
    const stored = await openModel(join(folder, 'q'));
    expect((await evaluateModel(decoded, { tokens: rows, against: original })).against!.klMean).toBeGreaterThan(0);
    await expect(evaluateModel(stored, { tokens: rows })).rejects.toThrow(/is already quantized/);
    original.close();
    await expect(evaluateModel(original, { tokens: rows })).rejects.toMatchObject({ code: 'ERR_BALLAST_CLOSED' });
  });

  test('reports progress, and can be cancelled', async () => {
    const reports: ProgressReport[] = [];
    await evaluateModel(model, { tokens: rows, progress: (report) => void reports.push(report) });
    expect(reports.at(-1)!.done).toBe(reports.at(-1)!.total);
    await expect(evaluateModel(model, { tokens: rows, progress: () => false })).rejects.toBeInstanceOf(CancelledError);
    const long = { tokens: new Int32Array(1 << 21), signal: AbortSignal.timeout(20) };
    await expect(evaluateModel(model, long)).rejects.toMatchObject({ name: 'TimeoutError' });
  });

  test.each([
    [{}, new TypeError('give tokens or tokensFile')],
    [{ tokens: [1, 2], tokensFile: 'x' }, new ArgumentError('give tokens or tokensFile, not both')],
    [{ tokens: [[1, 2], [3]] }, new ArgumentError('tokens has rows of different lengths')],
    [{ tokens: [1, -2] }, new RangeError('tokens has -2, which is not a token id')],
    [{ tokens: [1.5, 2] }, new RangeError('tokens has 1.5, which is not a token id')],
    [{ tokens: ['1'] as never }, new TypeError('tokens must contain integers, not a string')],
    [{ tokens: 'ids.npy' as never }, new TypeError('tokens must be an array of integers or of rows, not a string')],
    [{ tokens: [] }, new CorruptError('<tokens>: 0 tokens; at least 2 are needed')],
    [{ tokens: [1, 64] }, new CorruptError('<tokens>: token 1 is 64, but the model has a vocabulary of 64: it was tokenized for another model')],
  ])('refuses %o', async (options, error) => {
    await expect(evaluateModel(model, options)).rejects.toEqual(error);
  });
});

describe('calibrateModel()', () => {
  test('writes statistics that quantizeModel() takes', async () => {
    const path = join(folder, 'statistics.safetensors');
    const report = await calibrateModel(model, path, { tokens: rows, hessian: true, sync: false });
    expect(report).toEqual({ weights: 14, tokens: 64, windows: 4, layers: 2, resumedLayers: 0, unusedTokens: 0, bytes: readFileSync(path).length, warnings: [] });
    expect((await openModel(path)).has('model.layers.0.mlp.up_proj.weight.hessian')).toBe(true);
    const quantized = await quantizeModel(model, join(folder, 'calibrated'), { ...small, calibration: path });
    expect(quantized.calibration!.covered).toBe(14);
  });

  test('uses samples from all of the text', async () => {
    const report = await calibrateModel(model, join(folder, 'some.safetensors'), { tokens: rows, samples: 2, sync: false });
    await calibrateModel(model, join(folder, 'same.safetensors'), { tokens: [rows[0]!, rows[2]!], sync: false });
    expect(report.windows).toBe(2);
    expect(readFileSync(join(folder, 'some.safetensors'))).toEqual(readFileSync(join(folder, 'same.safetensors')));
  });

  test('leaves nothing behind when it is cancelled', async () => {
    const path = join(folder, 'cancelled.safetensors');
    await expect(calibrateModel(model, path, { tokens: rows, progress: () => false })).rejects.toBeInstanceOf(CancelledError);
    expect(existsSync(path)).toBe(false);
  });
});

describe('quantizeModel() with tokens', () => {
  test('calibrates layer by layer', async () => {
    writeFileSync(join(folder, 'long.txt'), ids.join(' '));
    const first = await quantizeModel(model, join(folder, 'a'), { ...small, calibrationTokens: ids });
    await quantizeModel(model, join(folder, 'b'), { ...small, calibrationTokensFile: join(folder, 'long.txt') });
    expect(first.calibration!.covered).toBe(14);
    expect(readFileSync(join(folder, 'a/model.safetensors'))).toEqual(readFileSync(join(folder, 'b/model.safetensors')));
  });

  test('refuses two calibrations', async () => {
    const both = { ...small, calibrationTokens: ids, calibration: 's.safetensors' };
    await expect(quantizeModel(model, join(folder, 'c'), both)).rejects.toEqual(new ArgumentError('calibration and calibrationTokens exclude each other'));
    const files = { ...small, calibrationTokens: ids, calibrationTokensFile: 'x' };
    await expect(quantizeModel(model, join(folder, 'c'), files)).rejects.toEqual(new ArgumentError('give calibrationTokens or calibrationTokensFile, not both'));
  });
});
