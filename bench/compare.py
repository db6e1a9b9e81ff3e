#!/usr/bin/env python3
"""Compares clattn with the machine's roofs and with PyTorch, everything in one run.

    compare.py BUILD_DIR [--rounds N] [--only TEXT]

Each round measures the roofs, clattn, the roofs again, and PyTorch (where it can be imported), so that drifting clocks and
busy neighbours touch all of them.  A ratio is taken within its round; the median of the rounds counts.  A roof is that of
fma, of reading memory, or of copying it; `roofline` is whichever of fma and reading takes longer for the work."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Callable, NamedTuple


class Case(NamedTuple):
    name: str
    arguments: list  # of `clattn bench`
    roof: str        # fma, read, copy, roofline
    peer: Callable   # torch module -> function that does the same


def attention(name, shape, causal=False, roof="fma"):
    b, hq, hkv, sq, skv, d, dv = shape

    def peer(torch):
        q, k, v = torch.randn(b, hq, sq, d), torch.randn(b, hkv, skv, d), torch.randn(b, hkv, skv, dv)
        grouped = {"enable_gqa": True} if hq != hkv else {}
        return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, **grouped)

    arguments = ["attention", "--shape", ",".join(map(str, shape))] + (["--causal"] if causal else [])
    return Case("attention " + name, arguments, roof, peer)


def decode(heads, kv_heads, keys):
    name = "%d heads%s, 1 query, %s keys, d 128" % (heads, "" if heads == kv_heads else " to %d" % kv_heads,
                                                    format(keys, ","))
    return attention(name, (1, heads, kv_heads, 1, keys, 128, 128), roof="read")


def matmul(m, n, k, roof="fma"):
    def peer(torch):
        x, w = torch.randn(m, k), torch.randn(n, k)
        return lambda: torch.nn.functional.linear(x, w)

    return Case("matmul %dx%dx%d" % (m, n, k), ["matmul", "--shape", "%d,%d,%d" % (m, n, k)], roof, peer)


def softmax(rows, columns):
    def peer(torch):
        x = torch.randn(rows, columns)
        return lambda: torch.softmax(x, -1)

    return Case("softmax %dx%d" % (rows, columns), ["softmax", "--shape", "%d,%d" % (rows, columns)], "copy", peer)


def mha(batch, length, size, heads):
    def peer(torch):
        layer = torch.nn.MultiheadAttention(size, heads, batch_first=True).eval()
        x = torch.randn(batch, length, size)
        return lambda: layer(x, x, x, need_weights=False)

    return Case("mha %d/%d, %d x %d" % (size, heads, batch, length),
                ["mha", "--shape", "%d,%d,%d,%d" % (batch, length, size, heads)], "fma", peer)


CASES = [
    *(attention("8 x %d, d %d" % (length, d), (1, 8, 8, length, length, d, d))
      for length, d in ((1024, 64), (2048, 64), (4096, 64), (2048, 32), (2048, 80), (2048, 96), (2048, 128), (2048, 256))),
    attention("8 x 2048, d 64, causal", (1, 8, 8, 2048, 2048, 64, 64), causal=True),
    attention("32x8 x 64, d 64", (32, 8, 8, 64, 64, 64, 64)),
    *(decode(heads, kv_heads, keys) for heads, kv_heads in ((8, 8), (32, 32), (32, 8)) for keys in (4096, 32768)),
    *(matmul(m, n, k) for m, n, k in ((2048, 512, 512), (2048, 2048, 512), (512, 512, 512))),
    *(matmul(m, n, k, "roofline") for n, k in ((512, 512), (4096, 1024), (4096, 4096)) for m in (1, 4, 16)),
    softmax(4096, 1024),
    mha(8, 128, 512, 8),
    mha(1, 2048, 512, 8),
]


def run_json(command):
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.strip().splitlines()[-1])


def median_time(function, budget=1.0, least=5):
    function()
    times = []
    start = time.perf_counter()
    while len(times) < least or time.perf_counter() - start < budget:
        before = time.perf_counter()
        function()
        times.append(time.perf_counter() - before)
    return statistics.median(times)


def import_torch():
    """The module, or None."""
    try:
        import torch
    except ImportError:
        print("PyTorch cannot be imported: no peer is measured", file=sys.stderr)
        return None
    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(0)
    return torch


def rate_and_roof(case, ours, before, after):
    """What was reached and what could be, in GFLOP/s or, where memory is the bound, in GB/s; and the unit."""
    roofs = {key: (before[key] + after[key]) / 2 for key in before}
    fma, read, copy = (roofs[key] for key in ("fma_gflops", "read_gbytes_per_s", "copy_gbytes_per_s"))
    roof = case.roof
    if roof == "roofline":
        roof = "fma" if ours["gflops"] / fma > ours["gbytes_per_s"] / read else "read"
    if roof == "fma":
        return ours["gflops"], fma, "GFLOP/s"
    return ours["gbytes_per_s"], copy if roof == "copy" else read, "GB/s"


def measure(case, rounds, clattn, roof, torch):
    """A row of the table."""
    measured, speedups, solver, unit = [], [], "", ""
    peer = case.peer(torch) if torch else None
    for _ in range(rounds):
        before = run_json([roof, "0.1"])
        ours = run_json([clattn, "bench", *case.arguments, "--json"])
        after = run_json([roof, "0.1"])
        solver = ours["solver"]
        rate, limit, unit = rate_and_roof(case, ours, before, after)
        measured.append((rate, limit, rate / limit))
        if peer:
            with torch.inference_mode():
                speedups.append(median_time(peer) / ours["seconds_median"])
    rate, limit, share = (statistics.median(column) for column in zip(*measured))
    speedup = "%.2f" % statistics.median(speedups) if speedups else "-"
    return "| %s | %s | %.0f %s | %.0f | %.2f | %s |" % (case.name, solver, rate, unit, limit, share, speedup)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", metavar="TEXT", help="only the rows whose name has this in it")
    options = parser.parse_args()
    torch = import_torch()
    print("| work | solver | reached | roof | of the roof | PyTorch's time / ours |")
    print("| --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        if options.only in case.name:
            print(measure(case, options.rounds, os.path.join(options.build, "src", "clattn"),
                          os.path.join(options.build, "bench", "roof"), torch), flush=True)


if __name__ == "__main__":
    main()
