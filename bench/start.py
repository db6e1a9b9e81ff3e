#!/usr/bin/env python3
"""What a first start costs, with empty caches (the driver's, too) and with warm ones: the seconds to the first line of
output and to the end of the process, and the processor time of all its threads.

    start.py BUILD_DIR [--minilm DIR] [--whisper DIR AUDIO.wav] [--rounds N] [--beside BUILD_DIR] [--json FILE]

`sh examples/models.sh minilm|whisper FOLDER` prints a model's DIR.  With --beside another build's runs alternate with this
one's.  A machine that does something else spoils seconds; processor time hardly.  Medians of the rounds count."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

MODELS = os.path.join("bench", "start_models")


def scenarios(options):
    """The work, as arguments behind a build's folder."""
    work = {"first program": [os.path.join("examples", "first")], "three small models": [MODELS]}
    if options.minilm:
        work["embed a sentence"] = [os.path.join("src", "clattn"), "embed", options.minilm, "Where are the keys?"]
    if options.whisper:
        work["transcribe"] = [os.path.join("src", "clattn"), "transcribe", *options.whisper]
    return work


def run(build, arguments, folder):
    """Seconds to the first line, seconds to the end, processor seconds."""
    program = os.path.join(build, arguments[0])
    if not os.path.exists(program) and arguments[0] == MODELS:  # a build from before this file: by its library
        program = os.path.join(options_build, arguments[0])
    environment = dict(os.environ, POCL_CACHE_DIR=os.path.join(folder, "pocl"),
                       CLATTN_CACHE_DIR=os.path.join(folder, "clattn"),
                       LD_LIBRARY_PATH=os.path.abspath(os.path.join(build, "src")))
    for name in ("CLATTN_CACHE", "CLATTN_SAVE"):
        environment.pop(name, None)
    began = time.perf_counter()
    process = subprocess.Popen([program, *arguments[1:]], env=environment, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    first = time.perf_counter() - began
    process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit("start.py: %s failed" % " ".join([program, *arguments[1:]]))
    process.returncode = 0
    return first, time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def start(build, arguments):
    """One start with empty caches, and one with what it has left."""
    folder = tempfile.mkdtemp(prefix="clattn-start-")
    os.mkdir(os.path.join(folder, "pocl"))
    try:
        return {"empty": run(build, arguments, folder), "warm": run(build, arguments, folder)}
    finally:
        shutil.rmtree(folder)


def main():
    global options_build
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--minilm")
    parser.add_argument("--whisper", nargs=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside")
    parser.add_argument("--json")
    options = parser.parse_args()
    options_build = options.build
    builds = [options.build] + ([options.beside] if options.beside else [])
    results = []
    print("%-20s %-6s %-28s %8s %8s %10s" % ("work", "caches", "build", "first s", "end s", "processor s"))
    for name, arguments in scenarios(options).items():
        runs = {build: [] for build in builds}
        for _ in range(options.rounds):
            for build in builds:
                runs[build].append(start(build, arguments))
        for caches in ("empty", "warm"):
            for build in builds:
                first, end, processor = (statistics.median(run[caches][i] for run in runs[build]) for i in range(3))
                print("%-20s %-6s %-28s %8.2f %8.2f %10.2f" % (name, caches, build[-28:], first, end, processor),
                      flush=True)
                results.append({"work": name, "caches": caches, "build": build, "first": first, "end": end,
                                "processor": processor})
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
