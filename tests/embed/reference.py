#!/usr/bin/env python3
"""all-MiniLM-L6-v2 by transformers and PyTorch, in float64: what clattn embed is compared with.

    python3 -m venv /tmp/embed
    /tmp/embed/bin/pip install torch==2.15.0 transformers==5.23.0 tokenizers==0.23.3 numpy==2.4.6
    sh examples/models.sh minilm /tmp/models
    /tmp/embed/bin/python tests/embed/reference.py MODEL_DIR            # writes vectors.npy
    /tmp/embed/bin/python tests/embed/reference.py MODEL_DIR --check    # compares with the file that is there
    /tmp/embed/bin/python tests/embed/reference.py MODEL_DIR --compare CLATTN [--count N] [--seed N]
                                # the command beside it, on those sentences and N random ones; prints TAP

MODEL_DIR is the last line that models.sh prints."""
import argparse
import json
import pathlib
import random
import subprocess
import sys

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel
from safetensors.torch import load_file

HERE = pathlib.Path(__file__).resolve().parent
MOST_TOKENS = 256  # sentence_bert_config.json's
LONGEST = "word and another " * 300  # as line 27 of vectors.npy: more tokens than that


def sentences():
    return (HERE / "sentences.txt").read_text(encoding="utf-8").split("\n")[:-1] + [LONGEST.strip()]


class Reference:
    def __init__(self, folder):
        folder = pathlib.Path(folder)
        config = BertConfig.from_json_file(folder / "config.json")
        config._attn_implementation = "eager"
        self.model = BertModel(config, add_pooling_layer=False).double().eval()
        tensors = load_file(folder / "model.safetensors")
        missing, _ = self.model.load_state_dict({name: t.double() if t.is_floating_point() else t
                                                 for name, t in tensors.items()}, strict=False)
        assert not [name for name in missing if "position_ids" not in name], missing
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MOST_TOKENS)

    @torch.no_grad()
    def vectors(self, texts):
        """Each text alone, so that nothing is padded: the mean over its tokens, of length 1, float64."""
        rows = []
        for text in texts:
            ids = torch.tensor([self.tokenizer.encode(text).ids])
            mean = self.model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0].mean(0)
            rows.append((mean / mean.norm()).numpy())
        return np.array(rows)


def judge(found, wanted):
    """The least cosine and the largest difference."""
    found = found.astype(np.float64)
    cosine = (found * wanted).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(wanted, axis=1)
    return cosine.min(), np.abs(found - wanted).max()


def draw(seed, count):
    """Random sentences: words of the given ones, from one to about 300."""
    numbers = random.Random(seed)
    words = [word for line in sentences()[:-1] for word in line.split()]
    return [" ".join(numbers.choice(words) for _ in range(int(2 ** numbers.uniform(0, 8)))) for _ in range(count)]


def compare(options, reference):
    texts = sentences() + draw(options.seed, options.count)
    done = subprocess.run([options.compare, "embed", options.model], input="\n".join(texts).encode() + b"\n",
                          stdout=subprocess.PIPE, check=True)
    found = np.array([[float(x) for x in line.split(b" ")] for line in done.stdout.splitlines()])
    wanted = reference.vectors(texts)
    cosine, difference = judge(found, wanted) if found.shape == wanted.shape else (0, np.inf)
    good = cosine >= 0.99999 and difference <= 1e-5
    print("%sok 1 - %d sentences: cosine at least %.8f, difference at most %.2g" %
          ("" if good else "not ", len(texts), cosine, difference))
    print("1..1")
    return not good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--compare", metavar="CLATTN")
    parser.add_argument("--count", type=int, default=100, metavar="N")
    parser.add_argument("--seed", type=int, default=20261122, metavar="N")
    options = parser.parse_args()
    reference = Reference(options.model)
    if options.compare:
        return compare(options, reference)
    vectors = reference.vectors(sentences())
    if options.check:
        cosine, difference = judge(np.load(HERE / "vectors.npy"), vectors)
        print("cosine at least %.10f, difference at most %.2g" % (cosine, difference))
        return not (cosine > 1 - 1e-9 and difference < 1e-6)
    np.save(HERE / "vectors.npy", vectors.astype(np.float32))
    print(json.dumps({"shape": vectors.shape, "largest": float(np.abs(vectors).max())}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
