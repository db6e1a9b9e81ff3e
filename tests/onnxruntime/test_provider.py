"""The provider for ONNX Runtime: sessions with it against sessions of the CPU provider alone.

    CLATTN_ONNXRUNTIME=LIBRARY python3 test_provider.py

ONNXRUNTIME_HEADERS is the folder of onnxruntime/onnxruntime_c_api.h, CLATTN_ONNXRUNTIME_SANITIZED a provider that was built with the
sanitizers.
Needs PyPI's onnxruntime and onnx. CLATTN_TEST_LEVEL=full draws 1,300 graphs in place of 22; CLATTN_TEST_SEED draws others."""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import numpy as np
import onnxruntime
from onnx import NodeProto, TensorProto, helper, load_model_from_string, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnxruntime.capi import onnxruntime_pybind11_state as state

try:
    import clattn_onnxruntime
except ImportError:
    clattn_onnxruntime = None

NAME = "ClattnExecutionProvider"
BUFFERS = "ClattnOpenCLExecutionProvider"  # whose arrays are in OpenCL buffers
MS = "com.microsoft"
REFUSED = (state.Fail, state.InvalidGraph, state.NotImplemented)
SEED = int(os.environ.get("CLATTN_TEST_SEED", "20261128"))
FULL = os.environ.get("CLATTN_TEST_LEVEL") == "full"
DRAWS, MODELS = (300, 1000) if FULL else (10, 12)
TYPES = {
    np.dtype(each): getattr(TensorProto, each.upper().replace("FLOAT32", "FLOAT"))
    for each in ("float32", "float16", "bool", "int32", "int64")
}
WITHIN, RELATIVE = {"float32": 2e-5, "float16": 5e-3}, {"float32": 2e-5, "float16": 2e-3}


def model(nodes, inputs, outputs, constants=(), opset=23, known=False):
    """A model whose inputs have these arrays' types and ranks, and if `known` their extents; its outputs are of the first input's type."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [
            helper.make_tensor_value_info(
                name, TYPES[array.dtype], array.shape if known else [f"{name}{n}" for n in range(array.ndim)]
            )
            for name, array in inputs.items()
        ],
        [helper.make_tensor_value_info(name, TYPES[next(iter(inputs.values())).dtype], None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in dict(constants).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def session(content, alone=False, threads=0, spin=True, raw=False, provider=NAME, **options):
    """A session that has the provider; if `alone`, one that refuses models of which a node is left; if `raw`, of the graph as it is."""
    settings = onnxruntime.SessionOptions()
    if raw:
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == provider]
    settings.add_provider_for_devices(devices, options)
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", str(int(alone)))
    settings.add_session_config_entry("session.intra_op.allow_spinning", str(int(spin)))
    settings.intra_op_num_threads = threads  # 0: as many as the processor has cores
    settings.log_severity_level = 3  # models here do not say what shapes results have, which is a warning
    made = onnxruntime.InferenceSession(content, settings)
    made.disable_fallback()  # or a run that fails would be repeated without the provider
    return made


def plain(content):
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])
    except state.InvalidArgument:  # 1.32 fuses nodes in a few graphs and then misses what they made
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])


def node(op, inputs, outputs, domain="", **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), domain=domain, **attributes)


def pieces(q, k, v, y):
    """Attention of arrays of four dimensions in pieces, without a scale."""
    return [
        node("Transpose", k, f"{y}_keys", perm=[0, 1, 3, 2]),
        node("MatMul", f"{q} {y}_keys", f"{y}_scores"),
        node("Softmax", f"{y}_scores", f"{y}_weights"),
        node("MatMul", f"{y}_weights {v}", y),
    ]


def groups(content, take="attention"):
    """How many nodes the provider takes, of how many, as how many chains; and what it leaves, by its log."""
    script = """
import sys, onnxruntime
onnxruntime.register_execution_provider_library("clattn", sys.argv[1])
settings = onnxruntime.SessionOptions()
settings.log_severity_level = 1
settings.add_provider_for_devices([d for d in onnxruntime.get_ep_devices() if d.ep_name == "ClattnExecutionProvider"], {"take": sys.argv[2]})
onnxruntime.InferenceSession(sys.stdin.buffer.read(), settings)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, os.environ["CLATTN_ONNXRUNTIME"], take], input=content, capture_output=True, check=True
    )
    text = done.stderr.decode()
    assert "cannot be fused together" not in text, text  # and the CPU provider would compute everything
    taken = re.search(r"clattn takes (\d+) of (\d+) nodes, as (\d+) chains", text)
    return tuple(map(int, taken.groups())), re.findall(r"clattn leaves the node \S* \((\w+)\): (.*)", text)


def in_threads(count, work):
    """Calls work(0), work(1) ... at a time."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


class Comparison(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(SEED)

    def array(self, *shape, dtype=np.float32):
        return self.random.standard_normal(shape).astype(dtype)

    def compare(self, content, inputs, *others, **options):
        """The provider's outputs are those of the CPU provider, for these inputs and others."""
        ours, theirs = session(content, **options), plain(content)
        for each in (inputs, *others):
            for found, expected in zip(ours.run(None, each), theirs.run(None, each), strict=True):
                self.assertEqual((found.shape, found.dtype), (expected.shape, expected.dtype))
                np.testing.assert_allclose(found, expected, atol=WITHIN[found.dtype.name], rtol=RELATIVE[found.dtype.name])

    def refuse(self, content, *cases):
        """Both providers refuse these inputs, clattn's by the node's name."""
        [name] = [each.name for each in load_model_from_string(content).graph.node]
        ours, theirs = session(content, alone=True, take="all"), plain(content)
        for inputs in cases:
            with self.assertRaisesRegex(state.InvalidArgument, f"clattn: .*{name}"):
                ours.run(None, inputs)
            with self.assertRaises((*REFUSED, state.InvalidArgument, state.RuntimeException)):
                theirs.run(None, inputs)


def chain(random, dtype):
    """A random decomposed attention: its nodes, inputs, constants and how many of its nodes are to be taken."""
    batch, heads, queries, keys, size, columns = (int(random.integers(1, most)) for most in (4, 5, 20, 24, 20, 20))
    shapes = {"q": (batch, heads, queries, size), "k": (batch, heads, keys, size), "v": (batch, heads, keys, columns)}
    nodes, inputs, constants, taken = [], {}, {}, 3
    names = {name: name for name in shapes}
    for name, shape in shapes.items():
        array = random.standard_normal(shape).astype(dtype)
        if random.random() < 0.6:  # as a projection leaves it
            array = np.ascontiguousarray(array.transpose(0, 2, 1, 3))
            perm = [0, 2, 3, 1] if name == "k" and random.random() < 0.5 else [0, 2, 1, 3]
            names[name] = ("T" if perm[3] == 1 else "") + name + "t"
            nodes.append(node("Transpose", name, names[name], perm=perm))
            taken += 1
        inputs[name] = array
    if not names["k"].startswith("T"):
        nodes.append(node("Transpose", names["k"], "kT", perm=[0, 1, 3, 2]))
        names["k"] = "kT"
        taken += 1
    scale = dtype(0.5 * size**-0.5)
    kind = random.integers(4)
    if kind == 1:  # as PyTorch's exporter scales both
        constants["s"] = np.array([np.sqrt(scale)], dtype)
        nodes += [node("Mul", f"{names['q']} s", "qs"), node("Mul", f"s {names['k']}", "ks")]
        names["q"], names["k"], taken = "qs", "ks", taken + 2
    nodes.append(node("MatMul", f"{names['q']} {names['k']}", "score0"))
    score = "score0"
    if kind >= 2:
        constants["s"] = np.array(scale if kind == 2 else 1 / scale, dtype)
        nodes.append(node("Mul" if kind == 2 else "Div", "score0 s", "score1"))
        score, taken = "score1", taken + 1
    if random.random() < 0.7:
        shape = [(batch, 1, 1, keys), (1, 1, queries, keys), (batch, heads, queries, keys), (queries, keys), (keys,)]
        mask = random.standard_normal(shape[random.integers(len(shape))]).astype(dtype)
        mask[random.random(mask.shape) < 0.2] = -10000 if dtype == np.float32 else -100
        inputs["m"] = mask
        nodes.append(node("Add", f"{score} m" if random.random() < 0.5 else f"m {score}", "score2"))
        score, taken = "score2", taken + 1
    nodes.append(node("Softmax", score, "weights", axis=int(random.choice([-1, 3]))))
    nodes.append(node("MatMul", f"weights {names['v']}", "result"))
    if random.random() < 0.6:
        nodes.append(node("Transpose", "result", "y", perm=[0, 2, 1, 3]))
        taken += 1
    else:
        nodes[-1].output[0] = "y"
    return nodes, inputs, constants, taken


