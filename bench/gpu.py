#!/usr/bin/env python3
"""Probes an OpenCL device, builds clattn, tests it there and measures it; bench/gpu.sh's second half.

Writes gpu.json, anew after each step, so that a run that is killed leaves what it had, and gpu.log with what every program
printed.  A stage that fails is recorded and the next one runs.  The exit status is 0 if every stage that was asked for
is done and no test has failed."""
import argparse
import concurrent.futures
import datetime
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time

import gpu_cases
from gpu_asked import Peer, fastest
from gpu_driver import find_driver, find_library
from gpu_run import MARGIN, Failed, FailedWith, OutOfTime, Run, last_json, last_line

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
FORMAT = 1                # of gpu.json
SHARES = {"probe": 1, "build": 4, "test": 5, "bench": 5}  # of the time; what one leaves, the later ones have


# ---- the stages; each fills its part of the result as it goes ----

def merge_lines(output):
    """One object of all lines that are JSON objects; the last may be half a line."""
    merged = {}
    for line in output.splitlines():
        try:
            merged.update(json.loads(line))
        except ValueError:
            continue
    return merged


def probe(run, part):
    try:
        output = run.call([sys.executable, os.path.join(HERE, "gpu_probe.py"), run.options.device])
    except FailedWith as failure:
        part.update(merge_lines(failure.output))
        raise
    part.update(merge_lines(output))
    smi = shutil.which("nvidia-smi") or find_library("nvidia-smi", [], ["/usr/local/nvidia/bin", "/usr/bin"])
    if smi:
        asked = "name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,power.limit"
        try:
            part["nvidia_smi"] = last_line(run.call([smi, "--query-gpu=" + asked, "--format=csv,noheader"], 20))
        except Failed as failure:
            part["nvidia_smi"] = {"error": str(failure)}


def build(run, part):
    folder = part["folder"] = run.options.build or os.path.join(run.options.work, "build")
    if run.options.build:
        part["given"] = True
    else:
        for tool in ("meson", "ninja"):
            if not shutil.which(tool):
                raise Failed("%s was not found: gpu.sh --packages brings it" % tool)
        if not os.path.exists(os.path.join(folder, "build.ninja")):
            shutil.rmtree(folder, ignore_errors=True)
            part["configured"] = last_line(run.call(["meson", "setup", folder, ROOT]))
        part["compiled"] = last_line(run.call(["ninja", "-C", folder, "-j", str(run.options.jobs)]))
    part["devices"] = last_json(run.call([clattn(run), "devices", "--json"], 120))


def clattn(run):
    path = os.path.join(run.options.build or os.path.join(run.options.work, "build"), "src", "clattn")
    if not os.access(path, os.X_OK):
        raise Failed("%s is not there" % path)
    return path


def programs(text, folder):
    """(name, path) of the test programs that run on PoCL, in what a build's tests/list says; the build may have moved."""
    found = []
    for line in text.splitlines():
        letters, name, *command = line.split()
        if set(letters) & set("pq") and len(command) == 1:
            moved = os.path.join(folder, os.path.basename(command[0]))
            found.append((name, moved if os.path.exists(moved) else command[0]))
    return found


def failed_tests(text):
    """The names of what failed in a log of TAP."""
    return [match[1] for match in re.finditer(r"^not ok \d+ (?:- )?(.*)$", text, re.MULTILINE) if "# SKIP" not in match[1]]


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def run_test(run, work, name, path):
    """One program through run.sh, which counts; None where no time was left."""
    try:
        run.call(["sh", os.path.join(ROOT, "tests", "run.sh"), "--one", "gpu", name, str(int(run.left()) + 1), path],
                 CLATTN_TEST_WORK=work, CLATTN_TEST_LEVEL=run.options.level, CMOCKA_MESSAGE_OUTPUT="TAP")
    except OutOfTime:
        return None
    counts = read(os.path.join(work, "results", "gpu", name)).split()
    if len(counts) != 4:
        return {"passed": 0, "failed": 1, "skipped": 0, "kernel_programs": 0, "failures": ["run.sh counted nothing"]}
    found = dict(zip(("passed", "failed", "skipped", "kernel_programs"), map(int, counts)))
    text = read(os.path.join(work, "logs", "gpu", name))
    if found["failed"]:
        found["failures"] = failed_tests(text)[:40]
        run.log("--- %s\n%s" % (name, text[-20000:]))
    return found


