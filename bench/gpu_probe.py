#!/usr/bin/env python3
"""What an OpenCL device says of itself, and what it does: bench/gpu.py's stage `probe`.

    gpu_probe.py SPEC          SPEC: gpu, cpu, pocl, or parts of the platform's and the device's name, platform:device

Prints one JSON object a line, each one part of the answer, so that a driver which ends the process leaves what came before.
Calls the OpenCL loader directly, without clattn."""
import ctypes
import ctypes.util
import json
import re
import sys
import time
from ctypes import byref, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

TYPES = {1: "default", 2: "cpu", 4: "gpu", 8: "accelerator", 16: "custom"}
LOCAL_KINDS = {0: "none", 1: "dedicated", 2: "emulated"}
KIB = 1024

# name -> (number, how to read it)
DEVICE_FACTS = {
    "name": (0x102B, "text"), "vendor": (0x102C, "text"), "driver": (0x102D, "text"), "version": (0x102F, "text"),
    "language": (0x103D, "text"), "type": (0x1000, "types"), "compute_units": (0x1002, "u32"),
    "clock_mhz": (0x100C, "u32"), "max_work_group": (0x1004, "size"), "global_memory": (0x101F, "u64"),
    "max_allocation": (0x1010, "u64"), "cache": (0x101E, "u64"), "local_memory": (0x1023, "u64"),
    "local_memory_kind": (0x1022, "local"), "unified_memory": (0x1035, "u32"),
    "sub_groups": (0x105C, "u32"),
}
NVIDIA_FACTS = {
    "capability_major": (0x4000, "u32"), "capability_minor": (0x4001, "u32"), "registers_per_block": (0x4002, "u32"),
    "warp": (0x4003, "u32"),
}
PLATFORM_FACTS = {"name": (0x0902, "text"), "version": (0x0901, "text"), "vendor": (0x0903, "text")}

EMPTY = "__kernel void probe(__global float *x) { x[get_global_id(0)] += 1.0f; }\n"

# Each kernel's words are written by all its items and read back in another order.
STATIC_LOCAL = """
__kernel void probe(__global uint *x)
{
    __local uint room[%d];
    const uint id = (uint)get_local_id(0), items = (uint)get_local_size(0);
    for (uint i = id; i < %du; i += items)
        room[i] = i * 2654435761u;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint wrong = 0;
    for (uint i = id; i < %du; i += items)
        wrong += room[%du - i] != (%du - i) * 2654435761u;
    x[id] = wrong;
}
"""
GIVEN_LOCAL = STATIC_LOCAL.replace("__global uint *x)", "__global uint *x, __local uint *room)").replace(
    "    __local uint room[%d];\n", "")

# What a kernel for NVIDIA's matrix engines would stand on; built, not run.  Elsewhere inline assembly can end the process.
PTX_KERNELS = {
    "lane": "uint a; __asm__ volatile(\"mov.u32 %0, %%laneid;\" : \"=r\"(a)); x[0] = (float)a;",
    "shuffle": "uint a = (uint)x[0], b; __asm__ volatile(\"shfl.sync.bfly.b32 %0, %1, 1, 31, 0xffffffff;\" "
               ": \"=r\"(b) : \"r\"(a)); x[0] = (float)b;",
    "mma_f16": "float c0 = 0, c1 = 0, c2 = 0, c3 = 0; uint a = (uint)x[0]; __asm__ volatile("
               "\"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, "
               "{%0,%1,%2,%3};\" : \"+f\"(c0), \"+f\"(c1), \"+f\"(c2), \"+f\"(c3) : \"r\"(a)); x[0] = c0 + c1 + c2 + c3;",
    "cp_async": "__local float4 room[32]; __asm__ volatile(\"{ .reg .u32 s; cvt.u32.u64 s, %0; "
                "cp.async.cg.shared.global [s], [%1], 16; cp.async.wait_all; }\" "
                ":: \"l\"((ulong)&room[0]), \"l\"((ulong)x) : \"memory\"); "
                "barrier(CLK_LOCAL_MEM_FENCE); x[4] = room[0].x;",
}
# Both spellings of the keyword: OpenCL C has neither, and compilers differ.
PTX_KERNELS["lane_asm"] = PTX_KERNELS["lane"].replace("__asm__", "asm")
PTX_KERNELS["mma_bf16"] = PTX_KERNELS["mma_f16"].replace("f32.f16.f16.f32", "f32.bf16.bf16.f32")
FP16_KERNEL = ("#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
               "__kernel void probe(__global float *x) { half a = (half)x[0]; x[0] = (float)(a * a); }\n")


