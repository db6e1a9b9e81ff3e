"""Models that PyTorch exports, by ONNX Runtime with clattn's provider and with the CPU provider alone, in turn in one process:
milliseconds a run in float32, and the most memory of each in a process of its own, with the last inputs.

    exported.py BUILD_DIR FOLDER [--export] [--rounds N] [--only TEXT[,TEXT...]] [--json FILE] [--machine TEXT]

BUILD_DIR has the provider and the command (-Donnxruntime=enabled). --export writes the models that FOLDER lacks, with random
weights, and needs PyPI's torch, onnxscript and transformers; the rest needs onnxruntime and, because of its imports, onnx.

Rounds of both take turns, each of 0.3 s or of one run; the ratio is the median of the rounds' ratios, with their quartiles. Threads
of sessions do not spin. The exit status is 1 if an output is more than 1e-4 from the CPU provider's."""
import argparse
import os
import pathlib
import statistics
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "onnxruntime")]

import record
import tables

LIBRARY = ("plugins", "onnxruntime", "libclattn-onnxruntime.so")
SECONDS, WITHIN = 0.3, 1e-4


def models():
    """Names, makers of modules, inputs by the names of rows, and whether batch and length are to be open. The exporter gets the last
    inputs, and takes an extent of 1 for a constant."""
    import torch
    from test_exports import Cached, Named
    from transformers import (BertConfig, BertModel, CLIPTextConfig, CLIPTextModel, CLIPVisionConfig, CLIPVisionModel, GPT2Config,
                              GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, SamVisionConfig, SamVisionModel, SwinConfig,
                              SwinModel, ViTConfig, ViTModel, WhisperConfig, WhisperForConditionalGeneration)
    mini = {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}
    llama = LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=12, num_attention_heads=9,
                        num_key_value_heads=3)
    sam = SamVisionConfig(num_hidden_layers=3, image_size=512, global_attn_indexes=[2])
    whisper = WhisperConfig()

    def tokens(*shape):
        return torch.randint(0, 1000, shape)

    def texts(*shapes):
        return {"%d x %d" % shape: (tokens(*shape), torch.ones(shape, dtype=torch.int64)) for shape in shapes}

    def pictures(size, *batches):
        return {"%d x %dx%d" % (batch, size, size): (torch.randn(batch, 3, size, size),) for batch in batches}

    def cached(layers, heads):
        past = [torch.randn(1, heads, 128, 64) for _ in range(2 * layers)]
        return {"1 behind 128": (tokens(1, 1), torch.ones(1, 129, dtype=torch.int64), *past)}

    def whisper_decoder():
        return Named(WhisperForConditionalGeneration(whisper).model.decoder, "input_ids", "encoder_hidden_states", use_cache=False)

    def whisper_encoder():
        return Named(WhisperForConditionalGeneration(whisper).model.encoder, "input_features")

    bert = texts((1, 16), (1, 128), (1, 384), (8, 128))
    yield "MiniLM", lambda: Named(BertModel(BertConfig(**mini)), "input_ids", "attention_mask"), bert, True
    yield "BERT-base", lambda: Named(BertModel(BertConfig()), "input_ids", "attention_mask"), bert, True
    yield "GPT-2", lambda: Cached(GPT2LMHeadModel(GPT2Config())), cached(12, 12), False
    yield "Llama-like", lambda: Named(LlamaForCausalLM(llama), "input_ids", use_cache=False), {
        "1 x 128": (tokens(1, 128),), "4 x 32": (tokens(4, 32),)}, True
    yield "Llama-like with a cache", lambda: Cached(LlamaForCausalLM(llama)), cached(12, 3), False
    yield "Whisper tiny's encoder", whisper_encoder, {"30 s": (torch.randn(1, 80, 3000),)}, False
    yield "Whisper tiny's decoder", whisper_decoder, {"1 x 32": (tokens(1, 32), torch.randn(1, 1500, 384))}, False
    yield "ViT-B", lambda: Named(ViTModel(ViTConfig(), add_pooling_layer=False), "pixel_values"), pictures(224, 1, 4), True
    yield "CLIP-B's pictures", lambda: Named(CLIPVisionModel(CLIPVisionConfig()), "pixel_values"), pictures(224, 1, 8), True
    yield "CLIP-B's texts", lambda: Named(CLIPTextModel(CLIPTextConfig()), "input_ids"), {
        "1 x 77": (tokens(1, 77),), "4 x 77": (tokens(4, 77),)}, True
    yield "Swin-T", lambda: Named(SwinModel(SwinConfig(), add_pooling_layer=False), "pixel_values"), pictures(224, 1), False
    yield "SAM-B's encoder, 3 layers", lambda: Named(SamVisionModel(sam), "pixel_values"), pictures(512, 1), False


