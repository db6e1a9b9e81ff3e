"""The provider for ONNX Runtime on what models of pictures have, against the CPU provider.

    CLATTN_ONNXRUNTIME=LIBRARY python3 test_pictures.py

Needs what test_provider.py does."""

import itertools
import os
import unittest

import numpy as np
import onnxruntime
from onnx import helper
from test_provider import FULL, Comparison, groups, model, node, session

CONVOLUTIONS = 60 if FULL else 12


class Equations(Comparison):
    def draw(self, letters):
        """An equation of batches, rows, columns and sums, each of up to two indices in any order, and arrays for it."""
        kinds = [letters[at : at + self.random.integers(3)] for at in range(0, 8, 2)]
        kinds = [kind if self.random.random() < 0.8 else "" for kind in kinds]
        batch, rows, columns, depth = kinds
        operands = [batch + rows + depth or "p", batch + depth + columns or "q", batch + rows + columns]
        operands[2] += "".join(letter for letter in "pq" if letter in operands[0] + operands[1])
        operands = ["".join(self.random.permutation([*each])) for each in operands]
        extents = {letter: int(self.random.integers(0 if self.random.random() < 0.05 else 1, 7)) for letter in letters + "pq"}
        shapes = [[extents[letter] for letter in each] for each in operands[:2]]
        for letter in batch + depth:  # an array may have 1 where the other has more
            if self.random.random() < 0.1:
                which = self.random.integers(2)
                shapes[which][operands[which].index(letter)] = 1
        return f"{operands[0]},{operands[1]}->{operands[2]}", {
            name: self.array(*shape) for name, shape in zip("xz", shapes, strict=True)
        }

    def test_drawn(self):
        """Einsum of two arrays with any order of indices."""
        for n in range(400 if FULL else 40):
            equation, inputs = self.draw("abCdefgh")
            content = model([node("Einsum", "x z", "y", equation=equation)], inputs, ["y"])
            with self.subTest(n, equation=equation, shapes=[array.shape for array in inputs.values()]):
                self.compare(content, inputs, take="all")
                if n < 3:
                    self.assertEqual(groups(content, take="all")[0], (1, 1, 1))

    def test_positions(self):
        """SAM's decomposed positions, of any shape, with spaces, in float16 and as a constant."""
        for equation in ("bhwc,hkc->bhwk", " b h w c , w k c -> b h w k "):
            cases = [{"x": self.array(b, 3, 3, 8), "z": self.array(3, 5, 8)} for b in (2, 1, 0)]
            content = model([node("Einsum", "x z", "y", equation=equation)], cases[0], ["y"])
            self.compare(content, *cases, take="all")
            half = {name: array.astype(np.float16) for name, array in cases[0].items()}
            self.compare(model([node("Einsum", "x z", "y", equation=equation)], half, ["y"]), half, take="all")
            x, constants = {"x": cases[0]["x"]}, {"z": cases[0]["z"]}
            content = model([node("Einsum", "x z", "y", equation=equation)], x, ["y"], constants)
            self.compare(content, x, take="all")
            self.assertEqual(groups(content, take="all")[0], (1, 1, 1))

    def test_left(self):
        """Diagonals, sums of one array, dots, results that are not named, and other numbers of arrays stay with the CPU provider."""
        square, three = self.array(4, 4), self.array(4, 4, 4)
        for equation, *arrays in (
            ("ii,ij->ij", square, square),
            ("ij,jk->i", square, square),
            ("ij,jk->", square, square),
            ("...ij,...jk->...ik", three, three),
            ("ij,jk", square, square),
            ("ij->ji", square),
            ("ij,jk,kl->il", square, square, square),
        ):
            inputs = dict(zip("xzw", arrays, strict=False))
            content = model([node("Einsum", " ".join(inputs), "y", equation=equation)], inputs, ["y"])
            with self.subTest(equation):
                self.compare(content, inputs, take="all")
                self.assertEqual(groups(content, take="all")[0][0], 0)

    def test_wrong_extents(self):
        content = model(
            [node("Einsum", "x z", "y", equation="ij,jk->ik", name="sums")],
            {"x": self.array(2, 3), "z": self.array(3, 4)},
            ["y"],
        )
        self.refuse(content, {"x": self.array(2, 3), "z": self.array(4, 4)})


