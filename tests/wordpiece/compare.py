#!/usr/bin/env python3
"""The command's WordPiece tokenizer beside PyPI's tokenizers, on strings.py's strings.

    compare.py PROGRAM MODEL_DIR [--count N] [--seed N]     with the model's vocabulary, by tokenizer.json and by vocab.txt
    compare.py --write FOLDER                               makes vocab.txt and cases.txt of tests/wordpiece

PROGRAM is the build's tests/wordpiece/wordpiece_tokenize.  Needs the tokenizers package.  Prints TAP."""
import argparse
import pathlib
import random
import subprocess
import sys

from tokenizers import BertWordPieceTokenizer, Tokenizer

from strings import strings

SEED = 20261122
MOST = 1000000


def ours(program, kind, path, texts, most):
    """(tokens without the limit, numbers) of each text."""
    data = b"".join(b"%d\n%s" % (len(text), text) for text in (text.encode("utf-8") for text in texts))
    done = subprocess.run([program, kind, path, str(most)], input=data, stdout=subprocess.PIPE, check=True)
    lines = [[int(word) for word in line.split()] for line in done.stdout.decode().splitlines()]
    return [(line[0], line[1:]) for line in lines]


def compare(program, kind, path, tokenizer, texts, most):
    """The first differences, as text."""
    tokenizer.no_padding()
    tokenizer.no_truncation()
    whole = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    tokenizer.enable_truncation(most)
    cut = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    found = ours(program, kind, path, texts, most)
    wrong = ["%a: %s, expected %d %s" % (text, mine, len(all_), part)
             for text, mine, all_, part in zip(texts, found, whole, cut) if mine != (len(all_), part)]
    if len(found) != len(texts):
        wrong.append("%d results for %d texts" % (len(found), len(texts)))
    return wrong


def run(options):
    model = pathlib.Path(options.model)
    texts = strings(options.seed, options.count)
    failed = 0
    cases = [(kind, name, load, most)
             for kind, name, load in (("json", "tokenizer.json", Tokenizer.from_file),
                                      ("vocab", "vocab.txt", lambda path: BertWordPieceTokenizer(path)))
             for most in (MOST, 256, 16, 3)]
    for number, (kind, name, load, most) in enumerate(cases, 1):
        wrong = compare(options.program, kind, str(model / name), load(str(model / name)), texts, most)
        print("%sok %d - %d strings by %s, at most %d tokens" % ("not " if wrong else "", number, len(texts), name, most))
        for line in wrong[:5]:
            print("# Error: " + line)
        failed += bool(wrong)
    print("1..%d" % len(cases))
    return 1 if failed else 0


def write(folder):
    """A vocabulary of half of what the strings hold, so that words are cut in every way and many not at all."""
    folder = pathlib.Path(folder)
    draw = random.Random(SEED)
    texts = [text for text in strings(SEED, 1100) if len(text.encode("utf-8")) <= 600]
    all_ = BertWordPieceTokenizer()
    normal, cutter = all_._tokenizer.normalizer, all_._tokenizer.pre_tokenizer
    words = sorted({word for text in texts for word, _ in cutter.pre_tokenize_str(normal.normalize_str(text))})
    characters = sorted({c for word in words for c in word})
    kept = [c for c in characters if c.isascii() or draw.random() < 0.5]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + kept
    tokens += ["##" + c for c in kept if c.isalnum() and draw.random() < 0.9]
    for word in words:
        if len(word) > 2 and draw.random() < 0.35:
            begin = draw.randrange(len(word) - 1)
            end = draw.randint(begin + 2, min(len(word), begin + 8))
            tokens.append(("##" if begin else "") + word[begin:end])
    tokens = list(dict.fromkeys(tokens))
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8", newline="")
    theirs = BertWordPieceTokenizer(str(folder / "vocab.txt"))
    lines = ["%s %s" % (text.encode("utf-8").hex() or "-", " ".join(map(str, theirs.encode(text).ids))) for text in texts]
    (folder / "cases.txt").write_text("\n".join(lines) + "\n", encoding="ascii")
    unknown = sum(line.split()[1:].count("1") for line in lines)
    numbers = sum(len(line.split()) - 1 for line in lines)
    print("%d tokens, %d cases, %d numbers, %d of them [UNK]" % (len(tokens), len(lines), numbers, unknown))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="?")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--count", type=int, default=3000, metavar="N")
    parser.add_argument("--seed", type=int, default=SEED, metavar="N")
    parser.add_argument("--write", metavar="FOLDER")
    options = parser.parse_args()
    if options.write is not None:
        return write(options.write)
    if options.model is None:
        parser.error("PROGRAM and MODEL_DIR are needed")
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
