// Shared by the tests: folders, models, servers and programs.

import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { BF16Array, saveFile, tensorOf } from 'ballast';
import { afterAll } from 'vitest';

export const PACKAGE = fileURLToPath(new URL('..', import.meta.url));
export const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

/** A folder that is deleted after the tests of the file. */
export function tempFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'ballast-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Pseudorandom numbers from -0.04 to 0.04, always the same. */
export function noise(count: number): Float32Array {
  let state = 1;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state / 2 ** 32 - 0.5) * 0.08;
  });
}

export function bf16(values: Float32Array): BF16Array {
  return BF16Array.from(new Uint32Array(values.buffer, values.byteOffset, values.length), (bits) => bits >>> 16) as BF16Array;
}

/** Writes embed.weight, BF16 [64, 32], and bias, F32 [64]. */
export async function writeSample(path: string): Promise<string> {
  await saveFile({ 'embed.weight': tensorOf(bf16(noise(64 * 32)), [64, 32]), bias: noise(64) }, path, { sync: false });
  return path;
}

const CONFIG = {
  architectures: ['Qwen3ForCausalLM'], model_type: 'qwen3', vocab_size: 64, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2,
  num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, rms_norm_eps: 1e-6, rope_theta: 1000000, tie_word_embeddings: true,
};

export type Shapes = Record<string, number[]>;

/** The tensors of a Qwen3 model of two layers. */
export function qwen3Shapes(): Shapes {
  const shapes: Shapes = { 'model.embed_tokens.weight': [64, 32], 'model.norm.weight': [32] };
  for (const layer of [0, 1]) {
    const add = (name: string, ...shape: number[]) => (shapes[`model.layers.${layer}.${name}.weight`] = shape);
    add('input_layernorm', 32);
    add('post_attention_layernorm', 32);
    add('mlp.gate_proj', 64, 32);
    add('mlp.up_proj', 64, 32);
    add('mlp.down_proj', 32, 64);
    add('self_attn.q_proj', 32, 32);
    add('self_attn.k_proj', 16, 32);
    add('self_attn.v_proj', 16, 32);
    add('self_attn.o_proj', 32, 32);
    add('self_attn.q_norm', 8);
    add('self_attn.k_norm', 8);
  }
  return shapes;
}

export const elements = (shape: number[]) => shape.reduce((count, dim) => count * dim, 1);

/** Writes a directory with a Qwen3 model of two layers. */
export async function writeQwen3(folder: string, shapes = qwen3Shapes(), file = 'model.safetensors', config: object = CONFIG): Promise<string> {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  const tensors = Object.entries(shapes).map(([name, shape]) => [name, tensorOf(bf16(noise(elements(shape))), shape)]);
  await saveFile(Object.fromEntries(tensors), join(folder, file), { sync: false });
  return folder;
}

export { CONFIG as QWEN3_CONFIG };

/** Writes a SafeTensors file with any header, valid or not. */
export function writeRaw(path: string, header: object, data: Uint8Array, padding = ''): string {
  const text = Buffer.from(JSON.stringify(header) + padding);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(path, Buffer.concat([length, text, data]));
  return path;
}

/** Writes a sparse file of zeros: F32 tensors of 4 MiB. */
export function writeSparse(path: string, count: number): string {
  const size = 4 << 20;
  const tensors = Array.from({ length: count }, (_, i) => [`up.${i}.weight`, { dtype: 'F32', shape: [1024, 1024], data_offsets: [i * size, (i + 1) * size] }]);
  writeRaw(path, Object.fromEntries(tensors) as object, new Uint8Array(0));
  truncateSync(path, statSync(path).size + count * size);
  return path;
}

/** All files below a folder. */
export function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true } as object).map(String).sort();
}

/** Serves files with range requests. `before` returns true if it handled the request. */
export class RangeServer {
  readonly requests: string[] = [];
  before: (request: IncomingMessage, response: ServerResponse) => boolean = () => false;
  readonly #server: Server;

  constructor(files: Record<string, string>) {
    this.#server = createServer((request, response) => {
      this.requests.push(`${request.method} ${request.url} ${request.headers.range ?? ''}`.trim());
      if (this.before(request, response)) return;
      const file = files[request.url!];
      if (file === undefined) {
        response.writeHead(404).end();
        return;
      }
      const body = readFileSync(file);
      const range = /bytes=(\d+)-(\d*)/.exec(request.headers.range ?? '');
      const [begin, last] = range ? [Number(range[1]), range[2] ? Math.min(Number(range[2]), body.length - 1) : body.length - 1] : [0, body.length - 1];
      response.writeHead(range ? 206 : 200, {
        'accept-ranges': 'bytes', etag: '"1"', 'content-length': last - begin + 1,
        ...(range && { 'content-range': `bytes ${begin}-${last}/${body.length}` }),
      });
      response.end(request.method === 'HEAD' ? undefined : body.subarray(begin, last + 1));
    });
    afterAll(() => {
      this.#server.closeAllConnections();
      this.#server.close();
    });
  }

  async listen(): Promise<string> {
    await new Promise<void>((done) => this.#server.listen(0, '127.0.0.1', done));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }
}

/** Runs Node in a folder, and returns its exit code and what it printed. */
export function runNode(folder: string, ...given: string[]): Promise<{ code: number | string; printed: string }> {
  return new Promise((done) => {
    const options = { cwd: folder, timeout: 50_000 };
    execFile(process.execPath, ['--expose-gc', ...given], options, (error, out, said) => {
      done({ code: error === null ? 0 : (error.code ?? error.signal ?? 'killed'), printed: out + said });
    });
  });
}

/** Links the package into a folder, as npm does for a package that is a directory. */
export function withPackage(folder: string): string {
  mkdirSync(join(folder, 'node_modules'), { recursive: true });
  symlinkSync(PACKAGE, join(folder, 'node_modules/ballast'));
  return folder;
}
