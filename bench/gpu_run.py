"""One measurement of bench/gpu.py as it goes: its result, its log, the time that is left, and the programs it runs."""
import json
import os
import signal
import subprocess
import time

import compare

MARGIN = 5                # seconds that the limit leaves for writing


class Failed(Exception):
    """A stage cannot go on; the message says why."""


class OutOfTime(Failed):
    pass


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
