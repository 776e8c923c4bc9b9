"""One task done by one package, in a process of its own, for peers.py.

Says "ready" once everything is imported, takes a source and a target path from standard input, and answers with one line of JSON:
`ns` of what is timed, and a `checksum` of what came of it, which is taken afterwards.
"""

import hashlib
import json
import os
import statistics
import sys
import time

import numpy
from load_peers import Fastsafetensors, Runai, checksum as place_checksum, wake_memory

TIMES_TO_OPEN = 50
COLUMNS = slice(512, 576)
SLICED = "model.embed_tokens.weight"


def hash_arrays(arrays):
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(numpy.ascontiguousarray(arrays[name]).reshape(-1).view(numpy.uint8).data)
    return digest.hexdigest()


def hash_file(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Ballast:
    def __init__(self):
        import ballast
        import ballast.safetensors.numpy
        import ml_dtypes  # noqa: F401  # so that it is not imported while timed

        self.package = ballast
        self.safe_open = ballast.safetensors.safe_open

    def open(self, source):
        return len(self.package.open(source))

    def lazy(self, source):
        model = self.package.open(source)
        return {name: tensor.numpy() for name, tensor in model.items()}

    def load(self, source):
        return self.package.open(source).load()

    def slice(self, source):
        return {SLICED: self.safe_open(source, "np").get_slice(SLICED)[:, COLUMNS]}

    def save(self, arrays, target):
        self.package.save(arrays, target, sync=False)

    def convert(self, source):
        return {name: tensor.to("bf16") for name, tensor in self.package.open(source).items()}

    def quantize(self, source, target):
        self.package.quantize(source, target, method="rtn", format="mlx", bit_width=4, group_size=64, min_accuracy=0, sync=False)
        return os.path.join(target, "model.safetensors")


class Safetensors:
    def __init__(self):
        import ml_dtypes
        import safetensors.numpy

        self.package = safetensors
        self.bfloat16 = ml_dtypes.bfloat16

    def open(self, source):
        return len(self.package.safe_open(source, "np").keys())

    def lazy(self, source):
        file = self.package.safe_open(source, "np")
        return {name: file.get_tensor(name) for name in file.keys()}

    def load(self, source):
        return self.package.numpy.load_file(source)

    def slice(self, source):
        return {SLICED: self.package.safe_open(source, "np").get_slice(SLICED)[:, COLUMNS]}

    def save(self, arrays, target):
        self.package.numpy.save_file(arrays, target)

    def convert(self, source):
        return {name: array.astype(self.bfloat16) for name, array in self.package.numpy.load_file(source).items()}


class Mlx:
    def __init__(self):
        import mlx.core

        self.core = mlx.core
        self.core.set_default_device(self.core.cpu)

    def open(self, source):
        return len(self.core.load(source))

    def load(self, source):
        arrays = self.core.load(source)
        self.core.eval(arrays)
        return arrays

    def save(self, arrays, target):
        self.core.save_safetensors(target, arrays)

    def own(self, arrays):
        """NumPy's arrays as MLX has them."""
        made = {name: self.core.array(array.view(numpy.uint16)).view(self.core.bfloat16) for name, array in arrays.items()}
        self.core.eval(made)
        return made

    def convert(self, source):
        arrays = {name: array.astype(self.core.bfloat16) for name, array in self.core.load(source).items()}
        self.core.eval(arrays)
        return arrays

    def quantize(self, source, target):
        out = {}
        for name, weight in self.core.load(source).items():
            if weight.ndim == 2:
                packed, scales, biases = self.core.quantize(weight, group_size=64, bits=4)
                base = name.removesuffix(".weight")
                out |= {name: packed, base + ".scales": scales, base + ".biases": biases}
            else:
                out[name] = weight
        target += ".safetensors"
        self.core.save_safetensors(target, out, metadata={"format": "mlx"})
        return target

    def as_numpy(self, arrays):
        wide = {name: array.view(self.core.uint16) if array.dtype == self.core.bfloat16 else array for name, array in arrays.items()}
        return {name: numpy.array(array) for name, array in wide.items()}


PEERS = {"ballast": Ballast, "safetensors": Safetensors, "mlx": Mlx, "fastsafetensors": Fastsafetensors, "runai": Runai}


def timed(work):
    before = time.perf_counter_ns()
    made = work()
    return made, time.perf_counter_ns() - before


def source_arrays(source):
    """What is to be saved, in memory that the page cache does not share."""
    import ml_dtypes  # noqa: F401  # by which NumPy knows bfloat16
    import safetensors.numpy

    return {name: array.copy() for name, array in safetensors.numpy.load_file(source).items()}


def run(peer, task, source, target):
    if task == "open":
        times = [timed(lambda: peer.open(source)) for _ in range(TIMES_TO_OPEN)]
        return statistics.median(ns for _, ns in times), times[0][0]
    if task == "save":
        arrays = source_arrays(source)
        if isinstance(peer, Mlx):
            arrays = peer.own(arrays)
        wake_memory(os.path.getsize(source) // 4 * 5)
        _, ns = timed(lambda: peer.save(arrays, target))
        made = {"size": numpy.array(os.path.getsize(target) // 4096)}  # headers differ by a few bytes
        return ns, hash_arrays(made)
    if task == "quantize":
        path, ns = timed(lambda: peer.quantize(source, target))
        return ns, hash_arrays(PEERS["mlx"]().as_numpy(PEERS["mlx"]().load(path)))
    if task != "slice":
        wake_memory(os.path.getsize(source) // 4 * 5)
    made, ns = timed(lambda: getattr(peer, task)(source))
    if isinstance(peer, (Fastsafetensors, Runai)):
        return ns, place_checksum(peer.locate(made))
    if isinstance(peer, Mlx):
        made = peer.as_numpy(made)
    return ns, hash_arrays(made)


def main():
    name, task = sys.argv[1:]
    try:
        peer = PEERS[name]()
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), flush=True)
        return
    print("ready", flush=True)
    source, target = sys.stdin.readline().rstrip("\n").split("\t")
    ns, checksum = run(peer, task, source, target)
    print(json.dumps({"ns": ns, "checksum": checksum}), flush=True)


if __name__ == "__main__":
    main()
