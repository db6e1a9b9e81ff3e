"""clattn embed-image beside transformers and timm: models and their processors with random weights, written by their own
save functions into a folder, and PNG files of random sizes and kinds.

    python embed_image.py [--draws N] [--seed N] [--only NUMBER[,NUMBER...]] [--kinds KIND[,KIND...]] [--keep]

The command is $CLATTN.  A picture that already has the model's size is not resized, and its vector differs by 5e-5 at most.
Others are resized, and a level of 255 may differ by 1 (src/pictures/fit.h): the cosine of their vectors is 0.9999
at least.  Prints TAP."""
import json
import os
import subprocess
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np
import timm
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file

import draws

ALLOWED, COSINE = 5e-5, 0.9999


class Case(draws.Case):
    def __init__(self, number, seed):
        super().__init__(number, seed)
        self.heads = self.pick(1, 2, 3)
        self.d_model = 64 * self.heads
        self.layers, self.patch, self.grid = self.whole(1, 3), self.pick(8, 14, 16), self.whole(2, 6)
        self.size = self.patch * self.grid

    def of_shape(self, **more):
        return dict(hidden_size=self.d_model, num_hidden_layers=self.layers, num_attention_heads=self.heads,
                    image_size=self.size, patch_size=self.patch, **more)


def vit(case, folder):
    module = transformers.ViTModel(transformers.ViTConfig(**case.of_shape(intermediate_size=case.pick(96, 256))))
    processor = transformers.ViTImageProcessor(size={"height": case.size, "width": case.size})
    return module, processor, case.size, lambda x: module(x).last_hidden_state[:, 0]


def dinov2(case, folder):
    kind = case.pick("Dinov2", "Dinov2WithRegisters")
    gated = case.whole(0, 3) == 0
    config = getattr(transformers, kind + "Config")(**case.of_shape(mlp_ratio=2, use_swiglu_ffn=gated))
    module = getattr(transformers, kind + "Model")(config)
    case.note.append(kind + (" gated" if gated else ""))
    size = case.pick(case.size, case.patch * case.whole(2, 7))  # another grid than the table's
    processor = transformers.BitImageProcessor(size={"shortest_edge": size + case.whole(0, 40)},
                                               crop_size={"height": size, "width": size},
                                               image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225])
    return module, processor, size if processor.size["shortest_edge"] == size else 0, \
        lambda x: module(x).last_hidden_state[:, 0]


def clip(case, folder):
    text = dict(hidden_size=64, num_hidden_layers=1, num_attention_heads=1, intermediate_size=64, vocab_size=50,
                eos_token_id=49, bos_token_id=0, pad_token_id=0)
    config = dict(vision_config=case.of_shape(intermediate_size=128, hidden_act=case.pick("quick_gelu", "gelu")),
                  text_config=text, projection_dim=48)
    module = transformers.CLIPModel(transformers.CLIPConfig(**config))
    processor = transformers.CLIPImageProcessor(size={"shortest_edge": case.size},
                                                crop_size={"height": case.size, "width": case.size})

    def encode(x):
        y = module.get_image_features(pixel_values=x)
        return getattr(y, "pooler_output", y)
    return module, processor, case.size, encode


class TimmProcessor:
    def __init__(self, config):
        self.transform = timm.data.create_transform(**timm.data.resolve_data_config(pretrained_cfg=config),
                                                    is_training=False)

    def __call__(self, images, return_tensors):
        return {"pixel_values": self.transform(images.convert("RGB"))[None]}


