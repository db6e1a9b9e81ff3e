"""Models of pictures with random weights, of Hugging Face's transformers and of timm, computed by the library (vision_run.c)
and by PyTorch in float32: no number differs by more than 5e-5 times what is larger, 1 or the number.

    python compare.py [--draws N] [--seed N] [--only NUMBER[,NUMBER...]] [--kinds KIND[,KIND...]] [--keep]

The program is $VISION_RUN.  Prints TAP."""
import os
import subprocess
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

import draws

ALLOWED = 5e-5
# clattn_vision, clattn_name_format, clattn_pooling
VIT, DINOV2, DINOV2_GIANT, CLIP, CLIP_TEXT, SWIN, SAM = 2, 5, 7, 8, 9, 14, 18
SWINIR, SWINIR_LIGHTWEIGHT, SWINIR_REAL, SWINIR_DENOISE, DINOV3 = 21, 22, 23, 25, 28
FORMAT_TIMM, FORMAT_TIMM_SWIN = 14, 16
MEAN, FIRST, LAST, PATCHES = 1, 2, 3, 4


class Model(draws.Case):
    """A draw of a model of pictures."""

    def picture(self, patch, rows, columns, batch):
        self.note.append("%d x %dx%d pixels" % (batch, rows * patch, columns * patch))
        return torch.tensor(self.random.standard_normal((batch, 3, rows * patch, columns * patch)).astype(np.float32))

    def sizes(self):
        heads, size = self.pick(1, 2, 3, 6), self.pick(16, 32, 64)
        self.shape = dict(layers=self.whole(1, 4), heads=heads, d_model=heads * size, d_ff=self.pick(48, 128, 4 * heads * size))
        self.options.update(self.shape)
        self.note.append("%(layers)d layers, %(heads)d heads, d_model %(d_model)d, d_ff %(d_ff)d" % self.shape)
        self.batch, self.patch = self.whole(1, 3), self.pick(4, 8, 14, 16)
        self.grid = self.whole(2, 9)
        same = self.whole(0, 1)
        self.rows = self.grid if same else self.whole(1, 12)
        self.columns = self.grid if same else self.whole(1, 12)
        self.options.update(patch=self.patch, grid_rows=self.grid, grid_columns=self.grid, nhwc=self.whole(0, 1))


def hugging_face(case, model, kind, **config):
    made = draws.randomise(getattr(transformers, kind + "Model")(getattr(transformers, kind + "Config")(**config)), case)
    case.options.update(model=model)
    return made


def of_shape(case, **more):
    s = case.shape
    return dict(hidden_size=s["d_model"], num_hidden_layers=s["layers"], num_attention_heads=s["heads"],
                intermediate_size=s["d_ff"], image_size=case.grid * case.patch, patch_size=case.patch, **more)


def vit(case):
    case.sizes()
    epsilon = case.pick(1e-12, 1e-6)
    module = hugging_face(case, VIT, "ViT", **of_shape(case, layer_norm_eps=epsilon))
    x = case.picture(case.patch, case.rows, case.columns, case.batch)
    case.options.update(epsilon=epsilon, pooling=FIRST)
    y = module(x, interpolate_pos_encoding=True).last_hidden_state
    return module, {"picture": x}, {"output": y, "pooled": y[:, 0]}


def dinov2(case):
    case.sizes()
    registers, gated = case.pick(0, 0, 4, 1), case.whole(0, 4) == 0
    s = case.shape
    more = dict(layer_norm_eps=1e-6, use_swiglu_ffn=gated, mlp_ratio=2)
    s["d_ff"] = 2 * s["d_model"]
    if gated:
        s["d_ff"] = (int(s["d_ff"] * 2 / 3) + 7) // 8 * 8
    case.options.update(d_ff=s["d_ff"], registers=registers, pooling=case.pick(FIRST, PATCHES))
    if registers:
        more.update(num_register_tokens=registers)
        case.note.append("%d registers" % registers)
        case.options.update(antialias=1)
    module = hugging_face(case, DINOV2_GIANT if gated else DINOV2, "Dinov2WithRegisters" if registers else "Dinov2",
                          **of_shape(case, **more))
    x = case.picture(case.patch, case.rows, case.columns, case.batch)
    y = module(x).last_hidden_state
    pooled = y[:, 0] if case.options["pooling"] == FIRST else y[:, 1 + registers:].mean(1)
    return module, {"picture": x}, {"output": y, "pooled": pooled}


