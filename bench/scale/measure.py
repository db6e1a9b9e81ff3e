"""Measures what bench/scale/page.py holds its model against, and prints it as that has it:

    CLATTN=build/src/clattn LD_LIBRARY_PATH=build/plugins/mpi python3 bench/scale/measure.py [ROUNDS]

The ranks are processes of this machine, which nothing else should keep busy.  Each round measures every cell once, so that a machine whose
speed changes is as fast for all of them; what is printed is the median of the rounds."""

import json
import os
import shlex
import statistics
import subprocess
import sys

MPIRUN = shlex.split(os.environ.get("MPIRUN", "mpirun --oversubscribe --bind-to none"))
CELLS = [
    *((4096, 2, mode, (link, 0)) for mode in ("ring", "zigzag", "gather", "heads") for link in (0.2, 0.1, 0.05)),
    *((4096, 4, mode, (link, 0)) for mode in ("ring", "zigzag", "gather", "heads") for link in (0.2, 0.1, 0.05)),
    *((4096, ranks, "ring", (0.1, 20)) for ranks in (2, 4)),
    *((8192, 4, mode, (0.05, 0)) for mode in ("ring", "zigzag")),
]


def bench(tokens, *arguments, run=()):
    """Seconds of `clattn bench ring`."""
    command = [*run, os.environ["CLATTN"], "bench", "ring", "--shape", f"1,8,8,{tokens},{tokens},64,64", "--json", *arguments]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    whole, times = {}, {}
    for _ in range(rounds):
        for tokens in sorted({cell[0] for cell in CELLS}):
            # Threads, which do not look for messages while one attention runs.
            whole.setdefault(tokens, []).append(bench(tokens, "--repeat", 5)["whole_seconds_median"])
        for tokens, ranks, mode, (link, latency) in CELLS:
            way = ["--link", link, "--latency", latency * 1000] if latency else ["--link", link]
            report = bench(tokens, "--mode", mode, "--repeat", 5, *way, run=[*MPIRUN, "-n", ranks])
            times.setdefault((tokens, ranks, mode), {}).setdefault((link, latency), []).append(report["seconds_median"])

    def medians(by_key):
        return {key: round(1e3 * statistics.median(seconds)) for key, seconds in by_key.items()}

    print("WHOLE =", medians(whole))
    print("MEASURED = {")
    for (tokens, ranks, mode), cells in times.items():
        print(f'    ({tokens}, {ranks}, "{mode}"): {medians(cells)},')
    print("}")


if __name__ == "__main__":
    main()