class Chains(Comparison):
    def test_random(self):
        """Attention in pieces, with head transposes, scales and masks in all places."""
        for n in range(DRAWS):
            nodes, inputs, constants, taken = chain(self.random, np.float32 if n % 4 else np.float16)
            content = model(nodes, inputs, ["y"], constants, opset=17)
            with self.subTest(n, nodes=[each.op_type for each in nodes]):
                self.compare(content, inputs)
                if n < 5:
                    (found, count, chains), left = groups(content)  # ONNX Runtime joins some transpositions
                    self.assertEqual((found, chains, left), (count, 1, []))
                    self.assertLessEqual(taken - 2, count)

    def test_one_row(self):
        """Products that are known to have one row are left on a processor, with the attention between them."""
        nodes = [node("MatMul", "x w", "q"), *pieces("q", "k", "v", "a"), node("MatMul", "a w", "y")]
        constants = {"w": self.array(8, 8)}
        for rows, known, take, taken in (
            (1, True, "attention", 0),
            (1, True, "all", 6),
            (1, False, "attention", 6),
            (2, True, "attention", 6),
        ):
            with self.subTest(rows=rows, known=known, take=take):
                inputs = {"x": self.array(1, 1, rows, 8), "k": self.array(1, 1, 5, 8), "v": self.array(1, 1, 5, 8)}
                content = model(nodes, inputs, ["y"], constants, opset=17, known=known)
                self.compare(content, inputs, take=take)
                (found, count, chains), left = groups(content, take)
                self.assertEqual((found, count, chains), (taken, 6, int(taken > 0)))
                reason = "its chain's products have one row, which processors compute as fast without clattn"
                self.assertEqual({why for _, why in left}, set() if taken else {reason})

    def test_other_shapes(self):
        """One session takes any shape, and broadcasts as ONNX does."""
        nodes = [
            node("Transpose", "k", "kT", perm=[0, 1, 3, 2]),
            node("MatMul", "q kT", "a"),
            node("Add", "a m", "b"),
            node("Softmax", "b", "c"),
            node("MatMul", "c v", "y"),
        ]
        cases = []
        for q, k, m in (
            ((2, 3, 4, 8), (2, 3, 5, 8), (2, 1, 4, 5)),
            ((1, 3, 4, 8), (2, 3, 5, 8), (1, 1, 1, 5)),
            ((2, 3, 4, 8), (1, 1, 5, 8), (1, 1, 4, 1)),
            ((1, 1, 4, 8), (1, 1, 5, 8), (2, 3, 1, 5)),
            ((2, 1, 1, 8), (2, 4, 5, 8), (1, 1, 6, 5)),
            ((0, 3, 4, 8), (0, 3, 5, 8), (1, 1, 1, 5)),
            ((2, 3, 4, 8), (2, 3, 0, 8), (1, 1, 1, 0)),
        ):
            cases.append({"q": self.array(*q), "k": self.array(*k), "v": self.array(*k), "m": self.array(*m)})
        self.compare(model(nodes, cases[0], ["y"], opset=17), *cases)

    def test_nothing(self):
        """Vectors of size 0 score 0; there are no heads, no queries, no keys, or nothing of a value."""
        cases = []
        for q, k, v, m in (
            ((2, 3, 4, 0), (2, 3, 5, 0), (2, 3, 5, 8), (2, 1, 4, 5)),
            ((2, 3, 4, 0), (2, 3, 5, 0), (2, 3, 5, 0), (2, 1, 4, 5)),
            ((2, 0, 4, 8), (2, 0, 5, 8), (2, 0, 5, 8), (2, 1, 4, 5)),
            ((2, 3, 0, 8), (2, 3, 5, 8), (2, 3, 5, 8), (2, 1, 1, 5)),
            ((2, 3, 4, 8), (2, 3, 0, 8), (2, 3, 0, 8), (2, 1, 4, 1)),
            ((2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 0), (2, 1, 4, 5)),
        ):
            cases.append({name: self.array(*shape) for name, shape in zip("qkvm", (q, k, v, m), strict=True)})
        masked = [*pieces("q", "k", "v", "y")]
        masked[2].input[0] = "b"
        masked.insert(2, node("Add", "y_scores m", "b"))
        for precision in ("model", "bfloat16"):
            with self.subTest(precision), unittest.mock.patch.dict(WITHIN, {"float32": 2e-5 if precision == "model" else 0.02}):
                self.compare(model(masked, cases[0], ["y"], opset=17), *cases, precision=precision)
        for case in cases:
            flat = {}
            for name in "qkv":
                batch, heads, length, size = case[name].shape
                flat[name] = case[name].transpose(0, 2, 1, 3).reshape(batch, length, heads * size)
            operator = node("MultiHeadAttention", "q k v", "y", domain=MS, num_heads=3)
            with self.subTest([array.shape for array in flat.values()]):
                case.pop("m")  # the CPU provider's operator refuses most of these
                ours = session(model([node("Attention", "q k v", "y")], case, ["y"]), take="all").run(None, case)
                expected = plain(model(pieces("q", "k", "v", "y"), case, ["y"], opset=17)).run(None, case)
                self.assertEqual(ours[0].shape, expected[0].shape)
                of_heads = model([operator], flat, ["y"], opset=17)
                if case["q"].shape[3]:
                    self.compare(of_heads, flat, take="all")
                else:  # pieces have no scale; the CPU provider's MultiHeadAttention attends by memory that it has not set
                    np.testing.assert_allclose(ours[0], expected[0], atol=2e-5)
                    ours = session(of_heads, take="all").run(None, flat)
                    np.testing.assert_allclose(ours[0], expected[0].transpose(0, 2, 1, 3).reshape(ours[0].shape), atol=2e-5)

    def test_what_is_left(self):
        """Where somebody else reads a value in between, or a piece is another, the CPU provider computes."""
        inputs = {name: self.array(2, 3, 5, 8) for name in "qkv"}
        start = [node("Transpose", "k", "kT", perm=[0, 1, 3, 2]), node("MatMul", "q kT", "a")]
        end = [node("Softmax", "a", "b"), node("MatMul", "b v", "y")]
        changes = {
            "scores are an output": (start + end, ["y", "a"], None),
            "weights are an output": (start + end, ["y", "b"], None),
            "weights are read twice": ([*start, *end, node("Relu", "b", "z")], ["y", "z"], None),
            "another axis": ([*start, node("Softmax", "a", "b", axis=2), end[1]], ["y"], None),
            "a scale that is no constant": (
                [*start, node("ReduceMax", "q", "s", keepdims=0), node("Mul", "a s", "c"), node("Softmax", "c", "b"), end[1]],
                ["y"],
                None,
            ),
            "no product": ([node("Softmax", "q", "b"), node("MatMul", "b v", "y")], ["y"], {"v": self.array(2, 3, 8, 5)}),
            "the wrong side": ([*start, end[0], node("MatMul", "v b", "y")], ["y"], {"v": self.array(2, 3, 8, 5)}),
        }
        for words, (nodes, outputs, other) in changes.items():
            given = {**inputs, **(other or {})}
            content = model(
                nodes, {name: given[name] for name in sorted({i for n in nodes for i in n.input} & set(given))}, outputs
            )
            with self.subTest(words):
                (taken, count, _), left = groups(content)
                self.assertEqual((taken, count), (0, len(nodes)))
                self.assertIn("Softmax", [op for op, _ in left])
                self.compare(content, {each.name: given[each.name] for each in plain(content).get_inputs()})

    def test_shared_transposes(self):
        """A head transpose that a cache reads as well stays outside, and so does a value that a graph inside a node reads."""
        nodes = [
            node("Transpose", "k", "kt", perm=[0, 2, 1, 3]),
            *pieces("q", "kt", "v", "y"),
        ]
        inputs = {"q": self.array(2, 3, 5, 8), "k": self.array(2, 6, 3, 8), "v": self.array(2, 3, 6, 8)}
        content = model(nodes, inputs, ["y", "kt"])
        self.assertEqual(groups(content)[0], (4, 5, 1))
        self.compare(content, inputs)

    def test_transposes_that_others_read(self):
        """Head transposes that are outputs, or of which somebody wants the shape or the elements, leave a chain that can be fused."""
        constants = {name: self.array(24, 24) for name in ("Wq", "Wk", "Wv", "Wo")} | {
            "split": np.array([0, 0, 3, 8]),
            "joined": np.array([0, 0, 24]),
        }
        nodes = []
        for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 1, 3]), ("v", [0, 2, 1, 3])):
            nodes += [node("MatMul", f"x W{name}", f"{name}0"), node("Reshape", f"{name}0 split", f"{name}1")]
            nodes.append(node("Transpose", f"{name}1", f"{name}2", perm=perm))
        nodes += [
            *pieces("q2", "k2", "v2", "c"),
            node("Shape", "q2", "shape"),
            node("Reshape", "c shape", "d"),
            node("Transpose", "d", "e", perm=[0, 2, 1, 3]),
            node("Reshape", "e joined", "f"),
            node("MatMul", "f Wo", "y"),
            node("Add", "v2 v2", "z"),
        ]
        inputs = {"x": self.array(2, 5, 24)}
        for outputs in (["y"], ["y", "k2", "v2"], ["y", "z"], ["y", "q2", "z"]):
            content = model(nodes if "z" in outputs else nodes[:-1], inputs, outputs, constants)
            for take in ("attention", "all"):
                self.assertGreaterEqual(groups(content, take)[0][0], 14)
                self.compare(content, inputs, take=take)

    def test_transposes_that_nobody_reads(self):
        """Behind attention, a transposition that the next attention looks through and that is asked for its shape."""
        constants = {name: self.array(8, 8) / 4 for name in ("Wq", "Wo")}
        arrays = {name: self.array(2, 3, 5, 8) for name in ("q0", "k", "v")} | {"z": self.array(2, 5, 3, 8)}
        for through in "qkv":
            names = {name: "t" if name == through else "z" for name in "qkv"}
            nodes = [
                node("MatMul", "q0 Wq", "q"),
                node("Attention", "q k v", "c"),
                node("Transpose", "c", "t", perm=[0, 2, 1, 3]),
                *pieces(names["q"], names["k"], names["v"], "d"),
                node("Shape", "t", "shape"),
                node("Reshape", "d shape", "e"),
                node("MatMul", "e Wo", "y"),
            ]
            for take in ("attention", "all"):
                self.compare(model(nodes, arrays, ["y"], constants), arrays, take=take)

    def test_joint_products(self):
        """Products of one array become one where attention reads them, whatever they are reshaped to: with values of another size, with
        and without biases, with keys and values of another array, and where others read one of them, too."""
        own = {"q": ("x", 24), "k": ("x", 24), "v": ("x", 12)}
        cases = [(own, "bqkv", ""), (own, "", ""), (own, "bk", ""), (own, "bqkv", "v0"), (own, "bqkv", "k2")]
        cases += [({"q": ("x", 24), "k": ("z", 24), "v": ("z", 12)}, "bqkv", "")]
        for arrays, biases, other in cases:
            constants = {f"W{name}": self.array(24, columns) for name, (_, columns) in arrays.items()}
            constants |= {f"B{name}": self.array(columns) for name, (_, columns) in arrays.items()}
            nodes = []
            for name, (of, columns) in arrays.items():
                biased = name in biases
                nodes.append(node("MatMul", f"{of} W{name}", f"{name}{'a' if biased else '0'}"))
                nodes += [node("Add", f"{name}a B{name}", f"{name}0")] if biased else []
                nodes.append(node("Reshape", f"{name}0 {name}shape", f"{name}1"))
                nodes.append(node("Transpose", f"{name}1", f"{name}2", perm=[0, 2, 1, 3]))
                constants[f"{name}shape"] = np.array([0, -1, 3, columns // 3])
            nodes += [
                *pieces("q2", "k2", "v2", "c"),
                node("Transpose", "c", "d", perm=[0, 2, 1, 3]),
                node("MatMul", "d Wo", "y"),
            ]
            constants["Wo"] = self.array(4, 5)
            inputs = [{of: self.array(b, s, 24) for of, _ in arrays.values()} for b, s in ((2, 5), (1, 1), (3, 40), (1, 16))]
            content = model(nodes, inputs[0], ["y", other] if other else ["y"], constants)
            self.assertGreaterEqual(groups(content)[0][0], len(nodes) - 1)
            for take in ("attention", "all"):
                self.compare(content, *inputs, take=take)

    def test_joint_products_beyond_rows(self):
        """Reshapes that mix rows and columns leave such products apart, in one run and not in another."""
        constants = {name: self.array(24, 24) / 8 for name in ("Wq", "Wk", "Wv")}
        nodes = []
        for name in "qkv":
            nodes += [node("MatMul", f"x W{name}", f"{name}0"), node("Reshape", f"{name}0 shape", name)]
        nodes += [
            *pieces("q", "k", "v", "c"),
            node("MatMul", "c Wo", "y"),
        ]
        shapes = ([0, 3, -1, 8], [-1, 1, 3, 8], [1, 2, -1, 24], [2, 1, -1, 8])
        for shape in shapes:
            columns = shape[3]
            constants |= {"shape": np.array(shape), "Wo": self.array(columns, 3)}
            content = model(nodes, {"x": self.array(2, 4, 24)}, ["y"], constants)
            self.compare(content, {"x": self.array(2, 4, 24)}, {"x": self.array(2, 20, 24)})
        # The shape follows from another array's, so that one session has both kinds.
        nodes.insert(0, node("Shape", "like", "shape"))
        del constants["shape"]
        constants["Wo"] = self.array(8, 3)
        x = self.array(2, 4, 24)
        like = [np.zeros(shape, np.float32) for shape in ((2, 3, 4, 8), (8, 1, 3, 8), (1, 1, 24, 8), (4, 2, 3, 8))]
        content = model(nodes, {"x": x, "like": like[0]}, ["y"], constants)
        self.assertGreaterEqual(groups(content)[0][0], len(nodes) - 1)
        self.compare(content, *({"x": x, "like": each} for each in like))

    def test_turned_outputs(self):
        """A transposition behind attention costs nothing where a reshape between them changes nothing, and is computed where it does."""
        nodes = [
            node("Shape", "like", "shape"),
            node("MatMul", "q Wq", "q1"),
            *pieces("q1", "k", "v", "c"),
            node("Reshape", "c shape", "d"),
            node("Transpose", "d", "e", perm=[0, 2, 1, 3]),
            node("Reshape", "e joined", "f"),
            node("MatMul", "f Wo", "y"),
        ]
        constants = {"Wq": self.array(8, 8), "Wo": self.array(24, 5), "joined": np.array([-1, 24])}
        arrays = {name: self.array(2, 3, 5, 8) for name in "qkv"}
        shapes = (2, 3, 5, 8), (2, 5, 3, 8), (1, 3, 10, 8), (2, 3, 8, 5), (1, 1, 2, 120)
        cases = [arrays | {"like": np.zeros(shape, np.float32)} for shape in shapes]
        for outputs in (["y"], ["y", "e"], ["y", "c"], ["y", "d"]):
            content = model(nodes, cases[0], outputs, constants)
            self.assertGreaterEqual(groups(content)[0][0], len(nodes) - 1)
            for take in ("attention", "all"):
                self.compare(content, *cases, take=take)
        direct = [each for each in nodes if each.op_type != "Shape" and each.output[0] != "d"]
        direct[[each.output[0] for each in direct].index("e")] = node("Transpose", "c", "e", perm=[2, 0, 1, 3])
        self.compare(model(direct, arrays, ["y"], constants), arrays)

    def test_several(self):
        """Two attentions, one behind the other, beside nodes of the CPU provider's."""
        nodes = []
        for n, (query, output) in enumerate((("q", "x"), ("z", "y"))):
            nodes += pieces(query, "k", "v", output)
            if n == 0:
                nodes.append(node("Softplus", "x", "z"))
        inputs = {"q": self.array(2, 3, 5, 8), "k": self.array(2, 3, 6, 8), "v": self.array(2, 3, 6, 8)}
        content = model(nodes, inputs, ["y"])
        self.assertEqual(groups(content)[0][2], 2)
        self.compare(content, inputs)


class Drawing:
    """A random small model: steps that the provider takes beside nodes that it leaves, values read once, twice or as outputs."""

    def __init__(self, random, dtype):
        self.random, self.dtype = random, dtype
        self.nodes, self.constants, self.count = [], {}, 0
        self.batch, self.length, self.heads = (int(random.integers(1, most)) for most in (4, 7, 4))
        self.width = self.heads * int(random.integers(1, 9))
        self.inputs = {"x": self.array(self.batch, self.length, self.width), "r": self.array(1, self.length, self.width)}
        self.rows, self.widths = ["x", "r"], {}  # values of three dimensions, and the columns of those that have not `width`
        self.others = []  # values of other dimensions that are outputs

    def array(self, *shape):
        return self.random.standard_normal(shape).astype(self.dtype)

    def chance(self, of=0.5):
        return self.random.random() < of

    def constant(self, array):
        self.count += 1
        self.constants[f"c{self.count}"] = array
        return f"c{self.count}"

    def add(self, op, *inputs, more=(), **attributes):
        """A node; its first output, to whose name `more` has what further ones append, or nothing for those left out."""
        self.count += 1
        name = f"v{self.count}"
        self.nodes.append(helper.make_node(op, inputs, [name, *(each and name + each for each in more)], **attributes))
        return name

    def pick(self):
        return str(self.random.choice(self.rows[-4:]))

    def shuffled(self, *pair):
        return pair if self.chance() else pair[::-1]

    def numbers(self, *numbers):
        return self.constant(np.array(numbers, np.int64))

    def number(self, number):
        return self.constant(np.array(number, self.dtype))

    def activation(self, x):
        kind = self.random.integers(7)
        if kind == 6:
            cube = self.add("Mul", self.add("Pow", x, self.number(3)), self.number(0.044715))
            scaled = self.add("Mul", self.add("Add", x, cube), self.number((2 / np.pi) ** 0.5))
            one = self.add("Add", self.add("Tanh", scaled), self.number(1))
            return self.add("Mul", *self.shuffled(self.add("Mul", x, self.number(0.5)), one))
        if kind == 0:
            scaled = self.add(*(("Div", x, self.number(2**0.5)) if self.chance() else ("Mul", x, self.number(2**-0.5))))
            one = self.add("Add", *self.shuffled(self.add("Erf", scaled), self.number(1)))
            if self.chance():
                return self.add("Mul", *self.shuffled(self.add("Mul", *self.shuffled(x, one)), self.number(0.5)))
            half = self.add("Mul", *self.shuffled(x, self.number(0.5)))
            return self.add("Mul", *self.shuffled(half, one))
        if kind == 1:
            return self.add("Mul", *self.shuffled(x, self.add("Sigmoid", x)))
        if kind == 2:
            scaled = self.add("Mul", *self.shuffled(x, self.number(1.702)))
            return self.add("Mul", *self.shuffled(x, self.add("Sigmoid", scaled)))
        if kind == 3:
            return self.add("LeakyRelu", x, alpha=0.2)
        return self.add(["Relu", "Tanh"][kind - 4], x)

    def product(self, x, columns):
        depth = self.width_of(x)
        matrix = self.array(depth, columns) * self.dtype(depth**-0.5)
        flat = self.chance(0.4)
        if flat:
            x = self.add("Reshape", x, self.numbers(-1, depth))
        if flat and self.chance():
            turned = int(self.chance())
            y = self.add(
                "Gemm",
                x,
                self.constant(matrix.T.copy() if turned else matrix),
                self.constant(self.array(columns)),
                transB=turned,
            )
        else:
            y = self.add("MatMul", x, self.constant(matrix))
            if self.chance(0.7):
                y = self.add("Add", *self.shuffled(y, self.constant(self.array(columns))))
        return self.add("Reshape", y, self.numbers(-1, self.length, columns)) if flat else y

    def width_of(self, x):
        return self.widths.get(x, self.width)

    def feed_forward(self):
        hidden = int(self.random.integers(1, 40))
        inner = self.product(self.pick(), hidden)
        inner = self.activation(inner) if self.chance(0.8) else inner
        if self.chance(0.3):
            inner = self.add("Mul", *self.shuffled(inner, self.product(self.pick(), hidden)))
        self.widths[inner] = hidden
        return self.product(inner, self.width)

    def whole(self, x):
        return self.add("Expand", x, self.numbers(self.batch, 1, 1))

    def tables(self, pairs):
        """Of rotary positions, which are up to three behind a row's own."""
        return [self.constant(self.array(self.length + 3, pairs)) for _ in range(2)]

    def rotated(self, x):
        size = self.width // self.heads
        if size < 2 or self.chance(0.6):
            return x
        attributes = {"num_heads": self.heads, "interleaved": int(self.chance())}
        if size % 2:
            attributes["rotary_embedding_dim"] = size - 1
        first = self.numbers(int(self.random.integers(0, 4)))
        return self.add("RotaryEmbedding", x, first, *self.tables(size // 2), domain=MS, **attributes)

    def grouped(self):
        """A prompt that com.microsoft's operator attends, with heads of its own."""
        kv_heads, source = int(self.random.integers(1, 3)), self.whole(self.pick())
        heads = kv_heads * int(self.random.integers(1, 3))
        values = [self.product(source, n * 16) for n in (heads, kv_heads, kv_heads)]
        last = self.constant(np.full(self.batch, self.length - 1, np.int32))
        total = self.constant(np.array([self.length], np.int32))
        attributes = {"num_heads": heads, "kv_num_heads": kv_heads, "do_rotary": int(self.chance())}
        if self.chance(0.3):
            attributes["local_window_size"] = 2
        tables = self.tables(8) if attributes["do_rotary"] else ()
        inputs = (*values, "", "", last, total, *tables)
        y = self.add("GroupQueryAttention", *inputs, more=("k", "v"), domain=MS, **attributes)
        self.widths[y] = heads * 16
        return self.product(y, self.width)

    def attention(self):
        if self.chance(0.25):
            return self.grouped()
        size = self.width // self.heads
        source = self.pick()
        operator = self.chance(0.3)  # whose three arrays have the same batch
        values = [self.product(source if n or operator else self.pick(), self.width) for n in range(3)]
        values[:2] = map(self.rotated, values[:2])
        if operator:
            return self.add("Attention", *values, q_num_heads=self.heads, kv_num_heads=self.heads)
        split = self.numbers(0, 0, self.heads, size) if self.chance() else self.numbers(-1, self.length, self.heads, size)
        q, k, v = (self.add("Reshape", each, split) for each in values)
        q = self.add("Transpose", q, perm=[0, 2, 1, 3])
        k = self.add("Transpose", k, perm=[0, 2, 3, 1])
        v = self.add("Transpose", v, perm=[0, 2, 1, 3])
        for each in (q, k, v):  # as caches and exporters do
            if self.chance(0.1):
                self.others.append(each)
            if self.chance(0.1):
                filled = self.chance()
                self.others.append(
                    self.add("Expand", self.number(1), self.add("Shape", each)) if filled else self.add("Neg", each)
                )
        scores = self.add("Mul", self.add("MatMul", q, k), self.number(size**-0.5))
        if self.chance():
            scores = self.add("Add", scores, self.constant(self.array(1, 1, 1, self.length)))
        y = self.add("MatMul", self.add("Softmax", scores, axis=-1), v)
        y = self.add("Transpose", y, perm=[0, 2, 1, 3])
        return self.add(
            "Reshape", y, self.numbers(0, 0, self.width) if self.chance() else self.numbers(-1, self.length, self.width)
        )

    def extent(self, x, shape, place):
        """A row with one extent of x's shape, as exporters take it out."""
        kind = self.random.integers(4)
        if kind == 3:
            return self.add("Shape", x, start=place - 3, **({"end": place - 2} if place < 2 else {}))
        if kind == 0:
            return self.add("Gather", shape, self.numbers(place - 3 * self.chance()))
        if kind == 1:
            return self.add("Slice", shape, self.numbers(place), self.numbers(place + 1))
        scalar = self.add("Gather", shape, self.constant(np.array(place)))
        return self.add("Unsqueeze", self.add("Cast", scalar, to=TensorProto.INT64), self.numbers(0))

    def reshaped(self, x):
        """The rows of all items together, and apart again, by numbers that follow from shapes."""
        shape = self.add("Shape", x)
        batch, length, width = (self.extent(x, shape, place) for place in range(3))
        rows = self.add("Mul", *self.shuffled(batch, length)) if self.chance() else self.numbers(-1)
        flat = self.add("Reshape", x, self.add("Concat", rows, width, axis=0))
        flat = self.add("Exp", self.add("Neg", self.add("Abs", flat)))
        halves = self.add("Div", self.add("Sub", self.add("Add", width, width), self.numbers(2)), self.numbers(2))
        whole = self.add("Concat", batch, length, self.add("Add", halves, self.numbers(1)), axis=0)
        y = self.add("Reshape", flat, shape if self.chance() else whole)
        if self.chance(0.3):  # numbers that leave the chain
            y = self.add("Add", y, self.add("ConstantOfShape", whole, value=numpy_helper.from_array(np.ones(1, self.dtype))))
        return y

    def light(self, x):
        """Elements of x moved, or changed one by one."""
        kind = self.random.integers(8)
        if kind == 7:
            return self.reshaped(x)
        if kind == 0:
            other = [self.array(self.width), self.array(1, self.length, 1), self.array(1), np.array(2, self.dtype)][
                self.random.integers(4)
            ]
            return self.add(str(self.random.choice(["Add", "Sub", "Mul"])), *self.shuffled(x, self.constant(other)))
        if kind == 1:
            return self.add(str(self.random.choice(["Neg", "Abs", "Sigmoid", "Erf"])), x)
        if kind == 2:  # what a rotary embedding does
            cut, axis = self.numbers(int(self.random.integers(0, self.width + 1))), self.numbers(-1)
            low = self.add("Slice", x, self.numbers(0), cut, axis)
            high = self.add("Slice", x, cut, self.numbers(2**63 - 1), axis)
            turned = self.add("Concat", self.add("Neg", high), low, axis=-1)
            return self.add("Add", self.add("Mul", x, self.constant(self.array(1, self.width))), turned)
        if kind == 3:
            first = int(self.random.integers(0, self.length + 1))
            self.count += 1
            parts = [f"v{self.count}a", f"v{self.count}b"]
            self.nodes.append(node("Split", f"{x} {self.numbers(first, self.length - first)}", " ".join(parts), axis=1))
            return self.add("Concat", parts[1], parts[0], axis=1)
        if kind == 4:
            turned = self.add("Transpose", x, perm=[2, 0, 1])
            return self.add("Transpose", self.add("Exp", self.add("Neg", self.add("Abs", turned))), perm=[1, 2, 0])
        if kind == 5:
            squared = self.add("ReduceMean", self.add("Pow", x, self.number(2)), self.numbers(-1), keepdims=1)
            root = self.add("Sqrt", self.add("Add", squared, self.number(0.01)))
            y = self.add("Div", x, root) if self.chance() else self.add("Mul", x, self.add("Reciprocal", root))
            return self.add("Mul", *self.shuffled(y, self.constant(self.array(self.width))))
        return self.add("Expand", x, self.numbers(self.batch, 1, 1))

    def norm(self, x):
        scale, bias = (self.constant(self.array(self.width)) for _ in range(2))
        if self.chance(0.3):  # of a sum, which others read as well
            op, rest = ("SkipLayerNormalization", [bias]) if self.chance() else ("SkipSimplifiedLayerNormalization", [])
            if self.chance():
                rest.append(self.constant(self.array(self.width)))
            inputs = (self.whole(x), self.whole(self.pick()), scale, *rest)
            y = self.add(op, *inputs, more=("", "", "s"), domain=MS, epsilon=1e-4)
            self.rows.append(y + "s")
            return y
        if self.chance(0.3):
            return self.add("RMSNormalization", x, scale, axis=-1, epsilon=1e-4)
        return self.add("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-4)

    def draw(self):
        """Its nodes, inputs, outputs and constants."""
        for _ in range(int(self.random.integers(2, 8))):
            kind = self.random.integers(8)
            if kind == 0:
                y = self.attention()
            elif kind == 1:
                y = self.feed_forward()
            elif kind == 2:
                y = self.norm(self.pick())
            elif kind == 3:
                y = self.add("Add", self.pick(), self.pick())
            elif kind == 4:
                y = self.activation(self.pick())
            elif kind > 5:
                y = self.light(self.pick())
            else:
                y = self.add(str(self.random.choice(["Sin", "Softplus"])), self.pick())
            if kind < 2 and self.chance(0.7):
                y = self.add("Add", *self.shuffled(y, self.pick()))
            if kind < 2 and self.chance(0.5):
                y = self.norm(y)
            self.rows.append(y)
        self.rows.append(self.add("Add", self.attention(), self.pick()))
        outputs = [*dict.fromkeys([self.rows[-1], *self.others, *(each for each in self.rows[2:-1] if self.chance(0.2))])]
        return self.nodes, self.inputs, outputs, self.constants


def widened(arrays):
    return {name: each.astype(np.float32) if each.dtype == np.float16 else each for name, each in arrays.items()}


def widened_nodes(nodes):
    made = [NodeProto.FromString(each.SerializeToString()) for each in nodes]
    for attribute in (attribute for each in made for attribute in each.attribute):
        if attribute.t.data_type == TensorProto.FLOAT16:
            attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t).astype(np.float32)))
    return made


class Models(Comparison):
    def compare_halves(self, content, exact, inputs, **options):
        """Of float16, whose roundings add up over many nodes: at most twice the CPU provider's largest error beside float32, and one
        rounding of a number as large as the largest, because small sums are made of such numbers."""
        results = [made.run(None, given) for made, given in ((session(content, **options), inputs), (plain(content), inputs))]
        for ours, theirs, true in zip(*results, plain(exact).run(None, widened(inputs)), strict=True):
            self.assertEqual((ours.shape, ours.dtype), (theirs.shape, theirs.dtype))
            most = np.abs(theirs.astype(true.dtype) - true).max(initial=0)
            self.assertTrue(np.isfinite(most))
            np.testing.assert_allclose(ours, true, atol=2 * most + 2.0**-11 * np.abs(true).max(initial=0), rtol=0)

    def test_random(self):
        """Small models of nodes that are taken and others, drawn at random."""
        taken = 0
        for n in range(MODELS):
            dtype = np.float16 if n % 5 == 4 else np.float32
            nodes, inputs, outputs, constants = Drawing(self.random, dtype).draw()
            content = model(nodes, inputs, outputs, constants)
            raw = n % 3 == 2
            with self.subTest(n, nodes=[each.op_type for each in nodes]):
                if dtype == np.float16:
                    exact = model(widened_nodes(nodes), widened(inputs), outputs, widened(constants))
                    self.compare_halves(content, exact, inputs, raw=raw)
                else:
                    self.compare(content, inputs, raw=raw)
                    self.compare(content, inputs, raw=raw, provider=BUFFERS)
                if n < 5:
                    taken += groups(content)[0][0]
        self.assertGreater(taken, 30)

    def layer(self, width=32, heads=4):
        """A Transformer's layer of any batch and length: nodes, constants."""
        random = self.random
        constants = {
            "split": np.array([0, 0, heads, -1]),
            "joined": np.array([0, 0, -1]),
            "scale": np.float32((heads / width) ** 0.5),
        }
        nodes = []
        for name, rows, columns in (
            ("q", width, width),
            ("k", width, width),
            ("v", width, width),
            ("o", width, width),
            ("u", width, 96),
            ("d", 96, width),
        ):
            constants[f"W{name}"] = random.standard_normal((rows, columns), np.float32) * np.float32(rows**-0.5)
            constants[f"B{name}"] = random.standard_normal(columns, np.float32)
        for name in "qkv":
            nodes += [node("MatMul", f"x W{name}", f"{name}0"), node("Add", f"{name}0 B{name}", f"{name}1")]
            nodes.append(node("Reshape", f"{name}1 split", f"{name}2"))
            nodes.append(node("Transpose", f"{name}2", f"{name}3", perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]))
        nodes += [
            node("MatMul", "q3 k3", "s0"),
            node("Mul", "s0 scale", "s1"),
            node("Add", "s1 m", "s2"),
            node("Softmax", "s2", "s3"),
        ]
        nodes += [
            node("MatMul", "s3 v3", "a0"),
            node("Transpose", "a0", "a1", perm=[0, 2, 1, 3]),
            node("Reshape", "a1 joined", "a2"),
        ]
        nodes += [node("MatMul", "a2 Wo", "a3"), node("Add", "a3 Bo", "a4"), node("Add", "a4 x", "a5")]
        nodes += [node("MatMul", "a5 Wu", "f0"), node("Add", "f0 Bu", "f1"), node("Gelu", "f1", "f2")]
        nodes += [node("MatMul", "f2 Wd", "f3"), node("Add", "Bd f3", "f4"), node("Add", "a5 f4", "y")]
        return nodes, constants

    def test_lengths(self):
        """One session takes batches and lengths that grow and shrink, in several threads at a time."""
        nodes, constants = self.layer()
        cases = []
        for batch, length in ((1, 3), (2, 40), (1, 1), (3, 17), (2, 100), (1, 40), (4, 5), (1, 16)):
            cases.append({"x": self.array(batch, length, 32), "m": self.array(batch, 1, 1, length)})
        content = model(nodes, cases[0], ["y"], constants)
        self.assertEqual(groups(content)[0], (len(nodes), len(nodes), 1))
        self.compare(content, *cases)
        ours = session(content)
        expected, failures = [plain(content).run(None, each)[0] for each in cases], []

        def work(first):
            for n in range(40):
                case = (first + 5 * n) % len(cases)
                if not np.allclose(ours.run(None, cases[case])[0], expected[case], atol=2e-5, rtol=2e-5):
                    failures.append(case)

        in_threads(6, work)
        self.assertEqual(failures, [])

    def test_precision(self):
        """A chain that stores float32 otherwise is near, gives float32, and puts to caches what it has stored. Outputs are made in its
        middle, too, and arrays without elements are of its type."""
        nodes, constants = self.layer()
        cases = [
            {"x": self.array(*shape, 32), "m": self.array(shape[0], 1, 1, shape[1])} for shape in ((1, 3), (2, 40), (3, 17))
        ]
        cases[1]["m"][1] = -np.inf, *[np.finfo(np.float32).min] * 38, 0  # of 40 keys one is attended
        outputs = ["a4", "y", "twice"]
        layer = model([*nodes, node("Add", "y y", "twice")], cases[0], outputs, constants)
        names = {"q": 3, "k": 3, "v": 3}
        growing = [
            {name: self.array(2, 4, length, 16) for name, length in (names | {"pk": past, "pv": past}).items()}
            for past in (0, 5, 0)
        ]
        nodes = [node("Concat", "pk k", "nk", axis=2), node("Concat", "pv v", "nv", axis=2), node("Attention", "q nk nv", "y")]
        nodes += [node("Add", "nk nk", "more"), node("Attention", "y more nv", "z")]
        grown = model(nodes, growing[0], ["z", "y"])
        self.assertEqual(groups(grown, take="all")[0], (5, 5, 1))
        cached = {name: self.array(2, 4, length, 16) for name, length in (("q", 3), ("k", 3), ("v", 3), ("pk", 5), ("pv", 5))}
        cached["m"] = self.array(3, 8)
        cache = model([node("Attention", "q k v m pk pv", "y nk nv")], cached, ["y", "nk", "nv"])
        for precision, bits in (("float16", 11), ("bfloat16", 8)):
            for content, given in ((layer, cases * 2), (grown, growing)):
                ours, theirs = session(content, precision=precision, take="all"), plain(content)
                for case in given:
                    for found, expected in zip(ours.run(None, case), theirs.run(None, case), strict=True):
                        self.assertEqual((found.shape, found.dtype), (expected.shape, expected.dtype))
                        error = abs(found - expected).max() / abs(expected).max()
                        self.assertLess(error, 8 * 2.0**-bits)
                        self.assertGreater(error, 2.0**-bits / 8)
            _, *present = session(cache, precision=precision).run(None, cached)
            for found, parts in zip(present, (("pk", "k"), ("pv", "v")), strict=True):
                given = np.concatenate([cached[name] for name in parts], axis=2)
                unit = 2.0 ** (np.floor(np.log2(abs(given))) - bits + 1)  # of the last bit
                unit = np.maximum(unit, 2.0**-24) if precision == "float16" else unit
                np.testing.assert_array_equal(found, np.round(given / unit) * unit)


class Corners(Comparison):
    def check(self, nodes, *cases, constants=(), outputs=("y",), known=False):
        self.compare(model(nodes, cases[0], outputs, constants, known=known), *cases, take="all")

    def test_splits(self):
        """Steps that make four arrays each."""
        nodes, parts = [node("Split", "x", "a b c d", axis=0, num_outputs=4)], []
        for name in "abcd":
            names = [f"{name}{n}" for n in range(4)]
            nodes.append(node("Split", name, " ".join(names), axis=0, num_outputs=4))
            parts += names
        nodes += [node("Concat", " ".join(parts[n::4][::-1]), f"e{n}", axis=0) for n in range(4)]
        nodes.append(node("Concat", "e3 e1 e0 e2", "y", axis=0))
        inputs = {"x": self.array(16, 3)}
        content = model(nodes, inputs, ["y"], known=True)
        self.assertEqual(groups(content, take="all")[0][0], len(nodes))
        self.compare(content, inputs, take="all")

    def test_operands(self):
        """What is added to a product has one row, then many, then one."""
        nodes = [node("MatMul", "x W", "p"), node("Add", "p o", "y")]
        cases = [{"x": self.array(20, 8), "o": self.array(rows, 1)} for rows in (1, 20, 1)]
        content = model(nodes, cases[0], ["y"], {"W": self.array(8, 1)})
        loaded = load_model_from_string(content)
        loaded.graph.input[1].type.tensor_type.shape.dim[1].dim_value = 1
        ours, theirs = session(loaded.SerializeToString(), take="all"), plain(content)
        for each in cases:
            np.testing.assert_allclose(ours.run(None, each)[0], theirs.run(None, each)[0], atol=2e-5)

    def test_nearly(self):
        """Constants of more dimensions than the array, and numbers that are not quite those of Gelu and of RMSNorm."""
        x = {"x": self.array(3, 8)}
        for shape, root, one, half in (
            ((1, 1, 1), 2**0.5, 1, 0.5),
            ((), 1.4145, 1, 0.5),
            ((), 2**0.5, 1.0009, 0.5),
            ((), 2**0.5, 1, 0.5004),
        ):
            constants = {n: np.full(shape, value, np.float32) for n, value in (("r", root), ("o", one), ("h", half))}
            nodes = [
                node("Div", "x r", "a"),
                node("Erf", "a", "b"),
                node("Add", "b o", "c"),
                node("Mul", "x c", "d"),
                node("Mul", "d h", "y"),
            ]
            self.check(nodes, x, constants=constants)
        for shape, power in (((1, 1, 1), 2), ((), 2.0015)):
            constants = {"p": np.full(shape, power, np.float32), "e": np.float32(0.1), "m": np.array([-1])}
            nodes = [
                node("Pow", "x p", "a"),
                node("ReduceMean", "a m", "b"),
                node("Add", "b e", "c"),
                node("Sqrt", "c", "d"),
                node("Div", "x d", "y"),
            ]
            self.check(nodes, {"x": abs(x["x"])}, constants=constants)

    def test_moves(self):
        """A Slice by a step longer than any array, and more dimensions than a layout has."""
        constants = {
            "s": np.array([1]),
            "e": np.array([9]),
            "a": np.array([0]),
            "t": np.array([2**63 - 1]),
            "u": np.array([2**62]),
        }
        nodes = [node("Slice", "x s e a t", "p"), node("Slice", "x s e a u", "q"), node("Add", "p q", "y")]
        self.check(nodes, {"x": self.array(20, 8)}, constants=constants)
        six = {"x": self.array(3, 3, 3, 3, 3, 3)}
        constants = {"s": np.ones(6, np.int64), "e": np.full(6, 3), "t": np.array([2] * 6)}
        self.check(
            [node("Slice", "x s e", "p"), node("Transpose", "p", "y", perm=[5, 3, 1, 4, 2, 0])], six, constants=constants
        )
        self.check([node("Expand", "x t", "y")], {"x": self.array(1, 2, 1, 2, 1, 2)}, constants=constants)

    def test_numbers(self):
        """Numbers that follow from shapes stay in the chain, as PyTorch's newer exporter turns keys for any length; wrong ones are told."""
        nodes = [
            node("Exp", "x", "e"),
            node("Shape", "e", "s"),
            node("Slice", "s last end", "size"),
            node("Slice", "s second last", "length"),
            node("Slice", "s first second", "rest"),
            node("Concat", "last length size", "flat", axis=0),
            node("Reshape", "e flat", "f"),
            node("Transpose", "f", "t", perm=[0, 2, 1]),
            node("Concat", "rest size length", "whole", axis=0),
            node("Reshape", "t whole", "y"),
        ]
        constants = {
            "last": np.array([-1]),
            "second": np.array([-2]),
            "first": np.array([-(2**63)]),
            "end": np.array([2**63 - 1]),
        }
        cases = [{"x": self.array(*shape)} for shape in ((2, 3, 4, 5), (1, 1, 7, 2), (3, 2, 1, 1))]
        self.check(nodes, *cases, constants=constants)
        self.assertEqual(groups(model(nodes, cases[0], ["y"], constants), take="all")[0], (10, 10, 1))
        for number, words in ((np.array([2]), "index is outside"), (np.array([0]), "divided by 0")):
            nodes = [
                node("Exp", "x", "e"),
                node("Shape", "e", "s"),
                node("Slice", "s zero one", "part"),
                node("Gather" if number[0] else "Div", "part n", "d"),
                node("Concat", "d m", "t", axis=0),
                node("Reshape", "e t", "y"),
            ]
            constants = {"zero": np.array([0]), "one": np.array([1]), "n": number, "m": np.array([-1])}
            inputs = {"x": self.array(4, 4)}
            with self.assertRaisesRegex(Exception, f"clattn: .*{words}"):
                session(model(nodes, inputs, ["y"], constants), take="all").run(None, inputs)

    def test_norms(self):
        """Scales that are broadcast, and a residual that is in every other dimension."""
        for extents in ((1, 8), (3, 1), (3, 8)):
            nodes, x, constants = (
                [node("RMSNormalization", "x w", "y", axis=-2)],
                {"x": self.array(2, 3, 8)},
                {"w": self.array(*extents)},
            )
            self.check(nodes, x, constants=constants, known=True)
            taken = groups(model(nodes, x, ["y"], constants, known=True), take="all")[0][0]
            self.assertEqual(taken, int(extents == (3, 8)))
        nodes = [node("Add", "x r", "s"), node("LayerNormalization", "s w", "y")]
        x, constants = {"x": self.array(2, 2, 2, 2, 2, 8), "r": self.array(1, 2, 1, 2, 1, 8)}, {"w": self.array(8)}
        self.check(nodes, x, constants=constants, known=True)
        self.assertEqual(groups(model(nodes, x, ["y"], constants, known=True), take="all")[0], (2, 2, 1))

    def test_refused(self):
        """What MultiHeadAttention means by causality, and a negative softcap, are left."""
        inputs = {"q": self.array(2, 4, 32), "k": self.array(2, 5, 32), "v": self.array(2, 5, 32)}
        self.check([node("MultiHeadAttention", "q k v", "y", domain="com.microsoft", num_heads=4, unidirectional=1)], inputs)
        self.check([node("Attention", "q k v", "y", q_num_heads=4, kv_num_heads=4, softcap=-1.0)], inputs)


class Operators(Comparison):
    # fmt: off
    OPERATORS = (
        "Abs", "Add", "Attention", "Concat", "Conv", "Div", "Erf", "Exp", "Expand", "Flatten", "Gelu", "Gemm",
        "LayerNormalization", "LeakyRelu", "MatMul", "Mul", "Neg", "Pad", "Pow", "RMSNormalization", "Reciprocal", "Relu", "Reshape", "Resize",
        "RotaryEmbedding", "Sigmoid", "Slice", "Softmax", "Split", "Sqrt", "Squeeze", "Sub", "Swish", "Tanh", "Transpose", "Unsqueeze",
    )
    # fmt: on

    def node_cases(self):
        """ONNX's own cases: the operator, a model, inputs. A second model of each has all inputs but the first as constants."""
        for case in collect_testcases(None):
            graph = case.model.graph
            if [each.op_type in self.OPERATORS for each in graph.node] != [True]:
                continue
            for given, expected in case.data_sets:
                if any(array.dtype.name not in WITHIN for array in expected):
                    continue
                inputs = {each.name: np.asarray(array) for each, array in zip(graph.input, given, strict=True)}
                yield case.name, graph.node[0].op_type, case.model.SerializeToString(), inputs
                fixed = load_model_from_string(case.model.SerializeToString())
                del fixed.graph.input[1:]
                fixed.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in [*inputs.items()][1:])
                yield case.name + " fixed", graph.node[0].op_type, fixed.SerializeToString(), dict([*inputs.items()][:1])

    def test_node_cases(self):
        """All that the provider knows gives what the CPU provider gives."""
        ran, taken, refused = 0, set(), []
        for name, op, content, inputs in self.node_cases():
            with self.subTest(name):
                try:
                    expected = plain(content).run(None, inputs)
                except REFUSED:  # a version of the operator that the CPU provider lacks
                    refused.append(name)
                    continue
                found = session(content, take="all").run(None, inputs)
                for mine, theirs in zip(found, expected, strict=True):
                    np.testing.assert_allclose(mine, theirs, atol=WITHIN[theirs.dtype.name], rtol=1e-3)
                ran += 1
                if op not in taken and groups(content, take="all")[0][0]:
                    taken.add(op)
        self.assertGreater(ran, 400)
        self.assertLess(len(refused), 60, refused)
        left = {
            "LayerNormalization": "ONNX's cases have the mean and the deviation as outputs",
            "Pad": "ONNX's cases pad by something, and what is taken pads by nothing",
            "Softmax": "it is taken as a part of attention",
        }
        self.assertEqual({*self.OPERATORS} - taken, {*left})

    def test_in_chains(self):
        """What is taken with others, of which ONNX has no cases of these types, or cases of one node."""
        numbers = [node("Shape", "x", "s"), node("Gather", "s first", "n")]
        rest = [node("Concat", "m rest", "t", axis=0), node("Reshape", "x t", "r"), node("Neg", "r", "y")]
        shapes = {"first": np.array([0]), "rest": np.array([-1])}
        squares = [node("Pow", "x two", "p"), node("ReduceMean", "p axis", "q"), node("Add", "q small", "r")]
        squares += [node("Sqrt", "r", "d"), node("Div", "x d", "y")]
        mean = {"two": np.float32(2), "small": np.float32(0.1), "axis": np.array([-1])}
        norm, scale = node("SimplifiedLayerNormalization", "x w", "y", axis=-1, epsilon=0.1), {"w": self.array(6)}
        for op, nodes, constants in (
            ("DepthToSpace", [node("DepthToSpace", "x", "z", blocksize=2), node("Neg", "z", "y")], {}),
            ("DepthToSpace", [node("DepthToSpace", "x", "z", blocksize=2, mode="CRD"), node("Neg", "z", "y")], {}),
            ("Einsum", [node("Einsum", "x z", "y", equation="bhij, hjk -> bhik")], {"z": self.array(8, 6, 5)}),
            ("Gather", [*numbers, node("Squeeze", "n", "o"), node("Unsqueeze", "o first", "m"), *rest], shapes),
            ("Cast", [*numbers, node("Cast", "n", "m", to=TensorProto.INT64), *rest], shapes),
            ("ReduceMean", squares, mean),
            ("SimplifiedLayerNormalization", [norm], scale),
        ):
            cases = [{"x": self.array(*shape)} for shape in ((2, 8, 3, 6), (1, 8, 1, 6), (3, 8, 2, 6))]
            made = load_model_from_string(model(nodes, cases[0], ["y"], constants))
            made.graph.input[0].type.tensor_type.shape.dim[3].dim_value = 6
            content = made.SerializeToString()
            with self.subTest(op):
                (taken, count, _), left = groups(content, take="all")
                self.assertEqual((taken, left), (count, []))
                self.compare(content, *cases, take="all")

    def test_gelus(self):
        """com.microsoft's activations, alone and with the product before them."""
        x, w = {"x": self.array(3, 5, 8)}, {"w": self.array(8, 12)}
        for op, attributes in (("Gelu", {}), ("FastGelu", {}), ("QuickGelu", {}), ("QuickGelu", {"alpha": 0.5})):
            alone = model([node(op, "x", "y", domain=MS, **attributes)], x, ["y"])
            behind = model([node("MatMul", "x w", "z"), node(op, "z", "y", domain=MS, **attributes)], x, ["y"], w)
            with self.subTest(op, **attributes):
                for content, count in ((alone, 1), (behind, 2)):
                    self.assertEqual(groups(content, take="all")[0], (count, count, 1))
                    self.compare(content, x, {"x": 4 * self.array(1, 40, 8)}, take="all")

    def test_unknown_versions(self):
        """A version of ONNX's, or a domain, that nobody knows is an error of the session; one that ONNX Runtime alone knows is left."""
        nodes, x = [node("Relu", "x", "z"), node("DepthToSpace", "z", "y", blocksize=2)], {"x": self.array(1, 8, 2, 3)}
        with self.assertRaises(REFUSED):
            session(model(nodes, x, ["y"], opset=99), take="all")
        newer = model(nodes, x, ["y"], opset=28)
        self.assertIn(("DepthToSpace", "its version is newer than what the provider knows"), groups(newer, take="all")[1])
        self.compare(newer, x, take="all")
        nodes[0].domain = "nobody.knows"
        with self.assertRaises(REFUSED):
            session(model(nodes, x, ["y"]), take="all")

    def test_attention(self):
        """Shapes of three and four dimensions, grouped heads, masks, causality, scales and softcap."""
        for heads, kv_heads, flat in ((4, 4, False), (4, 2, False), (6, 1, True), (3, 3, True)):
            for extra in ({}, {"is_causal": 1}, {"scale": 0.3, "softcap": 1.5}):
                for mask in (None, "bool", "float32"):
                    q, k, v = self.array(2, heads, 7, 16), self.array(2, kv_heads, 9, 16), self.array(2, kv_heads, 9, 8)
                    attributes = dict(extra)
                    if flat:
                        q, k, v = (np.ascontiguousarray(a.transpose(0, 2, 1, 3)).reshape(2, a.shape[2], -1) for a in (q, k, v))
                        attributes.update(q_num_heads=heads, kv_num_heads=kv_heads)
                    inputs = {"q": q, "k": k, "v": v}
                    if mask:
                        inputs["m"] = self.array(7, 9) if mask == "float32" else self.random.random((2, 1, 7, 9)) < 0.8
                        inputs["m"][..., 0] = True if mask == "bool" else 0.5
                    content = model([node("Attention", " ".join(inputs), "y", **attributes)], inputs, ["y"])
                    with self.subTest(heads=heads, kv_heads=kv_heads, flat=flat, mask=mask, **extra):
                        self.compare(content, inputs)

    def test_multi_head_attention(self):
        inputs = {"q": self.array(2, 7, 32), "k": self.array(2, 9, 32), "v": self.array(2, 9, 32)}
        bias = {**inputs, "a": self.array(2, 4, 7, 9)}
        for given, names, extra in (
            (inputs, "q k v", {}),
            (inputs, "q k v", {"scale": 0.4}),
            (bias, "q k v", {"bias": True}),
        ):
            takes_bias = extra.pop("bias", False)
            made = node("MultiHeadAttention", names, "y", domain="com.microsoft", num_heads=4, **extra)
            if takes_bias:
                made.input.extend(["", "", "a"])
            content = model([made], given, ["y"])
            self.assertEqual(groups(content)[0], (1, 1, 1))
            self.compare(content, given)

    def mask(self, arrays, flat):
        """A mask for the queries and all keys of a cache."""
        asked, now = (arrays[name].shape[1 if flat else 2] for name in "qk")
        return self.array(asked, arrays["pk"].shape[2] + now)

    def test_caches(self):
        """Keys and values of before, by both operators, with lengths that change from run to run, and none of before."""
        for flat, operator, causal in (
            (False, "Attention", 0),
            (False, "Attention", 1),
            (True, "Attention", 0),
            (True, "Attention", 1),
            (True, "MultiHeadAttention", 0),
        ):
            heads, kv_heads = (4, 4) if operator != "Attention" else (4, 2)
            cases = []
            for past, now, asked in ((6, 3, 3), (0, 5, 5), (9, 1, 1), (7, 4, 2), (3, 2, 6)):
                q, k, v = self.array(2, heads, asked, 16), self.array(2, kv_heads, now, 16), self.array(2, kv_heads, now, 8)
                v = v if operator == "Attention" else self.array(2, kv_heads, now, 16)
                if flat:
                    q, k, v = (np.ascontiguousarray(a.transpose(0, 2, 1, 3)) for a in (q, k, v))
                    q, k, v = (a.reshape(*a.shape[:2], -1) for a in (q, k, v))
                size = v.shape[-1] // kv_heads if flat else v.shape[-1]
                cases.append(
                    {"q": q, "k": k, "v": v, "pk": self.array(2, kv_heads, past, 16), "pv": self.array(2, kv_heads, past, size)}
                )
            if operator == "Attention":
                extra = {"q_num_heads": heads, "kv_num_heads": kv_heads} if flat else {}
                made = node("Attention", "q k v", "y nk nv", is_causal=causal, **extra)
                made.input.extend(["", "pk", "pv"])
            else:
                made = node(operator, "q k v", "y nk nv", domain="com.microsoft", num_heads=heads)
                made.input.extend(["", "", "", "pk", "pv"])
            content = model([made], cases[0], ["y", "nk", "nv"])
            with self.subTest(operator, flat=flat, causal=causal):
                self.assertEqual(groups(content)[0], (1, 1, 1))
                self.compare(content, *cases)
            if operator == "Attention":
                made.input[3] = "m"
                cases = [{**each, "m": self.mask(each, flat)} for each in cases]
                self.compare(model([made], cases[0], ["y", "nk", "nv"]), *cases)

    def test_left(self):
        """Scores as an output are left, with the reason."""
        inputs = {name: self.array(1, 2, 3, 8) for name in "qkv"}
        content = model([node("Attention", "q k v", "y a b c")], inputs, ["y", "c"])
        (taken, _, _), [(_, reason)] = groups(content)
        self.assertEqual(taken, 0)
        self.assertIn("the scores are an output", reason)
        self.compare(content, inputs)


