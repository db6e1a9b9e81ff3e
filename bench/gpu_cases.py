"""The rows that bench/gpu.py measures, most telling first: bench/compare.py's kinds of work at the sizes of a GPU."""
from typing import NamedTuple

import compare


class Row(NamedTuple):
    name: str
    case: compare.Case
    dtype: str                  # f32, f16, bf16
    wanted: dict = {}           # at least so much of: shares of the probe's rates ("fma", "copy"), "tflops", "peer_over_ours"

    def arguments(self):
        return ["bench", *self.case.arguments, "--dtype", self.dtype, "--json"]


def heads(batch, count, length, d, causal=False):
    name = "%d x %d heads x %s, d %d%s" % (batch, count, format(length, ","), d, ", causal" if causal else "")
    return compare.attention(name, (batch, count, count, length, length, d, d), causal)


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


def rows(shape=None, only=""):
    """The table's rows with `only` in their names, or one row of attention of a shape B,HQ,HKV,SQ,SKV,D,DV."""
    if shape:
        numbers = tuple(int(each) for each in shape.split(","))
        if len(numbers) != 7 or min(numbers) < 1:
            raise ValueError("--shape %s: expected B,HQ,HKV,SQ,SKV,D,DV" % shape)
        return rows_of(compare.attention(shape, numbers))
    return [row for row in ROWS if only in row.name]