def dinov3(case):
    case.sizes()
    registers, gated = case.pick(0, 4, 4), case.whole(0, 2) == 0
    base = float(case.pick(100, 30))
    module = hugging_face(case, DINOV3, "DINOv3ViT", num_register_tokens=registers, use_gated_mlp=gated, rope_theta=base,
                          hidden_act="silu" if gated else "gelu", **of_shape(case))
    case.note.append("%d registers, base %g%s" % (registers, base, ", gated" if gated else ""))
    case.options.update(registers=registers, gated=int(gated), rotary_base=int(base), pooling=FIRST, grid_rows=0,
                        grid_columns=0)
    x = case.picture(case.patch, case.rows, case.columns, case.batch)
    y = module(x).last_hidden_state
    return module, {"picture": x}, {"output": y, "pooled": y[:, 0]}


def vit_sinusoids(case):
    """A ViT whose table of positions is what transformers computes."""
    from transformers.models.vit_mae.modeling_vit_mae import build_2d_sinusoidal_position_embedding
    case.sizes()
    epsilon = case.pick(1e-12, 1e-6)
    config = of_shape(case, layer_norm_eps=epsilon)
    config["image_size"] = (case.rows * case.patch, case.columns * case.patch)
    module = hugging_face(case, VIT, "ViT", **config)
    table = build_2d_sinusoidal_position_embedding(case.rows, case.columns, case.shape["d_model"], cls_token=True)
    module.embeddings.position_embeddings.data = table[None]
    case.options.update(epsilon=epsilon, pooling=FIRST, sinusoids=1)
    x = case.picture(case.patch, case.rows, case.columns, case.batch)
    y = module(x).last_hidden_state
    return module, {"picture": x}, {"output": y, "pooled": y[:, 0]}


def clip_config(case, vision, text):
    return dict(vision_config=vision, text_config=text, projection_dim=case.pick(24, 64))


def clip(case):
    """A whole CLIPModel, of which one half is compared."""
    case.sizes()
    s, texts = case.shape, case.whole(0, 1)
    vocabulary, length = 60, case.whole(3, 77)
    both = dict(hidden_size=s["d_model"], num_hidden_layers=s["layers"], num_attention_heads=s["heads"],
                intermediate_size=s["d_ff"])
    config = clip_config(case, dict(both, image_size=case.grid * case.patch, patch_size=case.patch),
                         dict(both, vocab_size=vocabulary, max_position_embeddings=77, eos_token_id=vocabulary - 1,
                              bos_token_id=0, pad_token_id=0))
    module = hugging_face(case, CLIP_TEXT if texts else CLIP, "CLIP", **config)
    case.options.update(projection=config["projection_dim"], unit=case.whole(0, 1), pooling=LAST if texts else FIRST)
    if texts:
        case.options.update(vocabulary=vocabulary)
        tokens = torch.tensor(case.random.integers(0, vocabulary - 1, (case.batch, length)))
        lengths = torch.tensor(case.random.integers(1, length + 1, case.batch))
        for item, end in enumerate(lengths):
            tokens[item, end - 1] = vocabulary - 1
        case.note.append("texts of %s of %d tokens" % (list(map(int, lengths)), length))
        inputs = {"tokens": tokens.to(torch.int32), "lengths": lengths.to(torch.int32)}
        y = module.get_text_features(input_ids=tokens)
    else:
        x = case.picture(case.patch, case.rows, case.columns, case.batch)
        inputs = {"picture": x}
        y = module.get_image_features(pixel_values=x, interpolate_pos_encoding=True)
    y = getattr(y, "pooler_output", y)
    return module, inputs, {"pooled": y / y.norm(dim=1, keepdim=True) if case.options["unit"] else y}


