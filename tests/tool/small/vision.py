"""Small models of pictures with random weights, written as transformers and timm write theirs, and what they compute, in
NumPy's float64: what is done to pictures, the layers, the vector and the last layer's attention."""
import json
import math
import os

import numpy as np

from command_support import write_safetensors

ERF = np.vectorize(math.erf)
ACTIVATIONS = {"gelu": lambda x: x * 0.5 * (1 + ERF(x / math.sqrt(2))),
               "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))),
               "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)), "silu": lambda x: x / (1 + np.exp(-x))}
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)

# What the models of a family have unless a test changes it.  grid: rows and columns of the table of positions.
BASE = dict(layers=2, heads=2, d_model=32, d_ff=48, patch=8, grid=(4, 4), token=True, token_position=True, registers=0,
            activation="gelu", epsilon=1e-6, gated=False, scales=False, head_norms=False, pre_norm=False, projection=0,
            patch_bias=True, bias=True, antialias=False, size=(32, 32), resized=(32, 32), shortest=False, cubic=True,
            pooling="first", mean=IMAGENET[0], deviation=IMAGENET[1], half_even=False, norm_after=False)
FAMILIES = {"vit": dict(epsilon=1e-12, mean=(0.5,) * 3, deviation=(0.5,) * 3, cubic=False),
            "dinov2": dict(scales=True, d_ff=64, grid=(3, 3), size=(128, 128), resized=(146,), shortest=True),
            "dinov2_with_registers": dict(scales=True, d_ff=64, registers=4, antialias=True, size=(128, 128), resized=(146,),
                                          shortest=True),
            "clip": dict(epsilon=1e-5, pre_norm=True, patch_bias=False, activation="quick_gelu", projection=24, shortest=True,
                         resized=(32,), mean=CLIP[0], deviation=CLIP[1]),
            "timm": dict(antialias=True, shortest=True, resized=(36,), half_even=True)}

# What the files call tensors, with {} for the layer's number; ".{k}" stands for weight and bias.
HUGGING_FACE = {"patches": "embeddings.patch_embeddings.projection", "token": "embeddings.cls_token",
                "registers": "embeddings.register_tokens", "positions": "embeddings.position_embeddings",
                "q": "encoder.layer.{}.attention.attention.query", "k": "encoder.layer.{}.attention.attention.key",
                "v": "encoder.layer.{}.attention.attention.value", "o": "encoder.layer.{}.attention.output.dense",
                "norm": "layernorm"}
VIT = {**HUGGING_FACE, "norm1": "encoder.layer.{}.layernorm_before", "norm2": "encoder.layer.{}.layernorm_after",
       "in": "encoder.layer.{}.intermediate.dense", "out": "encoder.layer.{}.output.dense"}
DINOV2 = {**HUGGING_FACE, "norm1": "encoder.layer.{}.norm1", "norm2": "encoder.layer.{}.norm2",
          "in": "encoder.layer.{}.mlp.fc1", "out": "encoder.layer.{}.mlp.fc2",
          "scale1": "encoder.layer.{}.layer_scale1.lambda1", "scale2": "encoder.layer.{}.layer_scale2.lambda1",
          "gated_in": "encoder.layer.{}.mlp.weights_in", "gated_out": "encoder.layer.{}.mlp.weights_out"}
CLIP_LAYER = "vision_model.encoder.layers.{}."
CLIP_NAMES = {"patches": "vision_model.embeddings.patch_embedding", "token": "vision_model.embeddings.class_embedding",
              "positions": "vision_model.embeddings.position_embedding.weight", "pre_norm": "vision_model.pre_layrnorm",
              "q": CLIP_LAYER + "self_attn.q_proj", "k": CLIP_LAYER + "self_attn.k_proj", "v": CLIP_LAYER + "self_attn.v_proj",
              "o": CLIP_LAYER + "self_attn.out_proj", "norm1": CLIP_LAYER + "layer_norm1", "norm2": CLIP_LAYER + "layer_norm2",
              "in": CLIP_LAYER + "mlp.fc1", "out": CLIP_LAYER + "mlp.fc2", "norm": "vision_model.post_layernorm",
              "projection": "visual_projection"}
