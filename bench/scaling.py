#!/usr/bin/env python3
"""Times operators while one of their sizes grows, and checks that nothing grows faster than its arithmetic.

    scaling.py BUILD_DIR [--rounds N] [--only TEXT] [--out FOLDER]

Each round times every point once (`clattn bench`, its shortest time); the shortest of the rounds counts.  A step from one
point to the next has grown faster than its arithmetic if its time over its operations rose by more than MARGIN.  What is
bound by memory is held against the bytes instead, and may besides lose what the caches gave it: a step is accepted that
ends at HELD of the roof of reading memory.  A step that fails is measured again, up to three times in all.  With more
cores time must fall by at least 1 / MARGIN of what the cores promise; they are limited as PoCL is (POCL_MAX_PTHREAD_COUNT),
and left out on other platforms.  The exit status is 1 if something grows too fast.

--out keeps the table in a folder as scaling.md and a plot as scaling.svg, and then, unless --only is given, measures random
shapes (random_shapes.py) into random_shapes.md."""
import argparse
import os
import sys
from typing import Callable, NamedTuple

import chart
import random_shapes
import record

MARGIN = 1.25
HELD = 0.6
ATTEMPTS = 3


class Growth(NamedTuple):
    name: str
    across: str                   # which size grows
    sizes: tuple
    arguments: Callable           # size -> of `clattn bench`
    memory: bool = False          # bound by memory
    cores: bool = False           # the size is how many cores there are


class Point(NamedTuple):
    seconds: float
    operations: float
    moved: float                  # bytes


def doubled(first, last):
    sizes = [first]
    while sizes[-1] < last:
        sizes.append(sizes[-1] * 2)
    return tuple(sizes)


def attention(b, heads, sq, skv, d, *options):
    return ["attention", "--shape", "%d,%d,%d,%d,%d,%d,%d" % (b, heads, heads, sq, skv, d, d), *options]


def cores_of_machine():
    count = os.cpu_count() or 1
    return tuple(sorted({*(n for n in doubled(1, count) if n <= count), count}))


def growths(cores=None):
    cores = cores or cores_of_machine()
    return [
        Growth("attention, 2 heads, d 64", "queries and keys", doubled(128, 32768), lambda n: attention(1, 2, n, n, 64)),
        Growth("causal attention, 2 heads, d 64", "queries and keys", doubled(128, 32768),
               lambda n: attention(1, 2, n, n, 64, "--causal")),
        Growth("1 query, 8 heads, d 128", "keys", doubled(128, 32768), lambda n: attention(1, 8, 1, n, 128), memory=True),
        Growth("attention, 8 heads, 256 x 256, d 64", "batch", doubled(1, 64), lambda n: attention(n, 8, 256, 256, 64)),
        Growth("attention, 512 x 512, d 64", "heads", doubled(1, 64), lambda n: attention(1, n, 512, 512, 64)),
        Growth("attention, 8 heads, 1,024 x 1,024", "head size", doubled(16, 256), lambda n: attention(1, 8, 1024, 1024, n)),
        Growth("matmul, N 512, K 512", "rows", doubled(1, 8192), lambda n: ["matmul", "--shape", "%d,512,512" % n]),
        Growth("softmax, 4,096 rows", "columns", doubled(128, 8192), lambda n: ["softmax", "--shape", "4096,%d" % n],
               memory=True),
        *(Growth(name + ", by cores", "cores", cores, lambda n, arguments=arguments: arguments, cores=True)
          for name, arguments in (("attention, 8 heads x 2,048, d 64", attention(1, 8, 2048, 2048, 64)),
                                  ("matmul 2048x2048x512", ["matmul", "--shape", "2048,2048,512"])) if len(cores) > 1),
    ]


def time_point(clattn, growth, size):
    environment = {**os.environ, **({"POCL_MAX_PTHREAD_COUNT": str(size)} if growth.cores else {})}
    report = record.run_json([clattn, "bench", *growth.arguments(size), "--json"], env=environment)
    seconds = report["seconds_min"]
    point = Point(seconds, report["gflops"] * seconds * 1e9, report["gbytes_per_s"] * seconds * 1e9)
    if not all(value > 0 for value in point):
        raise ValueError(report)
    return point


def excess(growth, sizes, one, other):
    """By how much the time grew more than the arithmetic did, or fell less than the cores promise."""
    if growth.cores:
        return other.seconds / one.seconds * sizes[1] / sizes[0]
    amounts = (one.moved, other.moved) if growth.memory else (one.operations, other.operations)
    return other.seconds / one.seconds * amounts[0] / amounts[1]


def too_fast(growth, sizes, one, other, read_roof):
    """Whether a step has grown faster than it may.  `read_roof` gives bytes a second, and is asked only if it counts."""
    if excess(growth, sizes, one, other) <= MARGIN:
        return False
    return not (growth.memory and other.moved / other.seconds >= HELD * read_roof())


