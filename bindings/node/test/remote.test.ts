import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import {
  CancelledError, convertModel, dequantizeModel, diffModels, downloadModel, inspectModel, openModel, type ProgressReport, quantizeModel, saveFile,
  UnsupportedError, validateModel, verifyModel,
} from 'ballast';
import { beforeAll, describe, expect, test } from 'vitest';

import { filesIn, noise, RangeServer, tempFolder, writeQwen3, writeSample } from './support';

const folder = tempFolder();
const sample = join(folder, 'model.safetensors');
const large = join(folder, 'large.safetensors');
const server = new RangeServer({
  '/model.safetensors': sample, '/large.safetensors': large, '/qwen3/model.safetensors': join(folder, 'qwen3/model.safetensors'),
  '/qwen3/config.json': join(folder, 'qwen3/config.json'),
});
let url = '';

beforeAll(async () => {
  await writeSample(sample);
  await saveFile({ a: new Uint8Array(20 << 20).fill(3) }, large, { sync: false });
  await writeQwen3(join(folder, 'qwen3'));
  url = await server.listen();
});

/** Never responds to later requests. */
function stall(): void {
  server.before = () => true;
}

describe('a model on a server', () => {
  test('opens, is read and sliced, and refuses tensor()', async () => {
    const model = await openModel(`${url}/model.safetensors`);
    expect(model.names).toHaveLength(2);
    expect(await model.read('bias')).toEqual(noise(64));
    expect((await model.slice('bias', [0, 2])).data).toEqual(noise(64).slice(0, 2));
    expect(() => model.tensor('bias')).toThrow(UnsupportedError);
    expect(server.requests.every((each) => each.includes('bytes=') || each.startsWith('HEAD'))).toBe(true);
  });

  test('may be a folder, and a URL', async () => {
    const model = await openModel(new URL(`${url}/qwen3/`));
    expect(model.config).toMatchObject({ model_type: 'qwen3' });
  });

  test('is converted, quantized and validated', async () => {
    const model = await openModel(`${url}/model.safetensors`);
    await convertModel(model, join(folder, 'copy.safetensors'), { sync: false });
    expect((await openModel(join(folder, 'copy.safetensors'))).tensor('bias')).toEqual(noise(64));
    const report = await quantizeModel(`${url}/model.safetensors`, join(folder, 'q'), { groupSize: 32, sync: false });
    expect((await validateModel(model, join(folder, 'q'))).cosineSimilarity).toBe(report.cosineSimilarity);
  });

  test('is loaded, verified, inspected and compared', async () => {
    using model = await openModel(`${url}/model.safetensors`);
    expect((await model.load()).get('bias')!.data).toEqual(noise(64));
    expect((await verifyModel(`${url}/model.safetensors`, { values: true })).ok).toBe(true);
    expect((await inspectModel(`${url}/model.safetensors`)).tensorCount).toBe(2);
    expect((await diffModels(sample, `${url}/model.safetensors`)).equal).toBe(true);
  });

  test('that does not exist is a MissingError', async () => {
    await expect(openModel(`${url}/no.safetensors`)).rejects.toMatchObject({ code: 'ERR_BALLAST_NOT_FOUND' });
  });

  test('that does not respond does not delay local work', async () => {
    stall();
    const controller = new AbortController();
    const hung = Array.from({ length: 80 }, () => openModel(`${url}/model.safetensors`, { signal: controller.signal }).catch(() => undefined));
    try {
      const model = await openModel(sample);
      expect(await model.read('bias')).toHaveLength(64);
    } finally {
      controller.abort();
      await Promise.all(hung);
      server.before = () => false;
    }
  });

  test('that does not respond is waited for until the signal is aborted', async () => {
    const model = await openModel(`${url}/large.safetensors`);
    stall();
    try {
      const reason = new Error('enough');
      for (const wait of [
        (signal: AbortSignal) => openModel(`${url}/model.safetensors`, { signal }),
        (signal: AbortSignal) => model.read('a', { signal }),
        (signal: AbortSignal) => convertModel(`${url}/model.safetensors`, join(folder, 'never.safetensors'), { signal }),
        (signal: AbortSignal) => convertModel(model, join(folder, 'never.safetensors'), { signal }),
        (signal: AbortSignal) => downloadModel(`${url}/model.safetensors`, join(folder, 'never'), { signal }),
        (signal: AbortSignal) => model.load({ signal }),
        (signal: AbortSignal) => verifyModel(`${url}/model.safetensors`, { signal }),
        (signal: AbortSignal) => inspectModel(`${url}/model.safetensors`, { signal }),
        (signal: AbortSignal) => inspectModel(`${url}/large.safetensors`, { stats: true, signal }),
        (signal: AbortSignal) => diffModels(sample, `${url}/model.safetensors`, { signal }),
        (signal: AbortSignal) => diffModels(model, model, { signal }),
        (signal: AbortSignal) => dequantizeModel(`${url}/model.safetensors`, join(folder, 'never.safetensors'), { signal }),
      ]) {
        const controller = new AbortController();
        setTimeout(() => controller.abort(reason), 50);
        await expect(wait(controller.signal)).rejects.toBe(reason);
      }
    } finally {
      server.before = () => false;
    }
    expect(filesIn(folder).filter((each) => each.startsWith('never.'))).toEqual([]);
  });
});

describe('downloadModel()', () => {
  test('downloads whole files, reports progress, and does not download them again', async () => {
    const seen: ProgressReport[] = [];
    const out = join(folder, 'down');
    const report = await downloadModel(`${url}/large.safetensors`, out, { sync: false, progress: (each) => seen.push(each) });
    expect(report).toMatchObject({ folder: out, files: [{ path: join(out, 'large.safetensors'), alreadyComplete: false, checksum: null }] });
    expect(report.fetchedBytes).toBe(readFileSync(large).length);
    expect(seen.at(-1)!.done).toBe(seen.at(-1)!.total);
    expect(readFileSync(join(out, 'large.safetensors')).equals(readFileSync(large))).toBe(true);
  });

  test('can be cancelled by the last report, and resumes with the next call', async () => {
    const out = join(folder, 'late');
    const isLast = ({ done, total }: ProgressReport) => done === total;
    await expect(downloadModel(`${url}/large.safetensors`, out, { progress: (each) => !isLast(each) })).rejects.toBeInstanceOf(CancelledError);
    expect(filesIn(out)).not.toContain('large.safetensors');
    const report = await downloadModel(`${url}/large.safetensors`, out, { sync: false });
    expect(report.fetchedBytes).toBeLessThan(readFileSync(large).length / 2);
    expect(readFileSync(join(out, 'large.safetensors')).equals(readFileSync(large))).toBe(true);
  });

  test('downloads only the matching files of a folder', async () => {
    const report = await downloadModel(`${url}/qwen3/`, join(folder, 'some'), { include: ['*.json'], sync: false });
    expect(report.files.map((each) => each.path)).toEqual([join(folder, 'some/config.json')]);
  });

  test('refuses a directory with other files, unless force', async () => {
    const out = join(folder, 'busy');
    mkdirSync(out);
    writeFileSync(join(out, 'notes.txt'), 'mine');
    await expect(downloadModel(`${url}/qwen3/`, out, { sync: false })).rejects.toThrow(/is not empty: 'notes.txt' would stay .* \(force\)$/);
    expect(filesIn(out)).toEqual(['notes.txt']);
    await downloadModel(`${url}/qwen3/`, out, { sync: false, force: true });
    expect(filesIn(out)).toContain('notes.txt');
    expect(filesIn(out)).toContain('config.json');
  });
});