class Sessions(Comparison):
    def content(self):
        self.inputs = {name: self.array(2, 4, 33, 16) for name in "qkv"}
        return model([node("Attention", "q k v", "y")], self.inputs, ["y"])

    def test_threads(self):
        """Threads run one session at a time, whether it has threads of its own, and whether these spin."""
        content = self.content()
        expected, failures = plain(content).run(None, self.inputs)[0], []
        for threads, spin in ((0, True), (0, False), (1, True), (5, True)):
            ours = session(content, threads=threads, spin=spin)

            def work(_, ours=ours, which=(threads, spin)):
                for _ in range(30):
                    if not abs(ours.run(None, self.inputs)[0] - expected).max() <= 2e-5:
                        failures.append(which)

            in_threads(8, work)
        self.assertEqual(failures, [])

    def test_options(self):
        content = self.content()
        session(content, device="pocl").run(None, self.inputs)
        for name, value in (
            ("device", "no such device here"),
            ("take", "some"),
            ("precision", "int4"),
            ("precison", "float16"),
        ):
            with self.subTest(name), self.assertRaisesRegex(Exception, name if name == "precison" else value):
                session(content, **{name: value})

    def test_many(self):
        """Sessions that come and go leave no memory and no file behind."""

        def held():
            pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir("/proc/self/fd"))

        content, before = self.content(), None
        for n in range(50):
            session(content).run(None, self.inputs)
            if n == 20:
                before = held()
        after = held()
        self.assertLess(after[0] - before[0], 4)
        self.assertLessEqual(after[1], before[1])

    def test_wrong_shapes(self):
        """Shapes that do not go together are an error of the run, which names the node; the session goes on."""
        content = self.content()
        ours = session(content)
        wrong = {**self.inputs, "k": self.array(2, 4, 33, 8)}
        with self.assertRaisesRegex(Exception, "clattn|Attention"):
            ours.run(None, wrong)
        wrong = {**self.inputs, "k": self.array(2, 3, 33, 16), "v": self.array(2, 3, 33, 16)}
        with self.assertRaisesRegex(Exception, "clattn|Attention"):
            ours.run(None, wrong)
        self.assertEqual(ours.run(None, self.inputs)[0].shape, (2, 4, 33, 16))


