"""Tells a kernel's speed from NVIDIA's machine code and from its registers, local memory and work-group.

hot_loops(text) reads `nvdisasm -c`; warps() and engine_threads() count what a processor holds at a time.
"""

import collections
import re

# The instructions that do a kernel's work: a multiply-add of a warp, or a product of small matrices.
ADD = ("FFMA", "DFMA", "HFMA2")
MATRIX = ("HMMA", "IMMA", "DMMA", "HGMMA", "QGMMA")

Instruction = collections.namedtuple("Instruction", "operation guarded target move")
Loop = collections.namedtuple("Loop", "instructions products matrix loads")

LABEL = re.compile(r"^(\.L_\w+):")
LINE = re.compile(r"^\s+/\*([0-9a-f]+)\*/\s+(@!?U?P[0-9T]+\s+)?([A-Z][\w.]*)\s*(.*?);")
TARGET = re.compile(r"`\((\.L_\w+)\)")


def share(loop):
    """The share of products among the loop's instructions."""
    return loop.products / loop.instructions


def read(text):
    """{kernel: (instructions, {label: index of the instruction behind it})}."""
    kernels, code, labels = {}, None, None
    for line in text.splitlines():
        section = re.match(r"\.text\.(\w+):", line)
        if section:
            code, labels = [], {}
            kernels[section[1]] = code, labels
            continue
        if re.match(r"\s*\.section\s", line):
            code = None
        if code is None:
            continue
        label = LABEL.match(line)
        if label:
            labels[label[1]] = len(code)
            continue
        found = LINE.match(line)
        if found:
            # CALL.REL.NOINC to a label of the same kernel is a branch: nothing returns from there.
            jumps = found[3].split(".")[0] in ("BRA", "BRX", "JMP") or found[3] == "CALL.REL.NOINC"
            target = TARGET.search(found[4]) if jumps else None
            # A branch's condition may also stand before its target.
            guarded = bool(found[2]) or (target is not None and target.start() > 0)
            # The compiler loads constants by an HFMA2 of zeros.
            move = found[3].startswith("HFMA2") and "-RZ, RZ," in found[4]
            code.append(Instruction(found[3], guarded, target[1] if target else None, move))
    return kernels


def blocks_of(code, labels):
    """The code's basic blocks: [(first, end)], and the blocks that each one leads to."""
    starts = {0} | {at for at in labels.values() if at < len(code)}
    ends = ("BRA", "EXIT", "RET", "BRX", "JMP")
    leaves = [instruction.target is not None or instruction.operation.split(".")[0] in ends for instruction in code]
    starts |= {at + 1 for at in range(len(code) - 1) if leaves[at]}
    starts = sorted(starts)
    number = {at: index for index, at in enumerate(starts)}
    blocks = list(zip(starts, starts[1:] + [len(code)]))
    leads = []
    for index, (_, end) in enumerate(blocks):
        last = code[end - 1]
        after = []
        if last.target in labels and labels[last.target] in number:
            after.append(number[labels[last.target]])
        if (last.guarded or not leaves[end - 1]) and index + 1 < len(blocks):
            after.append(index + 1)
        leads.append(after)
    return blocks, leads


def dominators(leads):
    """For each block its dominators: the blocks on every way to it from the first, itself included; None if there is no
    way."""
    before = [[] for _ in leads]
    for block, after in enumerate(leads):
        for other in after:
            before[other].append(block)
    over = [None] * len(leads)
    over[0] = {0}
    changed = True
    while changed:
        changed = False
        for block in range(1, len(leads)):
            known = [over[other] for other in before[block] if over[other] is not None]
            if known:
                found = set.intersection(*known) | {block}
                if found != over[block]:
                    over[block], changed = found, True
    return over, before


def loops_of(leads):
    """{header: blocks} of the natural loops: of each branch back to a block which every way to that branch passes."""
    over, before = dominators(leads)
    loops = {}
    for block, after in enumerate(leads):
        for header in after:
            if over[block] is None or header not in over[block]:
                continue
            body, open_ends = loops.setdefault(header, {header}), [block]
            while open_ends:
                at = open_ends.pop()
                if at not in body:
                    body.add(at)
                    open_ends += before[at]
    return loops


def count_products(code, blocks, body):
    """(products, those of matrices, loads from local memory) in some of the blocks."""
    kinds = [code[at].operation.split(".")[0] for block in body for at in range(*blocks[block]) if not code[at].move]
    matrix = sum(kind in MATRIX for kind in kinds)
    return (matrix + sum(kind in ADD for kind in kinds), matrix, sum(kind in ("LDS", "LDSM") for kind in kinds))


def rank(loop):
    """Products of matrices count before multiply-adds, because the code that finishes their sums may have many of
    those."""
    return loop.matrix > 0, loop.products


def hot_loops(text):
    """{kernel: of its innermost loops with products the Loop that has most, of matrices if there are such, or None}.  A
    loop
    inside it without any is not counted.  An endless loop behind the kernel's end, which fills its last line of memory, has
    none."""
    found = {}
    for name, (code, labels) in read(text).items():
        found[name] = None
        if not code:
            continue
        blocks, leads = blocks_of(code, labels)
        loops = loops_of(leads)
        count = {header: count_products(code, blocks, body) for header, body in loops.items()}
        for header, body in loops.items():
            inside = [other for other in loops if loops[other] < body]
            if not count[header][0] or any(count[other][0] for other in inside):
                continue
            own = body - set().union(*[loops[other] for other in inside])
            loop = Loop(sum(blocks[block][1] - blocks[block][0] for block in own), *count_products(code, blocks, own))
            if loop.products and (not found[name] or rank(loop) > rank(found[name])):
                found[name] = loop
    return found


# For each processor: warps, registers, bytes of local memory and work-groups that it holds, from CUDA's own
# cuda_occupancy.h: a warp's registers come in units of 256 in the quarter of the processor that runs the warp, local
# memory in units of 128 bytes, and a work-group takes 1 KiB of it for the driver.
MULTIPROCESSORS = {"sm_80": (64, 65536, 164 * 1024, 32), "sm_90": (64, 65536, 228 * 1024, 32)}
WARP, QUARTERS, REGISTER_UNIT, LOCAL_UNIT, LOCAL_RESERVED = 32, 4, 256, 128, 1024


def round_up(number, unit):
    return -(-number // unit) * unit


def warps(target, registers, local, items):
    """How many warps of work-groups of `items` a multiprocessor of `target` holds: (warps, of how many)."""
    most, file, memory, groups = MULTIPROCESSORS[target]
    each = -(-items // WARP)
    by_registers = file // QUARTERS // round_up(registers * WARP, REGISTER_UNIT) * QUARTERS // each
    by_local = memory // round_up(local + LOCAL_RESERVED, LOCAL_UNIT)
    return min(groups, most // each, by_registers, by_local) * each, most


def engine_threads(registers):
    """How many threads an engine of dg2 runs: 8, or 4 that have 256 registers each."""
    return 4 if registers > 128 else 8
