"""Models of pictures beside PyTorch on the CPU, in one run: milliseconds a call, and memory.

    python bench/vision.py VISION_RUN [--rounds N] [--only NAME[,NAME...]] [--json FILE]

VISION_RUN is build/gcc/tests/vision_run. The packages are those of tests/vision/README.md. Weights are random; rounds of both
take turns, and the ratio is the median of the rounds' ratios."""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np
import torch
import transformers


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
}


def peer_times(call, repeat):
    times = []
    with torch.no_grad():
        for _ in range(repeat):
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1e3)
    return times


def measure(program, name, rounds, repeat):
    model, pooling, make, method, shape = CASES[name]
    torch.manual_seed(0)
    module = make().eval()
    call = module if method == "module" else getattr(module, method)
    with tempfile.TemporaryDirectory() as folder:
        module.save_pretrained(folder)
        os.rename(os.path.join(folder, "model.safetensors"), os.path.join(folder, "weights.safetensors"))
        if len(shape) == 4:
            x = torch.randn(shape)
            np.save(os.path.join(folder, "picture.npy"), x.numpy())
            run = lambda: call(pixel_values=x)
        else:
            x = torch.randint(0, 49405, shape)
            x[:, -1] = 49407
            np.save(os.path.join(folder, "tokens.npy"), x.to(torch.int32).numpy())
            np.save(os.path.join(folder, "lengths.npy"), np.full(shape[0], shape[1], np.int32))
            run = lambda: call(input_ids=x)
        ours, theirs, memory = [], [], 0
        peer_times(run, 2)
        for _ in range(rounds):
            said = subprocess.run([program, folder, "model=%d" % model, "pooling=%d" % pooling, "repeat=%d" % repeat],
                                  capture_output=True, text=True, check=True).stdout.split()
            ours.append(float(said[1]))
            workspace, weights, memory = int(said[2]), int(said[3]), int(said[4])
            theirs.append(statistics.median(peer_times(run, repeat)))
    return {"ms": round(statistics.median(ours), 3), "pytorch_ms": round(statistics.median(theirs), 3),
            "ratio": round(statistics.median(t / o for t, o in zip(theirs, ours)), 3),
            "workspace_mb": round(workspace / 1e6, 1), "weights_mb": round(weights / 1e6, 1),
            "peak_mb": round(memory / 1e3, 1),
            "pytorch_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", default=",".join(CASES).replace(", ", ";"))
    parser.add_argument("--json")
    given = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("CLATTN_BENCH_THREADS", os.cpu_count())))
    results = {}
    for name in CASES:
        if not any(part.replace(";", ", ") in name for part in given.only.split(",")):
            continue
        results[name] = measure(given.program, name, given.rounds, given.repeat)
        print("%-28s %8.2f ms, PyTorch %8.2f, %.2f x; peak %.0f MB of %.0f (workspace %.0f)" % (
            name, results[name]["ms"], results[name]["pytorch_ms"], results[name]["ratio"], results[name]["peak_mb"],
            results[name]["pytorch_peak_mb"], results[name]["workspace_mb"]))
        sys.stdout.flush()
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"torch": torch.__version__, "transformers": transformers.__version__, "cases": results}, file,
                      indent=1)
            file.write("\n")


main()
