"""The perplexity of a GGUF model by llama.cpp: llama_perplexity.py MODEL TOKENS.npy THREADS

Prints it as JSON, with the seconds that llama.cpp took for the logits of all windows. Loading the model, a first window and the
loss, which is computed here, do not count.
"""

import ctypes
import json
import math
import sys
import time

import llama_cpp
import numpy


def open_model(path, length, threads):
    llama_cpp.llama_log_set(silent, None)
    model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = length
    parameters.n_threads = parameters.n_threads_batch = threads
    return model, llama_cpp.llama_init_from_model(model, parameters)


@llama_cpp.llama_log_callback
def silent(level, text, data):
    pass


def losses(logits, targets):
    most = logits.max(axis=1, keepdims=True)
    sums = numpy.exp(logits - most).sum(axis=1, dtype=numpy.float64)
    return most[:, 0] + numpy.log(sums) - logits[numpy.arange(len(targets)), targets]


def main():
    windows, threads = numpy.load(sys.argv[2]), int(sys.argv[3])
    length = windows.shape[1]
    model, context = open_model(sys.argv[1], length, threads)
    vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    batch = llama_cpp.llama_batch_init(length, 0, 1)
    batch.n_tokens = length
    seconds, processor_seconds, found = 0.0, 0.0, []
    for count, window in enumerate([windows[0], *windows]):  # the first is for warming up
        for i, token in enumerate(window):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = int(token), i, 1, 0, True
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        start, processor_start = time.perf_counter(), time.process_time()
        if llama_cpp.llama_decode(context, batch) != 0:
            sys.exit("llama_decode failed")
        logits = llama_cpp.llama_get_logits(context)  # waits for them
        spent, processor_spent = time.perf_counter() - start, time.process_time() - processor_start
        logits = numpy.ctypeslib.as_array(ctypes.cast(logits, ctypes.POINTER(ctypes.c_float)), (length, vocab))
        if count > 0:
            seconds += spent
            processor_seconds += processor_spent
            found.extend(losses(logits[:-1], window[1:]))
    print(json.dumps({"perplexity": math.exp(numpy.mean(found)), "seconds": seconds, "processor_seconds": processor_seconds}))


if __name__ == "__main__":
    main()
