"""Models of pictures beside transformers and spandrel (SwinIR) on PyTorch, in one run: milliseconds a call in float32, and memory.
Plans have `prepack`.

    vision.py BUILD_DIR [--rounds N] [--only TEXT[,TEXT...]] [--json FILE] [--machine TEXT]

The packages are those of tests/vision/README.md.  Weights are random; rounds of both take turns, and the ratio is the median of
the rounds' ratios."""
import argparse
import os
import statistics
import subprocess
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

import record


def vit(d_model, heads, layers=12):
    return transformers.ViTModel(transformers.ViTConfig(
        hidden_size=d_model, num_attention_heads=heads, num_hidden_layers=layers, intermediate_size=4 * d_model),
        add_pooling_layer=False)


def dinov2(d_model, heads, layers=12):
    return transformers.Dinov2Model(transformers.Dinov2Config(
        hidden_size=d_model, num_attention_heads=heads, num_hidden_layers=layers, image_size=518, patch_size=14))


def swin():
    return transformers.SwinModel(transformers.SwinConfig())


def sam():
    return transformers.SamVisionModel(transformers.SamVisionConfig(global_attn_indexes=[2, 5, 8, 11]))


def swinir(stages, d_model, upsampler):
    from spandrel.architectures.SwinIR import SwinIR
    return SwinIR(img_size=64, embed_dim=d_model, depths=[6] * stages, num_heads=[6] * stages, window_size=8, mlp_ratio=2,
                  upscale=4, upsampler=upsampler)


def write_weights(module, folder):
    path = os.path.join(folder, "weights.safetensors")
    if not hasattr(module, "save_pretrained"):
        return save_file({name: tensor.contiguous() for name, tensor in module.state_dict().items()}, path)
    module.save_pretrained(folder)
    os.rename(os.path.join(folder, "model.safetensors"), path)


# name: clattn_vision, pooling, module, what is called of it, input
CASES = {
    "ViT-B/16, 1 x 224x224": (2, 2, lambda: vit(768, 12), "module", (1, 3, 224, 224)),
    "ViT-S/16, 8 x 224x224": (1, 2, lambda: vit(384, 6), "module", (8, 3, 224, 224)),
    "ViT-L/16, 1 x 224x224": (3, 2, lambda: vit(1024, 16, 24), "module", (1, 3, 224, 224)),
    "DINOv2-S/14, 1 x 518x518": (4, 2, lambda: dinov2(384, 6), "module", (1, 3, 518, 518)),
    "DINOv2-S/14, 1 x 224x308": (4, 2, lambda: dinov2(384, 6), "module", (1, 3, 224, 308)),
    "Swin-T, 1 x 224x224": (14, 1, swin, "module", (1, 3, 224, 224)),
    "Swin-T, 8 x 224x224": (14, 1, swin, "module", (8, 3, 224, 224)),
    "Swin-T, 1 x 448x512": (14, 1, swin, "module", (1, 3, 448, 512)),
    "SAM-B, 1 x 1024x1024": (18, 0, sam, "module", (1, 3, 1024, 1024)),
    "CLIP-B/32, 8 x 224x224": (8, 2, lambda: transformers.CLIPModel(transformers.CLIPConfig()), "get_image_features",
                               (8, 3, 224, 224)),
    "CLIP-B/32, 1 x 224x224": (8, 2, lambda: transformers.CLIPModel(transformers.CLIPConfig()), "get_image_features",
                               (1, 3, 224, 224)),
    "CLIP-B/32, 16 texts of 77": (9, 3, lambda: transformers.CLIPModel(transformers.CLIPConfig()), "get_text_features",
                                  (16, 77)),
    "SwinIR x 4, 1 x 64x64": (21, 0, lambda: swinir(6, 180, "pixelshuffle"), "module", (1, 3, 64, 64)),
    "SwinIR x 4, light, 1 x 128x128": (22, 0, lambda: swinir(4, 60, "pixelshuffledirect"), "module", (1, 3, 128, 128)),
    "SwinIR x 4, real, 1 x 61x75": (23, 0, lambda: swinir(6, 180, "nearest+conv"), "module", (1, 3, 61, 75)),
}


def peer_times(call, repeat):
    times = []
    with torch.no_grad():
        for _ in range(repeat):
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1e3)
    return times


def measure(program, name, rounds):
    """A row: the model, both times, the ratio, and the most memory of our process."""
    model, pooling, make, method, shape = CASES[name]
    torch.manual_seed(0)
    module = make().eval()
    call = module if method == "module" else getattr(module, method)
    with tempfile.TemporaryDirectory() as folder:
        write_weights(module, folder)
        if len(shape) == 4:
            picture = torch.randn(shape)
            inputs = {"x" if "SwinIR" in name else "pixel_values": picture}
            np.save(os.path.join(folder, "picture.npy"), picture.numpy())
        else:
            tokens = torch.randint(0, 49405, shape)
            tokens[:, -1] = 49407
            inputs = {"input_ids": tokens}
            np.save(os.path.join(folder, "tokens.npy"), tokens.to(torch.int32).numpy())
            np.save(os.path.join(folder, "lengths.npy"), np.full(shape[0], shape[1], np.int32))
        repeat = 2 if np.prod(shape) > 3e6 else 5
        ours, theirs = [], []
        peer_times(lambda: call(**inputs), 1)
        for _ in range(rounds):
            said = subprocess.run([program, folder, "model=%d" % model, "pooling=%d" % pooling, "prepack=1",
                                   "repeat=%d" % repeat],
                                  stdout=subprocess.PIPE, text=True, check=True).stdout.split()
            ours.append(float(said[1]))
            theirs.append(statistics.median(peer_times(lambda: call(**inputs), repeat)))
    ratio = statistics.median(t / o for t, o in zip(theirs, ours))
    return [name, "%.3g" % statistics.median(ours), "%.3g" % statistics.median(theirs), "%.2f" % ratio,
            "%.0f MB" % (int(said[4]) / 1e3)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--only", default="", metavar="TEXT[,TEXT...]", help="models whose names have one of these")
    record.add_options(parser)
    options = parser.parse_args()
    program = record.tool(options.build, "tests", "vision_run")
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    rows = []
    for name in CASES:
        if any(part in name for part in options.only.split(",")):
            rows.append(measure(program, name, options.rounds))
            print("  ".join(rows[-1]), flush=True)
    record.keep(options, "bench/vision.py", ["model", "clattn, ms", "PyTorch, ms", "its time / ours", "clattn's most memory"],
                rows)


record.run_script(main)
