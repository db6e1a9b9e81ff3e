"""The tables of docs/scale.md, and the model beside what was measured.  python3 bench/scale [TABLE] [--check]

Without --check this prints the tables, which bench/tables.py writes into the page.  With --check it holds the model against what
`clattn bench ring --link` has measured, and exits with 1 if a time is further away than WITHIN."""

import argparse
from typing import NamedTuple

from scale.model import MODES, PRODUCTS, Links, Problem, efficiency

GB, TFLOPS = 1e9, 1e12
HEADS, KV_HEADS, SIZE = 32, 8, 128
TOKENS = {"128 K": 2**17, "1 M": 2**20, "10 M": 10 * 2**20}
MOST = 1024
TYPES = {"float16": 2, "float32": 4}
WANTED = 0.85
WITHIN = 0.10  # of a time that was measured

# What the part of a published rate is that clattn reaches: an H100's, forward (docs/performance.md), for all and in both directions.
SHARES = {"float16": 297 / 989, "float32": 36.6 / 67}
MEMORY_SHARE = 0.5  # of merging and adding: between an H100's softmax (0.54 of copying) and less


class Gpu(NamedTuple):
    name: str
    rates: dict  # operations per second, by type, as published
    memory: float  # bytes per second
    capacity: float  # bytes
    source: str


GPUS = (
    Gpu(
        "RTX 4090, desktop",
        {"float16": 165.2 * TFLOPS, "float32": 82.6 * TFLOPS},
        1008 * GB,
        24 * GB,
        "NVIDIA Ada GPU Architecture, version 2, appendix A",
    ),
    Gpu("L40S, server", {"float16": 362 * TFLOPS, "float32": 91.6 * TFLOPS}, 864 * GB, 48 * GB, "NVIDIA L40S, datasheet"),
    Gpu("H100 SXM, HPC", {"float16": 989 * TFLOPS, "float32": 67 * TFLOPS}, 3350 * GB, 80 * GB, "NVIDIA H100, datasheet"),
)


PCIE = 25 * GB  # of 31.5 that PCIe 4.0 x16 carries
COPY = 10 * GB
FASTER = "400 Gb/s, faster copies"
LINKS = {"100 Gb/s": Links(PCIE, COPY, 12.5 * GB), "400 Gb/s": Links(PCIE, COPY, 50 * GB), FASTER: Links(PCIE, PCIE, 50 * GB)}


def problem(gpu, dtype, tokens, ranks, links, causal=True):
    rate, memory = gpu.rates[dtype] * SHARES[dtype], gpu.memory * MEMORY_SHARE
    return Problem(tokens, ranks, TYPES[dtype], rate, memory, links, causal, HEADS, KV_HEADS, SIZE)


def doubled(first, last):
    while first <= last:
        yield first
        first *= 2


def most_ranks(gpu, dtype, tokens, links, direction):
    """The largest number of ranks, a power of two, up to which all reach what is wanted."""
    most = 1
    for ranks in doubled(2, MOST):
        if efficiency(problem(gpu, dtype, tokens, ranks, links), "zigzag", direction) < WANTED:
            break
        most = ranks
    return most


def fewest_ranks(gpu, dtype, tokens, direction):
    """The smallest power of two of ranks that have memory for their parts: own arrays, and what a ring has beside."""
    for ranks in doubled(1, 2**20):
        p = problem(gpu, dtype, tokens, ranks, LINKS["100 Gb/s"])
        query, key = p.rows(HEADS), p.keys()
        own = 2 * query + key if direction == "forward" else 4 * query + 2 * key
        beside = (
            2 * key + 3 * p.rows(HEADS, 4) if direction == "forward" else 2 * key + 3.5 * p.keys(4) + 1.5 * p.rows(HEADS, 4)
        )
        if own + beside < 0.9 * gpu.capacity:
            return ranks
    return 0


# ---- tables ----