def test(run, part):
    folder = os.path.dirname(os.path.dirname(clattn(run)))
    listed = programs(read(os.path.join(folder, "tests", "list")), os.path.join(folder, "tests"))
    if not listed:
        raise Failed("there are no test programs in %s: they need cmocka" % folder)
    work = os.path.join(run.options.work, "tests")
    for kind in ("logs", "results"):
        shutil.rmtree(os.path.join(work, kind), ignore_errors=True)
        os.makedirs(os.path.join(work, kind, "gpu"))
    part.update(level=run.options.level, passed=0, failed=0, skipped=0, programs={}, unfinished=[name for name, _ in listed])
    with concurrent.futures.ThreadPoolExecutor(run.options.jobs) as pool:
        waiting = {pool.submit(run_test, run, work, *each): each[0] for each in listed}
        for done in concurrent.futures.as_completed(waiting):
            counts, name = done.result(), waiting[done]
            if counts is None:
                continue
            part["programs"][name] = counts
            part["unfinished"].remove(name)
            for key in ("passed", "failed", "skipped"):
                part[key] += counts[key]
            run.write()
    if part["unfinished"]:
        raise OutOfTime("%d of %d programs were not done in time" % (len(part["unfinished"]), len(listed)))
    if part["failed"]:
        raise Failed("%d tests failed" % part["failed"])


def judge(found, wanted, rates):
    """Shares of the rates that the probe has measured, and what is wanted of the row with whether it is reached; None where
    that cannot be told."""
    report = found.get("report", {})
    reached = {"peer_over_ours": found.get("peer_over_ours"),
               "tflops": report["gflops"] / 1e3 if "gflops" in report else None}
    for key, measured, rate in (("fma", "gflops", "fma_gflops"), ("copy", "gbytes_per_s", "copy_gbytes_per_s")):
        if measured in report and isinstance(rates.get(rate), (int, float)) and rates[rate] > 0:
            reached[key] = found[key + "_share"] = round(report[measured] / rates[rate], 4)
    if wanted:
        found["wanted"] = {key: {"at_least": least, "reached": None if reached.get(key) is None else reached[key] >= least}
                           for key, least in wanted.items()}


def bench_row(run, row, peer):
    found = {"name": row.name, "arguments": row.arguments()}
    try:
        output = run.call([clattn(run), *row.arguments(), "--device", run.options.device], 90)
        found["report"] = last_json(output)
    except (Failed, ValueError) as failure:
        run.left()  # where the stage ends here, the row is left out
        found["error"] = str(failure)
    if peer and peer.alive:
        found["peer"] = peer.ask(row.name, min(90, run.left()))
        best = fastest(found["peer"].get("ways", {}))
        if best:
            found["peer"]["fastest"] = best[1]
            if "report" in found:
                found["peer_over_ours"] = round(best[0] / found["report"]["seconds_median"], 4)
    judge(found, row.wanted, run.result.get("probe", {}))
    return found


def bench(run, part):
    rows = gpu_cases.rows(run.options.shape, run.options.only)
    part.update(rows=[], left_out=[row.name for row in rows])
    peer = None
    if run.options.peer != "none":
        peer = Peer(run)
        part["peer"] = peer.about
    try:
        for row in rows:
            try:
                part["rows"].append(bench_row(run, row, peer))
            except OutOfTime:
                break
            part["left_out"].remove(row.name)
            run.write()
    finally:
        if peer:
            peer.close()
    judged = [each["reached"] for row in part["rows"] for each in row.get("wanted", {}).values()]
    part["targets"] = {"reached": judged.count(True), "missed": judged.count(False), "unknown": judged.count(None)}
    if part["left_out"]:
        raise OutOfTime("%d of %d rows were not measured in time" % (len(part["left_out"]), len(rows)))
    errors = [row["name"] for row in part["rows"] if "error" in row]
    if errors:
        raise Failed("without a result: " + "; ".join(errors))


STAGES = {"probe": probe, "build": build, "test": test, "bench": bench}


# ---- all of it ----

def allot(left, name, later):
    """The seconds of a stage, of those that are left, where so many stages come later."""
    return left * SHARES[name] / sum(SHARES[each] for each in [name, *later])