# Sixteen chains of multiply-adds, none of which waits for another; the results stay near 1.
FMA_CHAINS = 16
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
""" % (", ".join("c%d = %d" % (i, i) for i in range(FMA_CHAINS)),
       " ".join("c%d = fma(c%d, a, b);" % (i, i) for i in range(FMA_CHAINS)),
       " + ".join("c%d" % i for i in range(FMA_CHAINS)))


class Failure(Exception):
    """An OpenCL call said no; the message names it."""


def parse_ptx(binary):
    """The .version, .target and .address_size of a program's binary that is PTX text, or None."""
    found = {}
    for line in binary.decode("latin-1").splitlines():
        match = re.match(r"\s*\.(version|target|address_size)\s+([^/\s][^/]*)", line)
        if match:
            found.setdefault(match[1], match[2].strip())
    return found if "version" in found and "target" in found else None


def matches(spec, platform, device):
    """Whether SPEC means this device; platform and device are their facts."""
    spec = spec.lower()
    if spec in ("gpu", "cpu"):
        return spec in device["type"]
    if spec == "pocl":
        return "portable computing language" in platform["name"].lower()
    if ":" not in spec:
        raise Failure("--device %s: expected gpu, cpu, pocl or platform:device" % spec)
    left, right = spec.split(":", 1)
    return left in platform["name"].lower() and right in device["name"].lower()


def largest(works, good, bad):
    """The largest number that works, of those from `good` on, which does, and below `bad`, which does not."""
    while bad - good > 1:
        middle = (good + bad) // 2
        if works(middle):
            good = middle
        else:
            bad = middle
    return good


def find_limit(works, start, most):
    """The largest number up to `most` that works: by doubling from `start`, then by halving what is between; or 0."""
    if not works(start):
        return largest(works, 0, start)
    good = start
    while good < most:
        bad = min(2 * good, most)
        if not works(bad):
            return largest(works, good, bad)
        good = bad
    return good


class OpenCL:
    """The few calls that are needed; every failure is an exception."""

    def __init__(self, path=None):
        name = path or ctypes.util.find_library("OpenCL") or "libOpenCL.so.1"
        self.loader = ctypes.CDLL(name)

    def check(self, code, what):
        if code != 0:
            raise Failure("%s: %d" % (what, code))

    def make(self, name, *arguments):
        """A call that returns an object and takes the place for the error last."""
        function = getattr(self.loader, name)
        function.restype = c_void_p
        code = c_int32(0)
        made = function(*arguments, byref(code))
        self.check(code.value, name)
        return c_void_p(made)

    def call(self, name, *arguments):
        self.check(getattr(self.loader, name)(*arguments), name)

    def raw(self, name, owner, number):
        size = c_size_t(0)
        self.call(name, owner, c_uint32(number), c_size_t(0), None, byref(size))
        data = ctypes.create_string_buffer(max(size.value, 8))
        self.call(name, owner, c_uint32(number), size, data, None)
        return data.raw[:size.value]

    def facts(self, name, owner, table):
        """What can be asked; what cannot is left out."""
        found = {}
        for key, (number, kind) in table.items():
            try:
                data = self.raw(name, owner, number)
            except Failure:
                continue
            if kind == "text":
                found[key] = data.split(b"\0")[0].decode("utf-8", "replace").strip()
            else:
                value = int.from_bytes(data, "little")
                if kind == "types":
                    value = [word for bit, word in TYPES.items() if value & bit]
                elif kind == "local":
                    value = LOCAL_KINDS.get(value, value)
                found[key] = value
        return found

    def platforms(self):
        count = c_uint32(0)
        code = self.loader.clGetPlatformIDs(0, None, byref(count))
        if code == -1001 or count.value == 0:
            return []
        self.check(code, "clGetPlatformIDs")
        found = (c_void_p * count.value)()
        self.call("clGetPlatformIDs", count, found, None)
        return [c_void_p(each) for each in found]

    def devices(self, platform):
        count = c_uint32(0)
        code = self.loader.clGetDeviceIDs(platform, c_uint64(0xFFFFFFFF), 0, None, byref(count))
        if code == -1 or count.value == 0:
            return []
        self.check(code, "clGetDeviceIDs")
        found = (c_void_p * count.value)()
        self.call("clGetDeviceIDs", platform, c_uint64(0xFFFFFFFF), count, found, None)
        return [c_void_p(each) for each in found]


