"""How long attention in parts takes on N devices, step by step.

Each mode is followed as src/group/ring.c, ring_backward.c, gather.c and heads.c take their steps: what a rank's thread waits for, what its
two queues do meanwhile, and how many bytes travel.  All ranks do the same at the same time, so one of them is followed; of a causal ring in
the sequence's order the last one, which has the most to do.

The time of a ring's step is thus the longer of computing a pair of blocks and of sending keys and values; its last step only computes.
Backward the float32 gradients of keys and values follow, and these are read from the device, sent, and written to it one after the
other, while the next blocks are computed."""

from typing import NamedTuple

PRODUCTS = {"forward": 2, "backward": 7}  # of a pair of rows; backward two kernels, both of which need the scores and dO V^T


class Links(NamedTuple):
    """What bytes travel by, in bytes per second each way."""

    host: float  # between a device and its host's memory
    copy: float  # from one rank's memory on a host to another's, by one core
    network: float  # of a machine, between machines
    latency: float = 20e-6  # of a message
    launch: float = 10e-6  # of a kernel; an H100's enqueue took 7.4 microseconds (docs/notes/gpu.md)
    machine: int = 8  # ranks of a machine

    def step(self, ranks, count):
        """To the next rank, of all ranks at a time: as slow as the slowest link of the ring."""
        return self.latency + count / (self.copy if ranks <= self.machine else min(self.copy, self.network))

    def swap(self, ranks, count):
        """`count` bytes to each of the others; the ranks of a machine share its network."""
        near = min(ranks, self.machine)
        return self.latency + max(near * count / self.copy, (ranks - near) * count * near / self.network)


class Problem(NamedTuple):
    """A rank's part, of batch 1."""

    tokens: int
    ranks: int
    element: int  # bytes
    rate: float  # operations per second that attention reaches
    memory: float  # bytes per second that other kernels reach
    links: Links
    causal: bool
    heads: int
    kv_heads: int
    size: int

    def rows(self, heads, element=None):
        """Bytes of the rank's rows of so many heads."""
        return self.tokens / self.ranks * heads * self.size * (element or self.element)

    def keys(self, element=None):
        return 2 * self.rows(self.kv_heads, element)

    def attend(self, queries, keys, heads, products):
        return 2 * products * queries * keys * heads * self.size / self.rate

    def whole(self, direction):
        """One device's time for everything."""
        return self.attend(self.tokens, self.tokens, self.heads, PRODUCTS[direction]) * (0.5 if self.causal else 1)


def blocks(p, zigzag, products):
    """The time of attending of each step, its blocks, and how often it adds to what there is of each row."""
    own = p.tokens / p.ranks
    full = p.attend(own, own, p.heads, products)
    if not zigzag:
        return [(full / 2 if p.causal and s == 0 else full, 1, 1) for s in range(p.ranks)]
    if not p.causal:  # pairs of pieces, half as long
        return [(full, 4, 2)] * p.ranks
    # Two of four pairs; of the rank's own three, of which causality halves two.
    return [(full / 2, 3, 1.5) if s == 0 else (full / 2, 2, 1) for s in range(p.ranks)]


def ring(p, zigzag):
    """Forward: each rank's keys and values go round."""
    parcel, ranks, links = p.keys(), p.ranks, p.links
    merging = 4 * p.rows(p.heads, 4) / p.memory  # a partial output is written; two are read, and one is written
    ready = 2 * links.launch + 2 * parcel / p.memory
    host = ready + (parcel / links.host if ranks > 1 else 0)
    stored, read = [ready, 0.0], [0.0, 0.0]  # of each parcel: the device has it, and its kernels have ended
    kernels, transfers = 0.0, host
    for s, (attending, count, times) in enumerate(blocks(p, zigzag, PRODUCTS["forward"])):
        now, after = s % 2, (s + 1) % 2
        kernels = max(kernels, stored[now]) + attending + times * merging + 2 * count * links.launch
        read[now] = kernels
        if s + 1 < ranks:
            host = max(host, stored[after]) + links.step(ranks, parcel)
            transfers = stored[after] = max(host, transfers, read[after]) + parcel / links.host
    return kernels


def ring_backward(p, zigzag):
    """Backward: keys and values go round, and the float32 sums of their gradients a step behind."""
    parcel, sums, ranks, links = p.keys(), p.keys(4), p.ranks, p.links
    # Gradients are written, and added to what there is: of queries and keys of each block, and of what has come.
    adding = (4 * p.rows(p.heads, 4) + 5 * sums) / p.memory
    coming = 3 * sums / p.memory + links.launch
    ready = 2 * links.launch + 2 * parcel / p.memory
    host = ready + (parcel / links.host if ranks > 1 else 0)
    stored, read = [ready, 0.0], [0.0, 0.0]
    kernels, transfers, arrived = 0.0, host, 0.0
    for s, (attending, count, times) in enumerate(blocks(p, zigzag, PRODUCTS["backward"])):
        now, after = s % 2, (s + 1) % 2
        summed = kernels
        kernels = max(kernels, stored[now]) + attending + times * adding + (1 + 5 * count) * links.launch
        read[now] = kernels
        if s + 1 < ranks:
            host = max(host, stored[after]) + links.step(ranks, parcel)
            transfers = stored[after] = max(host, transfers, read[after]) + parcel / links.host
        if s > 0:
            host = max(host, transfers, summed) + sums / links.host
            host = max(host, arrived) + links.step(ranks, sums)
            transfers = arrived = host + sums / links.host
        kernels = max(kernels, arrived) + coming
    if ranks > 1:  # home
        kernels = max(host, transfers, kernels) + sums / links.host + links.step(ranks, sums) + sums / links.host
    return kernels + (p.rows(p.heads, 4 + p.element) + p.keys(4 + p.element)) / p.memory + 3 * links.launch


