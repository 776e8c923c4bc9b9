#!/usr/bin/env node
// Times what Node sees of a file of 2 GiB, and of a Qwen3-0.6B: how long the event loop stands still, and the memory it takes.
//
// node bench/node_reads.mjs [--repetitions N] [--model DIR]: DIR has a Qwen3-0.6B as BF16, else tools/make_model makes one.
// Each figure is of processes of their own, with the files in the page cache.

import { execFileSync } from 'node:child_process';
import { closeSync, ftruncateSync, mkdtempSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

const SIZE = 2 ** 31;
const PAGE = 1024; // values that lie in one, of F32
const PARAMETERS = 596_049_920;
const root = fileURLToPath(new URL('..', import.meta.url));

/** A sparse file, but for one tensor of 1 MiB in its middle. */
function writeLarge(path) {
  const half = SIZE / 2;
  const header = {
    before: { dtype: 'U8', shape: [half], data_offsets: [0, half] },
    norm: { dtype: 'F32', shape: [2 ** 18], data_offsets: [half, half + 2 ** 20] },
    after: { dtype: 'U8', shape: [half - 2 ** 20], data_offsets: [half + 2 ** 20, SIZE] },
  };
  const text = Buffer.from(JSON.stringify(header));
  const padded = Buffer.concat([text, Buffer.alloc((8 - (text.length % 8)) % 8, ' ')]);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(padded.length));
  const file = openSync(path, 'w');
  ftruncateSync(file, 8 + padded.length + SIZE);
  writeSync(file, Buffer.concat([length, padded]), 0, undefined, 0);
  writeSync(file, Buffer.from(new Float32Array(2 ** 18).fill(1).buffer), 0, undefined, 8 + padded.length + half);
  closeSync(file);
}

/** The longest time between two turns of the event loop while `work` goes on, in ms. */
async function longestTurn(work) {
  let longest = 0;
  let last = performance.now();
  let running = true;
  const turn = () => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
    if (running) setImmediate(turn);
  };
  setImmediate(turn);
  await work();
  running = false;
  turn();
  return longest;
}

/** How long timers had to wait at most while `work` went on, in ms, without what the turns themselves leave to be collected. */
async function longestDelay(work) {
  const delays = monitorEventLoopDelay({ resolution: 1 });
  delays.enable();
  await sleep(20);
  delays.reset();
  await work();
  await sleep(5);
  delays.disable();
  return delays.max / 1e6;
}

const rss = () => process.memoryUsage.rss() / 1e6;
const peak = () => Number(/VmHWM:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]) * 1.024e-3;

async function timed(work) {
  const before = performance.now();
  await work();
  return performance.now() - before;
}

const TASKS = {
  async large({ openModel }, path, small) {
    await (await openModel(small)).read('model.norm.weight'); // the code is warm
    (await openModel(small)).tensor('model.norm.weight');
    gc();
    await sleep(50);
    const before = rss();
    let sum = 0;
    let openMs = 0;
    const turn = await longestTurn(async () => {
      let model;
      openMs = await timed(async () => (model = await openModel(path)));
      for (const array of [model.tensor('norm'), await model.read('norm')]) {
        for (let i = 0; i < array.length; i += PAGE) sum += array[i];
      }
    });
    if (sum !== 2 ** 19 / PAGE) throw new Error(`the sum is ${sum}`);
    return { open: openMs, turn, grown: rss() - before };
  },

  async mapped({ Qwen3Model }, directory) {
    let model;
    const before = rss();
    const load = await timed(async () => {
      model = await Qwen3Model.loadPretrained(directory, { log: false });
      for (const name of model.names) model.tensor(name);
    });
    if (model.numParameters() !== PARAMETERS) throw new Error(`${model.numParameters()} parameters`);
    return { load, grown: rss() - before, peak: peak() };
  },

  async single({ openModel, saveFile }, directory) {
    const model = await openModel(directory);
    await model.read('model.norm.weight'); // the code is warm
    await saveFile({ a: new Uint8Array(4) }, 'warm.safetensors', { sync: false });
    const idle = await longestDelay(() => sleep(200));
    let array;
    let [read, save] = [0, 0];
    const readDelay = await longestDelay(async () => {
      read = await timed(async () => (array = await model.read('model.embed_tokens.weight')));
    });
    const saveDelay = await longestDelay(async () => {
      save = await timed(() => saveFile({ array }, 'saved.safetensors', { sync: false }));
    });
    const saved = (await openModel('saved.safetensors')).tensor('array');
    if (Buffer.compare(new Uint8Array(saved.buffer), new Uint8Array(array.buffer)) !== 0) throw new Error('other values');
    return { idle, read, readDelay, save, saveDelay };
  },

  async converted({ Qwen3Model }, directory) {
    let model;
    const arrays = [];
    let turn = 0;
    const load = await timed(async () => {
      turn = await longestTurn(async () => {
        model = await Qwen3Model.loadPretrained(directory, { log: false });
        for (const name of model.names) arrays.push(await model.read(name, { dtype: 'F32' }));
      });
    });
    const count = arrays.reduce((sum, array) => sum + array.length, 0);
    const [name] = model.names;
    const exact = model.tensor(name).subarray(0, 4096).toFloat32();
    if (count !== PARAMETERS || exact.some((value, i) => value !== arrays[0][i])) throw new Error('other values');
    return { load, turn, peak: peak() };
  },
};

