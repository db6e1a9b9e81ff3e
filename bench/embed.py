#!/usr/bin/env python3
"""Sentence embedding beside its peers: the time from 64 texts to 64 vectors, tokenizing included, in turn in one run.

    embed.py BUILD_DIR MODEL_DIR [--dtype TYPE] [--rounds N] [--threads N] [--onnx FILE] [--json FILE] [--machine TEXT]

A peer runs if the Python that runs this has its packages, for example by

    sh tests/packages.sh FOLDER numpy==2.4.6 tokenizers==0.23.3 onnxruntime==1.32.0 openvino==2026.4.1
    PYTHONPATH=FOLDER $(cat FOLDER/python) bench/embed.py ...

Each has a process of its own:

    torch        transformers' BertModel by PyTorch in float32: all 64 in one batch, padded to the longest
    torch, by length   the same in batches of 16 of like length, as sentence-transformers sorts them
    onnxruntime  ONNX Runtime with the model in --onnx (what --export FILE writes), in both ways
    openvino     OpenVINO with the same model, in both ways; its arithmetic is --dtype's, too, if the processor has it

--dtype is f32 (default), f16 or bf16: what clattn embed stores.  If it is not f32, clattn runs in float32 as well.

MODEL_DIR is all-MiniLM-L6-v2: `sh examples/models.sh minilm FOLDER` prints it.  The texts are the first 64 sentences of
docs/attention.md and docs/architecture.md.  The median of the rounds counts; each round has several runs.

The exit status is 1 if a vector differs from that of a peer in float32 by more than tests/embed holds the command to: a
cosine below 0.99999, or a number that is off by more than 1e-5; in 16 bits a cosine below 0.9999."""
import argparse
import json
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
LIMITS = {"f32": (0.99999, 1e-5), "f16": (0.9999, 1.0), "bf16": (0.9999, 1.0)}  # the least cosine, the largest difference


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
    used = "f32"
    if kind.startswith("torch"):
        torch, model = model_of(options.model)
        torch.set_num_threads(options.threads)

        def hidden(ids, mask):
            with torch.inference_mode():
                mask = torch.from_numpy(mask)
                out = model(input_ids=torch.from_numpy(ids), attention_mask=mask).last_hidden_state
                return pooled(out, mask.float()).numpy()
    elif kind.startswith("openvino"):
        import openvino
        model = openvino.Core().compile_model(options.onnx, "CPU", {
            "INFERENCE_PRECISION_HINT": options.dtype, "INFERENCE_NUM_THREADS": options.threads, "PERFORMANCE_HINT": "LATENCY"})
        used = model.get_property("INFERENCE_PRECISION_HINT").get_type_name()

        def hidden(ids, mask):
            out = model([ids.astype(np.int64), mask.astype(np.int64)])[0]
            return pooled(out, mask.astype(np.float32))
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
    print(json.dumps(used), flush=True)
    for _ in sys.stdin:
        times = []
        for _ in range(RUNS):
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
        print(statistics.median(times), flush=True)


def ours(options, dtype, given):
    return record.run_json([os.path.join(options.build, "src", "clattn"), "embed", options.model, "--dtype", dtype, "--json",
                            "--repeat", str(RUNS), "--"] + given)


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
        sys.executable, __file__, options.build, options.model, "--peer", kind, "--threads", str(options.threads), "--dtype",
        options.dtype, "--vectors", vectors] + (["--onnx", options.onnx] if options.onnx else []))


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
    parser.add_argument("--dtype", choices=list(LIMITS), default="f32")
    parser.add_argument("--onnx", metavar="FILE")
    parser.add_argument("--export", metavar="FILE")
    parser.add_argument("--vectors", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.export:
        return export(options)
    if options.peer:
        return peer(options.peer, options)

    given = texts()
    main_kind, least_cosine, most_difference = "clattn-" + options.dtype, *LIMITS[options.dtype]
    own = [main_kind] + (["clattn-f32"] if options.dtype != "f32" else [])
    with tempfile.TemporaryDirectory() as folder:
        kinds = ["torch", "torch-by-length"]
        if options.onnx:
            kinds += [peer + way for peer in ("onnxruntime", "openvino") for way in ("", "-by-length")]
        peers = {kind: start(kind, options, os.path.join(folder, kind + ".npy")) for kind in kinds}
        peers = {kind: process for kind, process in peers.items() if process is not None}
        used = {kind: json.loads(process.stdout.readline()) for kind, process in peers.items()}
        times = {kind: [] for kind in [*own, *peers]}
        for _ in range(options.rounds):
            reports = {kind: ours(options, kind.split("-")[1], given) for kind in own}
            for kind, report in reports.items():
                times[kind].append(report["seconds_median"])
            for kind, process in peers.items():
                times[kind].append(record.ask(process, "run"))
        vectors = {kind: reports[kind]["embeddings"] for kind in own[1:]}
        for kind, process in peers.items():
            import numpy as np
            process.communicate()
            vectors[kind] = np.load(os.path.join(folder, kind + ".npy"))
        different = 0
        for kind, wanted in vectors.items():
            cosine, difference = judge(reports[main_kind]["embeddings"], wanted)
            held = used.get(kind, "f32") == "f32"
            # Not the other way about: NaN is no agreement.
            same = cosine >= least_cosine and difference <= most_difference
            different += held and not same
            print("%s: vectors differ by at most %.2g, cosines are at least %.8f" % (kind, difference, cosine) +
                  ("" if same or not held else ": TOO DIFFERENT (limits: %g and %g)" % (most_difference, least_cosine)))
    report = reports[main_kind]
    print("%d texts, %d tokens, %s, %d threads for the peers\n" % (COUNT, report["tokens"], report["device"], options.threads))
    best, rows = statistics.median(times[main_kind]), []
    for kind, found in times.items():
        ratio = statistics.median(a / b for a, b in zip(found, times[main_kind]))
        milliseconds = statistics.median(found) * 1e3
        name = kind + (" in " + used[kind] if used.get(kind, "f32") != "f32" else "")
        print("%-28s %8.1f ms  fastest %8.1f ms  over %s %.2f" % (name, milliseconds, min(found) * 1e3, main_kind, ratio))
        rows.append([name, "%.0f ms" % milliseconds, "%.2f" % ratio])
    record.keep(options, "bench/embed.py", ["program", "median", "its time / ours"], rows)
    assert best > 0
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
