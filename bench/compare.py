#!/usr/bin/env python3
"""Compares clattn with the machine's roofs and with PyTorch, everything in one run.

    compare.py BUILD_DIR [--rounds N] [--only TEXT] [--markdown FILE] [--svg FILE]

Each round measures the roofs, clattn, the roofs again, and PyTorch (where it can be imported), so that drifting clocks and
busy neighbours touch all of them.  A ratio is taken within its round; the median of the rounds counts.  A roof is that of
fma, of reading memory, or of copying it; `roofline` is whichever of fma and reading takes longer for the work.  What has no
roof stands in a second table.  bench/compare.sh keeps both tables and the plot in files."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Callable, NamedTuple, Optional

import chart


class Case(NamedTuple):
    name: str
    arguments: list                  # of `clattn bench`
    roof: str                        # fma, read, copy, roofline
    peer: Callable                   # torch module -> function that does the same
    share: Optional[float] = None    # of the roof, that is wanted
    speedup: Optional[float] = None  # PyTorch's time / ours, that is wanted


class Extra(NamedTuple):
    """A row of the second table: one number of what the command reports."""
    name: str
    arguments: list                # of `clattn`
    read: Callable                 # the report -> the number
    form: str                      # of the number, with its unit
    limit: Optional[float] = None  # at most this is wanted


class Row(NamedTuple):
    case: Case
    solver: str
    rate: float
    unit: str
    limit: float               # the roof, in the same unit
    share: float
    speedup: Optional[float]   # None: without PyTorch


def attention(name, shape, causal=False, roof="fma", share=None, speedup=None):
    b, hq, hkv, sq, skv, d, dv = shape

    def peer(torch):
        q, k, v = torch.randn(b, hq, sq, d), torch.randn(b, hkv, skv, d), torch.randn(b, hkv, skv, dv)
        grouped = {"enable_gqa": True} if hq != hkv else {}
        return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, **grouped)

    arguments = ["attention", "--shape", ",".join(map(str, shape))] + (["--causal"] if causal else [])
    return Case("attention " + name, arguments, roof, peer, share, speedup)


def decode(heads, kv_heads, keys):
    name = "%d heads%s, 1 query, %s keys, d 128" % (heads, "" if heads == kv_heads else " to %d" % kv_heads,
                                                    format(keys, ","))
    return attention(name, (1, heads, kv_heads, 1, keys, 128, 128), roof="read", share=0.85)


def matmul(m, n, k, roof="fma", share=0.85, speedup=1.0):
    def peer(torch):
        x, w = torch.randn(m, k), torch.randn(n, k)
        return lambda: torch.nn.functional.linear(x, w)

    return Case("matmul %dx%dx%d" % (m, n, k), ["matmul", "--shape", "%d,%d,%d" % (m, n, k)], roof, peer, share, speedup)


def softmax(rows, columns):
    def peer(torch):
        x = torch.randn(rows, columns)
        return lambda: torch.softmax(x, -1)

    return Case("softmax %dx%d" % (rows, columns), ["softmax", "--shape", "%d,%d" % (rows, columns)], "copy", peer,
                0.85, 1.0)


def layernorm(rows, columns):
    def peer(torch):
        x, scale, bias = torch.randn(rows, columns), torch.randn(columns), torch.randn(columns)
        return lambda: torch.nn.functional.layer_norm(x, (columns,), scale, bias)

    return Case("LayerNorm %dx%d" % (rows, columns), ["layernorm", "--shape", "%d,%d" % (rows, columns)], "copy", peer,
                0.85, 1.0)


def mha(batch, length, size, heads):
    def peer(torch):
        layer = torch.nn.MultiheadAttention(size, heads, batch_first=True).eval()
        x = torch.randn(batch, length, size)
        return lambda: layer(x, x, x, need_weights=False)

    return Case("mha %d/%d, %d x %d" % (size, heads, batch, length),
                ["mha", "--shape", "%d,%d,%d,%d" % (batch, length, size, heads)], "fma", peer, speedup=1.4)


def square(length, d, share, speedup=None):
    return attention("8 x %d, d %d" % (length, d), (1, 8, 8, length, length, d, d), share=share, speedup=speedup)


CASES = [
    *(square(length, 64, 0.78, 1.3) for length in (1024, 2048, 4096)),
    *(square(2048, d, 0.65) for d in (32, 80, 96)),
    square(2048, 128, 0.80, 1.2),
    square(2048, 256, 0.65),
    attention("8 x 2048, d 64, causal", (1, 8, 8, 2048, 2048, 64, 64), causal=True),
    attention("32x8 x 64, d 64", (32, 8, 8, 64, 64, 64, 64), share=0.55, speedup=1.3),
    *(decode(heads, kv_heads, keys) for heads, kv_heads in ((8, 8), (32, 32), (32, 8)) for keys in (4096, 32768)),
    *(matmul(m, n, k) for m, n, k in ((2048, 512, 512), (2048, 2048, 512), (512, 512, 512))),
    *(matmul(m, n, k, "roofline", 0.80, None) for n, k in ((512, 512), (4096, 1024), (4096, 4096)) for m in (1, 4, 16)),
    softmax(4096, 1024),
    layernorm(4096, 512),
    mha(8, 128, 512, 8),
    mha(1, 2048, 512, 8),
]

STARTUP = ["bench", "startup", "--json"]
EXTRAS = [
    Extra("one enqueue of a ready plan, over bare launches", ["bench", "enqueue", "--json"],
          lambda report: report["difference_microseconds"], "%.2f µs", 5),
    Extra("workspace of attention 1 x 32,768, d 64", ["explain", "--shape", "1,1,1,32768,32768,64,64", "--json"],
          lambda report: report["workspace_bytes"] / 2 ** 20, "%.1f MiB", 16),
    *(Extra("first result of a new process, %s caches" % caches, STARTUP,
            lambda report, key=caches + "_seconds_median": report[key] * 1e3, "%.0f ms") for caches in ("empty", "warm")),
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


def rate_and_roof(roof, ours, before, after):
    """What was reached and what could be, and its share of it, by one roof: in GFLOP/s, or GB/s where memory is the bound."""
    key, what = {"fma": ("fma_gflops", "gflops"), "read": ("read_gbytes_per_s", "gbytes_per_s"),
                 "copy": ("copy_gbytes_per_s", "gbytes_per_s")}[roof]
    limit = (before[key] + after[key]) / 2
    return ours[what], limit, ours[what] / limit


def nearest_roof(case, rounds):
    """The roof that counts in all rounds, with the medians under it: of a `roofline` the one that the work comes nearer to."""
    roofs = ("fma", "read") if case.roof == "roofline" else (case.roof,)
    medians = {roof: [statistics.median(column) for column in zip(*(rate_and_roof(roof, *each) for each in rounds))]
               for roof in roofs}
    nearest = max(roofs, key=lambda roof: medians[roof][2])
    return (*medians[nearest], "GFLOP/s" if nearest == "fma" else "GB/s")


def measure(case, rounds, clattn, roof, torch):
    measured, speedups = [], []
    peer = case.peer(torch) if torch else None
    for _ in range(rounds):
        before = run_json([roof, "0.1"])
        ours = run_json([clattn, "bench", *case.arguments, "--json"])
        measured.append((ours, before, run_json([roof, "0.1"])))
        if peer:
            with torch.inference_mode():
                speedups.append(median_time(peer) / ours["seconds_median"])
    rate, limit, share, unit = nearest_roof(case, measured)
    return Row(case, measured[-1][0]["solver"], rate, unit, limit, share, statistics.median(speedups) if speedups else None)


def number(value):
    return "-" if value is None else "%.2f" % value


HEAD = ("| work | solver | reached | roof | of the roof | wanted | PyTorch's time / ours | wanted |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |")
EXTRA_HEAD = "| what | measured | wanted |\n| --- | --- | --- |"


def table_line(row):
    return "| %s | %s | %.0f %s | %.0f | %.2f | %s | %s | %s |" % (
        row.case.name, row.solver, row.rate, row.unit, row.limit, row.share, number(row.case.share), number(row.speedup),
        number(row.case.speedup))


def extra_line(extra, value):
    return "| %s | %s | %s |" % (extra.name, extra.form % value,
                                 "-" if extra.limit is None else "at most " + extra.form % extra.limit)


def bar_of(row):
    detail = "%s: %.0f of %.0f %s, by %s" % (row.case.name, row.rate, row.limit, row.unit, row.solver)
    if row.speedup is not None:
        detail += "; %.2f times as fast as PyTorch" % row.speedup
    return chart.Bar(row.case.name, row.share, row.case.share, detail)


def targets(rows, extras):
    """How many of the targets that could be measured were reached, and how many these are."""
    reached = [row.share >= row.case.share for row in rows if row.case.share is not None]
    reached += [row.speedup >= row.case.speedup for row in rows if None not in (row.speedup, row.case.speedup)]
    reached += [value <= extra.limit for extra, value in extras if extra.limit is not None]
    return sum(reached), len(reached)


def write_whole(path, content):
    """The file, or none of it."""
    with open(path + ".part", "w", encoding="utf-8") as out:
        out.write(content)
    os.replace(path + ".part", path)


def tool(build, *parts):
    path = os.path.join(build, *parts)
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        sys.exit("compare.py: %s is not there; build it first, with meson compile -C %s" % (path, build))
    return path


def say(lines, text):
    """Prints it, and keeps it for the file."""
    print(text, flush=True)
    lines.append(text)


def measure_extras(extras, clattn, lines):
    reports, found = {}, []
    for extra in extras:
        key = tuple(extra.arguments)
        if key not in reports:
            reports[key] = run_json([clattn, *key])
        found.append((extra, extra.read(reports[key])))
        say(lines, extra_line(*found[-1]))
    return found


def compare(options):
    clattn, roof = tool(options.build, "src", "clattn"), tool(options.build, "bench", "roof")
    cases = [case for case in CASES if options.only in case.name]
    extras = [extra for extra in EXTRAS if options.only in extra.name]
    lines, rows, found = [], [], []
    if not cases and not extras:
        sys.exit("compare.py: no row has '%s' in its name" % options.only)
    torch = import_torch() if cases else None
    if cases:
        say(lines, HEAD)
    for case in cases:
        rows.append(measure(case, options.rounds, clattn, roof, torch))
        say(lines, table_line(rows[-1]))
    if extras:
        say(lines, "\n" * bool(cases) + EXTRA_HEAD)
        found = measure_extras(extras, clattn, lines)
    reached, count = targets(rows, found)
    if count > 0:
        say(lines, "\n%d of %d targets reached%s." % (reached, count, "" if torch or not cases else ", without PyTorch"))
    if options.markdown:
        write_whole(options.markdown, "\n".join(lines) + "\n")
    if options.svg and rows:
        write_whole(options.svg, chart.svg("clattn: share of the machine's roof", [bar_of(row) for row in rows]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", metavar="TEXT", help="only the rows whose name has this in it")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables there, too")
    parser.add_argument("--svg", metavar="FILE", help="draw the shares of the roof there")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds %d: at least one is needed" % options.rounds)
    try:
        compare(options)
    except subprocess.CalledProcessError as error:
        sys.exit("compare.py: %s failed with status %d" % (" ".join(error.cmd), error.returncode))
    except (ValueError, KeyError) as error:
        sys.exit("compare.py: what was reported cannot be read: %r" % error)
    except OSError as error:
        sys.exit("compare.py: %s" % error)


if __name__ == "__main__":
    main()
