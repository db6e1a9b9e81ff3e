"""Builds clattn, runs its tests on every platform and counts.  tests/run.sh installs what is missing and starts this.

    sh tests/run.sh [--level LEVEL] [--only GROUP[,GROUP...]] [--continue] [--no-install] [--build FOLDER]
                    [PROGRAM...]
    sh tests/run.sh --deps

--level quick     the default: every operator and solver on PoCL (small shapes of the programs with the most kernels), some
                  programs on Oclgrind and rusticl, the host's side with sanitizers, the command, the installed library
--level thorough  all programs on PoCL and, at the smallest shapes, on Oclgrind, other ways to build (also for Windows), compilers of
                  absent GPUs, pretrained models, speech, fuzzing, plug-ins in ffmpeg and GEGL (100 MB, fetched once), the
                  Python package (90 MB, fetched once), the provider for ONNX Runtime (47 MB), Debian 13's PoCL, the guard of speed
--level full      (or --full) more: further kernels on PoCL, every head size, all programs on rusticl, random seeds, a minute
                  for each fuzzer, Intel's runtime for CPUs (800 MB, fetched once), PyTorch (600 MB), faster-whisper (200 MB),
                  heat maps in a browser (220 MB), a GTK window (60 MB), the test programs on Debian 13's drivers, sid's and
                  arm64's (1 GB each), and under wine (100 MB), coverage
--only            just these groups: host, pocl, oclgrind, rusticl, sanitize, install, variants, offline, models, speech,
                  fuzz, plugins, python, onnxruntime, examples, debian13, windows, guard, intel, pytorch, browser, packages,
                  seeds, sid, arm64, coverage
--continue        what has passed in FOLDER before, with the same command and environment, is not run again
--no-install      nothing is installed or fetched
--build           where to build and test (default: build/test in the source folder)
--deps            only installs what building needs, and PoCL
PROGRAM           just these test programs (patterns with * and ?) of the groups that have a table of programs

CLATTN_TEST_CACHE is where drivers keep their compiled kernels and where models are fetched to (default: FOLDER/drivers);
CLATTN_TEST_SEED another seed; CLATTN_FUZZ_SECONDS another time for each fuzzer.  The last line is `N passed, M failed,
K skipped`.  Logs stay in FOLDER/logs.  The exit status is 0 only if nothing failed.
"""
import argparse
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import groups
from groups import SKIPPED

ROOT = pathlib.Path(__file__).resolve().parents[1]
CORES = os.cpu_count() or 2


class Job:
    """A command whose output is kept in logs/GROUP/NAME and counted.

    `needs` are jobs that must have passed before.  `alone` jobs run while no other does: builds before all others, the rest
    after them.  A job that is not `isolated` gets the caller's environment, which knows proxies and package indexes.  One that
    `fetches` waits for the network and has no core of its own; `sleeps` mostly does, and has none either."""

    def __init__(self, group, name, command, env=None, needs=(), limit=1800, isolated=True, alone=False, fetches=False,
                 sleeps=False):
        self.group, self.name, self.command, self.env = group, name, command, env or {}
        self.needs, self.limit, self.isolated, self.alone = list(needs), limit, isolated, alone
        self.fetches, self.sleeps = fetches, sleeps
        self.counts = None  # passed, failed, skipped, kernel programs
        self.seconds = 0

    def identity(self):
        """A line that tells it from every other job, or None if its command is known only when it runs."""
        return None if callable(self.command) else f"{self.group} {' '.join(map(str, self.command))} {sorted(self.env.items())}"

    def passed(self):
        return self.counts is not None and self.counts[0] > 0 and self.counts[1] == 0


