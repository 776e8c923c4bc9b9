#!/usr/bin/env python3
"""Times `calibrate` and `evaluate` of SmolLM2-135M beside OpenBLAS's sgemm and llama.cpp, or watches the memory of `evaluate`.

Speed: whole runs of the program, in turns with products of large matrices by the same OpenBLAS and with llama.cpp, which gets the
same weights in F16 and the same windows. Each rate is divided by those of sgemm right before and after it. Floating-point
operations are counted from the shapes: linear layers, the causal half of the attention, logits, Hessians. The perplexities must
agree. With --memory: the peak of a 4 GiB model and as many windows as do not fit the memory for hidden states.

Needs numpy, gguf, safetensors and tokenizers, and on the first run pip, apt-get and a C++ compiler: llama-cpp-python is built,
which takes ten minutes.
"""

import argparse
import ctypes
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy

ROOT = Path(__file__).resolve().parents[1]
LLAMA = "llama-cpp-python==0.3.36"
LEAST_OF_SGEMM = 0.5
LEAST_OF_LLAMA = 1.0
MOST_ANONYMOUS = 1 << 30
LENGTH = 512


class Sgemm:
    """Products of large matrices by the library that the program loads."""

    SIZE = 2048

    def __init__(self, threads, clock):
        self.clock = clock
        self.library = ctypes.CDLL("libopenblas.so.0")
        self.library.openblas_set_num_threads(threads)
        random = numpy.random.default_rng(1)
        self.left, self.right = (random.random((self.SIZE, self.SIZE), dtype=numpy.float32) for _ in range(2))
        self.out = numpy.zeros((self.SIZE, self.SIZE), numpy.float32)

    def rate(self, seconds=1.5):
        """Floating-point operations per second, as many products as fit into the time."""
        row_major, plain = 101, 111
        left, right, out = (matrix.ctypes.data_as(ctypes.c_void_p) for matrix in (self.left, self.right, self.out))
        size, one, zero = self.SIZE, ctypes.c_float(1), ctypes.c_float(0)
        start, count = self.clock(), 0
        while (spent := self.clock() - start) < seconds:
            self.library.cblas_sgemm(row_major, plain, plain, size, size, size, one, left, size, right, size, zero, out, size)
            count += 1
        return 2 * size**3 * count / spent


def operations(config, hessian=False, logits=False):
    """Floating-point operations for each token, of `calibrate` or `evaluate`."""
    hidden, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    query, key = hidden, hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    linear = 2 * hidden * (2 * query + 2 * key + 3 * inner)
    attention = 4 * query * (LENGTH + 1) / 2
    products = sum(columns * (columns + 1) for columns in (hidden, query, hidden, inner)) if hessian else 0
    logits = 2 * hidden * config["vocab_size"] * (LENGTH - 1) / LENGTH if logits else 0
    return layers * (linear + attention + products) + logits


