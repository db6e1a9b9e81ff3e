#!/usr/bin/env python3
"""Compares clattn with the machine's roofs and with PyTorch, everything in one run.

    compare.py BUILD_DIR [--rounds N] [--only TEXT] [--json FILE] [--machine TEXT] [--out FOLDER] [--openblas FILE]

Each round measures the roofs, clattn, the roofs again, and PyTorch (if it can be imported), so that drifting clocks and
busy neighbours touch all of them.  A ratio is taken within its round, and the median of the rounds counts.  There are four
roofs: fma, products of bfloat16 (fma if the processor has none), reading memory, and copying memory.  `roofline` is fma or
reading, whichever takes longer for the work.

The first table has clattn beside the roof and PyTorch.  The second has what else is timed in the same rounds: OpenBLAS (the
system's, or the one that --openblas names) beside products of float32, and our own float32 beside bfloat16.  The third has
what no roof bounds.

--json writes all of it in the form of bench/results, from which bench/tables.py makes the tables of docs/performance.md;
--out keeps that as compare.json in a folder, the tables as compare.md and a plot as compare.svg."""
import argparse
import os
import statistics
import subprocess
import sys
from typing import Callable, NamedTuple, Optional

import chart
import openblas
import record
from record import run_json, say, tool, write_whole


class Case(NamedTuple):
    name: str
    arguments: list                  # of `clattn bench`
    roof: str                        # fma, bf16, read, copy, roofline
    peer: Callable                   # torch module -> function that does the same
    share: Optional[float] = None    # the target, as a share of the roof
    speedup: Optional[float] = None  # the target for PyTorch's time / ours
    beside: tuple = ()               # Beside: what else is timed in the same rounds


class Beside(NamedTuple):
    name: str
    command: Callable              # (clattn, OpenBLAS's library or None) -> a command that reports seconds_median, or None
    target: float                  # for its time / ours


class Extra(NamedTuple):
    """A row of the last table: one number of what the command reports."""
    name: str
    arguments: list                # of `clattn`
    read: Callable                 # the report -> the number
    digits: int                    # of the number, behind the point
    unit: str
    limit: Optional[float] = None  # the target: at most this
    optional: bool = False         # left out if the command refuses: a library without CLBlast has no such row

    def text(self, value):
        return "%.*f %s" % (self.digits, value, self.unit)


class Row(NamedTuple):
    case: Case
    solver: str
    rate: float
    unit: str
    limit: float               # the roof, in the same unit
    share: float
    speedup: Optional[float]   # None: without PyTorch
    beside: tuple = ()         # (Beside, its time / ours) of those that could be run


def typed(torch, dtype, *extent):
    """Random numbers of that type."""
    x = torch.randn(*extent)
    return x if dtype == "f32" else x.to(torch.bfloat16)


def attention(name, shape, causal=False, roof="fma", share=None, speedup=None, dtype="f32"):
    b, hq, hkv, sq, skv, d, dv = shape

    def peer(torch):
        q, k, v = (typed(torch, dtype, *extent) for extent in ((b, hq, sq, d), (b, hkv, skv, d), (b, hkv, skv, dv)))
        grouped = {"enable_gqa": True} if hq != hkv else {}
        return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, **grouped)

    arguments = ["attention", "--shape", ",".join(map(str, shape))] + (["--causal"] if causal else [])
    return stored(Case("attention " + name, arguments, roof, peer, share, speedup), dtype)


def gradients(length, d, dtype="f32", causal=False):
    """The gradients by queries, keys and values, from that of the output: five products for forward's two."""
    shape = (1, 8, length, d)

    def peer(torch):
        with torch.enable_grad():
            q, k, v = (typed(torch, dtype, *shape).requires_grad_() for _ in range(3))
            output = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        given = typed(torch, dtype, *shape)
        return lambda: torch.autograd.grad(output, (q, k, v), given, retain_graph=True)

    arguments = ["attention", "--shape", "1,8,8,%d,%d,%d,%d" % (length, length, d, d), "--backward"]
    name = "attention's gradients 8 x %d, d %d%s" % (length, d, ", causal" if causal else "")
    return stored(Case(name, arguments + (["--causal"] if causal else []), "fma", peer, None if causal else 0.65, 1.5), dtype)


def stored(case, dtype):
    """The case with arrays of that type. Bfloat16 has the roof of bfloat16, and our own float32 beside it."""
    if dtype == "f32":
        return case
    ours = ["bench", *case.arguments, "--json"]
    return case._replace(name=case.name + ", bfloat16", arguments=case.arguments + ["--dtype", dtype], roof="bf16",
                         beside=(Beside("clattn, float32", lambda clattn, blas: [clattn, *ours], 1.0),))


