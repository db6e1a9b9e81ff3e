"""clattn image beside spandrel's SwinIR: models of every kind with random weights, written as a state dict, and PNG files of
random sizes and kinds.

    python image.py [--draws N] [--seed N] [--only NUMBER[,NUMBER...]] [--kinds KIND[,KIND...]] [--keep]

The command is $CLATTN.  A component differs by 1 of 255 at most; of 16 bits, by 8 of 65535.  Prints TAP."""
import os
import subprocess
import sys

import numpy as np
import torch
from safetensors.torch import save_file
from spandrel.architectures.SwinIR import SwinIR

import draws

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tool"))
import png_pictures as png  # noqa: E402

ALLOWED = {np.uint8: 1, np.uint16: 8}


def make(case, upsampler, factor):
    heads, size, channels = case.pick(1, 2, 3), case.pick(8, 10, 16), case.pick(1, 3, 3)
    window, residual = case.pick(4, 7, 8), case.pick(1, 1, 3)
    layers = [case.whole(1, 3) for _ in range(case.whole(1, 3))]
    whole = 255 if window == 7 and not upsampler else 1
    case.window, case.channels, case.factor = window, channels, factor
    case.note.append("%d times, layers %s, %d heads of %d, windows of %d, %d channels, %d convolutions"
                     % (factor, layers, heads, size, window, channels, residual))
    module = SwinIR(img_size=2 * window, in_chans=channels, embed_dim=heads * size, depths=layers,
                    num_heads=[heads] * len(layers), window_size=window, mlp_ratio=case.pick(1, 2), upscale=factor,
                    upsampler=upsampler, resi_connection="%dconv" % residual, img_range=float(whole),
                    patch_norm=case.whole(0, 3) > 0, qkv_bias=case.whole(0, 3) > 0)
    draws.randomise(module, case)
    with torch.no_grad():  # pictures stay within the range where they are not cut off
        last = module.upsample[0] if upsampler == "pixelshuffledirect" else module.conv_last
        last.weight *= 0.2
        last.bias *= 0.2
        if upsampler and channels == 1:
            last.bias += 0.5
    return module


KINDS = {"shuffle": lambda case: make(case, "pixelshuffle", case.pick(2, 3, 4, 8)),
         "shuffle-once": lambda case: make(case, "pixelshuffledirect", case.pick(2, 3, 4)),
         "nearest": lambda case: make(case, "nearest+conv", case.pick(2, 4)),
         "added": lambda case: make(case, "", 1)}


def picture(case):
    height, width = case.whole(case.window, 6 * case.window), case.whole(case.window, 6 * case.window)
    channels, dtype = case.pick(1, 2, 3, 3, 4), case.pick(np.uint8, np.uint8, np.uint16)
    y, x = np.mgrid[:height, :width]
    waves = np.stack([0.5 + 0.3 * np.sin(x / case.whole(3, 20) + c) * np.cos(y / case.whole(3, 20)) for c in range(channels)], 2)
    levels = np.iinfo(dtype).max
    case.note.append("%d x %d x %d of %d bits" % (height, width, channels, 8 * dtype().itemsize))
    return np.clip(np.rint((waves + case.random.normal(0, 0.05, waves.shape)) * levels), 0, levels).astype(dtype)


def restored(module, case, pixels):
    """The colours that PyTorch computes, as levels."""
    levels = np.iinfo(pixels.dtype).max
    colours = torch.tensor(pixels[..., :1 if pixels.shape[2] < 3 else 3].astype(np.float32) / levels).permute(2, 0, 1)
    if case.channels == 1:
        made = module(colours[:, None])[:, 0]
    else:
        made = module(colours.expand(3, -1, -1)[None])[0]
        made = made.mean(0, keepdim=True) if len(colours) == 1 else made
    return np.rint(made.clamp(0, 1).permute(1, 2, 0).double().numpy() * levels)


def judge(make_model, case):
    module = make_model(case)
    prefix = case.pick("", "params.", "params_ema.")
    save_file({prefix + name: tensor.contiguous() for name, tensor in module.state_dict().items()},
              os.path.join(case.folder, case.pick("model", "SwinIR")) + ".safetensors")
    pixels = picture(case)
    given, output = (os.path.join(case.folder, name) for name in ("in.png", "out.png"))
    with open(given, "wb") as file:
        file.write(png.encode(pixels))
    wanted = restored(module, case, pixels)
    command = [os.environ["CLATTN"], "image", case.folder, given, "-o", output]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        return done.stderr.strip() or "exit status %d" % done.returncode, " ".join(command)
    with open(output, "rb") as file:
        found = png.decode(file.read())
    colours = wanted.shape[2]
    if found.shape != wanted.shape[:2] + pixels.shape[2:] or found.dtype != pixels.dtype:
        return "the result is %s %s" % (found.shape, found.dtype), " ".join(command)
    apart = np.max(np.abs(found[..., :colours] - wanted))
    inside = np.mean((wanted > 0) & (wanted < np.iinfo(pixels.dtype).max))
    if not apart <= ALLOWED[pixels.dtype.type]:
        return "differs by %d levels" % apart, " ".join(command)
    if case.factor == 1 and not np.array_equal(found[..., colours:], pixels[..., colours:]):
        return "alpha has changed", " ".join(command)
    return "", "%d levels, %d%% within the range" % (apart, 100 * inside)


sys.exit(draws.main(draws.Case, KINDS, judge))