class Example(Comparison):
    def test_speed(self):
        """examples/python/onnx_speed.py says how fast a model is with and without the provider, and how far apart."""
        script = pathlib.Path(__file__).resolve().parents[2] / "examples/python/onnx_speed.py"
        inputs = {name: self.array(2, 4, 33, 16) for name in "qkv"}
        open_extents = [f"{name}{n}={extent}" for name in "qkv" for n, extent in enumerate((2, 4, 33, 16))]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "model.onnx")
            file.write_bytes(model([node("Attention", "q k v", "y")], inputs, ["y"]))
            done = subprocess.run([sys.executable, script, file, *open_extents], capture_output=True, text=True, check=True)
        self.assertRegex(done.stdout, r"without clattn [\d.]+ ms, with clattn [\d.]+ ms: [\d.]+ times as fast\n")
        self.assertLess(float(re.search(r"at most (\S+) apart", done.stdout)[1]), 2e-5)


@unittest.skipIf("ONNXRUNTIME_HEADERS" not in os.environ, "no headers here")
class Application(Comparison):
    def check_program(self, name, content, says, *libraries):
        """A program in C, with the sanitizers, opens everything by paths; so does one with the provider built with them."""
        here = pathlib.Path(__file__).resolve().parent
        [library] = pathlib.Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
        with tempfile.TemporaryDirectory() as folder:
            program, file = pathlib.Path(folder, name), pathlib.Path(folder, "model.onnx")
            file.write_bytes(content)
            compiler = ["gcc", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Werror"]
            headers = ["-isystem", os.environ["ONNXRUNTIME_HEADERS"]]
            subprocess.run([*compiler, *headers, "-o", program, here / f"{name}.c", "-lm", *libraries], check=True)
            suppressions = {"LSAN_OPTIONS": f"suppressions={here.parent / 'lsan.supp'}:print_suppressions=0"}
            for provider in {os.environ["CLATTN_ONNXRUNTIME"], os.environ.get("CLATTN_ONNXRUNTIME_SANITIZED", "")} - {""}:
                done = subprocess.run(
                    [program, library, provider, file],
                    check=False,
                    env={**os.environ, **suppressions},
                    capture_output=True,
                    text=True,
                )
                self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
                self.assertIn(says, done.stdout)

    def test_session(self):
        inputs = {name: self.array(2, 4, 33, 16) for name in "qkv"}
        self.check_program("session", model([node("Attention", "q k v", "y")], inputs, ["y"]), "the largest difference is")

    def test_older(self):
        """An ONNX Runtime that is older than the headers is refused with a status that says so."""
        says = "clattn: ONNX Runtime is older than the headers that the provider was built with"
        self.check_program("older", b"", says)

    def test_buffers(self):
        """Attention with a cache, whose arrays are in OpenCL buffers, before and behind nodes of the CPU provider."""
        cache = {name: self.array(2, 2, 64, 16) for name in ("past_key", "past_value")}
        numbers = {"last": np.full(2, 39, np.int32), "total": np.array(40, np.int32)}
        inputs = {"q": self.array(2, 1, 64), "k": self.array(2, 1, 32), "v": self.array(2, 1, 32), **cache, **numbers}
        attention = "turned k v past_key past_value last total", "y present_key present_value"
        nodes = [
            node("MatMul", "q matrix", "turned"),
            node("GroupQueryAttention", *attention, domain=MS, num_heads=4, kv_num_heads=2),
            node("CumSum", "y axis", "z"),
            node("CumSum", "q axis", "w"),
        ]
        constants = {"matrix": self.array(64, 64) / 8, "axis": np.array(2)}
        outputs = ["y", "present_key", "present_value", "z", "w"]
        content = model(nodes, inputs, outputs, constants)
        self.check_program("buffers", content, "results in buffers are right", "-l:libOpenCL.so.1")

    def test_choice(self):
        """ONNX Runtime itself chooses the provider whose arrays are in the host's memory."""
        settings = onnxruntime.SessionOptions()
        settings.set_provider_selection_policy(onnxruntime.OrtExecutionProviderDevicePolicy.PREFER_CPU)
        inputs = {name: self.array(2, 4, 33, 16) for name in "qkv"}
        made = onnxruntime.InferenceSession(model([node("Attention", "q k v", "y")], inputs, ["y"]), settings)
        self.assertEqual(made.get_providers()[0], NAME)


@unittest.skipIf(clattn_onnxruntime is None, "no package here")
class Package(unittest.TestCase):
    def test_path(self):
        self.assertTrue(pathlib.Path(clattn_onnxruntime.get_library_path()).exists())
        self.assertEqual(clattn_onnxruntime.get_ep_name(), NAME)
        onnxruntime.register_execution_provider_library("package", clattn_onnxruntime.get_library_path())
        onnxruntime.unregister_execution_provider_library("package")


if __name__ == "__main__":
    onnxruntime.register_execution_provider_library("clattn", os.environ["CLATTN_ONNXRUNTIME"])
    unittest.main()
