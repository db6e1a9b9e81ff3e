#!/usr/bin/env python3
"""What attention's features cost, as ratios of times taken in turn in one run.

    features.py BUILD_DIR [--rounds N] [--json FILE] [--machine TEXT]

Each ratio compares two calls of `clattn bench attention`, one right after the other; the median of the rounds counts."""
import argparse
import os
import random
import statistics
import struct
import tempfile

import record


def write_npy(path, descr, shape, content):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + content)


def write_mask(path, queries, keys):
    """Booleans, three of four true at random."""
    draw = random.Random(1)
    write_npy(path, "|b1", (queries, keys), bytes(draw.getrandbits(2) != 0 for _ in range(queries * keys)))


def write_vector(path, size):
    draw = random.Random(2)
    write_npy(path, "<f4", (1, size), struct.pack("<%df" % size, *(draw.uniform(-1, 1) for _ in range(size))))


def cases(mask, vector):
    """name, options of the feature's call, options of the call that it is compared with, the most that the ratio may be."""
    plain = ["--shape", "1,8,8,2048,2048,64,64"]
    square = ["--shape", "1,2,2,4096,4096,64,64"]
    long = ["--shape", "1,1,1,16384,16384,64,64"]
    token = ["--shape", "1,8,8,1,16384,64,64"]
    medium = ["--shape", "1,8,8,1024,1024,64,64"]
    return [
        ("a boolean mask", plain + ["--mask", mask], plain, 1.15),
        ("causal, 4,096 x 4,096", square + ["--causal"], square, 0.58),
        ("causal gradients", plain + ["--backward", "--causal"], plain + ["--backward"], 0.58),
        ("a window of 256 in 16,384 keys", long + ["--window", "255,0"], long, 1 / 20),
        ("8 query heads to a key head", ["--shape", "1,16,2,1024,1024,64,64"],
         ["--shape", "1,16,16,1024,1024,64,64"], 1.0),
        ("8 query heads to a key head, 1 query", ["--shape", "1,32,4,1,8192,64,64"],
         ["--shape", "1,32,32,1,8192,64,64"], 1.0),
        ("pages of 16 keys", plain + ["--page-size", "16"], plain, 1.10),
        ("pages of 16 keys, 1 query", token + ["--page-size", "16"], token, 1.10),
        ("pages of 256 keys, 1 query", token + ["--page-size", "256"], token, 1.10),
        ("head size 513", ["--shape", "1,4,4,512,512,513,513"], ["--shape", "1,4,4,512,512,512,512"], 2),
        ("probabilities", medium + ["--scores", "probabilities:unwritten.npy"], medium, 4),
        ("keys innermost", medium + ["--layout", "bhds"], medium, 2),
        ("keys innermost, 1 query", token + ["--layout", "bhds"], token, 2),
        ("int8, groups of 4", medium + ["--kv-int8", "--kv-group", "4"], medium, 2),
        ("int8, groups of 4, 1 query", token + ["--kv-int8", "--kv-group", "4"], token, 2),
        ("additive scores", medium + ["--score", "additive", "--vector", vector], medium, 5),
        ("float64", medium + ["--dtype", "f64"], medium, 4),
    ]


def seconds(build, options):
    command = [os.path.join(build, "src", "clattn"), "bench", "attention", "--json"] + options
    return record.run_json(command)["seconds_median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    record.add_options(parser)
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        mask = os.path.join(folder, "mask.npy")
        vector = os.path.join(folder, "vector.npy")
        write_mask(mask, 2048, 2048)
        write_vector(vector, 64)
        for name, feature, without, most in cases(mask, vector):
            ratios = [seconds(arguments.build, feature) / seconds(arguments.build, without)
                      for _ in range(arguments.rounds)]
            ratio = statistics.median(ratios)
            print("%-40s %6.3f   target: at most %.2f" % (name, ratio, most), flush=True)
            rows.append([name, "%.3f" % ratio, "at most %.2f" % most])
    record.keep(arguments, "bench/features.py", ["feature", "time over without", "target"], rows)


if __name__ == "__main__":
    main()
