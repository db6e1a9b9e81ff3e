"""Checks that the pixels of heat maps' pictures show given probabilities."""
import numpy as np

import png_pictures as png

RAMP = np.array([(255, 255, 255), (190, 215, 240), (95, 160, 215), (30, 95, 170), (10, 35, 90)], float)
GREY, NONE, RULE, MOST_CELL = (160, 160, 160), (214, 40, 160), 2, 24
STEEPEST = 4 * np.max(np.abs(np.diff(RAMP, axis=0)))  # of a colour, from no probability to the largest


def colours(p):
    """Returns the picture's colours of a matrix of probabilities."""
    largest = np.nanmax(p) if np.any(p > 0) else 1
    place = np.nan_to_num(p) / largest * 4
    low = np.minimum(place.astype(int), 3)
    rgb = RAMP[low] + (RAMP[low + 1] - RAMP[low]) * (place - low)[..., None]
    rgb[np.isnan(p)] = NONE
    return rgb


def grid(part):
    """(matrices in a line, lines) of (layers, heads, queries, keys): a line a layer, or one layer's heads in a
    square."""
    layers, heads = part.shape[:2]
    line = heads if layers > 1 else int(np.ceil(np.sqrt(heads)))
    return line, layers * -(-heads // line)


def extent(parts, cell):
    """Returns the picture's (height, width)."""
    return (RULE + sum(grid(part)[1] * (part.shape[2] * cell + RULE) for part in parts),
            RULE + max(grid(part)[0] * (part.shape[3] * cell + RULE) for part in parts))


def check(test, path, parts, error=0):
    """That the file shows the parts, (layers, heads, queries, keys) each, one above the other, where what was drawn may
    be
    off by `error`; the side of a cell."""
    with open(path, "rb") as file:
        pixels = png.decode(file.read()).astype(float)
    cells = [cell for cell in range(1, MOST_CELL + 1) if extent(parts, cell) == pixels.shape[:2]]
    test.assertEqual(len(cells), 1, (pixels.shape, [part.shape for part in parts]))
    cell, allowed = cells[0], np.zeros(pixels.shape[:2])
    expected = np.empty_like(pixels)
    expected[:] = GREY
    top = RULE
    for part in parts:
        layers, heads, queries, keys = part.shape
        line, lines = grid(part)
        for layer in range(layers):
            for head in range(heads):
                row, column = (layer, head) if layers > 1 else divmod(head, line)
                first, left = top + row * (queries * cell + RULE), RULE + column * (keys * cell + RULE)
                place = np.s_[first:first + queries * cell, left:left + keys * cell]
                p = part[layer, head]
                expected[place] = colours(p).repeat(cell, 0).repeat(cell, 1)
                # Rounding takes half a step, and the largest probability, by which the others are divided, has an error
                # too.
                allowed[place] = 0.51 + 2 * STEEPEST * error / max(np.nanmax(p, initial=0), 1e-30)
        top += lines * (queries * cell + RULE)
    test.assertLessEqual(np.max(np.max(np.abs(pixels - expected), axis=2) - allowed), 0)
    return cell
