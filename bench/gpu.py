#!/usr/bin/env python3
"""Builds clattn, tests it on one GPU and measures it beside the device's own rates and PyTorch; bench/gpu.sh's second half.

Writes gpu.json anew after each step, so that a run that is killed leaves what it had, and gpu.log with what every program
printed.  A stage that fails, or runs out of its time, is recorded and the next one runs:

    build   clattn with meson and ninja, unless --build names a build; `clattn devices`
    probe   the device through the OpenCL loader alone: its name, driver and PTX version, and its rates of copying and of
            plain multiply-adds, which the targets refer to
    test    the test programs that tests/run.sh runs on PoCL
    bench   the rows of ROWS by `clattn bench`, each followed by PyTorch on the same work, if it can be imported

The exit status is 0 if every stage that was asked for is done and no test has failed."""
import argparse
import concurrent.futures
import contextlib
import ctypes
import ctypes.util
import datetime
import glob
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import warnings
from ctypes import byref, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from typing import NamedTuple

import compare
import record

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from run import count  # noqa: E402

SHARES = {"build": 4, "probe": 1, "test": 5, "bench": 5}  # of the time; what one stage leaves, the later ones have


class Failed(Exception):
    """A stage cannot go on; the message says why."""


# ---- what is measured, most telling first ----

class Row(NamedTuple):
    name: str
    case: compare.Case
    dtype: str         # f32, f16, bf16
    wanted: dict = {}  # at least so much of: shares of the probe's rates ("fma", "copy"), "tflops", "peer_over_ours"


def heads(batch, heads, length, d, causal=False):
    name = "%d x %d heads x %s, d %d%s" % (batch, heads, format(length, ","), d, ", causal" if causal else "")
    return compare.attention(name, (batch, heads, heads, length, length, d, d), causal)


def rows_of(*cases, dtypes=("f32",), **wanted):
    """A row for each type, with what is wanted of it."""
    return [Row("%s, %s" % (case.name, dtype), case, dtype, wanted.get(dtype, {})) for case in cases for dtype in dtypes]


STORED = ("f16", "bf16", "f32")
SIMT = {"fma": 0.60}            # attention in float32: of the rate of multiply-adds outside of matrix engines
MATRIX = {"tflops": 300}        # attention of 16 bits, head size 128, on a GPU of an H200's class
DECODE = {"copy": 0.80}         # of the memory's bandwidth
CUBLAS = {"peer_over_ours": 0.9}
ROWS = [
    *rows_of(heads(4, 16, 4096, 128), dtypes=STORED, f32=SIMT, f16=MATRIX, bf16=MATRIX),
    *rows_of(compare.matmul(4096, 4096, 4096), compare.matmul(8192, 8192, 8192), dtypes=STORED, f32=CUBLAS),
    *rows_of(heads(4, 16, 4096, 64), heads(4, 16, 4096, 128, True), dtypes=("f16", "f32"), f32=SIMT),
    *rows_of(compare.decode(32, 8, 32768), dtypes=("f16", "f32"), f16=DECODE, f32=DECODE),
    *rows_of(compare.softmax(16384, 4096), compare.layernorm(16384, 1024)),
    *rows_of(compare.square(2048, 64, None), compare.square(2048, 128, None), f32=SIMT),
    *rows_of(compare.matmul(2048, 512, 512), dtypes=STORED, f32=CUBLAS),
    *rows_of(compare.matmul(16, 4096, 4096), compare.matmul(1, 4096, 4096), dtypes=("f16", "f32")),
    *rows_of(compare.decode(32, 32, 4096), dtypes=("f16",), f16=DECODE),
    *rows_of(heads(1, 8, 2048, 256), heads(16, 16, 512, 64), dtypes=("f16", "f32")),
    *rows_of(compare.mha(8, 128, 512, 8), compare.mha(1, 2048, 512, 8)),
]


# ---- one run: its result, its log, its time, and the programs that it starts ----