class Pictures(Comparison):
    def test_convolutions(self):
        """Convolutions of one and two dimensions: groups, steps, gaps, padding, bias, activation, of extents that change."""
        pick, nodes, constants, cases = self.random.integers, [], {}, [{}, {}, {}]
        for n in range(CONVOLUTIONS):
            sides = int(pick(1, 3))
            group, into, out = (int(pick(1, most)) for most in (4, 6, 6))
            constants[f"w{n}"] = 0.3 * self.array(group * out, into, *pick(1, 4, sides))
            constants[f"b{n}"] = self.array(group * out)
            for case in cases:
                case[f"x{n}"] = self.array(int(pick(1, 3)), group * into, *pick(6, 12, sides))
            attributes = {"strides": pick(1, 4, sides).tolist(), "dilations": pick(1, 3, sides).tolist()}
            attributes |= {"pads": pick(0, 3, 2 * sides).tolist()} if n % 4 else {"auto_pad": "VALID"}
            nodes.append(node("Conv", f"x{n} w{n} b{n}" if n % 3 else f"x{n} w{n}", f"c{n}", group=group, **attributes))
            nodes.append(node(("Relu", "Gelu", "LeakyRelu")[n % 3], f"c{n}", f"y{n}"))
        content = model(nodes, cases[0], [f"y{n}" for n in range(CONVOLUTIONS)], constants)
        self.compare(content, *cases, take="all")
        (taken, count, _), left = groups(content, take="all")
        self.assertEqual((taken, left), (count, []))
        half = {"x": self.array(2, 4, 9, 7, dtype=np.float16)}
        constants = {"w": self.array(5, 4, 3, 2, dtype=np.float16), "b": self.array(5, dtype=np.float16)}
        self.compare(model([node("Conv", "x w b", "y", pads=[1, 0, 2, 1])], half, ["y"], constants), half, take="all")

    def test_convolutions_left(self):
        """Left are: on processors all, and everywhere those with padding that follows from the extents, of three dimensions, or by kernels
        that change."""
        x, w = self.array(1, 2, 5, 5), self.array(3, 2, 3, 3)
        content = model([node("Conv", "x w", "y")], {"x": x}, ["y"], {"w": w})
        self.assertEqual(groups(content), ((0, 1, 0), [("Conv", "processors convolve faster without clattn")]))
        for inputs, constants, attributes in (
            ({"x": x}, {"w": w}, {"auto_pad": "SAME_UPPER"}),
            ({"x": x}, {"w": w}, {"auto_pad": "SAME_LOWER"}),
            ({"x": self.array(1, 2, 4, 4, 4)}, {"w": self.array(3, 2, 2, 2, 2)}, {}),
            ({"x": x, "w": w}, {}, {}),
        ):
            content = model([node("Conv", "x w", "y", **attributes)], inputs, ["y"], constants)
            with self.subTest(shape=inputs["x"].shape, inputs=[*inputs], **attributes):
                (taken, _, _), [(_, reason)] = groups(content, take="all")
                self.assertEqual(taken, 0)
                self.assertIn("by a constant kernel, with explicit padding", reason)
                self.compare(content, inputs, take="all")

    def test_wrong_shapes(self):
        """A picture with other channels, and one that the kernel does not fit into, are refused with the node's name."""
        made = node("Conv", "x w", "y")
        made.name = "first"
        inputs, padded = {"x": self.array(1, 4, 5, 5)}, {"x": self.array(1, 4, 0, 3)}
        content = model(
            [node("Conv", "x w b", "y", pads=[1] * 4)], padded, ["y"], {"w": self.array(2, 4, 2, 2), "b": self.array(2)}
        )
        self.compare(content, padded, take="all")  # nothing but padding
        run = session(model([made], inputs, ["y"], {"w": self.array(2, 4, 3, 3)}), take="all").run
        for shape, words in (((1, 5, 5, 5), "do not go together"), ((1, 4, 2, 5), "is larger than its picture")):
            with self.assertRaisesRegex(Exception, f"clattn.*{words}.*first"):
                run(None, {"x": self.array(*shape)})

    def test_resizes(self):
        """Factors and sizes in all modes: what clattn computes alike is taken, and the rest left."""
        x, nodes, constants, expected = {"x": self.array(2, 3, 4, 6)}, [], {}, 0
        modes = [
            ("linear", ""),
            ("cubic", ""),
            *(("nearest", each) for each in ("floor", "round_prefer_floor", "round_prefer_ceil")),
        ]
        places = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
        for (mode, rounding), positions, (rows, columns) in itertools.product(
            modes, places, ((2, 2), (4, 1), (1.5, 2.5), (0.5, 1.5))
        ):
            name, attributes = f"r{len(nodes)}", {"mode": mode, "coordinate_transformation_mode": positions}
            attributes |= {"nearest_mode": rounding} if rounding else {}
            if rows > 3:  # to a size, with axes that are named
                constants[name], attributes["axes"] = np.array([4 * rows, 6 * columns]), [2, -1]
            else:
                constants[name] = np.float32([1, 1, rows, columns])
            nodes.append(node("Resize", "x", f"y{name}", **attributes))
            nodes[-1].input.extend(["", "", name] if rows > 3 else ["", name])
            if mode != "nearest":
                expected += positions in ("half_pixel", "align_corners") or (positions == "pytorch_half_pixel" and rows >= 1)
            elif rows == 2:
                rounds = {"asymmetric": "floor", "half_pixel": "round_prefer"}
                expected += positions in rounds and rounding.startswith(rounds[positions])
        content = model(nodes, x, [each.output[0] for each in nodes], constants)
        self.compare(content, x, take="all")
        self.assertEqual(groups(content, take="all")[0][0], expected)
        # The nearest pixels for four times the rows are known to be the same if the rows are.
        content = model(nodes, x, [each.output[0] for each in nodes], constants, known=True)
        self.compare(content, x, take="all")
        self.assertEqual(groups(content, take="all")[0][0], expected + 3)

    def test_chains(self):
        """What makes a picture of patches stays on the device, between others."""
        for mode, channels in itertools.product(("DCR", "CRD"), (8, 12)):
            nodes = [
                node("Conv", "x v", "a", pads=[1, 1, 1, 1]),
                node("DepthToSpace", "a", "b", blocksize=2, mode=mode),
                helper.make_node("Resize", ["b", "", "s"], ["c"], mode="linear"),
                node("Conv", "c w", "y"),
            ]
            constants = {
                "v": self.array(channels, 3, 3, 3),
                "w": self.array(1, channels // 4, 2, 2),
                "s": np.float32([1, 1, 2, 3]),
            }
            cases = [{"x": self.array(*shape)} for shape in ((1, 3, 4, 5), (3, 3, 2, 2), (0, 3, 4, 4))]
            content = model(nodes, cases[0], ["y"], constants)
            with self.subTest(mode, channels=channels):
                self.compare(content, *cases, take="all")
                self.assertEqual(groups(content, take="all")[0], (4, 4, 1))


if __name__ == "__main__":
    onnxruntime.register_execution_provider_library("clattn", os.environ["CLATTN_ONNXRUNTIME"])
    unittest.main()
