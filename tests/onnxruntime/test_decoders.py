"""The provider for ONNX Runtime on what com.microsoft's decoders are made of, against the CPU provider.

    CLATTN_ONNXRUNTIME=LIBRARY python3 test_decoders.py

Needs what test_provider.py does."""

import os
import unittest

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, load_model_from_string
from test_provider import MS, Comparison, groups, model, node, plain, session


class Decoders(Comparison):
    """What com.microsoft's decoders are made of: rotary positions, norms of sums, and attention with a cache of any length."""

    def rotation(self, domain, heads, size, rotated, shape, positions, dtype=np.float32, **attributes):
        """A RotaryEmbedding of heads of `size`, of which `rotated` elements turn: a model, and inputs for each (batch, length)."""
        cases = []
        for batch, length in ((2, 5), (1, 1), (3, 9), (0, 4)):
            rows = (batch, length) if positions == "rows" else (12,)
            case = {
                "x": self.array(*((batch, heads, length, size) if shape == 4 else (batch, length, heads * size)), dtype=dtype)
            }
            case.update({name: self.array(*rows, rotated // 2, dtype=dtype) for name in "cs"})
            if positions != "rows":
                case["p"] = np.array([3]) if positions == "first" else self.random.integers(0, 12, (batch, length))
            cases.append(case)
        if rotated < size:
            attributes["rotary_embedding_dim"] = rotated
        order = "x p c s" if domain else "x c s p" if "p" in cases[0] else "x c s"
        made = node("RotaryEmbedding", order, "y", domain=domain, name="turns", num_heads=heads, **attributes)
        return model([made], cases[0], ["y"]), cases

    def test_rotations(self):
        """Pairs of both kinds, arrays of both kinds, parts of heads, positions of each element, from one on, and none."""
        for domain, positions in (("", "each"), ("", "rows"), (MS, "each"), (MS, "first")):
            for shape, size, rotated, interleaved, dtype in (
                (3, 8, 8, 0, np.float32),
                (3, 8, 8, 1, np.float16),
                (3, 12, 6, 1, np.float32),
                (4, 8, 8, 1, np.float32),
                (4, 12, 4, 0, np.float16),
            ):
                with self.subTest(domain, positions=positions, shape=shape, rotated=rotated, interleaved=interleaved):
                    content, cases = self.rotation(domain, 3, size, rotated, shape, positions, dtype, interleaved=interleaved)
                    self.compare(content, *cases, alone=True, take="all")

    def test_rotations_of_unknown_heads(self):
        """com.microsoft's operator finds the heads by its tables."""
        nodes = [node("MatMul", "a W", "x"), node("RotaryEmbedding", "x p c s", "y", domain=MS)]
        constants = {"W": self.array(6, 24), "p": np.array([2]), "c": self.array(9, 4), "s": self.array(9, 4)}
        inputs = {"a": self.array(2, 7, 6)}
        self.compare(model(nodes, inputs, ["y"], constants), inputs, alone=True, take="all")

    def test_wrong_rotations(self):
        """Positions outside the tables, and tables of other shapes."""
        for domain in ("", MS):
            content, [case, *_] = self.rotation(domain, 3, 8, 8, 3, "each")
            outside = [{**case, "p": case["p"] * 0 + n} for n in (-1, 12, 2**40)]
            tables = [{**case, **{n: self.array(*shape) for n in "cs"}} for shape in ((12, 3), (12, 8), (0, 4))]
            self.refuse(content, *outside, *tables, {**case, "c": self.array(12, 2)}, {**case, "x": self.array(2, 5, 23)})
            self.refuse(content, {**case, "p": case["p"][:1]}, {**case, "p": case["p"][:, :2]})
        content, [case, *_] = self.rotation(MS, 3, 8, 8, 3, "first")
        self.refuse(content, *({**case, "p": np.array(n)} for n in ([8], [-1], [2**62], [0, 1])))
        content, [case, *_] = self.rotation("", 3, 8, 8, 3, "rows")
        self.refuse(content, {**case, "c": self.array(1, 5, 4), "s": self.array(1, 5, 4)})

    def sum_norm(self, op, bias, total, skip, dtype):
        names = ["x", "s", "w"] + ["b"] * (op == "SkipLayerNormalization") + ["a"] * bias
        inputs = {"x": self.array(2, 5, 16, dtype=dtype), "s": self.array(*skip, dtype=dtype)}
        made = node(op, " ".join(names), "y", domain=MS, name="sums", epsilon=1e-3)
        made.output.extend(["", "", "z"] * total)
        constants = {name: self.array(16, dtype=dtype) for name in names[2:]}
        return model([made], inputs, ["y", "z"][: 1 + total], constants), inputs

    def test_norms_of_sums(self):
        """With and without a bias, and with the sum as an output; what is added may have one batch."""
        for op in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"):
            for bias, total, skip in ((0, 0, (2, 5, 16)), (1, 1, (2, 5, 16)), (1, 0, (1, 5, 16)), (0, 1, (5, 16))):
                dtype = np.float16 if total and not bias else np.float32
                with self.subTest(op, bias=bias, total=total, skip=skip):
                    content, inputs = self.sum_norm(op, bias, total, skip, dtype)
                    self.compare(content, inputs, alone=True, take="all")

    def test_wrong_norms_of_sums(self):
        content, inputs = self.sum_norm("SkipLayerNormalization", 1, 1, (2, 5, 16), np.float32)
        other = [{**inputs, "s": self.array(*shape)} for shape in ((2, 5, 1), (2, 4, 16))]
        self.refuse(content, *other, {"x": self.array(2, 5, 8), "s": self.array(2, 5, 8)})

    def grouped(self, cases, heads=4, kv_heads=2, size=16, packed=False, room=0, bias=False, dtype=np.float32, **attributes):
        """A GroupQueryAttention: a model, and inputs for each (keys of before of each item, queries)."""
        all_inputs = []
        for past, now in cases:
            batch, total = len(past), max(past) + now
            widths = {"q": heads + 2 * kv_heads} if packed else {"q": heads, "k": kv_heads, "v": kv_heads}
            inputs = {name: self.array(batch, now, width * size, dtype=dtype) for name, width in widths.items()}
            for name in ("pk", "pv"):
                inputs[name] = self.array(batch, kv_heads, max(past) + (room and now + room), size, dtype=dtype)
            inputs["l"] = np.array([each + now - 1 for each in past], np.int32)
            inputs["t"] = np.array([total], np.int32)
            if attributes.get("do_rotary"):
                inputs.update({name: self.array(40, 8, dtype=dtype) for name in "cs"})
            if bias:
                inputs["m"] = self.array(1, heads, now, total, dtype=dtype)
            all_inputs.append(inputs)
        names = [name if name in inputs else "" for name in ("q", "k", "v", "pk", "pv", "l", "t", "c", "s", "none", "m")]
        made = node(
            "GroupQueryAttention", "", "y nk nv", MS, name="groups", num_heads=heads, kv_num_heads=kv_heads, **attributes
        )
        made.input.extend(names if bias else names[:9] if "c" in inputs else names[:7])
        return model([made], all_inputs[0], ["y", "nk", "nv"]), all_inputs

    def test_grouped(self):
        """Prompts, further tokens, items of unlike lengths, caches with room; one session takes all lengths."""
        prompt, token, unlike, more = ([0, 0], 5), ([6, 6], 1), ([2, 9, 2, 2], 1), ([7], 4)
        every = (prompt, token, unlike, more, ([0], 1), ([12, 12], 1))
        for extra in (
            {},
            {"packed": True},
            {"do_rotary": 1},
            {"do_rotary": 1, "packed": True, "room": 3},
            {"do_rotary": 1, "rotary_interleaved": 1, "size": 32},
            {"room": 8, "kv_heads": 1, "heads": 3},
            {"local_window_size": 1},
            {"local_window_size": 3, "scale": 0.4, "softcap": 1.5},
            {"bias": True, "softcap": 2.0},
            {"bias": True, "do_rotary": 1},
            {"do_rotary": 1, "dtype": np.float16},
        ):
            with self.subTest(**extra):
                content, cases = self.grouped(every, **extra)
                self.compare(content, *cases, alone=True)

    def test_grouped_in_place(self):
        """An application may bind one array as the cache of before and of behind."""
        content, [inputs] = self.grouped([([6, 6], 1)], room=4, do_rotary=1)
        found = []
        for made in (session(content, alone=True), plain(content)):
            values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array.copy()) for name, array in inputs.items()}
            binding = made.io_binding()
            for name, value in values.items():
                binding.bind_ortvalue_input(name, value)
            binding.bind_output("y")
            binding.bind_ortvalue_output("nk", values["pk"])
            binding.bind_ortvalue_output("nv", values["pv"])
            made.run_with_iobinding(binding)
            found.append([each.numpy().copy() for each in (binding.get_outputs()[0], values["pk"], values["pv"])])
        for mine, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=2e-5)

    def test_grouped_inside(self):
        """The caches of before and of behind are made and read by other steps."""
        content, [inputs] = self.grouped([([6, 4], 1)], room=2)
        loaded = load_model_from_string(content)
        [made] = loaded.graph.node
        made.input[3], made.output[1] = "before", "behind"
        loaded.graph.node.insert(0, node("Neg", "pk", "before"))
        loaded.graph.node.append(node("Neg", "behind", "nk"))
        self.compare(loaded.SerializeToString(), inputs, alone=True, take="all")

    def test_decoder(self):
        """A layer as com.microsoft's model builder writes it, whose lengths the CPU provider computes of a mask: prompt and tokens."""
        width, heads, kv_heads, size = 32, 4, 2, 16
        shapes = {
            "Wq": (width, (heads + 2 * kv_heads) * size),
            "Wo": (heads * size, width),
            "Wg": (width, 48),
            "Wu": (width, 48),
        }
        constants = {
            name: self.array(*shape) * np.float32(shape[0] ** -0.5) for name, shape in {**shapes, "Wd": (48, width)}.items()
        }
        constants.update({f"w{n}": self.array(width) for n in range(3)})
        constants.update({name: self.array(64, size // 2) for name in "cs"})
        constants.update({"one": np.array([1]), "last": np.array(1)})
        grouped = {"num_heads": heads, "kv_num_heads": kv_heads, "do_rotary": 1}
        made = node("GroupQueryAttention", "", "a nk nv", domain=MS, **grouped)
        made.input.extend(["qkv", "", "", "pk", "pv", "l", "t", "c", "s"])
        lengths = [
            node("ReduceSum", "mask one", "sum", keepdims=0),
            node("Sub", "sum one", "l64"),
            node("Cast", "l64", "l", to=TensorProto.INT32),
            node("Shape", "mask", "shape"),
            node("Gather", "shape last", "t64", axis=0),
            node("Cast", "t64", "t", to=TensorProto.INT32),
        ]
        layer = [
            node("SimplifiedLayerNormalization", "x w0", "n", axis=-1, epsilon=1e-5),
            node("MatMul", "n Wq", "qkv"),
            made,
            node("MatMul", "a Wo", "o"),
            helper.make_node("SkipSimplifiedLayerNormalization", ["x", "o", "w1"], ["m", "", "", "r"], domain=MS, epsilon=1e-5),
            node("MatMul", "m Wg", "g"),
            node("Sigmoid", "g", "g1"),
            node("Mul", "g g1", "g2"),
            node("MatMul", "m Wu", "u"),
            node("Mul", "g2 u", "h"),
            node("MatMul", "h Wd", "d"),
            helper.make_node("SkipSimplifiedLayerNormalization", ["r", "d", "w2"], ["y", "", "", "z"], domain=MS, epsilon=1e-5),
        ]
        cases = []
        for past, now in ((0, 7), (7, 1), (8, 1), (20, 1)):
            case = {"x": self.array(2, now, width), "mask": np.ones((2, past + now), np.int64)}
            cases.append({**case, **{name: self.array(2, kv_heads, past, size) for name in ("pk", "pv")}})
        content = model([*lengths, *layer], cases[0], ["y", "z", "nk", "nv"], constants)
        loaded = load_model_from_string(content)
        loaded.graph.input[0].type.tensor_type.shape.dim[2].dim_value = width
        self.assertEqual(groups(loaded.SerializeToString())[0], (len(layer), len(lengths + layer), 1))
        self.compare(loaded.SerializeToString(), *cases)

    def test_wrong_groups(self):
        """Lengths that are not those of the arrays, and arrays that do not go together."""
        content, [case] = self.grouped([([6, 6], 1)], do_rotary=1)
        numbers = {"l": ([7, 6], [-1, 6], [6], [6, 6, 6], [2**31 - 1, 6]), "t": ([0], [9], [2**31 - 1], [-(2**31)], [7, 7])}
        self.refuse(content, *({**case, name: np.array(each, np.int32)} for name, row in numbers.items() for each in row))
        shapes = {"k": (2, 2, 32), "v": (1, 1, 32), "q": (2, 1, 65), "pk": (2, 2, 5, 16), "pv": (2, 1, 6, 16), "c": (5, 8)}
        self.refuse(content, *({**case, name: self.array(*shape)} for name, shape in shapes.items()))
        self.refuse(content, {**case, "c": self.array(40, 16), "s": self.array(40, 16)})

    def test_left(self):
        """What is left has its reason."""
        groups_of = {
            name: self.grouped([([6, 6], 1)], **extra)[0]
            for name, extra in (("smooth", {"smooth_softmax": 1}), ("zero", {"local_window_size": 0}))
        }
        turned = self.rotation(MS, 3, 8, 8, 3, "first", scale=2.0)[0]
        mean = node("SkipLayerNormalization", "x s w", "y m", domain=MS)
        inputs = {"x": self.array(2, 5, 16), "s": self.array(2, 5, 16)}
        for content, words in (
            (groups_of["smooth"], "smooth softmax"),
            (groups_of["zero"], "window of 0"),
            (turned, "packed, or has a scale or an odd size"),
            (model([mean], inputs, ["y", "m"], {"w": self.array(16)}), "a mean or a deviation is an output"),
        ):
            (taken, _, _), [(_, reason)] = groups(content, take="all")
            self.assertEqual(taken, 0)
            self.assertIn(words, reason)


if __name__ == "__main__":
    onnxruntime.register_execution_provider_library("clattn", os.environ["CLATTN_ONNXRUNTIME"])
    unittest.main()
