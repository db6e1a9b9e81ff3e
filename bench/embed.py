#!/usr/bin/env python3
"""Sentence embedding beside its peers: the time from 64 texts to 64 vectors, tokenizing included, in turn in one run.

    embed.py BUILD_DIR MODEL_DIR [--rounds N] [--threads N] [--onnx FILE] [--json FILE] [--machine TEXT]

A peer runs if the Python that runs this has its packages. Each has a process of its own:

    torch        transformers' BertModel by PyTorch in float32: all 64 in one batch, padded to the longest
    torch, by length   the same in batches of 16 of like length, as sentence-transformers sorts them
    onnxruntime  ONNX Runtime with the model in --onnx (what --export FILE writes), in both ways

MODEL_DIR is all-MiniLM-L6-v2: `sh examples/models.sh minilm FOLDER` prints it.  The texts are the first 64 sentences of
docs/attention.md and docs/architecture.md.  The median of the rounds counts; each round has several runs.

The exit status is 1 if a vector differs from a peer's by more than tests/embed holds the command to: a cosine below
0.99999, or a number that is off by more than 1e-5."""
import argparse
import os
import pathlib
import re
import statistics
import sys
import tempfile
import time

import record

ROOT = pathlib.Path(__file__).resolve().parent.parent
COUNT, RUNS, BATCH = 64, 5, 16
LEAST_COSINE, MOST_DIFFERENCE = 0.99999, 1e-5


def texts():
    found = []
    for name in ("attention.md", "architecture.md"):
        page = (ROOT / "docs" / name).read_text(encoding="utf-8")
        page = re.sub(r"```.*?```", "", page, flags=re.S)
        lines = " ".join(line for line in page.splitlines() if line and line[0] not in "|#<-*")
        found += [part.strip() for part in re.split(r"(?<=[.!?]) ", lines) if len(part.split()) > 2]
    assert len(found) >= COUNT
    return found[:COUNT]


