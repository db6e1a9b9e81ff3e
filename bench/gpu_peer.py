#!/usr/bin/env python3
"""PyTorch beside clattn, for bench/gpu.py: the same work by CUDA's libraries.

    gpu_peer.py DEVICE [SHAPE]          DEVICE: cuda or cpu; SHAPE: as for gpu.py --shape

Prints one JSON line about PyTorch, or {"error"}; then reads names of bench/gpu_cases.py's rows, one a line, and answers
each with one JSON line: {"ways": {way: times or {"error"}}}.  A way is the kernel that scaled_dot_product_attention is
held to, or "default" where there is no choice.  Times are seconds_host, the median from call to completion, which is how
`clattn bench` times; and on CUDA seconds_device, a mean over calls in a row between two events, in which no call waits
for the host."""
import contextlib
import json
import statistics
import sys
import time

import gpu_cases

DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
KERNELS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")
REST = "MATH"  # writes all scores to memory: only where nothing else takes the work


def host_times(function, finish, budget=0.5, least=5):
    """Seconds of calls one by one, each waited for."""
    for _ in range(3):
        function()
    finish()
    times = []
    start = time.perf_counter()
    while len(times) < least or time.perf_counter() - start < budget:
        before = time.perf_counter()
        function()
        finish()
        times.append(time.perf_counter() - before)
    return times


def device_seconds(torch, function, one):
    """The mean of as many calls in a row as take about a tenth of a second, where one takes `one` seconds."""
    count = max(3, min(1000, int(0.1 / one)))
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before.record()
    for _ in range(count):
        function()
    after.record()
    after.synchronize()
    return before.elapsed_time(after) / 1e3 / count  # it answers in milliseconds


def times(torch, device, function):
    host = statistics.median(host_times(function, torch.cuda.synchronize if device == "cuda" else lambda: None))
    found = {"seconds_host": host}
    if device == "cuda":
        found["seconds_device"] = device_seconds(torch, function, host)
    return found


def attempt(torch, device, function, chosen=None):
    try:
        with chosen if chosen is not None else contextlib.nullcontext(), torch.inference_mode():
            return times(torch, device, function)
    except (RuntimeError, TypeError, ValueError) as error:
        return {"error": (str(error).strip().splitlines() or [type(error).__name__])[0][:300]}


def measure(torch, device, row):
    torch.set_default_device(device)
    torch.set_default_dtype(getattr(torch, DTYPES[row.dtype]))
    function = row.case.peer(torch)
    if row.case.arguments[0] != "attention":
        return {"default": attempt(torch, device, function)}
    from torch.nn.attention import SDPBackend, sdpa_kernel
    ways = {}
    for name in (*KERNELS, REST):
        if name == REST and any("error" not in each for each in ways.values()):
            break
        if hasattr(SDPBackend, name):
            ways[name.lower()] = attempt(torch, device, function, sdpa_kernel(getattr(SDPBackend, name)))
    return ways


def start(device):
    """PyTorch, and what there is to say about it."""
    import torch
    if device == "cuda" and not torch.cuda.is_available():
        raise ImportError("PyTorch %s sees no CUDA device" % torch.__version__)
    torch.manual_seed(0)
    # Products of float32 in float32, as clattn's are; PyTorch's default says so too, this says it aloud.
    torch.backends.cuda.matmul.allow_tf32 = False
    about = {"torch": str(torch.__version__), "device": device}
    if device == "cuda":
        about.update(cuda=str(torch.version.cuda), name=torch.cuda.get_device_name(0))
    return torch, about


def main():
    device, shape = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    try:
        torch, about = start(device)
    except (ImportError, OSError, RuntimeError) as error:
        print(json.dumps({"error": "%s: %s" % (type(error).__name__, error)}), flush=True)
        sys.exit(1)
    print(json.dumps(about), flush=True)
    known = {row.name: row for row in gpu_cases.rows(shape)}
    for line in sys.stdin:
        try:
            answer = {"ways": measure(torch, device, known[line.strip()])}
        except Exception as error:  # whatever it is, the next row may work
            answer = {"ways": {}, "error": "%s: %s" % (type(error).__name__, str(error)[:300])}
        if device == "cuda":
            torch.cuda.empty_cache()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