def timm_vit(case, folder):
    token, registers = case.whole(0, 2) > 0, case.pick(0, 0, 4)
    arguments = dict(img_size=case.size, patch_size=case.patch, embed_dim=case.d_model, depth=case.layers,
                     num_heads=case.heads, class_token=token, reg_tokens=registers,
                     no_embed_class=registers > 0 or not token, init_values=case.pick(None, 1e-5),
                     qk_norm=case.whole(0, 1) == 1, global_pool="token" if token else "avg", fc_norm=case.pick(None, False),
                     mlp_ratio=case.pick(2, 4), num_classes=case.pick(0, 10), dynamic_img_size=True)
    if case.whole(0, 3) == 0:
        arguments.update(mlp_layer=timm.layers.SwiGLUPacked, act_layer=torch.nn.SiLU)
        case.note.append("SwiGLU")
    module = timm.models.vision_transformer.VisionTransformer(**arguments)
    known = dict(input_size=(3, case.size, case.size), crop_pct=case.pick(0.875, 0.9, 1.0),
                 interpolation=case.pick("bicubic", "bilinear"), crop_mode=case.pick("center", "squash"),
                 mean=[0.5, 0.5, 0.5], std=[0.5, 0.4, 0.3], num_classes=10)
    case.note.append("%s, %d registers, fc_norm %s" % ("class token" if token else "mean", registers, arguments["fc_norm"]))
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({"architecture": "vit_of_this_test", "num_classes": 10, "num_features": case.d_model,
                   "global_pool": arguments["global_pool"], "pretrained_cfg": known}, file)
    exact = case.size if known["crop_pct"] == 1 else 0
    return module, TimmProcessor(known), exact, lambda x: module.forward_head(module.forward_features(x), pre_logits=True)


KINDS = {"vit": vit, "dinov2": dinov2, "clip": clip, "timm": timm_vit}


def write(module, processor, folder):
    if hasattr(module, "save_pretrained"):
        module.save_pretrained(folder)
        processor.save_pretrained(folder)
    else:
        save_file({name: tensor.contiguous() for name, tensor in module.state_dict().items()},
                  os.path.join(folder, "model.safetensors"))


def picture(case, height, width, mode):
    """Smooth colours with edges and some noise, as photographs have."""
    y, x = np.mgrid[:height, :width]
    planes = [128 + 90 * np.sin(x / case.whole(5, 40) + c) * np.cos(y / case.whole(5, 40)) + 30 * ((x // 9 + y // 7) % 2)
              for c in range(4)]
    pixels = np.clip(np.stack(planes, 2) + case.random.normal(0, 6, (height, width, 4)), 0, 255).astype(np.uint8)
    whole = Image.fromarray(pixels, "RGBA")
    if mode == "L":
        return whole.convert("RGB").convert("L")
    return whole if mode == "RGBA" else whole.convert("RGB")


def judge(make, case):
    module, processor, exact, encode = make(case, case.folder)
    draws.randomise(module, case)
    write(module, processor, case.folder)
    paths, wanted, tight = [], [], []
    for i in range(case.whole(1, 4)):
        whole = exact > 0 and case.whole(0, 1) == 1
        height, width = (exact, exact) if whole else (case.whole(20, 300), case.whole(20, 300))
        mode = case.pick("RGB", "RGB", "RGBA", "L")
        paths.append(os.path.join(case.folder, "%d.png" % i))
        made = picture(case, height, width, mode)
        made.save(paths[-1])
        case.note.append("%s %dx%d" % (mode, height, width))
        y = encode(processor(images=made.convert("RGB"), return_tensors="pt")["pixel_values"])[0]
        wanted.append((y / y.norm()).numpy())
        tight.append(whole)
    output = os.path.join(case.folder, "vectors.npy")
    command = [os.environ["CLATTN"], "embed-image", case.folder, *paths, "-o", output]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        return done.stderr.strip() or "exit status %d" % done.returncode, " ".join(command)
    found, wanted = np.load(output), np.stack(wanted)
    if found.shape != wanted.shape:
        return "the shape is %s, not %s" % (found.shape, wanted.shape), " ".join(command)
    worst = draws.compare(found[tight], wanted[tight])
    least = float(np.min(np.sum(found * wanted, 1) / np.linalg.norm(found, axis=1)))
    if not (worst <= ALLOWED and least >= COSINE):
        return "differs by %.2g, cosine %.7f" % (worst, least), " ".join(command)
    return "", "%.1e, cosine %.7f" % (worst, least)


sys.exit(draws.main(Case, KINDS, judge))