class Run:
    def __init__(self, options):
        self.options, self.work, self.jobs, self.started = options, options.build, [], time.time()
        self.cache = pathlib.Path(os.environ.get("CLATTN_TEST_CACHE", self.work / "drivers")).absolute()
        record = self.work / "passed"
        self.passed_before = set(record.read_text().splitlines()) if options.proceed and record.exists() else set()
        record.unlink(missing_ok=True)
        for name in ("logs", "home", "cwd"):
            shutil.rmtree(self.work / name, ignore_errors=True)
            (self.work / name).mkdir(parents=True)
        for name in ("pocl", "mesa"):
            (self.cache / name).mkdir(parents=True, exist_ok=True)

    def environment(self, env):
        """Nothing of the caller's that could change a result, and no folder of the caller's that could be written to."""
        return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
                "HOME": f"{self.work}/home", "XDG_CACHE_HOME": f"{self.work}/home/.cache",
                "POCL_CACHE_DIR": f"{self.cache}/pocl", "MESA_SHADER_CACHE_DIR": f"{self.cache}/mesa",
                "CMOCKA_MESSAGE_OUTPUT": "TAP", "PYTHONDONTWRITEBYTECODE": "1", **env}

    def add(self, *arguments, **keywords):
        self.jobs.append(Job(*arguments, **keywords))
        return self.jobs[-1]

    def build(self, name, *settings, compiler="gcc", cxx="g++", targets=()):
        """Configures and compiles work/NAME, or just these targets; its table of tests is known at once."""
        folder = self.work / name
        log = self.work / "logs" / f"setup-{name}"
        if not (folder / "build.ninja").exists():
            shutil.rmtree(folder, ignore_errors=True)
            with open(log, "w") as file:
                done = subprocess.run(["meson", "setup", folder, ROOT, "-Dwerror=true", *settings], stdout=file,
                                      stderr=subprocess.STDOUT, env=dict(os.environ, CC=compiler, CXX=cxx))
            if done.returncode:
                sys.exit(f"{log.read_text()}\n0 passed, 1 failed, 0 skipped")
        else:  # its table may be older than the sources'
            subprocess.run(["ninja", "-C", folder, "build.ninja"], stdout=subprocess.DEVNULL)
        first = not self.jobs
        targets = targets or ("all", "meson-test-prereq") # from Meson 1.7 on the second is no part of the first
        return self.add("build", name, ["ninja", "-C", folder, "-j", CORES if first else max(1, CORES // 2), *targets],
                        isolated=False, alone=first)

    def tests(self, build):
        """The rows of the table: name, suites, command, environment."""
        rows = json.loads(subprocess.run(["meson", "introspect", "--tests", self.work / build.name], check=True,
                                         capture_output=True, text=True).stdout)
        for row in rows:
            row["suite"] = {suite.split(":")[-1] for suite in row["suite"]}
        return sorted(rows, key=lambda row: "long" not in row["suite"])

    def programs(self, group, build, word, env, also=None, wrapper=lambda row: [], without=None, needs=()):
        """The test programs that have `word` (and `also`, and not `without`) among their suites."""
        level = self.options.level
        for row in self.tests(build):
            suites = row["suite"]
            later = {"quick": {"thorough", "full"}, "thorough": {"full"}, "full": set()}[level]
            if word not in suites or (also and also not in suites) or without in suites or suites & later:
                continue
            if self.options.programs and not any(fnmatch.fnmatch(row["name"], p) for p in self.options.programs):
                continue
            # Nearly all time is PoCL's compiler: programs with many kernels have the smallest shapes but in the full run.
            differs = {}
            if level != "full" and suites & {"tool", "long"}:
                differs = {"CLATTN_TEST_LEVEL": "quick" if "tool" in suites else "tiny"}
            self.add(group, row["name"], wrapper(row) + row["cmd"], {**env, **differs, **row["env"]}, [build, *needs],
                     limit=7200 if level == "full" else 1800, sleeps="sleeps" in suites)

    def fetch(self, group, name, folder, *command):
        """A script that fetches something into a folder; the last line of its log is what it has fetched, or why not."""
        if self.options.no_install and not folder.exists():
            command = ["-c", f"echo {folder} is not there, and --no-install was given; exit {SKIPPED}"]
        return self.add(group, name, ["sh", *map(str, command)], isolated=False, fetches=True)

    def log(self, job):
        return self.work / "logs" / job.group / job.name

    def last_line(self, job):
        return self.log(job).read_text().splitlines()[-2]

    def execute(self, job):
        """Runs one job and counts.  Never raises."""
        began = time.time()
        log = self.log(job)
        log.parent.mkdir(exist_ok=True)
        try:
            if not all(need.passed() for need in job.needs):
                job.counts = (0, 0, 0, 0)
                return
            command = job.command() if callable(job.command) else job.command
            env = self.environment(job.env) if job.isolated else {**os.environ, **job.env}
            for _ in range(3):
                with open(log, "w") as file:
                    process = subprocess.Popen(["timeout", "-k", "10", str(job.limit), *map(str, command)], stdout=file,
                                               stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env,
                                               cwd=self.work / "cwd")
                    _, status, used = os.wait4(process.pid, 0)
                    process.returncode = status = os.waitstatus_to_exitcode(status)
                job.seconds += used.ru_utime + used.ru_stime
                text = log.read_text(errors="replace")
                # The leak checker stops all threads at exit and now and then trips over one of the driver's that is
                # ending: that is its own failure and no finding.
                if "LeakSanitizer has encountered a fatal error" not in text:
                    break
            job.counts = count(text, status)
            with open(log, "a") as file:
                file.write(f"(exit status {status}, {time.time() - began:.1f} s, {job.seconds:.1f} s of a core)\n")
        except Exception as error:  # a mistake of this script
            log.write_text(f"{error!r}\n")
            job.counts = (0, 1, 0, 0)

    def run(self):
        """All jobs, as many at a time as there are cores, and beside them one that fetches or sleeps, in their order as far as
        their needs allow."""
        needed = {id(need) for job in self.jobs for need in job.needs}
        self.jobs = [job for job in self.jobs if id(job) in needed or
                     (job.group != "build" and job.identity() not in self.passed_before)]
        for job in self.jobs:
            if job.alone and job.group == "build":
                self.execute(job)
        waiting, running = [job for job in self.jobs if not job.alone], {}
        with concurrent.futures.ThreadPoolExecutor(CORES + 1) as pool:
            while waiting or running:
                for job in self.startable(waiting, running.values()):
                    waiting.remove(job)
                    running[pool.submit(self.execute, job)] = job
                done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    self.show(running.pop(future).group)
        for job in self.jobs:
            if job.alone and not job.counts:
                self.execute(job)
                self.show(job.group)
        passed = {job.identity() for job in self.jobs if job.passed() and job.identity()}
        (self.work / "passed").write_text("\n".join(sorted(passed | self.passed_before)))

    @staticmethod
    def startable(waiting, running):
        ready = [job for job in waiting if all(need.counts for need in job.needs)]
        beside = [job for job in ready if job.fetches] + [job for job in ready if job.sleeps]
        busy = sum(job.fetches or job.sleeps for job in running)
        return beside[:1 - busy] + [job for job in ready if job not in beside][:CORES - len(running) + busy]

    def show(self, group):
        """The group's line and what went wrong, if all its jobs are done."""
        jobs = [job for job in self.jobs if job.group == group]
        if not all(job.counts for job in jobs):
            return
        totals = [sum(column) for column in zip(*(job.counts for job in jobs))]
        print(f"{group:<10} {totals[0]:5} passed, {totals[1]} failed, {totals[2]} skipped, {totals[3]:4} kernel programs,"
              f" {sum(job.seconds for job in jobs):5.0f} s of a core", flush=True)
        for job in jobs:
            text = self.log(job).read_text(errors="replace").splitlines() if self.log(job).exists() else []
            if job.counts[1]:
                wrong = [line for line in text if re.search(r"^not ok|^# .*rror:|ERROR|FAIL", line) and "# SKIP" not in line]
                print(f"--- {group}/{job.name} failed; the end of {self.log(job)}:", *wrong[:20], *text[-25:], sep="\n    ")
            elif job.counts[2] and not job.counts[0] and len(text) > 1:
                print(f"           (skipped: {job.name}: {text[-2]})")


def count(text, status):
    """passed, failed, skipped, kernel programs of a log: of TAP (cmocka), of Python's unittest, or of a plain status."""
    passed = failed = skipped = 0
    tap = re.findall(r"^1\.\.(\d+)$", text, re.M)
    ran = re.search(r"^Ran (\d+) tests? in ", text, re.M)
    if tap:
        skipped = len(re.findall(r"^(?:not )?ok \d+.*# SKIP", text, re.M))
        passed = len(re.findall(r"^ok \d+(?!.*# SKIP)", text, re.M))
        failed = len(re.findall(r"^not ok \d+(?!.*# SKIP)", text, re.M))
        # What was planned and never reported was lost in a crash or a time-out.
        failed = max(failed, sum(map(int, tap)) - passed - skipped)
    elif ran:
        def number(what):
            return sum(map(int, re.findall(rf"^(?:OK|FAILED) \(.*{what}=(\d+)", text, re.M)))
        failed, skipped = number("failures") + number("errors"), number("skipped")
        passed = int(ran[1]) - failed - skipped
    else:
        passed, skipped = int(status == 0), int(status == SKIPPED)
    # Oclgrind's findings: in kernels, and wrong calls of OpenCL, except for builds that are made to fail.
    found = re.search(r"^\tKernel: ", text, re.M) or any(
        "CL_BUILD_PROGRAM_FAILURE" not in error for error in re.findall(r"OpenCL runtime error detected(?s:.*?)Error: (.*)", text))
    if found or (status != 0 and not failed and not (status == SKIPPED and skipped)):
        failed += 1
    programs = sum(int(a) + int(b) for a, b in re.findall(r"programs built (\d+), loaded (\d+)", text))
    return passed, failed, skipped, programs


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n", 1)[1])
    parser.add_argument("--level", choices=["quick", "thorough", "full"], default="quick")
    parser.add_argument("--full", action="store_const", const="full", dest="level")
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--continue", action="store_true", dest="proceed")
    parser.add_argument("--no-install", action="store_true")
    parser.add_argument("--build", type=lambda text: pathlib.Path(text).absolute(), default=ROOT / "build/test")
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    wanted = options.only or groups.OF_LEVEL[options.level]
    unknown = set(wanted) - set(groups.OF_LEVEL["full"])
    if unknown:
        parser.error(f"there is no group {', '.join(sorted(unknown))}")
    run = Run(options)
    groups.make_jobs(run, wanted, options.level)
    if all(job.group == "build" for job in run.jobs):
        sys.exit(f"level {options.level} has no such program in these groups\n0 passed, 1 failed, 0 skipped")
    run.run()
    passed, failed, skipped, _ = (sum(column) for column in zip(*(job.counts for job in run.jobs if job.group != "build")))
    failed += sum(job.counts[1] for job in run.jobs if job.group == "build")
    # The default platform may not be missing: a run that tested nothing on it has failed.
    if "pocl" in wanted and not options.programs and not sum(job.counts[3] for job in run.jobs if job.group == "pocl"):
        print("nothing was tested on PoCL")
        failed += 1
    print(f"\n{time.time() - run.started:.0f} s\n{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(0 if passed and not failed else 1)


if __name__ == "__main__":
    main()
