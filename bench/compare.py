#!/usr/bin/env python3
"""Compares clattn with the machine's roofs and with PyTorch, everything in one run.

    compare.py BUILD_DIR [--rounds N] [--only TEXT] [--markdown]

Each round measures the FMA roof, clattn, the roof again, and PyTorch (where it can be imported), so that drifting
clocks and busy neighbours touch all of them.  A ratio is taken within its round; the median of the rounds counts."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

ATTENTION = [
    # name, B, HQ, HKV, SQ, SKV, D, DV, causal
    ("attention 8 x 2048, d 64", 1, 8, 8, 2048, 2048, 64, 64, False),
    ("attention 8 x 2048, d 128", 1, 8, 8, 2048, 2048, 128, 128, False),
    ("attention 8 x 2048, d 64, causal", 1, 8, 8, 2048, 2048, 64, 64, True),
    ("attention 32x8 x 64, d 64", 32, 8, 8, 64, 64, 64, 64, False),
]
MATMUL = [("matmul 2048x512x512", 2048, 512, 512), ("matmul 2048x2048x512", 2048, 2048, 512),
          ("matmul 512x512x512", 512, 512, 512)]
SOFTMAX = [("softmax 4096x1024", 4096, 1024)]
MHA = [("mha 512/8, 8 x 128", 8, 128, 512, 8), ("mha 512/8, 1 x 2048", 1, 2048, 512, 8)]


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


def torch_cases():
    """name -> function, or nothing where there is no PyTorch."""
    try:
        import torch
    except ImportError:
        return {}
    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(0)
    cases = {}

    def attention(name, b, hq, hkv, sq, skv, d, dv, causal):
        q, k, v = torch.randn(b, hq, sq, d), torch.randn(b, hkv, skv, d), torch.randn(b, hkv, skv, dv)
        cases[name] = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def matmul(name, m, n, k):
        x, w = torch.randn(m, k), torch.randn(n, k)
        cases[name] = lambda: torch.nn.functional.linear(x, w)

    def softmax(name, r, c):
        x = torch.randn(r, c)
        cases[name] = lambda: torch.softmax(x, -1)

    def mha(name, b, s, d, h):
        layer, x = torch.nn.MultiheadAttention(d, h, batch_first=True).eval(), torch.randn(b, s, d)
        cases[name] = lambda: layer(x, x, x, need_weights=False)

    for case in ATTENTION:
        attention(*case)
    for case in MATMUL:
        matmul(*case)
    for case in SOFTMAX:
        softmax(*case)
    for case in MHA:
        mha(*case)

    def inference(function):
        def run():
            with torch.inference_mode():
                return function()
        return run
    return {name: inference(function) for name, function in cases.items()}


def clattn_cases():
    """name -> (arguments, operation count)."""
    cases = {}
    for name, b, hq, hkv, sq, skv, d, dv, causal in ATTENTION:
        shape = ",".join(map(str, (b, hq, hkv, sq, skv, d, dv)))
        cases[name] = ["attention", "--shape", shape] + (["--causal"] if causal else [])
    for name, m, n, k in MATMUL:
        cases[name] = ["matmul", "--shape", "%d,%d,%d" % (m, n, k)]
    for name, r, c in SOFTMAX:
        cases[name] = ["softmax", "--shape", "%d,%d" % (r, c)]
    for name, b, s, d, h in MHA:
        cases[name] = ["mha", "--shape", "%d,%d,%d,%d" % (b, s, d, h)]
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    clattn = os.path.join(options.build, "src", "clattn")
    roof = os.path.join(options.build, "bench", "roof")
    peers = torch_cases()
    if not peers:
        print("PyTorch cannot be imported: no peer is measured", file=sys.stderr)
    print("| work | solver | GFLOP/s | roof | of the roof | PyTorch's time / ours |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, arguments in clattn_cases().items():
        if options.only not in name:
            continue
        shares, speedups, rates, roofs, solver = [], [], [], [], ""
        for _ in range(options.rounds):
            before = run_json([roof, "0.1"])
            ours = run_json([clattn, "bench", *arguments, "--json"])
            after = run_json([roof, "0.1"])
            key = "copy_gbytes_per_s" if arguments[0] == "softmax" else "fma_gflops"
            rate = ours["gbytes_per_s"] if arguments[0] == "softmax" else ours["gflops"]
            limit = (before[key] + after[key]) / 2
            solver = ours["solver"]
            rates.append(rate)
            roofs.append(limit)
            shares.append(rate / limit)
            if name in peers:
                speedups.append(median_time(peers[name]) / ours["seconds_median"])
        speedup = "%.2f" % statistics.median(speedups) if speedups else "-"
        print("| %s | %s | %.0f | %.0f | %.2f | %s |" % (
            name, solver, statistics.median(rates), statistics.median(roofs), statistics.median(shares), speedup),
            flush=True)


if __name__ == "__main__":
    main()
