# %% [markdown]
# # Attention on any OpenCL device, seen and measured
#
# Run it whole (`python attention.py FOLDER` writes the pictures), or cell by cell in an editor that knows `# %%`. It needs
# matplotlib beside the package clattn; PyTorch, if it is there, is measured as well.

# %%
import pathlib
import sys
import time

import clattn
import matplotlib.pyplot as plt
import numpy as np

folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
for device in clattn.devices():
    print(f"{device.kind:12}{device.name}")


def show(name):
    """Writes the picture, or shows it."""
    if folder:
        plt.savefig(folder / f"{name}.svg")
    else:
        plt.show()
    plt.close()


# %% [markdown]
# ## Who attends to whom
#
# Attention's output is a mean of the values by the weights of each row. With the unit matrix as values it is the weights
# themselves. What may be attended to changes from picture to picture, and so does what counts as near.

# %%
words = ["The", "animal", "did", "not", "cross", "the", "street", "because", "it", "was", "too", "tired"]
random = np.random.default_rng(7)
meaning = random.standard_normal((len(words), 32), np.float32)
meaning[words.index("it")] += 1.5 * meaning[words.index("animal")]  # who "it" is
query = key = meaning[None, None]
value = np.eye(len(words), dtype=np.float32)[None, None]
slopes = np.array([0.5], np.float32)

kinds = {
    "all words": {},
    "words before (causal)": {"is_causal": True},
    "three words around": {"window": (3, 3)},
    "nearer words (ALiBi)": {"alibi_slopes": slopes},
}
figure, axes = plt.subplots(2, 2, figsize=(9, 9), layout="constrained")
for axis, (title, how) in zip(axes.flat, kinds.items(), strict=True):
    weights = clattn.scaled_dot_product_attention(query, key, value, **how)[0, 0]
    assert np.allclose(weights.sum(-1), 1, atol=1e-5)
    picture = axis.imshow(weights, cmap="viridis", vmin=0, vmax=1)
    axis.set_title(title)
    axis.set_xticks(range(len(words)), words, rotation=90)
    axis.set_yticks(range(len(words)), words)
figure.colorbar(picture, ax=axes, shrink=0.5, label="weight")
show("weights")

# %% [markdown]
# ## How fast
#
# The same attention by NumPy, by clattn and by PyTorch, of eight heads of 64 numbers. NumPy keeps the scores of all pairs; the
# others never do, so their memory grows with the length alone.


# %%
def by_numpy(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True) @ v


peers = {"NumPy": by_numpy, "clattn": clattn.scaled_dot_product_attention}
try:
    import torch

    peers["PyTorch"] = lambda *arrays: torch.nn.functional.scaled_dot_product_attention(*map(torch.from_numpy, arrays)).numpy()
except ImportError:
    pass

lengths = [64, 128, 256, 512, 1024]
seconds = {name: [] for name in peers}
for length in lengths:
    q, k, v = (random.standard_normal((1, 8, length, 64), np.float32) for _ in range(3))
    expected = by_numpy(*(array.astype(np.float64) for array in (q, k, v)))
    for name, function in peers.items():
        error = abs(function(q, k, v) - expected).max()  # the first call compiles
        assert error < 1e-5, (name, error)
        runs = []
        for _ in range(5):
            start = time.perf_counter()
            function(q, k, v)
            runs.append(time.perf_counter() - start)
        seconds[name].append(min(runs))
        print(f"{length:5} {name:8} {1000 * min(runs):8.2f} ms, off by {error:.1e}")

plt.figure(figsize=(7, 5), layout="constrained")
for name, times in seconds.items():
    plt.loglog(lengths, np.multiply(times, 1000), "o-", label=name)
plt.xlabel("queries and keys")
plt.ylabel("milliseconds, the best of five")
plt.legend()
show("speed")