def table(head, rows):
    """Lines of Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def gpus_table():
    def rates(gpu, dtype):
        return f"{gpu.rates[dtype] / TFLOPS:g}: {gpu.rates[dtype] * SHARES[dtype] / TFLOPS:.0f}"

    return table(
        ["GPU", "float16, TFLOP/s: assumed of clattn", "float32", "memory, GB/s", "GB", "published in"],
        [
            [
                gpu.name,
                rates(gpu, "float16"),
                rates(gpu, "float32"),
                f"{gpu.memory / GB:,.0f}",
                f"{gpu.capacity / GB:.0f}",
                gpu.source,
            ]
            for gpu in GPUS
        ],
    )


def most_table():
    """From how many GPUs on there is memory, and up to how many WANTED is reached."""

    def cell(gpu, tokens, direction, links):
        spans = (
            (fewest_ranks(gpu, dtype, tokens, direction), most_ranks(gpu, dtype, tokens, links, direction)) for dtype in TYPES
        )
        return " / ".join(
            f"{first:,} to {last:,}" if first < last else f"{last:,}" if first == last else "none" for first, last in spans
        )

    return table(
        ["GPU", "tokens", *(f"{direction}, {links}" for direction in PRODUCTS for links in ("100 Gb/s", FASTER))],
        [
            [
                gpu.name.split(",")[0],
                name,
                *(cell(gpu, tokens, direction, LINKS[links]) for direction in PRODUCTS for links in ("100 Gb/s", FASTER)),
            ]
            for gpu in GPUS
            for name, tokens in TOKENS.items()
        ],
    )


def curve_table(dtype, tokens, links):
    """Efficiency while GPUs become more."""
    rows = [
        [
            f"{ranks:,}",
            f"{TOKENS[tokens] // ranks:,}",
            *(
                f"{efficiency(problem(gpu, dtype, TOKENS[tokens], ranks, LINKS[links]), 'zigzag', direction):.2f}"
                for gpu in GPUS
                for direction in PRODUCTS
            ),
        ]
        for ranks in (2, 8, 16, 32, 64, 128, 256, 512, 1024)
    ]
    return table(
        ["GPUs", "rows each", *(f"{gpu.name.split(',')[0]}, {direction}" for gpu in GPUS for direction in PRODUCTS)], rows
    )


def modes_table(dtype, tokens):
    """One machine: its modes."""

    def cell(gpu, mode, direction):
        p = problem(gpu, dtype, TOKENS[tokens], 8, LINKS["100 Gb/s"])
        return f"{efficiency(p, mode, direction):.2f}" if (mode, direction) in MODES else "–"

    return table(
        ["mode, causal", *(f"{gpu.name.split(',')[0]}, {direction}" for gpu in GPUS for direction in PRODUCTS)],
        [
            [mode, *(cell(gpu, mode, direction) for gpu in GPUS for direction in PRODUCTS)]
            for mode in dict.fromkeys(mode for mode, _ in MODES)
        ],
    )


def bound_rows(gpu, dtype, byte, direction):
    """The rows of a rank from which a causal step computes for as long as it sends; `byte` is how long one of them takes."""
    p = problem(gpu, dtype, 1, 1, LINKS["100 Gb/s"])
    travels = p.keys() + (p.keys(4) if direction == "backward" else 0)
    return travels * byte / p.whole(direction)


def merged_rows(gpu, dtype):
    """The rows of a rank from which merging takes no more than 1 - WANTED of a causal step forward."""
    p = problem(gpu, dtype, 1, 1, LINKS["100 Gb/s"])
    return 4 * p.rows(HEADS, 4) / p.memory / p.whole("forward") * WANTED / (1 - WANTED)


def bound_table():
    """Rows that arithmetic asks for."""
    ways = {"one core's copies": 1 / COPY, "100 Gb/s": 1 / (12.5 * GB), "400 Gb/s": 1 / (50 * GB)}

    def cell(counts):
        return " / ".join(f"{count:,.0f}" for count in counts)

    return table(
        ["GPU", *(f"{direction}, {way}" for direction in PRODUCTS for way in ways), "forward, merging"],
        [
            [
                gpu.name.split(",")[0],
                *(
                    cell([bound_rows(gpu, dtype, byte, direction) for dtype in TYPES])
                    for direction in PRODUCTS
                    for byte in ways.values()
                ),
                cell([merged_rows(gpu, dtype) for dtype in TYPES]),
            ]
            for gpu in GPUS
        ],
    )


# ---- what was measured ----

# Milliseconds of `mpirun -n N clattn bench ring` with a link, as bench/scale/measure.py measures and prints them: two cores of a Zen 4,
# by the shape's tokens, ranks and mode, and by GB/s and milliseconds.  WHOLE is one attention's; the ranks share the cores, so each
# computes at 1/N of that speed.
WHOLE = {4096: 178, 8192: 683}
MEASURED = {
    (4096, 2, "ring"): {(0.2, 0): 187, (0.1, 0): 185, (0.05, 0): 261, (0.1, 20): 203},
    (4096, 2, "zigzag"): {(0.2, 0): 189, (0.1, 0): 195, (0.05, 0): 270},
    (4096, 2, "gather"): {(0.2, 0): 214, (0.1, 0): 239, (0.05, 0): 270},
    (4096, 2, "heads"): {(0.2, 0): 230, (0.1, 0): 277, (0.05, 0): 361},
    (4096, 4, "ring"): {(0.2, 0): 189, (0.1, 0): 201, (0.05, 0): 321, (0.1, 20): 256},
    (4096, 4, "zigzag"): {(0.2, 0): 209, (0.1, 0): 212, (0.05, 0): 321},
    (4096, 4, "gather"): {(0.2, 0): 209, (0.1, 0): 237, (0.05, 0): 321},
    (4096, 4, "heads"): {(0.2, 0): 235, (0.1, 0): 270, (0.05, 0): 329},
    (8192, 4, "ring"): {(0.05, 0): 751},
    (8192, 4, "zigzag"): {(0.05, 0): 768},
}
CORES_MEMORY, CORES_COPY = 20 * GB, 5 * GB  # of the two cores, assumed


def modelled(tokens, ranks, mode, link, latency):
    """Milliseconds of a cell of MEASURED."""
    links = Links(CORES_COPY / ranks, CORES_COPY / ranks, link * GB, latency=latency * 1e-3, machine=1)
    p = Problem(tokens, ranks, 4, 1.0, CORES_MEMORY / ranks, links, False, 8, 8, 64)
    p = p._replace(rate=p.whole("forward") / (WHOLE[tokens] * 1e-3) / ranks)
    return MODES[mode, "forward"](p) * 1e3


def deviations():
    """For each cell what was measured, what is modelled, and the part of the latter by which the former is longer."""
    for (tokens, ranks, mode), cells in MEASURED.items():
        for way, measured in cells.items():
            model = modelled(tokens, ranks, mode, *way)
            yield tokens, ranks, mode, way, measured, model, measured / model - 1


def measured_table():
    """The model beside what was measured."""
    found = {
        (*row, way): f"{measured}: {model:.0f}, {round(100 * apart):+d} %" for *row, way, measured, model, apart in deviations()
    }
    ways = list(dict.fromkeys(way for cells in MEASURED.values() for way in cells))
    rows = [
        [f"{tokens:,}", f"{ranks}, {mode}", *(found.get((tokens, ranks, mode, way), "–") for way in ways)]
        for tokens, ranks, mode in MEASURED
    ]
    heads = (f"{link:g} GB/s" + (f", {latency} ms" if latency else "") for link, latency in ways)
    return table(["tokens", "ranks, mode", *heads], rows)


TABLES = {
    "gpus": gpus_table,
    "most": most_table,
    "curve": lambda: curve_table("float16", "1 M", "100 Gb/s"),
    "modes": lambda: modes_table("float16", "128 K"),
    "bound": bound_table,
    "measured": measured_table,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", choices=TABLES)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if not options.check:
        print("\n\n".join(f"{name}:\n\n{make()}" for name, make in TABLES.items() if options.table in (None, name)))
        return 0
    wrong = 0
    for tokens, ranks, mode, (link, latency), measured, model, apart in deviations():
        wrong += abs(apart) > WITHIN
        print(
            f"{tokens} tokens, {ranks} ranks, {mode}, {link:g} GB/s, {latency} ms: measured {measured} ms, "
            f"modelled {model:.1f}, apart {apart:+.3f}"
        )
    print(f"{wrong} are further apart than {WITHIN}")
    return 1 if wrong else 0