class Session:
    """A context and a queue on one device; another one after each failure, which a driver may not get over."""

    def __init__(self, cl, device):
        self.cl, self.device = cl, device
        self.context = cl.make("clCreateContext", None, c_uint32(1), byref(c_void_p(device.value)), None, None)
        self.queue = cl.make("clCreateCommandQueue", self.context, device, c_uint64(0))

    def close(self):
        self.cl.loader.clReleaseCommandQueue(self.queue)
        self.cl.loader.clReleaseContext(self.context)

    def buffer(self, size):
        return self.cl.make("clCreateBuffer", self.context, c_uint64(1), c_size_t(size), None)

    def build(self, source):
        text = source.encode()
        program = self.cl.make("clCreateProgramWithSource", self.context, c_uint32(1), byref(c_char_p(text)), None)
        device = c_void_p(self.device.value)
        code = self.cl.loader.clBuildProgram(program, c_uint32(1), byref(device), c_char_p(b"-cl-std=CL1.2"), None, None)
        if code != 0:
            try:
                log = self.build_log(program)
            finally:
                self.cl.loader.clReleaseProgram(program)
            raise Failure("clBuildProgram: %d: %s" % (code, log))
        return program

    def build_log(self, program):
        size = c_size_t(0)
        info = self.cl.loader.clGetProgramBuildInfo
        if info(program, self.device, c_uint32(0x1183), c_size_t(0), None, byref(size)) != 0:
            return "no log"
        data = ctypes.create_string_buffer(max(size.value, 1))
        info(program, self.device, c_uint32(0x1183), size, data, None)
        lines = [line.strip() for line in data.value.decode("utf-8", "replace").splitlines() if line.strip()]
        return " / ".join(([line for line in lines if "error" in line.lower()] or lines)[:2])[:400]

    def binary(self, program):
        sizes = self.cl.raw("clGetProgramInfo", program, 0x1165)
        room = ctypes.create_string_buffer(max(int.from_bytes(sizes[:8], "little"), 1))
        pointers = (c_void_p * 1)(ctypes.addressof(room))
        self.cl.call("clGetProgramInfo", program, c_uint32(0x1166), c_size_t(ctypes.sizeof(pointers)), pointers, None)
        return room.raw

    def run_local(self, kib, static):
        """Builds and runs a kernel that uses so much local memory; raises where it cannot, or where it is wrong."""
        words, items = kib * KIB // 4, 64
        last = words - 1
        source = (STATIC_LOCAL % (words, words, words, last, last)) if static else GIVEN_LOCAL % (words, words, last, last)
        program = self.build(source)
        kernel = self.cl.make("clCreateKernel", program, c_char_p(b"probe"))
        memory = self.buffer(4 * items)
        self.cl.call("clSetKernelArg", kernel, c_uint32(0), c_size_t(8), byref(memory))
        if not static:
            self.cl.call("clSetKernelArg", kernel, c_uint32(1), c_size_t(kib * KIB), None)
        size = c_size_t(items)
        self.cl.call("clEnqueueNDRangeKernel", self.queue, kernel, c_uint32(1), None, byref(size), byref(size),
                     c_uint32(0), None, None)
        result = (c_uint32 * items)(*[1] * items)
        self.cl.call("clEnqueueReadBuffer", self.queue, memory, c_uint32(1), c_size_t(0), c_size_t(4 * items), result,
                     c_uint32(0), None, None)
        self.cl.loader.clReleaseMemObject(memory)
        self.cl.loader.clReleaseKernel(kernel)
        self.cl.loader.clReleaseProgram(program)
        if any(result):
            raise Failure("the kernel read back something else than it had written")

    def copy_rate(self, size, least=5, budget=0.5):
        """Bytes read and written in a second by copying a buffer on the device, at best."""
        left, right = self.buffer(size), self.buffer(size)
        best, began, runs = float("inf"), time.perf_counter(), 0
        while runs < least + 1 or time.perf_counter() - began < budget:
            before = time.perf_counter()
            self.cl.call("clEnqueueCopyBuffer", self.queue, left, right, c_size_t(0), c_size_t(0), c_size_t(size),
                         c_uint32(0), None, None)
            self.cl.call("clFinish", self.queue)
            if runs > 0:  # the first one makes the buffers
                best = min(best, time.perf_counter() - before)
            runs += 1
        for each in (left, right):
            self.cl.loader.clReleaseMemObject(each)
        return 2 * size / best

    def fma_rate(self, units, seconds=0.02, least=5):
        """Floating-point operations a second of plain multiply-adds, two each, at best."""
        program = self.build(FMA_KERNEL)
        kernel = self.cl.make("clCreateKernel", program, c_char_p(b"probe"))
        items, group, turns, best = units * 2048, 256, 256, 0.0
        memory = self.buffer(4 * items)
        zero = c_uint32(0)
        self.cl.call("clEnqueueFillBuffer", self.queue, memory, byref(zero), c_size_t(4), c_size_t(0), c_size_t(4 * items),
                     c_uint32(0), None, None)
        self.cl.call("clSetKernelArg", kernel, c_uint32(0), c_size_t(8), byref(memory))
        runs = -1  # the first one compiles
        while runs < least:
            self.cl.call("clSetKernelArg", kernel, c_uint32(1), c_size_t(4), byref(c_uint32(turns)))
            self.cl.call("clFinish", self.queue)
            before = time.perf_counter()
            self.cl.call("clEnqueueNDRangeKernel", self.queue, kernel, c_uint32(1), None, byref(c_size_t(items)),
                         byref(c_size_t(group)), c_uint32(0), None, None)
            self.cl.call("clFinish", self.queue)
            took = time.perf_counter() - before
            if runs >= 0 and took < seconds and turns < 1 << 24:
                turns *= 2
                continue
            if runs >= 0:
                best = max(best, 2.0 * FMA_CHAINS * turns * items / took)
            runs += 1
        self.cl.loader.clReleaseMemObject(memory)
        self.cl.loader.clReleaseKernel(kernel)
        self.cl.loader.clReleaseProgram(program)
        return best


