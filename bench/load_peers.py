"""One load by one peer, in a process of its own, for load_vs_peers.py.

Says "ready" once everything is imported, takes a path from standard input, and answers with one line of JSON: `ns` from opening to
owned bytes, `checksum` of names and bytes in the order of names. Memory is woken before, and hashed after, what is timed.
"""

import ctypes
import hashlib
import importlib.util
import json
import mmap
import os
import struct
import sys
import time

import numpy


def read_header(path):
    """The tensors as (name, begin, end) in the order of the data, counted from the start of the file."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    tensors = [(name, *(8 + length + offset for offset in entry["data_offsets"])) for name, entry in header.items()]
    return sorted(tensors, key=lambda tensor: tensor[1])


class Safetensors:
    """safe_open and get_tensors, as numpy arrays."""

    def __init__(self, backend):
        import ml_dtypes  # noqa: F401  # so that it is not imported while timed
        import safetensors.numpy  # noqa: F401

        self.safe_open = safetensors.safe_open
        self.backend = backend

    def load(self, path):
        with self.safe_open(path, framework="np", backend=self.backend) as file:
            return file.get_tensors()

    @staticmethod
    def locate(tensors):
        return {name: (array.ctypes.data, array.nbytes) for name, array in tensors.items()}


class Fastsafetensors:
    """The CPU path, `nogds`, with paddle tensors that share its buffer."""

    def __init__(self, threads=None, block_bytes=None):
        import fastsafetensors
        import paddle  # noqa: F401

        self.package = fastsafetensors
        self.loader_options = {"max_threads": int(threads)} if threads else {}
        self.copy_options = {"max_copy_block_size": int(block_bytes)} if block_bytes else {}

    def load(self, path):
        loader = self.package.SafeTensorsFileLoader(None, "cpu", nogds=True, framework="paddle", **self.loader_options)
        loader.add_filenames({0: [path]})
        buffers = loader.copy_files_to_device(**self.copy_options)
        return loader, buffers, {name: buffers.get_tensor(name) for name in loader.get_keys()}

    @staticmethod
    def locate(loaded):
        return {name: (tensor.data_ptr(), tensor.numel().item() * tensor.element_size()) for name, tensor in loaded[2].items()}


class Runai:
    """The C library of runai-model-streamer by the package's own declarations of it; the rest of the package needs torch.

    As the package does, one request for all tensors into one numpy buffer, placed so that direct reads are possible.
    """

    def __init__(self):
        package = importlib.util.find_spec("runai_model_streamer")
        if package is None:
            raise ImportError("No module named 'runai_model_streamer'")
        source = os.path.join(os.path.dirname(package.origin), "libstreamer", "__init__.py")
        spec = importlib.util.spec_from_file_location("libstreamer", source)
        self.library = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.library)

    def load(self, path):
        dll = self.library.dll
        tensors = read_header(path)
        streamer = self.library.t_streamer(0)
        self.check(dll.fn_runai_start(ctypes.byref(streamer)))
        paths = (ctypes.c_char_p * 1)(path.encode())
        block = ctypes.c_size_t(0)
        dll.fn_runai_probe_direct_block_size(streamer, paths, 1, ctypes.byref(block))
        begin, end = tensors[0][1], tensors[-1][2]
        memory = numpy.empty(end - begin + 2 * block.value, dtype=numpy.uint8)
        base = memory.ctypes.data + (begin - memory.ctypes.data) % block.value
        count = len(tensors)
        self.check(
            dll.fn_runai_request(
                streamer,
                ctypes.byref(ctypes.c_uint64()),
                1,
                paths,
                (ctypes.c_uint32 * 1)(count),
                (ctypes.c_size_t * count)(*(first for _, first, _ in tensors)),
                (ctypes.c_size_t * count)(*(last - first for _, first, last in tensors)),
                (ctypes.c_void_p * count)(*(base + first - begin for _, first, _ in tensors)),
                self.library.RunaiFileStreamerDevice(self.library.RUNAI_FILE_STREAMER_DEVICE_CPU, 0),
            )
        )
        submission, file, index, done = ctypes.c_uint64(), ctypes.c_uint32(), ctypes.c_uint32(), ctypes.c_int()
        outputs = [ctypes.byref(value) for value in (submission, file, index, done)]
        for _ in range(count):
            self.check(dll.fn_runai_response(streamer, *outputs, 0))
        dll.fn_runai_end(streamer)
        return memory, {name: (base + first - begin, last - first) for name, first, last in tensors}

    def check(self, code):
        if code != 0:
            raise OSError(self.library.dll.fn_runai_response_str(code).decode())

    @staticmethod
    def locate(loaded):
        return loaded[1]


def wake_memory(size):
    """Touches and frees memory in small and in huge pages, of which a load takes either.

    After a pause, a virtual machine has to get pages back from its host, which would be timed too.
    """
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # Python's default is shared, which is never huge
    with mmap.mmap(-1, size, private) as huge, mmap.mmap(-1, size, private) as small:
        huge.madvise(mmap.MADV_HUGEPAGE)
        small.madvise(mmap.MADV_NOHUGEPAGE)
        for memory in (small, huge):
            pages = numpy.frombuffer(memory, dtype=numpy.uint8)[::4096]
            pages[:] = 1
            del pages


def check_owned(places, path):
    """No tensor may lie in a map of the file: those bytes are borrowed."""
    with open("/proc/self/maps") as maps:
        ranges = [line.split()[0].split("-") for line in maps if line.rstrip().endswith(path)]
    for first, last in ((int(first, 16), int(last, 16)) for first, last in ranges):
        for name, (address, _) in places.items():
            if first <= address < last:
                raise ValueError(f"{name} is borrowed from the file")


def checksum(places):
    digest = hashlib.sha256()
    for name in sorted(places, key=str.encode):
        address, size = places[name]
        digest.update(name.encode())
        digest.update((ctypes.c_char * size).from_address(address))
    return digest.hexdigest()


def main():
    kind, *arguments = sys.argv[1:]
    try:
        peer = {"safetensors": Safetensors, "fastsafetensors": Fastsafetensors, "runai": Runai}[kind](*arguments)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), flush=True)
        return
    print("ready", flush=True)
    path = sys.stdin.readline().rstrip("\n")
    wake_memory(os.path.getsize(path) // 4 * 5)
    before = time.perf_counter_ns()
    loaded = peer.load(path)
    ns = time.perf_counter_ns() - before
    places = peer.locate(loaded)
    check_owned(places, path)
    print(json.dumps({"ns": ns, "tensors": len(places), "checksum": checksum(places)}), flush=True)


if __name__ == "__main__":
    main()