class Run:
    def __init__(self, options):
        self.options = options
        self.end = self.stage_end = time.monotonic() + options.limit - 5  # some is left for writing
        self.log_file = open(os.path.join(options.out, "gpu.log"), "w", encoding="utf-8", errors="replace")
        self.build = options.build or os.path.join(options.work, "build")
        self.clattn = os.path.join(self.build, "src", "clattn")
        self.result = {}
        home = os.path.join(options.work, "home")
        os.makedirs(home, exist_ok=True)
        # No cache of the user's, read or written; nothing of the user's that changes a result.
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("CLATTN_")}
        self.environment.update(HOME=home, XDG_CACHE_HOME=os.path.join(home, ".cache"), LANG="C.UTF-8",
                                CLATTN_DEVICE=options.device)

    def write(self):
        record.write_whole(os.path.join(self.options.out, "gpu.json"), json.dumps(self.result, indent=1) + "\n")

    def log(self, text):
        self.log_file.write(text)
        self.log_file.flush()

    def left(self):
        """Seconds of this stage; fails if there are none."""
        seconds = self.stage_end - time.monotonic()
        if seconds <= 0:
            raise Failed("out of time")
        return seconds

    def call(self, command, limit=float("inf"), check=True, **variables):
        """Its status and its output, which goes to the log, too; the whole group of processes ends with the time."""
        process = subprocess.Popen(command, cwd=self.options.work, env={**self.environment, **variables}, text=True,
                                   errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            output, _ = process.communicate(timeout=min(self.left(), limit))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.log("$ %s\n%s\n(not done in time)\n" % (" ".join(command), process.communicate()[0]))
            raise Failed("%s: not done in time" % os.path.basename(command[0])) from None
        self.log("$ %s\n%s\n" % (" ".join(command), output))
        if check and process.returncode:
            raise Failed("%s: status %d: %s" % (os.path.basename(command[0]), process.returncode, last_line(output)))
        return process.returncode, output


def last_line(text):
    return ([line.strip() for line in text.splitlines() if line.strip()] or [""])[-1]


def use_driver(run):
    """Lets the loader use --icd, or else NVIDIA's driver, which may lie on a machine without an ICD file."""
    library = run.options.icd and os.path.abspath(run.options.icd)
    if not library:
        name, folders = "libnvidia-opencl.so.1", ["/usr/local/nvidia/lib*", "/usr/lib/*-linux-gnu", "/usr/lib/*/nvidia/current",
                                                  "/usr/lib64", "/usr/lib64/nvidia", "/usr/lib/nvidia*", "/usr/lib/wsl/*"]
        paths = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
        found = [path for folder in paths + folders for path in sorted(glob.glob(os.path.join(folder, name)))]
        if not found:
            return {"note": "no %s: the loader chooses from its own ICD files" % name}
        library = os.path.join(run.options.work, "vendors", "nvidia.icd")
        os.makedirs(os.path.dirname(library), exist_ok=True)
        record.write_whole(library, found[0] + "\n")
        run.environment["LD_LIBRARY_PATH"] = ":".join([*paths, os.path.dirname(found[0])])
    run.environment["OCL_ICD_VENDORS"] = os.environ["OCL_ICD_VENDORS"] = library
    return {"icd": library}


# ---- build ----

def build(run, part):
    if not run.options.build:
        for tool in ("meson", "ninja"):
            if not shutil.which(tool):
                raise Failed("%s was not found: gpu.sh --packages brings it" % tool)
        if not os.path.exists(os.path.join(run.build, "build.ninja")):
            run.call(["meson", "setup", run.build, ROOT])
        part["compiled"] = last_line(run.call(["ninja", "-C", run.build, "-j", str(run.options.jobs)])[1])
    part["devices"] = json.loads(last_line(run.call([run.clattn, "devices", "--json"], 120)[1]))


# ---- probe: the few calls of OpenCL that are needed, without clattn ----

CHAINS = 16  # of multiply-adds, none of which waits for another; the results stay near 1
FMA_KERNEL = """
__kernel void probe(__global float *x, uint turns)
{
    const float a = 0.999f + x[0], b = 0.001f;
    float %s;
    for (uint i = 0; i < turns; i++) {
        %s
    }
    x[get_global_id(0)] = %s;
}
""" % (", ".join("c%d = %d" % (i, i) for i in range(CHAINS)),
       " ".join("c%d = fma(c%d, a, b);" % (i, i) for i in range(CHAINS)),
       " + ".join("c%d" % i for i in range(CHAINS)))


class OpenCL:
    """A context and a queue on the device that a --device means; every failure is an exception."""

    def __init__(self, spec):
        self.loader = ctypes.CDLL(ctypes.util.find_library("OpenCL") or "libOpenCL.so.1")
        self.platform, self.device = next(
            (each for each in self.devices() if self.is_meant(spec, *each)), (None, None))
        if not self.device:
            raise Failed("no device matches %s" % spec)
        self.context = self.make("clCreateContext", None, c_uint32(1), byref(c_void_p(self.device.value)), None, None)
        self.queue = self.make("clCreateCommandQueue", self.context, self.device, c_uint64(0))

    def call(self, name, *arguments):
        code = getattr(self.loader, name)(*arguments)
        if code != 0:
            raise Failed("%s: %d" % (name, code))

    def make(self, name, *arguments):
        """A call that returns an object and takes the place for the error last."""
        function, code = getattr(self.loader, name), c_int32(0)
        function.restype = c_void_p
        made = function(*arguments, byref(code))
        if code.value != 0:
            raise Failed("%s: %d" % (name, code.value))
        return c_void_p(made)

    def listed(self, name, *before):
        number = c_uint32(0)
        if getattr(self.loader, name)(*before, 0, None, byref(number)) != 0:
            return []
        found = (c_void_p * number.value)()
        self.call(name, *before, number, found, None)
        return [c_void_p(each) for each in found]

    def devices(self):
        return [(platform, device) for platform in self.listed("clGetPlatformIDs")
                for device in self.listed("clGetDeviceIDs", platform, c_uint64(0xFFFFFFFF))]

    def raw(self, name, owner, number):
        size = c_size_t(0)
        self.call(name, owner, c_uint32(number), c_size_t(0), None, byref(size))
        data = ctypes.create_string_buffer(max(size.value, 8))
        self.call(name, owner, c_uint32(number), size, data, None)
        return data.raw[:size.value]

    def text(self, number):
        return self.raw("clGetDeviceInfo", self.device, number).split(b"\0")[0].decode().strip()

    def number(self, number):
        return int.from_bytes(self.raw("clGetDeviceInfo", self.device, number), "little")

    def is_meant(self, spec, platform, device):
        kind = int.from_bytes(self.raw("clGetDeviceInfo", device, 0x1000), "little")
        names = [self.raw(call, owner, number).decode("latin-1").lower()
                 for call, owner, number in (("clGetPlatformInfo", platform, 0x0902), ("clGetDeviceInfo", device, 0x102B))]
        if spec in ("gpu", "cpu"):
            return bool(kind & {"cpu": 2, "gpu": 4}[spec])
        if spec == "pocl":
            return "portable computing language" in names[0]
        return all(part in name for part, name in zip(spec.lower().split(":", 1), names))

    def kernel(self, source):
        program = self.make("clCreateProgramWithSource", self.context, c_uint32(1), byref(c_char_p(source.encode())), None)
        self.call("clBuildProgram", program, c_uint32(1), byref(c_void_p(self.device.value)), c_char_p(b"-cl-std=CL1.2"),
                  None, None)
        return program, self.make("clCreateKernel", program, c_char_p(b"probe"))

    def buffer(self, size):
        return self.make("clCreateBuffer", self.context, c_uint64(1), c_size_t(size), None)

    def ptx(self, program):
        """The .version and .target of a binary that is PTX text."""
        size = int.from_bytes(self.raw("clGetProgramInfo", program, 0x1165)[:8], "little")
        data = ctypes.create_string_buffer(max(size, 1))
        self.call("clGetProgramInfo", program, c_uint32(0x1166), c_size_t(8), (c_void_p * 1)(ctypes.addressof(data)), None)
        return dict(re.findall(r"^\s*\.(version|target)\s+([^/\s]+)", data.raw.decode("latin-1"), re.MULTILINE))

    def seconds(self, enqueue):
        """The least of several runs, after one that makes what is made lazily."""
        times = []
        while len(times) < 6 or sum(times) < 0.3:
            began = time.perf_counter()
            enqueue()
            self.call("clFinish", self.queue)
            times.append(time.perf_counter() - began)
        return min(times[1:])

    def copy_rate(self, size):
        """Bytes read and written in a second."""
        left, right = self.buffer(size), self.buffer(size)
        return 2 * size / self.seconds(lambda: self.call("clEnqueueCopyBuffer", self.queue, left, right, c_size_t(0),
                                                         c_size_t(0), c_size_t(size), c_uint32(0), None, None))

    def fma_rate(self, kernel):
        """Floating-point operations a second, two for each multiply-add."""
        items, turns, best, took = self.number(0x1002) * 2048, 256, 0.0, 0.0
        memory = self.buffer(4 * items)
        self.call("clEnqueueFillBuffer", self.queue, memory, byref(c_uint32(0)), c_size_t(4), c_size_t(0),
                  c_size_t(4 * items), c_uint32(0), None, None)
        self.call("clSetKernelArg", kernel, c_uint32(0), c_size_t(8), byref(memory))
        while took < 0.02:
            turns *= 2
            self.call("clSetKernelArg", kernel, c_uint32(1), c_size_t(4), byref(c_uint32(turns)))
            took = self.seconds(lambda: self.call("clEnqueueNDRangeKernel", self.queue, kernel, c_uint32(1), None,
                                                  byref(c_size_t(items)), byref(c_size_t(256)), c_uint32(0), None, None))
            best = max(best, 2.0 * CHAINS * turns * items / took)
        return best


def probe(run, part):
    cl = OpenCL(run.options.device)
    part.update(name=cl.text(0x102B), driver=cl.text(0x102D), version=cl.text(0x102F))
    program, kernel = cl.kernel(FMA_KERNEL)
    part["ptx"] = cl.ptx(program)
    part["fma_gflops"] = round(cl.fma_rate(kernel) / 1e9, 1)
    part["copy_gbytes_per_s"] = round(cl.copy_rate(min(cl.number(0x1010) // 4, 1 << 30)) / 1e9, 2)


# ---- test ----

# What takes longest on an H100, for minutes, and so begins first.
SLOW = ("attention_bf16", "attention_bf16x3", "matmul_bf16", "matmul_bf16x3", "ops_inject", "inject", "nn_inject", "long_runs",
        "self_check", "self_check_plans", "program", "cache", "cache_private", "onnx_attention")


def test(run, part):
    listed = [row for row in json.loads(run.call(["meson", "introspect", "--tests", run.build])[1])
              if "clattn:pocl" in row["suite"] and len(row["cmd"]) == 1 and os.path.exists(row["cmd"][0])
              and any(text in row["name"] for text in run.options.tests.split(","))]
    if not listed:
        raise Failed("there are no such test programs in %s: they need cmocka" % run.build)
    listed.sort(key=lambda row: SLOW.index(row["name"]) if row["name"] in SLOW else len(SLOW))
    part.update(level=run.options.level, passed=0, failed=0, skipped=0, programs={},
                unfinished=[row["name"] for row in listed])

    def execute(row):
        status, text = run.call(row["cmd"], check=False, CLATTN_TEST_LEVEL=run.options.level, CMOCKA_MESSAGE_OUTPUT="TAP")
        return row["name"], count(text, status), re.findall(r"^not ok \d+ (?:- )?((?!.*# SKIP).*)$", text, re.MULTILINE)

    with concurrent.futures.ThreadPoolExecutor(run.options.jobs) as pool:
        for future in concurrent.futures.as_completed([pool.submit(execute, row) for row in listed]):
            with contextlib.suppress(Failed):  # out of time: it stays among the unfinished ones
                name, counts, failures = future.result()
                part["programs"][name] = dict(zip(("passed", "failed", "skipped", "kernel_programs"), counts), failures=failures)
                part["unfinished"].remove(name)
                for key in ("passed", "failed", "skipped"):
                    part[key] += part["programs"][name][key]
                run.write()
    if part["unfinished"] or part["failed"]:
        raise Failed("%d tests failed, %d of %d programs were not done in time" % (part["failed"], len(part["unfinished"]),
                                                                                  len(listed)))


# ---- bench ----

class Peer:
    """PyTorch, in this process: its fastest way to do the same work."""

    def __init__(self, device):
        import torch
        if device == "cuda" and not torch.cuda.is_available():
            raise ImportError("PyTorch %s sees no CUDA device" % torch.__version__)
        warnings.simplefilter("ignore")  # of a kernel that is asked for and does not take the work: measure() records it
        self.torch, self.device, self.about = torch, device, {"torch": str(torch.__version__), "device": device}
        torch.backends.cuda.matmul.allow_tf32 = False  # products of float32 in float32, as clattn's are
        torch.set_default_device(device)

    def times(self, function):
        """Medians from call to completion, as `clattn bench` has them, and on CUDA the mean between two events."""
        torch, finish = self.torch, self.torch.cuda.synchronize if self.device == "cuda" else lambda: None
        times = []
        while len(times) < 8 or sum(times) < 0.5:
            began = time.perf_counter()
            function()
            finish()
            times.append(time.perf_counter() - began)
        found = {"seconds_host": statistics.median(times[3:])}
        if self.device == "cuda":
            calls = max(3, min(1000, int(0.1 / found["seconds_host"])))
            before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            before.record()
            for _ in range(calls):
                function()
            after.record()
            after.synchronize()
            found["seconds_device"] = before.elapsed_time(after) / 1e3 / calls
        return found

    def measure(self, row):
        """The times of each kernel that scaled_dot_product_attention can be held to, otherwise of the default."""
        from torch.nn.attention import SDPBackend, sdpa_kernel
        torch, ways = self.torch, {}
        torch.set_default_dtype({"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[row.dtype])
        function = row.case.peer(torch)
        names = ["FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH"]
        for name in names if row.case.arguments[0] == "attention" else ["default"]:
            if name == "MATH" and any("seconds_host" in way for way in ways.values()):
                break  # it writes all scores to memory: only if nothing else takes the work
            held = contextlib.nullcontext() if name == "default" else sdpa_kernel(getattr(SDPBackend, name))
            try:
                with held, torch.inference_mode():
                    ways[name.lower()] = self.times(function)
            except (RuntimeError, TypeError, ValueError) as error:
                ways[name.lower()] = {"error": last_line(str(error))[:300]}
        return ways


def judge(found, wanted, rates):
    """Adds shares of the probe's rates, and what is wanted of the row with whether it is reached; None if that is unknown."""
    report = found.get("report", {})
    reached = {"peer_over_ours": found.get("peer_over_ours"),
               "tflops": report["gflops"] / 1e3 if "gflops" in report else None}
    for key, measured, rate in (("fma", "gflops", "fma_gflops"), ("copy", "gbytes_per_s", "copy_gbytes_per_s")):
        if measured in report and rates.get(rate):
            reached[key] = found[key + "_share"] = round(report[measured] / rates[rate], 4)
    found["wanted"] = {key: {"at_least": least, "reached": None if reached.get(key) is None else reached[key] >= least}
                       for key, least in wanted.items()}


def bench_row(run, row, peer):
    found = {"name": row.name, "arguments": ["bench", *row.case.arguments, "--dtype", row.dtype, "--json"]}
    try:
        found["report"] = json.loads(last_line(run.call([run.clattn, *found["arguments"], "--device", run.options.device],
                                                        90)[1]))
    except (Failed, ValueError) as failure:
        run.left()  # a row that the stage's time ends in is left out
        found["error"] = str(failure)
    if peer:
        found["peer"] = peer.measure(row)
        times = [way["seconds_host"] for way in found["peer"].values() if "seconds_host" in way]
        if times and "report" in found:
            found["peer_over_ours"] = round(min(times) / found["report"]["seconds_median"], 4)
    judge(found, row.wanted, run.result.get("probe", {}))
    return found


def bench(run, part):
    rows, peer = run.options.rows, None
    part.update(rows=[], left_out=[row.name for row in rows])
    if run.options.peer != "none":
        try:
            peer = Peer(run.options.peer)
            part["peer"] = peer.about
        except (ImportError, OSError, RuntimeError) as error:
            part["peer"] = {"error": str(error)}
    for row in rows:
        run.left()
        part["rows"].append(bench_row(run, row, peer))
        part["left_out"].remove(row.name)
        judged = [each["reached"] for found in part["rows"] for each in found["wanted"].values()]
        part["targets"] = {"reached": judged.count(True), "missed": judged.count(False), "unknown": judged.count(None)}
        run.write()
    errors = [found["name"] for found in part["rows"] if "error" in found]
    if errors:
        raise Failed("without a result: " + "; ".join(errors))


# ---- all of it ----

STAGES = {"build": build, "probe": probe, "test": test, "bench": bench}


def run_stage(run, name, later):
    part, about = {}, {"status": "begun"}
    run.result[name], run.result["stages"][name] = part, about
    run.write()
    began = time.monotonic()
    run.stage_end = began + (run.end - began) * SHARES[name] / sum(SHARES[each] for each in [name, *later])
    try:
        run.left()
        STAGES[name](run, part)
        about["status"] = "done"
    except Exception as failure:  # the next stage may work nevertheless
        about.update(status="failed", error=str(failure) if isinstance(failure, Failed) else repr(failure))
    about["seconds"] = round(time.monotonic() - began, 2)
    run.write()
    print("%-6s %-12s %6.1f s  %s" % (name, about["status"], about["seconds"], about.get("error", "")), flush=True)


def parse():
    parser = argparse.ArgumentParser(prog="gpu.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=os.path.abspath, help="where gpu.json and gpu.log go")
    parser.add_argument("--work", required=True, type=os.path.abspath, help="where builds and caches lie")
    parser.add_argument("--device", default="gpu", metavar="SPEC", help="gpu, cpu, pocl or platform:device (default: gpu)")
    parser.add_argument("--icd", metavar="FILE", help="use this ICD file's driver instead of looking for NVIDIA's")
    parser.add_argument("--stage", default=",".join(STAGES), metavar="NAME[,NAME...]", help="only these stages")
    parser.add_argument("--limit", type=float, default=540, metavar="SECONDS", help="for all together (default: 540)")
    parser.add_argument("--build", type=os.path.abspath, metavar="DIR", help="clattn is built there already")
    parser.add_argument("--level", default="small", help="of the tests: tiny, quick, small or full (default: small)")
    parser.add_argument("--tests", default="", metavar="TEXT[,TEXT...]", help="only programs with one of these in their names")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N",
                        help="compilers and test programs at a time (default: one a processor)")
    parser.add_argument("--shape", metavar="B,HQ,HKV,SQ,SKV,D,DV", help="measure one attention instead of the table")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the table's rows with this in their names")
    parser.add_argument("--peer", default="cuda", choices=("cuda", "cpu", "none"), help="what PyTorch runs on")
    options = parser.parse_args()
    options.stage = [name for name in STAGES if name in options.stage.split(",")]
    if options.shape:
        options.rows = rows_of(compare.attention(options.shape, tuple(map(int, options.shape.split(",")))))
    else:
        options.rows = [row for row in ROWS if options.only in row.name]
    if not options.rows or not options.stage:
        parser.error("there is no such stage or row")
    return options


def main():
    options = parse()
    for folder in (options.out, options.work):
        os.makedirs(folder, exist_ok=True)
    run = Run(options)
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    run.result.update(
        commit=commit or None, device=options.device, started=datetime.datetime.now(datetime.timezone.utc).isoformat(),
        machine={"system": platform.platform(), "processors": os.cpu_count()}, driver=use_driver(run), stages={})
    for index, name in enumerate(options.stage):
        run_stage(run, name, options.stage[index + 1:])
    print(os.path.join(options.out, "gpu.json"))
    sys.exit(0 if all(each["status"] == "done" for each in run.result["stages"].values()) else 1)


if __name__ == "__main__":
    main()