def timm_vit(case):
    import timm
    case.sizes()
    s = case.shape
    registers, class_token = case.pick(0, 0, 4), case.whole(0, 3) > 0
    class_position = class_token and not registers
    more = dict(init_values=case.pick(None, 1e-5), qk_norm=case.whole(0, 1) == 1, pre_norm=case.whole(0, 3) == 0,
                class_token=class_token, reg_tokens=registers, no_embed_class=not class_position,
                mlp_ratio=s["d_ff"] / s["d_model"], global_pool="token" if class_token else "avg", fc_norm=False)
    case.note.append(", ".join("%s %s" % item for item in more.items()))
    module = timm.models.vision_transformer.VisionTransformer(
        img_size=case.grid * case.patch, patch_size=case.patch, embed_dim=s["d_model"], depth=s["layers"],
        num_heads=s["heads"], num_classes=0, dynamic_img_size=True, **more)
    draws.randomise(module, case)
    x = case.picture(case.patch, case.rows, case.columns, case.batch)
    case.options.update(model=VIT, format=FORMAT_TIMM, registers=registers, class_token=int(class_token),
                        class_position=int(class_position), layer_scale=int(more["init_values"] is not None),
                        query_key_norm=int(more["qk_norm"]), input_norm=int(more["pre_norm"]), patch_bias=int(not more["pre_norm"]), antialias=1,
                        epsilon=1e-5 if more["pre_norm"] else 1e-6, pooling=FIRST if class_token else PATCHES)
    for layer in module.modules():
        if isinstance(layer, torch.nn.LayerNorm):
            layer.eps = case.options["epsilon"]
    features = module.forward_features(x)
    prefix = int(class_token) + registers
    return module, {"picture": x}, {"output": features,
                                    "pooled": features[:, 0] if class_token else features[:, prefix:].mean(1)}


def swin_sizes(case):
    heads, size = case.pick(1, 2, 3), case.pick(16, 32)
    case.layers = [case.whole(1, 3) for _ in range(case.whole(1, 4))]
    case.width, case.heads, case.ratio, case.window = heads * size, heads, case.pick(1, 2, 4), case.pick(2, 3, 4, 7)
    case.batch, case.patch = case.whole(1, 3), case.pick(2, 4)
    least = case.window << (len(case.layers) - 1)  # a window must fit the last stage: transformers' bias does not shrink
    case.rows, case.columns = case.whole(least, least + 13), case.whole(least, least + 13)
    case.options.update(stages=",".join(map(str, case.layers)), d_model=case.width, heads=heads, patch=case.patch,
                        d_ff=case.ratio * case.width, window=case.window, model=SWIN, pooling=MEAN, nhwc=case.whole(0, 1))
    case.note.append("%s layers, %d heads, d_model %d, windows of %d" % (case.options["stages"], heads, case.width,
                                                                         case.window))


def swin(case):
    swin_sizes(case)
    count = len(case.layers)
    module = hugging_face(case, SWIN, "Swin", image_size=case.patch * 64, patch_size=case.patch, embed_dim=case.width,
                          depths=case.layers, num_heads=[case.heads << i for i in range(count)], window_size=case.window,
                          mlp_ratio=case.ratio, layer_norm_eps=1e-5)
    x = case.picture(case.patch, case.rows, case.columns, case.batch)
    y = module(x)
    return module, {"picture": x}, {"output": y.last_hidden_state, "pooled": y.last_hidden_state.mean(1)}


def timm_swin(case):
    import timm
    swin_sizes(case)
    count = len(case.layers)
    case.options.update(format=FORMAT_TIMM_SWIN)
    # timm fills a grid up after the shift; both do the same if there is nothing to fill up.
    step = case.window << (count - 1)
    case.rows, case.columns = step * case.whole(1, 3), step * case.whole(1, 3)
    if (case.rows == step) != (case.columns == step):
        case.columns = case.rows  # an axis of one window is not shifted there, though the other is
    module = timm.models.swin_transformer.SwinTransformer(
        img_size=(case.rows * case.patch, case.columns * case.patch), patch_size=case.patch, embed_dim=case.width,
        depths=case.layers, num_heads=[case.heads << i for i in range(count)], window_size=case.window,
        mlp_ratio=case.ratio, num_classes=0, always_partition=False)
    draws.randomise(module, case)
    x = case.picture(case.patch, case.rows, case.columns, case.batch)
    y = module.forward_features(x).flatten(1, 2)
    return module, {"picture": x}, {"output": y, "pooled": y.mean(1)}


