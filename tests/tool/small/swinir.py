"""Small models of random numbers under the names that SwinIR's authors give their tensors."""
import numpy as np

KINDS = ("shuffle", "shuffle once", "nearest", "added")


def tensors(random, kind, factor=2, channels=3, d_model=8, heads=2, window=4, layers=(1,), residual=1, features=4, d_ff=16):
    """Returns {name: array}.  Biases of the last convolution are 0, so that nothing leaves the range by far."""
    made = {}

    def add(name, *shape, bias=True):
        made[name + ".weight"] = (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        if bias:
            made[name + ".bias"] = (0.1 * random.standard_normal(shape[0])).astype(np.float32)

    def add_norm(name):
        made[name + ".weight"] = (1 + 0.2 * random.standard_normal(d_model)).astype(np.float32)
        made[name + ".bias"] = (0.2 * random.standard_normal(d_model)).astype(np.float32)

    def add_residual(name):
        if residual == 1:
            return add(name, d_model, d_model, 3, 3)
        add(name + ".0", d_model // 4, d_model, 3, 3)
        add(name + ".2", d_model // 4, d_model // 4, 1, 1)
        add(name + ".4", d_model, d_model // 4, 3, 3)

    add("conv_first", d_model, channels, 3, 3)
    add_norm("patch_embed.norm")
    for stage, count in enumerate(layers):
        for layer in range(count):
            block = "layers.%d.residual_group.blocks.%d." % (stage, layer)
            add_norm(block + "norm1")
            add(block + "attn.qkv", 3 * d_model, d_model)
            add(block + "attn.proj", d_model, d_model)
            made[block + "attn.relative_position_bias_table"] = random.standard_normal(
                ((2 * window - 1) ** 2, heads)).astype(np.float32)
            made[block + "attn.relative_position_index"] = np.zeros((window ** 2, window ** 2), np.int64)
            add_norm(block + "norm2")
            add(block + "mlp.fc1", d_ff, d_model)
            add(block + "mlp.fc2", d_model, d_ff)
            if layer % 2:
                made[block + "attn_mask"] = np.zeros((4, window ** 2, window ** 2), np.float32)
        add_residual("layers.%d.conv" % stage)
    add_norm("norm")
    add_residual("conv_after_body")
    last = "conv_last"
    if kind == "shuffle once":
        last = "upsample.0"
        add(last, channels * factor ** 2, d_model, 3, 3)
    elif kind == "added":
        add(last, channels, d_model, 3, 3)
    else:
        add("conv_before_upsample.0", features, d_model, 3, 3)
        steps = 1 if factor == 3 else factor.bit_length() - 1
        for i in range(steps):
            if kind == "shuffle":
                add("upsample.%d" % (2 * i), features * (9 if factor == 3 else 4), features, 3, 3)
            else:
                add("conv_up%d" % (i + 1), features, features, 3, 3)
        if kind == "nearest":
            add("conv_hr", features, features, 3, 3)
        add(last, channels, features, 3, 3)
    made[last + ".weight"] *= 0.2
    made[last + ".bias"] *= 0
    return made