TIMM = {"patches": "patch_embed.proj", "token": "cls_token", "registers": "reg_token", "positions": "pos_embed",
        "pre_norm": "norm_pre", "qkv": "blocks.{}.attn.qkv", "o": "blocks.{}.attn.proj", "norm1": "blocks.{}.norm1",
        "norm2": "blocks.{}.norm2", "in": "blocks.{}.mlp.fc1", "out": "blocks.{}.mlp.fc2", "gated_in": "blocks.{}.mlp.fc1",
        "gated_out": "blocks.{}.mlp.fc2", "q_norm": "blocks.{}.attn.q_norm", "k_norm": "blocks.{}.attn.k_norm",
        "scale1": "blocks.{}.ls1.gamma", "scale2": "blocks.{}.ls2.gamma", "norm": "norm", "norm_after": "fc_norm"}
NAMES = {"vit": VIT, "dinov2": DINOV2, "dinov2_with_registers": DINOV2, "clip": CLIP_NAMES, "timm": TIMM}


class Model:
    """spec: what the model is; tensors: by the file's names; config: config.json; processor: preprocessor_config.json."""

    def __init__(self, random, family, **changed):
        self.random, self.family = random, family
        self.spec = s = {**BASE, **FAMILIES[family], **changed}
        self.names, self.tensors, self.processor = NAMES[family], {}, None
        self.weights()
        self.config = self.timm_config() if family == "timm" else self.hugging_face_config()

    # ---- weights ----

    def normal(self, *shape):
        return self.random.standard_normal(shape).astype(np.float32)

    def linear(self, key, layer, rows, columns, bias=True):
        name = self.names[key].format(layer)
        self.tensors[name + ".weight"] = self.normal(rows, columns) * np.float32(1.5 / math.sqrt(columns))
        if bias:
            self.tensors[name + ".bias"] = self.normal(rows) * np.float32(0.1)

    def norm(self, key, layer, size):
        name = self.names[key].format(layer)
        self.tensors[name + ".weight"] = 1 + self.normal(size) * np.float32(0.1)
        self.tensors[name + ".bias"] = self.normal(size) * np.float32(0.1)

    def weights(self):
        s, names = self.spec, self.names
        d, cells = s["d_model"], s["grid"][0] * s["grid"][1]
        self.tensors[names["patches"] + ".weight"] = self.normal(d, 3, s["patch"], s["patch"]) * np.float32(0.1)
        if s["patch_bias"]:
            self.tensors[names["patches"] + ".bias"] = self.normal(d) * np.float32(0.1)
        if s["token"]:
            self.tensors[names["token"]] = self.normal(d) if self.family == "clip" else self.normal(1, 1, d)
        if s["registers"]:
            self.tensors[names["registers"]] = self.normal(1, s["registers"], d)
        rows = cells + (s["token"] and s["token_position"])
        self.tensors[names["positions"]] = self.normal(*((rows, d) if self.family == "clip" else (1, rows, d)))
        if s["pre_norm"]:
            self.norm("pre_norm", 0, d)
        for layer in range(s["layers"]):
            self.norm("norm1", layer, d)
            self.norm("norm2", layer, d)
            for key, rows in (("qkv", 3 * d),) if "qkv" in names else (("q", d), ("k", d), ("v", d)):
                self.linear(key, layer, rows, d, s["bias"])
            self.linear("o", layer, d, d)
            gated = "gated_" if s["gated"] else ""
            self.linear(gated + "in", layer, (1 + s["gated"]) * s["d_ff"], d)
            self.linear(gated + "out", layer, d, s["d_ff"])
            for key in ("scale1", "scale2") if s["scales"] else ():
                self.tensors[names[key].format(layer)] = 0.5 + self.normal(d) * np.float32(0.3)
            for key in ("q_norm", "k_norm") if s["head_norms"] else ():
                self.norm(key, layer, d // s["heads"])
        self.norm("norm_after" if s["norm_after"] else "norm", 0, d)
        if s["projection"]:
            self.linear("projection", 0, s["projection"], d, False)

    # ---- files ----

    def hugging_face_config(self):
        s = self.spec
        side = s["grid"][0] * s["patch"]
        flat = dict(hidden_size=s["d_model"], num_hidden_layers=s["layers"], num_attention_heads=s["heads"],
                    image_size=side, patch_size=s["patch"], num_channels=3, layer_norm_eps=s["epsilon"],
                    hidden_act=s["activation"])
        if not self.family.startswith("dinov2"):
            flat["intermediate_size"] = s["d_ff"]
        if self.family == "clip":
            return dict(model_type="clip", projection_dim=s["projection"], vision_config=flat)
        flat.update(model_type=self.family, qkv_bias=s["bias"])
        if s["gated"]:
            flat.update(use_swiglu_ffn=True)
        if s["registers"]:
            flat.update(num_register_tokens=s["registers"])
        return flat

    def timm_config(self):
        s = self.spec
        return dict(architecture="vit_of_a_test", global_pool="token" if s["pooling"] == "first" else "avg",
                    model_args=dict(num_heads=s["heads"], act_layer="silu" if s["gated"] else s["activation"]),
                    pretrained_cfg=dict(input_size=[3, *s["size"]], interpolation="bicubic" if s["cubic"] else "bilinear",
                                        crop_pct=s["size"][0] / (s["resized"][0] + 0.25),
                                        crop_mode="center" if s["shortest"] else "squash", mean=s["mean"],
                                        std=s["deviation"]))

    def write_processor(self):
        """Says in a file what the family's class does anyway, or what the test has changed."""
        s = self.spec
        size = (dict(shortest_edge=s["resized"][0]) if s["shortest"] else
                dict(height=s["resized"][0], width=s["resized"][1]))
        self.processor = dict(do_resize=True, size=size, do_center_crop=s["shortest"], resample=3 if s["cubic"] else 2,
                              do_rescale=True, rescale_factor=1 / 255, do_normalize=True, image_mean=s["mean"],
                              image_std=s["deviation"])
        if s["shortest"]:
            self.processor["crop_size"] = dict(height=s["size"][0], width=s["size"][1])

    def write(self, folder, prefix=""):
        os.makedirs(folder, exist_ok=True)
        for name, contents in (("config.json", self.config), ("preprocessor_config.json", self.processor)):
            if contents is not None:
                with open(os.path.join(folder, name), "w") as file:
                    json.dump(contents, file)
        write_safetensors(os.path.join(folder, "model.safetensors"),
                          {prefix + name: tensor for name, tensor in self.tensors.items()})

    # ---- what it computes ----

    def levels(self, pixels):
        """What the model sees of a picture (height, width, channels) of uint8 or uint16: (height, width, 3), whole."""
        s = self.spec
        if pixels.dtype == np.uint16:
            pixels = pixels >> 8
        colours = pixels[..., :1].repeat(3, 2) if pixels.shape[2] < 3 else pixels[..., :3]
        height, width = colours.shape[:2]
        if s["shortest"]:
            edge = s["resized"][0]
            resized = edge * height // min(height, width), edge * width // min(height, width)
        else:
            resized = s["resized"]
        whole = resize(colours.astype(np.float64), resized, s["cubic"], True)
        whole = np.clip(np.rint(whole), 0, 255)
        cut = np.zeros((*s["size"], 3))
        places = []
        for have, want in zip(resized, s["size"]):
            more = have - want
            first = -(-more // 2) if more < 0 else round(more / 2) if s["half_even"] else more // 2
            places.append((max(first, 0), max(-first, 0), min(have, want)))
        (y, into_y, rows), (x, into_x, columns) = places
        cut[into_y:into_y + rows, into_x:into_x + columns] = whole[y:y + rows, x:x + columns]
        return cut

    def vector(self, pixels, probabilities=None):
        """Returns the unit vector of a picture and appends the last layer's attention, (heads, positions, positions)."""
        s = self.spec
        seen = (self.levels(pixels) / 255 - s["mean"]) / s["deviation"]
        p, rows, columns = s["patch"], s["size"][0] // s["patch"], s["size"][1] // s["patch"]
        cells = seen.reshape(rows, p, columns, p, 3).transpose(0, 2, 4, 1, 3).reshape(rows * columns, -1)
        weight = self.get("patches", ".weight").reshape(s["d_model"], -1)
        x = cells @ weight.T + (self.get("patches", ".bias") if s["patch_bias"] else 0)
        x = self.place(x, rows, columns)
        if s["pre_norm"]:
            x = self.normalised(x, "pre_norm", 0)
        for layer in range(s["layers"]):
            x = x + self.scaled(self.attend(self.normalised(x, "norm1", layer), layer,
                                            probabilities if layer == s["layers"] - 1 else None), "scale1", layer)
            x = x + self.scaled(self.feed(self.normalised(x, "norm2", layer), layer), "scale2", layer)
        x = x if s["norm_after"] else self.normalised(x, "norm", 0)
        x = x[0] if s["pooling"] == "first" else x[s["token"] + s["registers"]:].mean(0)
        x = self.normalised(x, "norm_after", 0) if s["norm_after"] else x
        if s["projection"]:
            x = self.get("projection", ".weight") @ x
        return x / np.linalg.norm(x)

    def get(self, key, kind="", layer=0):
        return self.tensors[self.names[key].format(layer) + kind].astype(np.float64)

    def place(self, x, rows, columns):
        """Adds positions, the class token and registers."""
        s = self.spec
        table = self.get("positions").reshape(-1, s["d_model"])
        others = len(table) - s["grid"][0] * s["grid"][1]
        of_patches = table[others:].reshape(*s["grid"], -1)
        if (rows, columns) != tuple(s["grid"]):
            of_patches = resize(of_patches, (rows, columns), True, s["antialias"])
        x = x + of_patches.reshape(rows * columns, -1)
        before = []
        if s["token"]:
            before.append(self.get("token").reshape(1, -1) + (table[:1] if others else 0))
        if s["registers"]:
            before.append(self.get("registers")[0])
        return np.concatenate(before + [x])

    def normalised(self, x, key, layer):
        centred = x - x.mean(-1, keepdims=True)
        return (centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + self.spec["epsilon"]) *
                self.get(key, ".weight", layer) + self.get(key, ".bias", layer))

    def product(self, x, key, layer):
        bias = self.names[key].format(layer) + ".bias" in self.tensors
        return x @ self.get(key, ".weight", layer).T + (self.get(key, ".bias", layer) if bias else 0)

    def scaled(self, x, key, layer):
        return x * self.get(key, "", layer) if self.spec["scales"] else x

    def attend(self, x, layer, probabilities):
        s = self.spec
        split = (np.split(self.product(x, "qkv", layer), 3, axis=1) if "qkv" in self.names else
                 [self.product(x, key, layer) for key in "qkv"])
        q, k, v = (part.reshape(len(x), s["heads"], -1).swapaxes(0, 1) for part in split)
        if s["head_norms"]:
            q, k = self.normalised(q, "q_norm", layer), self.normalised(k, "k_norm", layer)
        scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        if probabilities is not None:
            probabilities.append(p)
        return self.product((p @ v).swapaxes(0, 1).reshape(len(x), -1), "o", layer)

    def feed(self, x, layer):
        if not self.spec["gated"]:
            return self.product(ACTIVATIONS[self.spec["activation"]](self.product(x, "in", layer)), "out", layer)
        gate, value = np.split(self.product(x, "gated_in", layer), 2, axis=1)
        return self.product(ACTIVATIONS["silu"](gate) * value, "gated_out", layer)


def resize(x, size, cubic, antialias):
    """Resizes (height, width, channels) to `size`."""
    x = np.tensordot(resizing(x.shape[0], size[0], cubic, antialias), x, 1)
    return np.tensordot(resizing(x.shape[1], size[1], cubic, antialias), x, (1, 1)).swapaxes(0, 1)


def resizing(have, want, cubic, antialias):
    """The matrix (want, have) that resizes an axis (include/clattn/resize.h)."""
    step, a = have / want, -0.5 if antialias else -0.75
    stretch = max(step, 1) if antialias else 1
    matrix = np.zeros((want, have))
    for i in range(want):
        at = (i + 0.5) * step - 0.5
        reach = (2 if cubic else 1) * stretch
        for k in range(math.floor(at - reach), math.ceil(at + reach) + 1):
            d = abs(k - at) / stretch
            if cubic:
                w = ((a + 2) * d ** 3 - (a + 3) * d ** 2 + 1 if d <= 1 else
                     a * d ** 3 - 5 * a * d ** 2 + 8 * a * d - 4 * a if d < 2 else 0)
            else:
                w = max(0, 1 - d)
            if not antialias or 0 <= k < have:
                matrix[i, min(max(k, 0), have - 1)] += w
    return matrix / matrix.sum(1, keepdims=True) if antialias else matrix