def decode(heads, kv_heads, keys):
    name = "%d heads%s, 1 query, %s keys, d 128" % (heads, "" if heads == kv_heads else " to %d" % kv_heads,
                                                    format(keys, ","))
    return attention(name, (1, heads, kv_heads, 1, keys, 128, 128), roof="read", share=0.85)


def matmul(m, n, k, roof="fma", share=0.85, speedup=1.0, dtype="f32"):
    def peer(torch):
        x, w = typed(torch, dtype, m, k), typed(torch, dtype, n, k)
        return lambda: torch.nn.functional.linear(x, w)

    return stored(Case("matmul %dx%dx%d" % (m, n, k), ["matmul", "--shape", "%d,%d,%d" % (m, n, k)], roof, peer, share,
                       speedup), dtype)


def beside_openblas(case):
    """A float32 product, with OpenBLAS beside it."""
    sizes = case.arguments[case.arguments.index("--shape") + 1].split(",")
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "openblas.py")
    return case._replace(beside=(Beside(
        "OpenBLAS", lambda clattn, blas: [sys.executable, script, blas, *sizes] if blas else None, 1.0),))


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


def encoder(batch, length, size=512, heads=8, inner=2048):
    def peer(torch):
        layer = torch.nn.TransformerEncoderLayer(size, heads, inner, batch_first=True).eval()
        x = torch.randn(batch, length, size)
        return lambda: layer(x)

    return Case("encoder layer %d/%d/%d, %d x %d" % (size, heads, inner, batch, length),
                ["encoder", "--shape", "%d,%d,%d,%d,%d" % (batch, length, size, heads, inner)], "fma", peer, speedup=1.3)


def causal(length, most, share=None):
    """Causal attention, with attention of all keys beside it; `most` is the largest share of that time that it may take."""
    shape = (1, 8, 8, length, length, 64, 64)
    whole = ["bench", "attention", "--shape", ",".join(map(str, shape)), "--json"]
    return attention("8 x %d, d 64, causal" % length, shape, causal=True, share=share)._replace(beside=(
        Beside("clattn, all keys", lambda clattn, blas: [clattn, *whole], round(1 / most, 2)),))


def square(length, d, share, speedup=None):
    return attention("8 x %d, d %d" % (length, d), (1, 8, 8, length, length, d, d), share=share, speedup=speedup)


PROJECTIONS = ((2048, 512, 512), (2048, 2048, 512), (512, 512, 512))
CASES = [
    *(square(length, 64, 0.78, 1.3) for length in (1024, 2048, 4096)),
    *(square(2048, d, 0.65) for d in (32, 80, 96)),
    square(2048, 128, 0.80, 1.2),
    square(2048, 256, 0.65),
    causal(4096, 0.55),
    attention("32x8 x 64, d 64", (32, 8, 8, 64, 64, 64, 64), share=0.55, speedup=1.3),
    *(decode(heads, kv_heads, keys) for heads, kv_heads in ((8, 8), (32, 32), (32, 8)) for keys in (4096, 32768)),
    *(beside_openblas(matmul(*sizes)) for sizes in PROJECTIONS),
    *(matmul(m, n, k, "roofline", 0.80, None) for n, k in ((512, 512), (4096, 1024), (4096, 4096)) for m in (1, 4, 16)),
    softmax(4096, 1024),
    layernorm(4096, 512),
    mha(8, 128, 512, 8),
    mha(1, 2048, 512, 8),
    encoder(1, 512),
    encoder(8, 128),
    encoder(1, 2048),
    *(attention("8 x 2048, d %d" % d, (1, 8, 8, 2048, 2048, d, d), speedup=1.8, dtype="bf16") for d in (64, 128)),
    *(matmul(*sizes, share=None, speedup=0.9, dtype="bf16") for sizes in PROJECTIONS),
    *(gradients(2048, d) for d in (64, 128)),
    gradients(2048, 64, causal=True),
    *(gradients(2048, d, dtype="bf16") for d in (64, 128)),
]

STARTUP = ["bench", "startup", "--json"]
CLBLAST_STARTUP = ["bench", "startup", "--matmul", "128,512,512", "--solver", "clblast", "--json"]
MOST_STARTUP = {"empty": 1500, "warm": 60}  # milliseconds
EXTRAS = [
    Extra("one enqueue of a ready plan, over bare launches", ["bench", "enqueue", "--json"],
          lambda report: report["difference_microseconds"], 2, "µs", 5),
    Extra("workspace of attention 1 x 32,768, d 64", ["explain", "--shape", "1,1,1,32768,32768,64,64", "--json"],
          lambda report: report["workspace_bytes"] / 2 ** 20, 1, "MiB", 16),
    *(Extra("first result of a new process%s, %s caches" % (what, caches), arguments,
            lambda report, key=caches + "_seconds_median": report[key] * 1e3, 0, "ms", limit, bool(what))
      for what, arguments in (("", STARTUP), (", a product by CLBlast", CLBLAST_STARTUP))
      for caches, limit in MOST_STARTUP.items()),
]


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