def run_stage(run, name, later):
    part = run.result[name] = {}
    about = run.result["stages"][name] = {"status": "begun"}
    run.write()
    began = time.monotonic()
    run.stage_end = began + allot(run.end - began, name, later)
    try:
        run.left()
        STAGES[name](run, part)
        about["status"] = "done"
    except OutOfTime as failure:
        about.update(status="out of time", error=str(failure))
    except Exception as failure:  # whatever it is, the next stage may work
        about.update(status="failed", error=str(failure) if isinstance(failure, Failed) else repr(failure))
    about["seconds"] = round(time.monotonic() - began, 2)
    run.write()
    print("%-6s %-12s %6.1f s  %s" % (name, about["status"], about["seconds"], about.get("error", "")), flush=True)


def commit():
    try:
        return subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True).stdout.strip() or None
    except OSError:
        return None


def measure(options):
    for folder in (options.out, options.work, os.path.join(options.work, "home")):
        os.makedirs(folder, exist_ok=True)
    run = Run(options)
    home = os.path.join(options.work, "home")
    driver, variables = find_driver(options)
    # No cache of the user's, read or written; nothing of the user's that changes a result.
    run.environment.update(HOME=home, XDG_CACHE_HOME=os.path.join(home, ".cache"), LANG="C.UTF-8",
                           CLATTN_DEVICE=options.device, **variables)
    for name in ("CLATTN_CACHE", "CLATTN_CACHE_DIR", "CLATTN_KERNEL_DIR", "CLATTN_LOG"):
        run.environment.pop(name, None)
    run.result.update({
        "format": FORMAT, "commit": commit(), "device": options.device, "limit_seconds": options.limit,
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {"system": platform.platform(), "processors": os.cpu_count(), "python": platform.python_version()},
        "driver": driver, "stages": {name: {"status": "not asked for"} for name in STAGES}})
    for index, name in enumerate(options.stage):
        run_stage(run, name, options.stage[index + 1:])
    run.log_file.close()
    print(os.path.join(options.out, "gpu.json"))
    return all(run.result["stages"][name]["status"] == "done" for name in options.stage)


def stage_list(text):
    names = text.split(",")
    for name in names:
        if name not in STAGES:
            raise argparse.ArgumentTypeError("%s is no stage; there are %s" % (name, ", ".join(STAGES)))
    return [name for name in STAGES if name in names]


def parse(arguments):
    parser = argparse.ArgumentParser(prog="gpu.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="where gpu.json and gpu.log go")
    parser.add_argument("--work", required=True, help="where builds and caches lie")
    parser.add_argument("--device", default="gpu", metavar="SPEC", help="gpu, cpu, pocl or platform:device (default: gpu)")
    parser.add_argument("--icd", metavar="FILE", help="use this ICD file's driver instead of looking for NVIDIA's")
    parser.add_argument("--stage", type=stage_list, default=list(STAGES), metavar="NAME[,NAME...]",
                        help="only these of " + ", ".join(STAGES))
    parser.add_argument("--limit", type=float, default=540, metavar="SECONDS", help="for all together (default: 540)")
    parser.add_argument("--build", metavar="DIR", help="clattn is built there already")
    parser.add_argument("--level", default="small", choices=("tiny", "small", "full"), help="of the tests (default: small)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N",
                        help="compilers and test programs at a time (default: one a processor)")
    parser.add_argument("--shape", metavar="B,HQ,HKV,SQ,SKV,D,DV", help="measure one attention instead of the table")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the table's rows with this in their names")
    parser.add_argument("--peer", default="cuda", choices=("cuda", "cpu", "none"),
                        help="what PyTorch runs on (default: cuda)")
    options = parser.parse_args(arguments)
    if options.limit <= MARGIN:
        parser.error("--limit %g: more than %d seconds are needed" % (options.limit, MARGIN))
    if options.jobs < 1:
        parser.error("--jobs %d: at least one is needed" % options.jobs)
    if options.icd and not os.path.exists(options.icd):
        parser.error("--icd %s: no such file" % options.icd)
    try:
        if not gpu_cases.rows(options.shape, options.only):
            parser.error("--only: no row has '%s' in its name" % options.only)
    except ValueError as error:
        parser.error(str(error))
    for name in ("out", "work", "build"):
        if getattr(options, name):
            setattr(options, name, os.path.abspath(getattr(options, name)))
    return options


def main():
    try:
        sys.exit(0 if measure(parse(sys.argv[1:])) else 1)
    except OSError as error:
        sys.exit("gpu.sh: %s" % error)


if __name__ == "__main__":
    main()