def save_gguf(model, source, path):
    """The same tensors for llama.cpp, with the settings and the tokenizer of the file that the model was made from."""
    import smollm2
    from gguf import GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType
    from safetensors.numpy import load_file

    tensors, reader, writer = load_file(model / "model.safetensors"), GGUFReader(source), GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    for tensor in reader.tensors:
        values = tensors[smollm2.name_of(tensor.name)]
        if ".attn_q." in tensor.name or ".attn_k." in tensor.name:
            heads = smollm2.HEADS if ".attn_q." in tensor.name else smollm2.KV_HEADS
            values = values.reshape(heads, 2, smollm2.HEAD_DIM // 2, -1).swapaxes(1, 2).reshape(values.shape)
        writer.add_tensor(tensor.name, numpy.ascontiguousarray(values.astype(numpy.float32) if values.ndim == 1 else values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama_python(folder):
    """A Python that has llama.cpp, built for this machine."""
    python = folder / "bin/python"
    if subprocess.run([python, "-c", "import llama_cpp"], capture_output=True).returncode if python.exists() else True:
        print(f"building {LLAMA} in {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-binary", "llama-cpp-python", LLAMA], check=True)
    return python


def timed(command, folder, processor_time):
    """The seconds that a command takes, and the JSON that it prints."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(list(map(str, command)), cwd=folder, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(map(str, command))} exited with {done.returncode}")
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if processor_time:
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, json.loads(done.stdout)


def measure_speed(options, folder):
    import smollm2

    program, cache, model = options.program.resolve(), options.cache.resolve(), folder / "model"
    smollm2.make_model(model, cache)
    smollm2.save_tokens(model, smollm2.english(cache), folder, options.windows, options.windows)
    config = json.loads((model / "config.json").read_text())
    more = ["--tokens", "scoring.npy", "--threads", options.threads, "--json"]
    calibrate = [program, "calibrate", model, "-o", "statistics.safetensors", *more]
    runs = {
        "calibrate": (calibrate, operations(config)),
        "calibrate --hessian": ([*calibrate, "--hessian"], operations(config, hessian=True)),
        "evaluate": ([program, "evaluate", model, *more], operations(config, logits=True)),
    }
    if not options.without_llama:
        save_gguf(model, smollm2.download(cache), folder / "model.gguf")
        peer = [llama_python(options.llama.resolve()), Path(__file__).with_name("llama_perplexity.py"), "model.gguf", "scoring.npy"]
        runs["llama.cpp, F16"] = ([*peer, options.threads], operations(config, logits=True))

    clock = time.process_time if options.processor_time else time.perf_counter
    sgemm, tokens = Sgemm(options.threads, clock), options.windows * LENGTH
    rates, ratios, seconds, perplexities = [], {name: [] for name in runs}, {name: [] for name in runs}, {}
    for repetition in range(options.repetitions + 1):  # the first is for warming up
        before = sgemm.rate()
        for name, (command, each) in runs.items():
            spent, found = timed(command, folder, options.processor_time)
            spent = found.get("processor_seconds" if options.processor_time else "seconds", spent)  # of llama.cpp only the passes
            after = sgemm.rate()
            if repetition > 0:
                seconds[name].append(spent)
                ratios[name].append(each * tokens / spent / ((before + after) / 2))
                rates.append(after)
            if "perplexity" in found:
                perplexities[name] = found["perplexity"]
            before = after
    return rates, ratios, seconds, {name: each * tokens for name, (_, each) in runs.items()}, perplexities


def show_speed(options, rates, ratios, seconds, work, perplexities):
    from load_vs_peers import machine

    tokens = options.windows * LENGTH
    print(shlex.join(["bench/forward_speed.py", *sys.argv[1:]]))
    print(f"{machine()}, {options.threads} thread{'s'[: options.threads - 1]}; {options.windows} windows of {LENGTH} tokens; median (best) of {options.repetitions}, in turns"
          f"{', processor time' if options.processor_time else ''}\n")  # fmt: skip
    print(f"{'':<20}  {'seconds':>15}  {'tokens/s':>8}  {'GFLOP/s':>7}  {'of sgemm':>8}  {'perplexity':>10}")
    print(f"{f'sgemm, {Sgemm.SIZE} cubed':<20}  {'':>15}  {'':>8}  {statistics.median(rates) / 1e9:7.0f}  {1:8.2f}")
    for name, times in seconds.items():
        median, best = statistics.median(times), min(times)
        shown = f"{perplexities[name]:10.3f}" if name in perplexities else ""
        print(f"{name:<20}  {f'{median:.2f} ({best:.2f})':>15}  {tokens / median:8.0f}  {work[name] / median / 1e9:7.0f}  "
              f"{statistics.median(ratios[name]):8.2f}  {shown:>10}".rstrip())  # fmt: skip
    failures = [f"{name} has less than {LEAST_OF_SGEMM} of the rate of sgemm"
                for name in ("calibrate", "calibrate --hessian") if statistics.median(ratios[name]) < LEAST_OF_SGEMM]  # fmt: skip
    if not options.without_llama:
        ours, theirs = "evaluate", "llama.cpp, F16"
        against = statistics.median(b / a for a, b in zip(seconds[ours], seconds[theirs]))
        print(f"\nevaluate has {against:.2f} of the speed of llama.cpp")
        if against < LEAST_OF_LLAMA:
            failures.append("evaluate is slower than llama.cpp")
        if abs(perplexities[ours] / perplexities[theirs] - 1) > 0.01:
            failures.append("the perplexities differ by more than 1 %")
    return failures


def watch(command, environment):
    """The peaks of a run: RssAnon, and bytes in files that have no name."""
    start, anonymous, spilled = time.perf_counter(), 0, 0
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, env=os.environ | environment) as process:
        while process.poll() is None:
            folder = Path(f"/proc/{process.pid}")
            lines = (folder / "status").read_text().splitlines()
            anonymous = max(anonymous, *(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)
            for link in list((folder / "fd").iterdir()):
                try:
                    spilled = max(spilled, link.stat().st_size if os.readlink(link).endswith("(deleted)") else 0)
                except OSError:  # closed in between
                    pass
            time.sleep(0.01)
    if process.returncode != 0:
        sys.exit(process.returncode)
    return time.perf_counter() - start, anonymous, spilled


def measure_memory(options, folder):
    """A Llama of 4 GiB in BF16, with the layers of Llama 3.2 3B; of windows one more than fit a quarter of the memory."""
    hidden, vocab = 3072, 128256
    settings = {"hidden_size": hidden, "num_attention_heads": 24, "head_dim": 128, "num_hidden_layers": 14, "tie_word_embeddings": "false"}
    arguments = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    subprocess.run([sys.executable, ROOT / "tools/make_model", folder / "model", "--preset", "llama-3.2-1b", *arguments], check=True)
    size = sum(path.stat().st_size for path in (folder / "model").glob("*.safetensors"))
    limit = options.memory_limit
    windows = (limit << 20) // 4 // (hidden * 4 * LENGTH) + 1
    numpy.save(folder / "tokens.npy", numpy.random.default_rng(1).integers(0, vocab, (windows, LENGTH), numpy.int32))
    command = [options.program.resolve(), "evaluate", folder / "model", "--tokens", folder / "tokens.npy"]
    more = ["--threads", options.threads, "--memory-limit", limit, "--json"]
    spent, anonymous, spilled = watch([*command, *more], {"TMPDIR": str(folder)})
    print(shlex.join(["bench/forward_speed.py", *sys.argv[1:]]))
    print(f"evaluate, {size / (1 << 30):.2f} GiB of BF16, {windows} windows of {LENGTH} tokens, {spent:.0f} s: "
          f"{spilled >> 20} MiB of hidden states in a file, peak RssAnon {anonymous >> 20} MiB of {MOST_ANONYMOUS >> 20}")  # fmt: skip
    failures = [] if spilled else ["no hidden states were in a file"]
    return failures + (["evaluating took more memory than its limit"] if anonymous > MOST_ANONYMOUS else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build/release/ballast", type=Path)
    parser.add_argument("--cache", default=ROOT / "build/smollm2", type=Path, help="folder for downloads")
    parser.add_argument("--llama", default=ROOT / "build/llama", type=Path, help="environment with llama-cpp-python, built if it does not exist")
    parser.add_argument("--without-llama", action="store_true", help="leave llama.cpp out")
    parser.add_argument("--folder", help="where to put the files (default: the system's temporary folder)")
    parser.add_argument("--windows", type=int, default=16, help=f"of {LENGTH} tokens (default: 16)")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--processor-time", action="store_true", help="rather than wall time, for a busy machine; use one thread")
    parser.add_argument("--memory", action="store_true", help="measure the memory of a 4 GiB model instead")
    parser.add_argument("--memory-limit", type=int, default=1024, help="of the program, in MiB; with less, fewer windows are enough (default: 1024)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ballast-", dir=options.folder) as temporary:
        folder = Path(temporary)
        failures = measure_memory(options, folder) if options.memory else show_speed(options, *measure_speed(options, folder))
    if failures:
        sys.exit("; ".join(failures))


if __name__ == "__main__":
    main()
