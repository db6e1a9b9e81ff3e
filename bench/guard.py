#!/usr/bin/env python3
"""Holds a few key figures against those of docs/notes/performance-tables.md, so that a kernel that has become slow is noticed.

    guard.py BUILD_DIR [--pause SECONDS]         on the device that the command chooses (CLATTN_DEVICE)

No figure is a time: each is a ratio to the machine's roof or to another call, taken within one measurement.  Its bound lies
far from what is reported, since other machines have other ratios and their neighbours are busy.  Figures beyond their bounds
are measured again when all have been measured and a pause is over, up to three times in all.  Prints TAP; skips if the device
is no CPU or bench/roof is missing.  The exit status is 0 if no figure has failed."""
import argparse
import os
import time
from typing import Callable, NamedTuple

import compare
import features
import record

ATTEMPTS = 3
PAUSE = 45  # seconds, in which a neighbour's work may end
CPUS = ("cpu", "pocl")
CAUSAL = "causal, 4,096 x 4,096"  # in features.py


class Figure(NamedTuple):
    name: str
    read: Callable    # BUILD_DIR -> the ratio
    reported: float   # in docs/notes/performance-tables.md, or of gradients the least of docs/training.md
    factor: float     # the bound by what is reported: below 1 the figure must be at least that, above 1 at most

    def bound(self):
        return self.reported * self.factor

    def holds(self, value):
        return value >= self.bound() if self.factor < 1 else value <= self.bound()


def share_of_roof(name):
    """One round of compare.py's row of that name."""
    case, = [case for case in compare.CASES if case.name == name]
    return lambda build: compare.measure(case, 1, record.tool(build, "src", "clattn"),
                                         record.tool(build, "bench", "roof"), None).share


def feature_ratio(name):
    """One round of features.py's ratio of that name; the mask is not made, so the ratio must not need it."""
    row, = [row for row in features.cases(None, None) if row[0] == name]
    return lambda build: features.seconds(build, row[1]) / features.seconds(build, row[2])


def figure(name, reported, factor=0.5):
    return Figure(name, share_of_roof(name), reported, factor)


def cliff(name, reported, factor=2.5):
    return Figure("time of attention with %s over without" % name, feature_ratio(name), reported, factor)


FIGURES = [
    figure("attention 8 x 2048, d 64", 0.88),
    figure("matmul 2048x512x512", 0.92),
    figure("softmax 4096x1024", 1.00),
    figure("attention 8 heads, 1 query, 32,768 keys, d 128", 0.79),
    # Twice as much would be no causality at all.
    Figure("time of attention, " + CAUSAL + ", over not causal", feature_ratio(CAUSAL), 0.52, 1.6),
    figure("attention's gradients 8 x 2048, d 64", 0.74, 0.4),
    Figure("time of attention's gradients, causal, over not causal", feature_ratio("causal gradients"), 0.52, 1.6),
    # Cliffs: a kernel that computes an element at a time takes 10 to 80 times as long.
    cliff("head size 513", 0.98),
    cliff("probabilities", 1.72),
    cliff("keys innermost, 1 query", 1.2),
    cliff("int8, groups of 4, 1 query", 1.3),
]


def measure(build, figures, pause):
    """All that was measured of each figure; the last value holds, or none did."""
    values = [[] for _ in figures]
    for attempt in range(ATTEMPTS):
        beyond = [n for n, one in enumerate(figures) if not values[n] or not one.holds(values[n][-1])]
        if attempt > 0 and beyond:
            pause()
        for n in beyond:
            values[n].append(figures[n].read(build))
    return values


def line_of(number, one, values):
    return "%sok %d - %s: %s, at %s %.2f wanted, %.2f reported" % (
        "" if one.holds(values[-1]) else "not ", number, one.name, ", ".join("%.2f" % value for value in values),
        "least" if one.factor < 1 else "most", one.bound(), one.reported)


def reason_to_skip(build):
    """Why nothing can be measured here, or None."""
    if not os.access(os.path.join(build, "bench", "roof"), os.X_OK):
        return "bench/roof is missing"
    clattn = record.tool(build, "src", "clattn")
    used = record.run_json([clattn, "bench", "softmax", "--shape", "1,1", "--repeat", "1", "--json"])
    for device in record.run_json([clattn, "devices", "--json"])["devices"]:
        if (device["name"], device["platform"]) == (used["device"], used["platform"]):
            return None if device["class"] in CPUS else "%s is no CPU" % device["name"]
    return "%s is not among the devices" % used["device"]


def guard(build, figures=None, pause=lambda: time.sleep(PAUSE)):
    """The number of figures that failed."""
    figures = FIGURES if figures is None else figures
    reason = reason_to_skip(build)
    if reason:
        print("1..1\nok 1 # SKIP %s" % reason)
        return 0
    print("1..%d" % len(figures), flush=True)
    all_values = measure(build, figures, pause)
    for number, (one, values) in enumerate(zip(figures, all_values), 1):
        print(line_of(number, one, values), flush=True)
    return sum(not one.holds(values[-1]) for one, values in zip(figures, all_values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--pause", type=float, default=PAUSE, metavar="SECONDS")
    arguments = parser.parse_args()
    return 1 if guard(arguments.build, pause=lambda: time.sleep(arguments.pause)) else 0


if __name__ == "__main__":
    record.run_script(main)