def gather(p, zigzag):
    """Forward: keys and values of a part of the heads go to all, while the part before is attended to."""
    ranks, links = p.ranks, p.links
    parcel, rows = p.keys() / ranks, p.tokens / ranks
    own = p.tokens * (0.5 if p.causal and zigzag else 1 - 0.5 / ranks if p.causal else 1)  # keys of a query, on average
    attending = p.attend(rows, own, p.heads / ranks, PRODUCTS["forward"]) + (2 if zigzag else 1) * links.launch
    ordering = 2 * ranks * parcel / p.memory + 2 * links.launch
    kernels = transfers = host = 0.0
    read = [0.0, 0.0]
    for part in range(ranks):
        # The queue of transfers is in order: a part is packed once the one before has been put in order.
        host = max(host, transfers) + 2 * parcel / p.memory + 2 * links.launch + parcel / links.host
        host += links.swap(ranks, parcel)
        transfers = max(host + ranks * parcel / links.host, read[part % 2]) + ordering
        kernels = read[part % 2] = max(kernels, transfers) + attending
    return kernels


def gather_backward(p, zigzag):
    """Backward: what a rank adds to all gradients of a part goes home while the next part is computed."""
    ranks, links, pieces = p.ranks, p.links, 2 if zigzag else 1
    parcel, sums, rows = p.keys() / ranks, p.keys(4) / ranks, p.tokens / ranks
    own = p.tokens * (0.5 if p.causal and zigzag else 1 - 0.5 / ranks if p.causal else 1)
    # Each piece of the queries writes gradients of all keys; the second one's are added to the first one's.
    adding = ranks * sums * (5 if zigzag else 1) / p.memory
    attending = p.attend(rows, own, p.heads / ranks, PRODUCTS["backward"]) + adding + (6 if zigzag else 2) * links.launch
    packing = 2 * parcel / p.memory + 2 * links.launch + parcel / links.host
    ordering = 2 * ranks * parcel / p.memory + 2 * pieces * links.launch
    cutting = 2 * ranks * sums / p.memory + 2 * pieces * links.launch
    summing = (ranks - 1) * (3 * sums / p.memory + links.launch) + (sums + parcel) / p.memory + 2 * links.launch
    kernels = transfers = cut = summed = 0.0
    host, sending = packing, links.swap(ranks, parcel)
    read = [0.0, 0.0]

    def sum_up():
        nonlocal host, kernels, transfers, summed, sending
        host = max(host, transfers, cut) + ranks * sums / links.host
        host, sending = host + sending + links.swap(ranks, sums), 0.0
        transfers = max(host, summed) + ranks * sums / links.host
        kernels = summed = max(kernels, transfers) + summing

    for part in range(ranks):
        host, sending = host + sending, 0.0
        transfers = ordered = max(max(host, transfers) + ranks * parcel / links.host, read[part % 2]) + ordering
        if part + 1 < ranks:
            host = transfers = max(host, transfers) + packing
            sending = links.swap(ranks, parcel)  # while the host waits, which it does next for the sums
        kernels = read[part % 2] = max(kernels, ordered) + attending
        if part > 0:
            sum_up()
        kernels = cut = kernels + cutting
    sum_up()
    return kernels


def heads(p, direction):
    """Rows of all heads for all rows of some heads, and back; nothing overlaps."""
    links, ranks, logs = p.links, p.ranks, p.tokens / p.ranks * p.heads * 4
    inputs = p.rows(p.heads) + p.keys()
    results = p.rows(p.heads)
    if direction == "backward":
        inputs, results = 3 * p.rows(p.heads) + p.keys() + logs, p.rows(p.heads) + p.keys()
    seconds = p.whole(direction) / ranks
    for count, arrays in ((inputs, 6 if direction == "backward" else 3), (results, 3 if direction == "backward" else 1)):
        seconds += 2 * count / links.host + links.swap(ranks, count / ranks) + 4 * count / p.memory + 2 * arrays * links.launch
    return seconds


MODES = {
    ("ring", "forward"): lambda p: ring(p, False),
    ("zigzag", "forward"): lambda p: ring(p, True),
    ("ring", "backward"): lambda p: ring_backward(p, False),
    ("zigzag", "backward"): lambda p: ring_backward(p, True),
    ("gather", "forward"): lambda p: gather(p, False),
    ("gather, zigzag", "forward"): lambda p: gather(p, True),
    ("gather", "backward"): lambda p: gather_backward(p, False),
    ("gather, zigzag", "backward"): lambda p: gather_backward(p, True),
    ("heads", "forward"): lambda p: heads(p, "forward"),
    ("heads", "backward"): lambda p: heads(p, "backward"),
}


def efficiency(p, mode, direction):
    """The time that all ranks would need if nothing but attention took any, by the time that they need."""
    return p.whole(direction) / p.ranks / MODES[mode, direction](p)
