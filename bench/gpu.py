#!/usr/bin/env python3
"""Probes an OpenCL device, builds clattn, tests it there and measures it; bench/gpu.sh's second half.

Writes gpu.json, anew after each step, so that a run that is killed leaves what it had, and gpu.log with what every program
printed.  A stage that fails is recorded and the next one runs.  The exit status is 0 if every stage that was asked for
is done and no test has failed."""
import argparse
import concurrent.futures
import datetime
import glob
import json
import os
import platform
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time

import compare
import gpu_cases

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
FORMAT = 1                # of gpu.json
MARGIN = 5                # seconds that the limit leaves for writing
SHARES = {"probe": 1, "build": 4, "test": 5, "bench": 5}  # of the time; what one leaves, the later ones have
DRIVER = "libnvidia-opencl.so.1"
FOLDERS = [
    "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/*/nvidia/current", "/usr/lib/*/nvidia", "/usr/lib64", "/usr/lib64/nvidia", "/usr/lib/nvidia*", "/usr/lib",
    "/usr/local/cuda/compat", "/usr/lib/wsl/lib", "/usr/lib/wsl/drivers/*", "/run/nvidia/driver/usr/lib/*-linux-gnu",
    "/run/nvidia/driver/usr/lib64", "/opt/nvidia/lib64", "/opt/nvidia/lib",
]


class Failed(Exception):
    """A stage cannot go on; the message says why."""


class OutOfTime(Failed):
    pass


# ---- the driver ----

def parse_ldconfig(text, name):
    """The paths of the 64-bit libraries of that name in what `ldconfig -p` prints."""
    found = re.findall(r"^\s*%s \(([^)]*)\) => (\S+)$" % re.escape(name), text, re.MULTILINE)
    return [path for kind, path in found if "64" in kind]


def find_library(name, cached, folders, root=""):
    """The first that is there: of the cache's paths, then by its name or a longer version of it in the folders."""
    for path in cached:
        if os.path.exists(path):
            return path
    for pattern in (name, os.path.splitext(name)[0] + ".*"):
        for folder in folders:
            for path in sorted(glob.glob(os.path.join(root + folder, pattern))):
                if os.path.exists(path):
                    return path
    return None