def roofs_of(case):
    return {"roofline": ("fma", "read"), "bf16": ("bf16", "fma")}.get(case.roof, (case.roof,))


def rate_and_roof(roof, ours, before, after):
    """What was reached, the roof, and the share of it: in GFLOP/s, or in GB/s if memory is the bound."""
    key, what = {"fma": ("fma_gflops", "gflops"), "bf16": ("bf16_gflops", "gflops"),
                 "read": ("read_gbytes_per_s", "gbytes_per_s"), "copy": ("copy_gbytes_per_s", "gbytes_per_s")}[roof]
    limit = (before[key] + after[key]) / 2
    return ours[what], limit, ours[what] / limit


def nearest_roof(case, rounds):
    """The medians under the one roof that counts in all rounds, and their unit. For `roofline` it is the roof that the work
    comes nearer to; for `bf16` the processor's own, or fma if it has none."""
    roofs = roofs_of(case)
    if case.roof == "bf16":
        roofs = ("bf16",) if has_bf16(rounds) else ("fma",)
    medians = {roof: [statistics.median(column) for column in zip(*(rate_and_roof(roof, *each) for each in rounds))]
               for roof in roofs}
    nearest = max(roofs, key=lambda roof: medians[roof][2])
    return (*medians[nearest], "GFLOP/s" if nearest in ("fma", "bf16") else "GB/s")


def has_bf16(rounds):
    return all("bf16_gflops" in each for _, *both in rounds for each in both)


def measure(case, rounds, clattn, roof, torch, blas=None):
    measured, speedups = [], []
    peer = case.peer(torch) if torch else None
    commands = [(each, each.command(clattn, blas)) for each in case.beside]
    others = {each: [] for each, command in commands if command}
    probe = [roof, "--only", ",".join(roofs_of(case)), "0.1"]
    for _ in range(rounds):
        before = run_json(probe)
        ours = run_json([clattn, "bench", *case.arguments, "--json"])
        measured.append((ours, before, run_json(probe)))
        if peer:
            with torch.inference_mode():
                speedups.append(statistics.median(record.times(peer)) / ours["seconds_median"])
        for each, command in commands:
            if command:
                others[each].append(run_json(command)["seconds_median"] / ours["seconds_median"])
    rate, limit, share, unit = nearest_roof(case, measured)
    if case.roof == "bf16" and not has_bf16(measured):
        case = case._replace(speedup=None)  # the target supposes a processor that multiplies bfloat16
    return Row(case, measured[-1][0]["solver"], rate, unit, limit, share, statistics.median(speedups) if speedups else None,
               tuple((each, statistics.median(ratios)) for each, ratios in others.items()))


def number(value):
    return "-" if value is None else "%.2f" % value


HEAD = ("| work | solver | reached | roof | of the roof | target | PyTorch's time / ours | target |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |")
BESIDE_HEAD = "| work | beside | its time / ours | target |\n| --- | --- | --- | --- |"
EXTRA_HEAD = "| what | measured | target |\n| --- | --- | --- |"


def table_line(row):
    return "| %s | %s | %.0f %s | %.0f | %.2f | %s | %s | %s |" % (
        row.case.name, row.solver, row.rate, row.unit, row.limit, row.share, number(row.case.share), number(row.speedup),
        number(row.case.speedup))


def beside_lines(row):
    return ["| %s | %s | %.2f | %.2f |" % (row.case.name, each.name, ratio, each.target) for each, ratio in row.beside]


def extra_line(extra, value):
    return "| %s | %s | %s |" % (extra.name, extra.text(value),
                                 "-" if extra.limit is None else "at most " + extra.text(extra.limit))


def results_of(rows, extras):
    """What was measured, in the form of bench/results."""
    def rounded(value, digits=3):
        return None if value is None else round(value, digits)

    return {
        "rows": [{"work": row.case.name, "solver": row.solver, "reached": rounded(row.rate, 1), "unit": row.unit,
                  "roof": rounded(row.limit, 1), "share": rounded(row.share), "share_target": row.case.share,
                  "speedup": rounded(row.speedup), "speedup_target": row.case.speedup} for row in rows],
        "beside": [{"work": row.case.name, "beside": each.name, "ratio": rounded(ratio), "target": each.target}
                   for row in rows for each, ratio in row.beside],
        "extras": [{"what": extra.name, "value": rounded(value, extra.digits), "unit": extra.unit, "limit": extra.limit}
                   for extra, value in extras]}