def tokenizer_of(folder):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(pathlib.Path(folder) / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()
    return tokenizer


def model_of(folder):
    import torch
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel
    model = BertModel(BertConfig.from_json_file(pathlib.Path(folder) / "config.json"), add_pooling_layer=False).eval()
    model.load_state_dict(load_file(pathlib.Path(folder) / "model.safetensors"), strict=False)
    return torch, model


def batches(tokenizer, given, by_length):
    """(the texts' places, ids, mask) of each batch."""
    import numpy as np
    order = sorted(range(len(given)), key=lambda i: -len(given[i])) if by_length else list(range(len(given)))
    size = BATCH if by_length else len(order)
    for first in range(0, len(order), size):
        places = order[first:first + size]
        encoded = tokenizer.encode_batch([given[i] for i in places])
        yield places, np.array([e.ids for e in encoded]), np.array([e.attention_mask for e in encoded])


def pooled(hidden, mask):
    """The unit vectors, in NumPy or PyTorch alike."""
    mean = (hidden * mask[..., None]).sum(1) / mask.sum(1)[:, None]
    return mean / (mean ** 2).sum(1)[:, None] ** 0.5


def peer(kind, options):
    """Answers each line of standard input with seconds."""
    import numpy as np
    given, tokenizer = texts(), tokenizer_of(options.model)
    by_length = kind.endswith("-by-length")
    if kind.startswith("torch"):
        torch, model = model_of(options.model)
        torch.set_num_threads(options.threads)

        def hidden(ids, mask):
            with torch.inference_mode():
                mask = torch.from_numpy(mask)
                out = model(input_ids=torch.from_numpy(ids), attention_mask=mask).last_hidden_state
                return pooled(out, mask.float()).numpy()
    else:
        import onnxruntime
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads
        session = onnxruntime.InferenceSession(options.onnx, settings, providers=["CPUExecutionProvider"])

        def hidden(ids, mask):
            out = session.run(None, {"input_ids": ids.astype(np.int64), "attention_mask": mask.astype(np.int64)})[0]
            return pooled(out, mask.astype(np.float32))

    def run():
        vectors = np.empty((len(given), 384), np.float32)
        for places, ids, mask in batches(tokenizer, given, by_length):
            vectors[places] = hidden(ids, mask)
        return vectors

    vectors = run()
    np.save(options.vectors, vectors)
    run()
    print("ready", flush=True)
    for _ in sys.stdin:
        times = []
        for _ in range(RUNS):
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
        print(statistics.median(times), flush=True)


def ours(options, given):
    return record.run_json([os.path.join(options.build, "src", "clattn"), "embed", options.model, "--json", "--repeat",
                            str(RUNS), "--"] + given)


def judge(found, wanted):
    """The least cosine of a text's two vectors, and the largest difference of two numbers."""
    import numpy as np
    found, wanted = np.array(found, np.float64), np.array(wanted, np.float64)
    if found.shape != wanted.shape:
        return float("nan"), float("nan")
    cosines = (found * wanted).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(wanted, axis=1)
    return cosines.min(), np.abs(found - wanted).max()


def start(kind, options, vectors):
    return record.start_peer(kind, [
        sys.executable, __file__, options.build, options.model, "--peer", kind, "--threads", str(options.threads), "--vectors",
        vectors] + (["--onnx", options.onnx] if options.onnx else []))


def export(options):
    """The model as ONNX, inputs input_ids and attention_mask of any batch and length."""
    torch, model = model_of(options.model)
    model.config._attn_implementation = "eager"
    ids = torch.ones(2, 7, dtype=torch.int64)

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    batch, length = torch.export.Dim("batch", min=1, max=4096), torch.export.Dim("length", min=2, max=512)
    torch.onnx.export(Encoder().eval(), (ids, torch.ones_like(ids)), options.export, input_names=["input_ids", "attention_mask"],
                      output_names=["hidden"], dynamic_shapes=({0: batch, 1: length}, {0: batch, 1: length}), dynamo=True,
                      external_data=False)


def main():
    parser = record.model_parser(__doc__.splitlines()[0], 7)
    parser.add_argument("--onnx", metavar="FILE")
    parser.add_argument("--export", metavar="FILE")
    parser.add_argument("--vectors", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.export:
        return export(options)
    if options.peer:
        return peer(options.peer, options)

    given = texts()
    with tempfile.TemporaryDirectory() as folder:
        kinds = ["torch", "torch-by-length"] + (["onnxruntime", "onnxruntime-by-length"] if options.onnx else [])
        peers = {kind: start(kind, options, os.path.join(folder, kind + ".npy")) for kind in kinds}
        peers = {kind: process for kind, process in peers.items() if process is not None}
        times = {kind: [] for kind in ["clattn", *peers]}
        for _ in range(options.rounds):
            report = ours(options, given)
            times["clattn"].append(report["seconds_median"])
            for kind, process in peers.items():
                times[kind].append(record.ask(process, "run"))
        different = 0
        for kind, process in peers.items():
            import numpy as np
            process.communicate()
            cosine, difference = judge(report["embeddings"], np.load(os.path.join(folder, kind + ".npy")))
            # Not the other way about: NaN is no agreement.
            same = cosine >= LEAST_COSINE and difference <= MOST_DIFFERENCE
            different += not same
            print("%s: vectors differ by at most %.2g, cosines are at least %.8f" % (kind, difference, cosine) +
                  ("" if same else ": TOO DIFFERENT (limits: %g and %g)" % (MOST_DIFFERENCE, LEAST_COSINE)))
    print("%d texts, %d tokens, %s, %d threads for the peers\n" % (COUNT, report["tokens"], report["device"], options.threads))
    best, rows = statistics.median(times["clattn"]), []
    for kind, found in times.items():
        ratio = statistics.median(a / b for a, b in zip(found, times["clattn"]))
        milliseconds = statistics.median(found) * 1e3
        print("%-24s %8.1f ms  fastest %8.1f ms  over clattn %.2f" % (kind, milliseconds, min(found) * 1e3, ratio))
        rows.append([kind, "%.0f ms" % milliseconds, "%.2f" % ratio])
    record.keep(options, "bench/embed.py", ["program", "median", "its time / ours"], rows)
    assert best > 0
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
