#!/usr/bin/env python3
"""Makes clean.png and noisy.png, 256 x 256 pixels of a photograph, with scikit-image 0.25.2 and NumPy of PyPI:

    python3 -m venv v && v/bin/pip install scikit-image==0.25.2 && v/bin/python make_sample.py

The noise is additive, gaussian, with a standard deviation of 20 levels in each of red, green and blue, from a fixed seed."""
import pathlib

import numpy as np
from skimage import data, io

here = pathlib.Path(__file__).parent
clean = data.chelsea()[20:276, 80:336]
noise = np.random.default_rng(20170612).normal(0, 20, clean.shape)
noisy = np.clip(np.rint(clean + noise), 0, 255).astype(np.uint8)
for name, picture in (("clean", clean), ("noisy", noisy)):
    io.imsave(here / (name + ".png"), picture, check_contrast=False)
