#!/usr/bin/env python3
"""Times random shapes and tells how near they come to the machine's roofs: the worst decile beside the median and the best.

    random_shapes.py BUILD_DIR [--seed N] [--count N] [--least N] [--most N] [--markdown FILE]

The shapes are those of `clattn bench random`, which the tests draw from, too.  A shape's bound is the time that the roofs
leave it: for attention and matmul that of its operations at the roof of fma or of its bytes at that of reading memory,
whichever is longer, for softmax and layernorm of its bytes at that of copying.  Its share is the bound over the shortest
time measured; roofs are probed right before and right after.  What the caches hold may exceed 1."""
import argparse
import math
import statistics
import sys
from typing import NamedTuple

import record

OPERATORS = ("attention", "matmul", "softmax", "layernorm")
ROOFS = {"attention": "fma,read", "matmul": "fma,read", "softmax": "copy", "layernorm": "copy"}


class Timed(NamedTuple):
    operator: str
    arguments: str   # of `clattn bench`, behind the operator
    solver: str
    seconds: float
    rate: float      # by the roof that bounds it: GFLOP/s or GB/s
    unit: str
    share: float


def mean(before, after, key):
    return (before[key] + after[key]) / 2


def judge(operator, arguments, report, before, after):
    """The Timed of a report of `clattn bench`."""
    seconds = report["seconds_min"]
    operations, moved = report["gflops"] * seconds, report["gbytes_per_s"] * seconds
    if "fma" in ROOFS[operator]:
        bounds = [(operations / mean(before, after, "fma_gflops"), report["gflops"], "GFLOP/s"),
                  (moved / mean(before, after, "read_gbytes_per_s"), report["gbytes_per_s"], "GB/s")]
    else:
        bounds = [(moved / mean(before, after, "copy_gbytes_per_s"), report["gbytes_per_s"], "GB/s")]
    bound, rate, unit = max(bounds)
    return Timed(operator, arguments, report["solver"], seconds, rate, unit, bound / seconds)


def arguments_of(shape):
    return ["--shape", ",".join(map(str, shape["shape"]))] + ["--causal"] * shape["causal"]


def measure(shape, clattn, roof):
    operator, arguments = shape["operator"], arguments_of(shape)
    probe = [roof, "--only", ROOFS[operator], "0.1"]
    before = record.run_json(probe)
    report = record.run_json([clattn, "bench", operator, *arguments, "--json"])
    return judge(operator, " ".join(arguments[1:]), report, before, record.run_json(probe))


def worst_decile(shares):
    """The share that a tenth of them, rounded up, do not exceed."""
    return sorted(shares)[math.ceil(len(shares) / 10) - 1]


SUMMARY_HEAD = ("| operator | shapes | worst | worst decile | median | best |\n"
                "| --- | --- | --- | --- | --- | --- |")
WORST_HEAD = "| worst shapes | solver | time | reached | of the bound |\n| --- | --- | --- | --- | --- |"


def summary_line(name, timed):
    shares = [each.share for each in timed]
    return "| %s | %d | %.2f | %.2f | %.2f | %.2f |" % (name, len(shares), min(shares), worst_decile(shares),
                                                       statistics.median(shares), max(shares))


def worst_line(each):
    return "| %s %s | %s | %.3f ms | %.0f %s | %.2f |" % (each.operator, each.arguments, each.solver, each.seconds * 1e3,
                                                         each.rate, each.unit, each.share)


def tables(timed, worst=3):
    """Lines of Markdown: the operators and all together; the worst shapes of each, the worst first."""
    by_operator = [(name, [each for each in timed if each.operator == name]) for name in OPERATORS]
    by_operator = [(name, some) for name, some in by_operator if some]
    lines = SUMMARY_HEAD.splitlines() + [summary_line(name, some) for name, some in by_operator]
    lines += [summary_line("all", timed), ""] + WORST_HEAD.splitlines()
    for _, some in by_operator:
        lines += [worst_line(each) for each in sorted(some, key=lambda each: each.share)[:worst]]
    return lines


def run(options):
    clattn, roof = record.tool(options.build, "src", "clattn"), record.tool(options.build, "bench", "roof")
    wanted = ["--%s=%d" % (name, getattr(options, name)) for name in ("seed", "count", "least", "most")
              if getattr(options, name) is not None]
    shapes = record.run_json([clattn, "bench", "random", *wanted, "--json"])["shapes"]
    timed = []
    for number, shape in enumerate(shapes, 1):
        timed.append(measure(shape, clattn, roof))
        print("%d of %d: %s" % (number, len(shapes), worst_line(timed[-1])), file=sys.stderr)
    lines = tables(timed, options.worst)
    print("\n".join(lines))
    if options.markdown:
        record.write_whole(options.markdown, "\n".join(lines) + "\n")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    for name, text in (("seed", "which sequence of shapes"), ("count", "how many"), ("least", "operations of each at least"),
                       ("most", "operations of each at most")):
        parser.add_argument("--" + name, type=int, metavar="N", help=text + "; default: that of clattn bench random")
    parser.add_argument("--worst", type=int, default=3, metavar="N", help="how many shapes of each operator to name")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables there, too")
    run(parser.parse_args(arguments))


if __name__ == "__main__":
    record.run_script(main)