def sam(case):
    case.sizes()
    s, window = case.shape, case.pick(2, 3, 4, 7)
    case.rows = case.columns = case.grid  # the only grid that transformers takes
    whole = [layer for layer in range(s["layers"]) if case.whole(0, 1)]
    neck = case.pick(16, 40)
    case.options.update(window=window, whole=sum(1 << layer for layer in whole), neck=neck, class_position=0)
    case.note.append("windows of %d but in layers %s" % (window, whole))
    module = hugging_face(case, SAM, "SamVision", hidden_size=s["d_model"], num_hidden_layers=s["layers"],
                          num_attention_heads=s["heads"], mlp_dim=s["d_ff"], image_size=case.grid * case.patch,
                          patch_size=case.patch, window_size=window, global_attn_indexes=whole, output_channels=neck)
    x = case.picture(case.patch, case.rows, case.columns, case.batch)
    y = module(x).last_hidden_state
    return module, {"picture": x}, {"output": y.flatten(2).transpose(1, 2)}


def swinir(case):
    """All of SwinIR's ends.  The mean that it subtracts and adds is the caller's business."""
    from spandrel.architectures.SwinIR import SwinIR
    upsampler, model = case.pick(("pixelshuffle", SWINIR), ("pixelshuffledirect", SWINIR_LIGHTWEIGHT),
                                 ("nearest+conv", SWINIR_REAL), ("", SWINIR_DENOISE))
    factor = {"pixelshuffle": case.pick(2, 3, 4, 8), "pixelshuffledirect": case.pick(2, 3, 4),
              "nearest+conv": case.pick(2, 4), "": 1}[upsampler]
    heads, size, channels, residual = case.pick(1, 2, 3), case.pick(8, 10, 16), case.pick(1, 3), case.pick(1, 1, 3)
    window, batch, ratio = case.pick(2, 4, 7, 8), case.whole(1, 2), case.pick(1, 2)
    layers = [case.whole(1, 3) for _ in range(case.whole(1, 3))]
    rows, columns = case.whole(window, 4 * window), case.whole(window, 4 * window)
    case.note.append("%r, %d times, layers %s, %d heads of %d, windows of %d, %d x %dx%dx%d pixels"
                     % (upsampler, factor, layers, heads, size, window, batch, channels, rows, columns))
    module = SwinIR(img_size=4 * window, in_chans=channels, embed_dim=heads * size, depths=layers,
                    num_heads=[heads] * len(layers), window_size=window, mlp_ratio=ratio, upscale=factor,
                    upsampler=upsampler, resi_connection="%dconv" % residual)
    draws.randomise(module, case)
    case.options.update(model=model, stages=",".join(map(str, layers)), d_model=heads * size, heads=heads,
                        d_ff=ratio * heads * size, window=window, residual=residual, channels=channels, factor=factor,
                        nhwc=case.whole(0, 1))
    x = torch.tensor(case.random.random((batch, channels, rows, columns)).astype(np.float32))
    return module, {"picture": x - module.mean}, {"output": module(x) - module.mean}


KINDS = {"vit": vit, "sinusoids": vit_sinusoids, "dinov2": dinov2, "dinov3": dinov3, "clip": clip, "timm": timm_vit, "swin": swin, "timm-swin": timm_swin, "sam": sam,
         "swinir": swinir}


def write_weights(module, folder):
    """A file as users have it, under the names that transformers writes."""
    if hasattr(module, "save_pretrained"):
        module.save_pretrained(folder)
        os.rename(os.path.join(folder, "model.safetensors"), os.path.join(folder, "weights.safetensors"))
    else:
        save_file({name: tensor.contiguous() for name, tensor in module.state_dict().items()},
                  os.path.join(folder, "weights.safetensors"))


def judge(make, case):
    module, inputs, expected = make(case)
    write_weights(module, case.folder)
    for name, tensor in inputs.items():
        np.save(os.path.join(case.folder, name + ".npy"), tensor.numpy())
    command = [os.environ["VISION_RUN"], case.folder] + ["%s=%s" % item for item in case.options.items()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        return done.stderr.strip() or "exit status %d" % done.returncode, " ".join(command)
    apart = {name: draws.compare(np.load(os.path.join(case.folder, name + ".npy")), array.numpy())
             for name, array in expected.items()}
    wrong = ", ".join("%s differs by %.3g" % item for item in apart.items() if not item[1] <= ALLOWED)
    return wrong, " ".join(command) if wrong else "%.1e" % max(apart.values())


sys.exit(draws.main(Model, KINDS, judge))