def ldconfig():
    tool = shutil.which("ldconfig", path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")
    if not tool:
        return ""
    return subprocess.run([tool, "-p"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def write_icd(library, folder):
    """The loader's file for that driver, alone in its folder."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    compare.write_whole(os.path.join(folder, "nvidia.icd"), library + "\n")
    return folder


def find_driver(options):
    """What of the driver there is to record, with the variables that make the loader use it."""
    if options.icd:
        return {"icd": options.icd}, {"OCL_ICD_VENDORS": os.path.abspath(options.icd)}
    folders = [each for each in os.environ.get("LD_LIBRARY_PATH", "").split(":") if each] + FOLDERS
    cache = ldconfig()
    library = find_library(DRIVER, parse_ldconfig(cache, DRIVER), folders)
    if library:
        folder = os.path.dirname(library)
        # What it loads itself lies beside it.
        paths = [each for each in os.environ.get("LD_LIBRARY_PATH", "").split(":") if each]
        return ({"library": library, "file": os.path.realpath(library)},
                {"OCL_ICD_VENDORS": write_icd(library, os.path.join(options.work, "vendors")),
                 "LD_LIBRARY_PATH": ":".join(paths + [each for each in [folder] if each not in paths])})
    cuda = find_library("libcuda.so.1", parse_ldconfig(cache, "libcuda.so.1"), folders)
    return {"error": "no %s in the loader's cache or the usual folders: the loader's own ICD files are left to choose from"
                     % DRIVER, "libcuda": cuda}, {}


# ---- running programs ----

class Run:
    """What is known so far, the log, and the time that is left."""

    def __init__(self, options):
        self.options = options
        self.end = time.monotonic() + options.limit - MARGIN
        self.stage_end = self.end
        self.log_file = open(os.path.join(options.out, "gpu.log"), "w", encoding="utf-8", errors="replace")
        self.environment = dict(os.environ)
        self.result = {}

    def write(self):
        compare.write_whole(os.path.join(self.options.out, "gpu.json"), json.dumps(self.result, indent=1) + "\n")

    def log(self, text):
        self.log_file.write(text if text.endswith("\n") else text + "\n")
        self.log_file.flush()

    def left(self):
        """Seconds of this stage; out of time where there are none."""
        seconds = self.stage_end - time.monotonic()
        if seconds <= 0:
            raise OutOfTime("the stage's time is used up")
        return seconds

    def call(self, command, limit=None, fine=(0,), **variables):
        """What it prints, its errors only into the log; the whole group of processes is ended with the time."""
        seconds = min(self.left(), limit or float("inf"))
        self.log("$ " + " ".join(command))
        process = subprocess.Popen(command, cwd=self.options.work, env={**self.environment, **variables}, text=True,
                                   errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True)
        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            output, errors = end(process)
            self.log(output + errors + "(ended after %.0f s)" % seconds)
            raise OutOfTimeWith(output, "%s: not done in %.0f s" % (os.path.basename(command[0]), seconds)) from None
        self.log(output + errors)
        if process.returncode not in fine:
            raise FailedWith(output, "%s: status %d: %s" % (os.path.basename(command[0]), process.returncode,
                                                            last_line(errors) or last_line(output)))
        return output


def end(process):
    """Asks the group to end, so that ninja ends its compilers, then insists; what was printed."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        os.killpg(process.pid, kind)
        try:
            return process.communicate(timeout=3)
        except subprocess.TimeoutExpired:
            continue
    return "", "(its output is still open)\n"


class FailedWith(Failed):
    """With what was printed before."""

    def __init__(self, output, message):
        super().__init__(message)
        self.output = output


class OutOfTimeWith(FailedWith, OutOfTime):
    pass


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:400] if lines else ""


def last_json(text):
    """The object that a command of ours prints as its last line."""
    return json.loads((text.strip().splitlines() or [""])[-1])


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


class Peer:
    """gpu_peer.py as a process of its own, asked row by row."""

    def __init__(self, run, wait=120):
        command = [sys.executable, os.path.join(HERE, "gpu_peer.py"), run.options.peer]
        # Its home is the user's, where Python's packages may lie.
        variables = {**run.environment, "HOME": os.environ.get("HOME", "/")}
        self.process = subprocess.Popen(command + ([run.options.shape] if run.options.shape else []), env=variables,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=run.log_file,
                                        start_new_session=True)
        self.pending = b""
        self.alive = True
        self.about = self.answer(min(wait, run.left()))
        self.alive = self.alive and "error" not in self.about

    def answer(self, seconds):
        """The next line's object; where none comes in time, or the process has ended, it is given up."""
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.pending:
                more = b""
                if selector.select(max(0.0, end - time.monotonic())):
                    more = os.read(self.process.stdout.fileno(), 65536)
                if not more:
                    self.close()
                    return {"error": "PyTorch's process gave no answer in %.0f s, or has ended" % seconds}
                self.pending += more
        line, self.pending = self.pending.split(b"\n", 1)
        try:
            return json.loads(line)
        except ValueError:
            self.close()
            return {"error": "PyTorch's process answered %r" % line[:200]}

    def ask(self, name, seconds):
        try:
            self.process.stdin.write(name.encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            self.close()
            return {"error": "PyTorch's process has ended"}
        return self.answer(seconds)

    def close(self):
        self.alive = False
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:  # what was written to a process that has ended
                pass


def fastest(ways):
    """The way that took the least time from call to completion, with its seconds; or None."""
    times = [(each["seconds_host"], way) for way, each in ways.items() if "seconds_host" in each]
    return min(times) if times else None


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