def is_chosen(name, options):
    return any(part in name for part in options.only.split(","))


def export(options):
    """Writes FOLDER/MODEL/model.onnx and, for each row, ROW.npz with the inputs."""
    import torch
    from test_exports import dynamic
    from test_exports import export as exported
    torch.manual_seed(0)
    for name, make, rows, is_open in models():
        folder = pathlib.Path(options.folder, name)
        if folder.exists() or not is_chosen(name, options):
            continue
        print(name, flush=True)
        *_, inputs = rows.values()
        content = exported(make(), inputs, 18, True, **({"dynamic_shapes": dynamic(inputs)} if is_open else {}))
        part = folder.with_name(name + ".part")
        part.mkdir(parents=True, exist_ok=True)
        (part / "model.onnx").write_bytes(content)
        for row, arrays in rows.items():
            np.savez(part / f"{row}.npz", *(array.numpy() for array in arrays))
        part.rename(folder)


def open_session(folder, with_clattn):
    settings = onnxruntime.SessionOptions()
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    settings.log_severity_level = 3
    if not with_clattn:
        return onnxruntime.InferenceSession(folder / "model.onnx", settings, providers=["CPUExecutionProvider"])
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == "ClattnExecutionProvider"]
    settings.add_provider_for_devices(devices, {})
    session = onnxruntime.InferenceSession(folder / "model.onnx", settings)
    session.disable_fallback()
    return session


def read_inputs(session, path):
    with np.load(path) as arrays:
        return {each.name: arrays[f"arr_{n}"] for n, each in enumerate(session.get_inputs())}


def milliseconds(session, inputs):
    times, end = [], time.perf_counter() + SECONDS
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        session.run(None, inputs)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def peak(path, with_clattn):
    """The most megabytes that this process had, of which Linux tells."""
    session = open_session(path.parent, with_clattn)
    for _ in range(2):
        session.run(None, read_inputs(session, path))
    status = pathlib.Path("/proc/self/status").read_text(encoding="utf-8")
    print(int(status.split("VmHWM:")[1].split()[0]) // 1000)


def measure(path, sessions, rounds):
    """A row of the table, and how far outputs are apart."""
    inputs = read_inputs(sessions[0], path)
    pairs = zip(*(session.run(None, inputs) for session in sessions))
    apart = max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)
    ours, theirs = zip(*((milliseconds(sessions[0], inputs), milliseconds(sessions[1], inputs)) for _ in range(rounds)))
    low, middle, high = statistics.quantiles((t / o for t, o in zip(theirs, ours)), n=4, method="inclusive")
    return [path.parent.name, path.stem, "%.3g" % statistics.median(ours), "%.3g" % statistics.median(theirs),
            "%.2f (%.2f to %.2f)" % (middle, low, high)], apart


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("folder")
    parser.add_argument("--export", action="store_true")
    parser.add_argument("--rounds", type=int, default=7, metavar="N")
    parser.add_argument("--only", default="", metavar="TEXT[,TEXT...]", help="models whose names have one of these")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    record.add_options(parser)
    options = parser.parse_args()
    if options.export:
        return export(options)
    onnxruntime.register_execution_provider_library("clattn", str(pathlib.Path(options.build, *LIBRARY)))
    if options.peak:
        return peak(pathlib.Path(options.peak[1]), options.peak[0] == "clattn")
    rows, most = [], 0.0
    for folder in sorted(pathlib.Path(options.folder).iterdir()):
        if is_chosen(folder.name, options):
            sessions = [open_session(folder, with_clattn) for with_clattn in (True, False)]
            paths = sorted(folder.glob("*.npz"))
            measured = [measure(path, sessions, options.rounds) for path in paths]
            del sessions
            # Kernels are compiled by now.
            memory = ["%d MB" % record.run_json([sys.executable, *sys.argv, "--peak", name, str(paths[-1])])
                      for name in ("clattn", "CPU")]
            for row, apart in measured:
                rows.append(row + memory)
                print("  ".join(rows[-1]), "" if apart < WITHIN else "  %g apart" % apart, flush=True)
                most = max(most, apart)
    found = record.keep(options, "bench/models/exported.py",
                        ["model", "input", "clattn, ms", "CPU provider, ms", "its time / ours (quartiles)",
                         "clattn's most memory", "CPU provider's"], rows, {"ONNX Runtime": onnxruntime.__version__})
    print("\n" + tables.file_table(found))
    return most >= WITHIN


record.run_script(main)