function measure(folder, repetitions, task, ...given) {
  const program = fileURLToPath(import.meta.url);
  const runs = Array.from({ length: repetitions }, () =>
    JSON.parse(execFileSync(process.execPath, ['--expose-gc', program, '--task', task, ...given], { cwd: folder, encoding: 'utf8' })));
  const of = (name) => runs.map((each) => each[name]).sort((a, b) => a - b);
  return (name) => ({ median: of(name)[Math.floor(runs.length / 2)], most: of(name).at(-1) });
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { repetitions: { type: 'string', default: '7' }, model: { type: 'string' }, task: { type: 'string' } },
});
if (values.task !== undefined) {
  const ballast = await import('../bindings/node/index.mjs');
  console.log(JSON.stringify(await TASKS[values.task](ballast, ...positionals)));
} else {
  const folder = mkdtempSync(join(tmpdir(), 'ballast-'));
  try {
    const model = values.model === undefined ? join(folder, 'qwen3-0.6b') : resolve(values.model);
    const makeModel = (...given) => execFileSync(join(root, 'tools/make_model'), given, { stdio: ['ignore', 'ignore', 'inherit'] });
    if (values.model === undefined) makeModel(model, '--preset', 'qwen3-0.6b');
    makeModel(join(folder, 'tiny'));
    writeLarge(join(folder, 'large.safetensors'));
    const repetitions = Number(values.repetitions);
    const large = measure(folder, repetitions, 'large', join(folder, 'large.safetensors'), join(folder, 'tiny'));
    const mapped = measure(folder, repetitions, 'mapped', model);
    const single = measure(folder, repetitions, 'single', model);
    const converted = measure(folder, repetitions, 'converted', model);
    const ms = ({ median, most }) => `${median.toFixed(1)} ms (${most.toFixed(1)})`.padStart(20);
    const mb = ({ median, most }) => `${median.toFixed(0)} MB (${most.toFixed(0)})`.padStart(20);
    console.log(`bench/node_reads.mjs --repetitions ${repetitions}
Node ${process.versions.node}, ${availableParallelism()} cores; in the page cache; median (max) of ${repetitions}

2 GiB: open, and 1 MiB of it as view and copy
  open                         ${ms(large('open'))}
  longest turn of the loop     ${ms(large('turn'))}
  memory grows by              ${mb(large('grown'))}
Qwen3-0.6B, 596,049,920 parameters of BF16
  mapped, an array of each     ${ms(mapped('load'))}
    memory grows by            ${mb(mapped('grown'))}
    peak memory                ${mb(mapped('peak'))}
  one tensor of 311 MB, read   ${ms(single('read'))}
    longest delay of the loop  ${ms(single('readDelay'))}
  the same, saved              ${ms(single('save'))}
    longest delay of the loop  ${ms(single('saveDelay'))}
    when it is idle            ${ms(single('idle'))}
  converted to F32             ${ms(converted('load'))}
    longest turn of the loop   ${ms(converted('turn'))}
    peak memory                ${mb(converted('peak'))}`);
  } finally {
    rmSync(folder, { recursive: true });
  }
}
