#!/usr/bin/env python3
"""What attention's features cost, as ratios of times taken in turn in one run.

    features.py BUILD_DIR [--rounds N] [--markdown]

Each ratio compares two calls of `clattn bench attention`, one right after the other; the median of the rounds counts."""
import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile


def write_mask(path, queries, keys):
    """A boolean .npy file, three of four true at random."""
    header = "{'descr': '|b1', 'fortran_order': False, 'shape': (%d, %d), }" % (queries, keys)
    header += " " * (-(len(header) + 11) % 64) + "\n"
    draw = random.Random(1)
    with open(path, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
        out.write(bytes(draw.getrandbits(2) != 0 for _ in range(queries * keys)))


def cases(mask):
    """name, options of the feature's call, options of the call that it is compared with, wanted, how."""
    plain = ["--shape", "1,8,8,2048,2048,64,64"]
    square = ["--shape", "1,2,2,4096,4096,64,64"]
    long = ["--shape", "1,1,1,16384,16384,64,64"]
    token = ["--shape", "1,8,8,1,16384,64,64"]
    return [
        ("a boolean mask", plain + ["--mask", mask], plain, 1.15, "at most"),
        ("causal, 4,096 x 4,096", square + ["--causal"], square, 0.58, "at most"),
        ("a window of 256 in 16,384 keys", long + ["--window", "255,0"], long, 1 / 20, "at most"),
        ("8 query heads to a key head", ["--shape", "1,16,2,1024,1024,64,64"],
         ["--shape", "1,16,16,1024,1024,64,64"], 1.0, "at most"),
        ("8 query heads to a key head, 1 query", ["--shape", "1,32,4,1,8192,64,64"],
         ["--shape", "1,32,32,1,8192,64,64"], 1.0, "at most"),
        ("pages of 16 keys", plain + ["--page-size", "16"], plain, 1.10, "at most"),
        ("pages of 16 keys, 1 query", token + ["--page-size", "16"], token, 1.10, "at most"),
        ("pages of 256 keys, 1 query", token + ["--page-size", "256"], token, 1.10, "at most"),
    ]


def seconds(build, options):
    command = [os.path.join(build, "src", "clattn"), "bench", "attention", "--json"] + options
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.strip().splitlines()[-1])["seconds_median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mask = os.path.join(folder, "mask.npy")
        write_mask(mask, 2048, 2048)
        if arguments.markdown:
            print("| feature | time over without | wanted |\n| --- | --- | --- |")
        for name, feature, without, wanted, how in cases(mask):
            ratios = [seconds(arguments.build, feature) / seconds(arguments.build, without)
                      for _ in range(arguments.rounds)]
            ratio = statistics.median(ratios)
            text = "| %s | %.3f | %s %.2f |" if arguments.markdown else "%-40s %6.3f   wanted: %s %.2f"
            print(text % (name, ratio, how, wanted), flush=True)


if __name__ == "__main__":
    main()