def say(**part):
    print(json.dumps(part), flush=True)


def local_limit(cl, device, reported, static):
    """The largest local memory, in KiB, that a kernel gets; and why it got no more."""
    reasons = {}

    def works(kib):
        session = Session(cl, device)
        try:
            session.run_local(kib, static)
        except Failure as failure:
            reasons[kib] = str(failure)
            return False
        finally:
            session.close()
        return True

    limit = find_limit(works, min(48, max(reported // KIB, 1)), max(reported // KIB, 256))
    return {"kib": limit, "first_refused": {"kib": min(reasons), "why": reasons[min(reasons)]} if reasons else None}


def try_build(session, source):
    try:
        program = session.build(source)
    except Failure as failure:
        return str(failure)
    session.cl.loader.clReleaseProgram(program)
    return "built"


def try_part(name, function):
    """Says a part, or why there is none."""
    try:
        say(**{name: function()})
    except Failure as failure:
        say(**{name: {"error": str(failure)}})


def choose(cl, spec):
    chosen, listed = None, []
    for platform in cl.platforms():
        about = cl.facts("clGetPlatformInfo", platform, PLATFORM_FACTS)
        about["devices"] = []
        for device in cl.devices(platform):
            facts = cl.facts("clGetDeviceInfo", device, DEVICE_FACTS)
            about["devices"].append(facts["name"])
            if chosen is None and matches(spec, about, facts):
                chosen = (about, device, facts)
        listed.append(about)
    say(platforms=listed)
    if chosen is None:
        raise Failure("no device matches %s" % spec)
    return chosen


def binary_of(session):
    program = session.build(EMPTY)
    binary = session.binary(program)
    session.cl.loader.clReleaseProgram(program)
    return {"bytes": len(binary), "ptx": parse_ptx(binary)}


def probe(spec):
    cl = OpenCL()
    platform, device, facts = choose(cl, spec)
    nvidia = "nvidia" in platform["name"].lower()
    if nvidia:
        facts["nvidia"] = cl.facts("clGetDeviceInfo", device, NVIDIA_FACTS)
    say(platform={key: platform[key] for key in ("name", "version", "vendor")}, device=facts)
    say(extensions=sorted(cl.raw("clGetDeviceInfo", device, 0x1030).split(b"\0")[0].decode().split()))
    session = Session(cl, device)
    try_part("binary", lambda: binary_of(session))
    kernels = {"fp16": FP16_KERNEL}
    if nvidia:
        kernels.update((name, "__kernel void probe(__global float *x) { %s }\n" % body)
                       for name, body in PTX_KERNELS.items())
    say(builds={name: try_build(session, source) for name, source in kernels.items()})
    size = min(facts["max_allocation"] // 4, (64 if "cpu" in facts["type"] else 1024) * KIB * KIB)
    try_part("copy_gbytes_per_s", lambda: round(session.copy_rate(size) / 1e9, 2))
    try_part("fma_gflops", lambda: round(session.fma_rate(facts["compute_units"]) / 1e9, 1))
    session.close()
    for name, static in (("local_static", True), ("local_argument", False)):
        try_part(name, lambda static=static: local_limit(cl, device, facts["local_memory"], static))


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: gpu_probe.py SPEC")
    try:
        probe(sys.argv[1])
    except (Failure, OSError) as failure:
        say(error=str(failure))
        sys.exit(1)


if __name__ == "__main__":
    main()