def shortest(one, other):
    return other if one is None or other.seconds < one.seconds else one


def measure(growth, rounds, clattn, read_roof, time=time_point):
    """The points, and the steps (their indices) that have grown too fast in all attempts.  `read_roof` is a function."""
    points = [None] * len(growth.sizes)
    for _ in range(rounds):
        for i, size in enumerate(growth.sizes):
            points[i] = shortest(points[i], time(clattn, growth, size))
    failed = []
    for i in range(len(points) - 1):
        sizes = growth.sizes[i:i + 2]
        for _ in range(ATTEMPTS - 1):
            if not too_fast(growth, sizes, points[i], points[i + 1], read_roof):
                break
            points[i + 1] = shortest(points[i + 1], time(clattn, growth, sizes[1]))
        if too_fast(growth, sizes, points[i], points[i + 1], read_roof):
            failed.append(i)
    return points, failed


HEAD = ("| what | grows | from | to | time from | to | slope of each step | of its arithmetic |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |")


def slopes(sizes, values):
    return [chart.slope((a, x), (b, y)) for a, b, x, y in zip(sizes, sizes[1:], values, values[1:])]


def joined(numbers):
    """Numbers with one digit behind the point; a single one if all are the same."""
    words = ["%.1f" % (number + 0.0) for number in numbers]
    words = ["0.0" if word == "-0.0" else word for word in words]
    return words[0] if len(set(words)) == 1 else " ".join(words)


def table_line(growth, points):
    amounts = [point.moved if growth.memory else point.operations for point in points]
    ideal = [-1.0] if growth.cores else slopes(growth.sizes, amounts)
    return "| %s | %s | %s | %s | %s | %s | %s | %s |" % (
        growth.name, growth.across, format(growth.sizes[0], ","), format(growth.sizes[-1], ","),
        chart.seconds_text(points[0].seconds), chart.seconds_text(points[-1].seconds),
        joined(slopes(growth.sizes, [point.seconds for point in points])),
        joined(ideal) + (", of its bytes" if growth.memory else ""))


def complaint(growth, points, i):
    sizes = growth.sizes[i:i + 2]
    return "%s: from %s to %s %s, %.2f times as much as %s" % (
        growth.name, format(sizes[0], ","), format(sizes[1], ","), growth.across, excess(growth, sizes, *points[i:i + 2]),
        "the cores promise" if growth.cores else "its bytes" if growth.memory else "its arithmetic")


def panels_of(measured):
    return [chart.Panel(growth.name, growth.across, [chart.Line(
        growth.name, [(size, point.seconds) for size, point in zip(growth.sizes, points)])]) for growth, points in measured]


def is_pocl(clattn):
    report = record.run_json([clattn, "bench", "softmax", "--shape", "1,1", "--repeat", "1", "--json"])
    return report.get("platform") == "Portable Computing Language"


FILES = ("scaling.md", "scaling.svg", "random_shapes.md")


def run(options):
    """The exit status: whether something has grown too fast."""
    clattn, roof = record.tool(options.build, "src", "clattn"), record.tool(options.build, "bench", "roof")
    wanted = [growth for growth in growths() if options.only in growth.name or options.only in growth.across]
    if not wanted:
        record.complain("nothing has '%s' in its name" % options.only)
    if any(growth.cores for growth in wanted) and not is_pocl(clattn):
        wanted = [growth for growth in wanted if not growth.cores]
        print("scaling.py: cores can be limited on PoCL alone: they are left out", file=sys.stderr)
    if options.out:
        record.clear(options.out, *FILES)
    lines, measured, complaints = [], [], []
    record.say(lines, HEAD)
    for growth in wanted:
        points, failed = measure(growth, options.rounds, clattn,
                                 lambda: record.run_json([roof, "--only", "read", "0.1"])["read_gbytes_per_s"] * 1e9)
        measured.append((growth, points))
        complaints += [complaint(growth, points, i) for i in failed]
        record.say(lines, table_line(growth, points))
    record.say(lines, "\n" + ("\n".join(complaints) if complaints
                              else "Nothing grows faster than its arithmetic by more than %.2f times." % MARGIN))
    if options.out:
        table, plot, shapes = (os.path.join(options.out, name) for name in FILES)
        record.write_whole(table, "\n".join(lines) + "\n")
        record.write_whole(plot, chart.curves("clattn: time against size", panels_of(measured)))
        if not options.only:
            print()
            random_shapes.main([options.build, "--markdown", shapes])
        record.list_files(options.out, *FILES)
    return 1 if complaints else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="", metavar="TEXT", help="only what has this in its name, or grows so")
    parser.add_argument("--out", metavar="FOLDER", help="keep scaling.md, scaling.svg and random_shapes.md there")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds %d: at least one is needed" % options.rounds)
    return run(options)


if __name__ == "__main__":
    record.run_script(main)