def bar_of(row):
    """The bar of one of the record's rows."""
    detail = "%s: %.0f of %.0f %s, by %s" % (row["work"], row["reached"], row["roof"], row["unit"], row["solver"])
    if row["speedup"] is not None:
        detail += "; %.2f times as fast as PyTorch" % row["speedup"]
    return chart.Bar(row["work"], row["share"], row["share_target"], detail)


def plot(found):
    """The record's shares of the roof, as SVG."""
    name = "clattn, %s" % found["machine"] if "machine" in found else "clattn"
    return chart.svg(name + ": share of the machine's roof", [bar_of(row) for row in found["rows"]])


def targets(found):
    """How many of the record's targets were reached, and how many there are."""
    reached = [row["share"] >= row["share_target"] for row in found["rows"] if row["share_target"] is not None]
    reached += [row["speedup"] >= row["speedup_target"] for row in found["rows"]
                if None not in (row["speedup"], row["speedup_target"])]
    reached += [row["ratio"] >= row["target"] for row in found["beside"]]
    reached += [row["value"] <= row["limit"] for row in found["extras"] if row["limit"] is not None]
    return sum(reached), len(reached)


def run_extra(extra, command):
    """What it reports, or None if the command refuses an optional one."""
    try:
        return run_json(command)
    except subprocess.CalledProcessError:
        if not extra.optional:
            raise
        print("left out: %s" % extra.name, file=sys.stderr)
        return None


def measure_extras(extras, clattn, lines):
    reports, found = {}, []
    for extra in extras:
        key = tuple(extra.arguments)
        if key not in reports:
            reports[key] = run_extra(extra, [clattn, *key])
        if reports[key] is None:
            continue
        found.append((extra, extra.read(reports[key])))
        say(lines, extra_line(*found[-1]))
    return found


FILES = ("compare.json", "compare.md", "compare.svg")


def compare(options):
    clattn, roof = tool(options.build, "src", "clattn"), tool(options.build, "bench", "roof")
    cases = [case for case in CASES if options.only in case.name]
    extras = [extra for extra in EXTRAS if options.only in extra.name]
    lines, rows, found = [], [], []
    if not cases and not extras:
        record.complain("no row has '%s' in its name" % options.only)
    if options.out:
        record.clear(options.out, *FILES)
    torch = import_torch() if cases else None
    blas = openblas.library(options.openblas)
    if blas is None and any(each.name == "OpenBLAS" for case in cases for each in case.beside):
        print("OpenBLAS is not found: it is not measured", file=sys.stderr)
    if cases:
        say(lines, HEAD)
    for case in cases:
        rows.append(measure(case, options.rounds, clattn, roof, torch, blas))
        say(lines, table_line(rows[-1]))
    if any(row.beside for row in rows):
        say(lines, "\n" + "\n".join([BESIDE_HEAD] + [line for row in rows for line in beside_lines(row)]))
    if extras:
        say(lines, "\n" * bool(cases) + EXTRA_HEAD)
        found = measure_extras(extras, clattn, lines)
    results = results_of(rows, found)
    reached, count = targets(results)
    if count > 0:
        say(lines, "\n%d of %d targets reached%s." % (reached, count, "" if torch or not cases else ", without PyTorch"))
    peers = {**({"PyTorch": torch.__version__} if torch else {}), **({"OpenBLAS": openblas.version(blas)} if blas else {})}
    results = {**record.about(clattn, options.machine), "rounds": options.rounds, "peers": peers, **results}
    if options.json:
        record.write(options.json, results)
    if options.out:
        record.write(os.path.join(options.out, FILES[0]), results)
        write_whole(os.path.join(options.out, FILES[1]), "\n".join(lines) + "\n")
        if rows:
            write_whole(os.path.join(options.out, FILES[2]), plot(results))
        record.list_files(options.out, *FILES)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", metavar="TEXT", help="only the rows whose name contains this")
    record.add_options(parser)
    parser.add_argument("--out", metavar="FOLDER", help="keep compare.json, compare.md and compare.svg there")
    parser.add_argument("--openblas", metavar="FILE", help="OpenBLAS's library; default: the system's, if there is one")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds %d: at least one is needed" % options.rounds)
    compare(options)


if __name__ == "__main__":
    record.run_script(main)
