#!/usr/bin/env python3
"""`clattn attention` and `clattn explain` from outside: every option against NumPy in float64, and what is refused.

    CLATTN=build/src/clattn python3 tests/tool/test_command_attention.py [-k PATTERN ...]"""
import os
import pathlib
import shutil
import unittest

import numpy as np

from attention_numpy import attend, attention, from_bf16, quantised, to_bf16
from command_support import FULL, SEED, CommandTest, main, slow


class Attention(CommandTest):
    def check(self, q, k, v, *options, mask=None, tolerance=1e-5, **meaning):
        output, lse = self.attend(q, k, v, *options, mask=mask, lse=True)
        expected, expected_lse, _ = attention(q, k, v, mask, **meaning)
        self.close(output, expected, tolerance)
        self.close(lse, expected_lse, tolerance)
        return output

    @slow
    def test_random_shapes(self):
        print("seed %d" % SEED)
        for _ in range(16 if FULL else 5):
            pick = self.random.integers
            kv_heads, group = pick(1, 4), pick(1, 4)
            batch, s_q, s_k, d, d_v = pick(1, 4), pick(1, 70), pick(1, 130), pick(1, 100), pick(1, 100)
            q = self.normal(batch, kv_heads * group, s_q, d)
            k, v = self.normal(batch, kv_heads, s_k, d), self.normal(batch, kv_heads, s_k, d_v)
            causal, bottom_right = bool(pick(2)), bool(pick(2))
            scale = None if pick(2) else float(np.float32(self.random.normal()))
            mask = None
            if pick(2):
                mask = self.normal(s_q, s_k) if pick(2) else self.random.random((s_q, s_k)) < 0.7
            options = ["--causal"] if causal else []
            options += ["--align", "bottom-right" if bottom_right else "top-left"] if causal else []
            options += [] if scale is None else ["--scale=%r" % scale]
            with self.subTest(q=q.shape, k=k.shape, v=v.shape, options=options,
                              mask=None if mask is None else str(mask.dtype)):
                self.check(q, k, v, *options, mask=mask, causal=causal, bottom_right=bottom_right,
                           scale=scale)

    @slow
    def test_each_mask_broadcast(self):
        q, k, v = self.normal(2, 4, 5, 8), self.normal(2, 2, 7, 8), self.normal(2, 2, 7, 6)
        for bits in range(16):
            shape = tuple(whole if bits >> i & 1 else 1 for i, whole in enumerate((2, 4, 5, 7)))
            for mask in (self.random.random(shape) < 0.6, self.normal(*shape)):
                with self.subTest(mask=shape, dtype=str(mask.dtype)):
                    self.check(q, k, v, mask=mask)

    @slow
    def test_masks_of_lower_rank_get_leading_ones(self):
        q, k, v = self.normal(2, 4, 5, 8), self.normal(2, 2, 7, 8), self.normal(2, 2, 7, 6)
        for shape in ((7,), (5, 7), (4, 5, 7), (1,), (5, 1)):
            with self.subTest(mask=shape):
                self.check(q, k, v, mask=self.random.random(shape) < 0.6)

    @slow
    def test_short_masks_are_extended_with_do_not_attend(self):
        """Short masks are extended only if the user asks for it, because a mask that lacks a key is usually a
        mistake."""
        q, k, v = self.normal(1, 2, 5, 8), self.normal(1, 2, 9, 8), self.normal(1, 2, 9, 8)
        for keys in (2, 8):
            self.check(q, k, v, "--short-mask", mask=self.random.random((5, keys)) < 0.8)
            self.check(q, k, v, "--short-mask", mask=self.normal(5, keys))
        mask = self.save("short.npy", self.normal(5, 8))
        self.refuse(2, *self.attention_of(q, k, v), "--mask", mask,
                    saying=("short.npy", "covers 8 of 9 keys", "--short-mask"))

    @slow
    def test_fully_masked_rows_are_zero(self):
        q, k, v = self.normal(1, 2, 5, 8), self.normal(1, 2, 7, 8), self.normal(1, 2, 7, 8)
        for mask in (np.ones((5, 7), bool), np.zeros((5, 7), np.float32)):
            mask[2] = False if mask.dtype == np.bool_ else -np.inf
            output = self.check(q, k, v, mask=mask)
            self.assertFalse(np.any(output[:, :, 2]))
            self.assertFalse(np.any(np.signbit(output[:, :, 2])))

    def test_causal_rows_without_keys(self):
        q, k, v = self.normal(1, 1, 9, 4), self.normal(1, 1, 5, 4), self.normal(1, 1, 5, 4)
        self.check(q, k, v, "--causal", "--align", "bottom-right", causal=True, bottom_right=True)

    @slow
    def test_finite_masks_are_no_masks(self):
        q, k, v = self.normal(1, 2, 5, 8), self.normal(1, 2, 7, 8), self.normal(1, 2, 7, 8)
        low = np.float32(np.finfo(np.float32).min)
        output = self.attend(q, k, v, mask=np.full((5, 7), low, np.float32))
        self.close(output, np.broadcast_to(v.mean(axis=2, keepdims=True), output.shape).astype(np.float64))
        # Adding -1e4 costs the scores bits in any float32 computation.
        self.check(q, k, v, mask=np.full((5, 7), -1e4, np.float32), tolerance=2e-3)

    @slow
    def test_masked_keys_cannot_leak(self):
        q, k, v = self.normal(2, 2, 9, 16), self.normal(2, 2, 20, 16), self.normal(2, 2, 20, 16)
        for mask in (np.ones(20, bool), np.zeros(20, np.float32)):
            mask[[3, 11, 19]] = False if mask.dtype == np.bool_ else -np.inf
            clean = self.attend(q, k, v, mask=mask)
            for poison in (np.nan, np.inf, -np.inf):
                k_bad = k.copy()
                k_bad[:, :, [3, 11, 19]] = poison
                self.assertEqual(self.attend(q, k_bad, v, mask=mask).tobytes(), clean.tobytes())

    @slow
    def test_nan_travels(self):
        q, k, v = self.normal(1, 1, 6, 8), self.normal(1, 1, 7, 8), self.normal(1, 1, 7, 8)
        mask = np.zeros((6, 7), np.float32)
        mask[2, 3] = np.nan
        mask[4, 5] = np.inf
        output = self.attend(q, k, v, mask=mask)
        self.assertEqual(np.flatnonzero(np.isnan(output).all(axis=-1)).tolist(), [2, 4])
        q[0, 0, 1, 0] = np.nan
        output = self.attend(q, k, v)
        self.assertEqual(np.flatnonzero(np.isnan(output).all(axis=-1)).tolist(), [1])
        self.assertEqual(np.isnan(output).sum(), 8)

    @slow
    def test_scales(self):
        q, k, v = self.normal(1, 2, 5, 8), self.normal(1, 2, 7, 8), self.normal(1, 2, 7, 8)
        for scale in ("0", "-0.5", "1e-3", "+2.5", "-1e2"):
            self.check(q, k, v, "--scale", scale, scale=float(scale), tolerance=3e-5)

    def test_large_scores(self):
        q, k, v = 30 * self.normal(1, 2, 40, 64), 30 * self.normal(1, 2, 50, 64), self.normal(1, 2, 50, 64)
        self.check(q, k, v, tolerance=5e-4)

    @slow
    def test_solvers_agree(self):
        q, k, v = self.normal(1, 4, 33, 40), self.normal(1, 2, 65, 40), self.normal(1, 2, 65, 24)
        expected = attention(q, k, v)[0]
        for solver in ("generic", "cpu", "tile"):
            report = self.succeed(*self.attention_of(q, k, v), "--solver", solver, "--json").json()
            self.assertEqual(report["solver"], solver)
            self.close(np.load(self.path("o.npy")), expected)

    @slow
    def test_empty_arrays(self):
        for q, k, d_v in (((0, 2, 5, 8), (0, 2, 7, 8), 4), ((2, 2, 0, 8), (2, 2, 7, 8), 4),
                          ((2, 2, 5, 8), (2, 2, 0, 8), 4), ((2, 0, 5, 8), (2, 0, 7, 8), 4)):
            with self.subTest(q=q, k=k):
                v = self.normal(*k[:3], d_v)
                output, lse = self.attend(self.normal(*q), self.normal(*k), v, lse=True)
                self.assertEqual(output.shape, q[:3] + (d_v,))
                self.assertEqual(lse.shape, q[:3])
                self.assertFalse(np.any(output))
                self.assertTrue(np.all(lse == -np.inf))

    def test_report(self):
        q, k, v = self.normal(1, 2, 5, 8), self.normal(1, 2, 7, 8), self.normal(1, 2, 7, 3)
        files = self.attention_of(q, k, v)
        result = self.succeed(*files, "--lse", self.path("lse.npy"), "--verify", "--repeat", "3", "--json")
        report = result.json()
        self.assertEqual(len(result.out.splitlines()), 1)
        self.assertEqual(report["shape"], [1, 2, 5, 3])
        self.assertEqual(report["runs"], 3)
        self.assertLess(report["max_error"], 1e-5)
        self.assertIs(report["verified"], True)
        self.assertIs(report["lse_verified"], True)
        self.assertGreater(report["seconds_min"], 0)
        self.assertIn("verified: yes", self.succeed(*files, "--verify").out)

    def test_verify_knows_that_sums_of_huge_values_overflow(self):
        """docs/numerics.md: |V| up to FLT_MAX / S_k is safe."""
        q, k, v = (np.full((1, 1, 2, 8), x, np.float32) for x in (1, 1, 3e38))
        files = [*self.attention_of(q, k, v), "--verify", "--json"]
        self.assertIs(self.succeed(*files).json()["verified"], True)
        self.save("v.npy", v / 4)
        self.assertIs(self.succeed(*files).json()["verified"], True)
        self.assertTrue(np.isfinite(np.load(self.path("o.npy"))).all())


class Features(CommandTest):
    """Compares each option, alone and with others, with NumPy, and runs the command's own --verify."""
    ARRAYS = {"mask": "--mask", "bias": "--bias", "alibi": "--alibi", "sinks": "--sinks", "vector": "--vector",
              "kv_lengths": "--kv-lengths", "query_lengths": "--query-lengths", "offsets": "--query-offset"}
    NUMBERS = {"scale": "--scale=%r", "softcap": "--softcap=%r", "window": "--window=%d,%d"}

    def command(self, q, k, v, *options, verify=True, status=0, **meaning):
        """Runs the command with options that mean the same as attend's of the same names; returns the results by
        name."""
        paths = {"output": self.path("o.npy"), "lse": self.path("out-lse.npy"), "entropy": self.path("out-entropy.npy")}
        arguments = [*self.attention_of(q, k, v), "--lse", paths["lse"], "--entropy", paths["entropy"], "--json"]
        for name, option in self.ARRAYS.items():
            if meaning.get(name) is not None:
                arguments += [option, self.save(name + ".npy", meaning[name])]
        for name, option in self.NUMBERS.items():
            if meaning.get(name) is not None:
                arguments.append(option % meaning[name])
        arguments += ["--causal"] if meaning.get("causal") else []
        aligned = meaning.get("causal") or any(meaning.get(name) is not None for name in ("window", "alibi"))
        arguments += ["--align", "bottom-right"] if meaning.get("bottom_right") and aligned else []
        arguments += ["--score", "additive"] if meaning.get("vector") is not None else []
        arguments += ["--ring"] if meaning.get("ring") else []
        if meaning.get("dropout"):
            arguments += ["--dropout=%r" % meaning["dropout"][0], "--seed", meaning["dropout"][1], "--dropout-offset",
                          meaning["dropout"][2]]
        if meaning.get("mode"):
            paths["scores"] = self.path("out-scores.npy")
            arguments += ["--scores", meaning["mode"] + ":" + paths["scores"]]
        # PoCL compiles the other solvers' kernels several times as long; tests/ops/attention tests their results.
        arguments += [] if FULL or "--solver" in options else ["--solver", "generic"]
        self.report = self.succeed(*arguments, *options, *(["--verify"] if verify else [])).json()
        return {name: np.load(path) for name, path in paths.items()}

    def check(self, q, k, v, *options, tolerance=1e-5, widened=None, verify=True, **meaning):
        """`widened` are the q, k and v that count if the files hold others."""
        found = self.command(q, k, v, *options, verify=verify, **meaning)
        if verify:
            for name in ("verified", "lse_verified", "entropy_verified"):
                self.assertIs(self.report[name], True)
        expected = attend(*(widened or (q, k, v)), **meaning)
        self.close(found["output"], expected["output"], tolerance)
        self.close(found["lse"], expected["lse"])
        self.close(found["entropy"], expected["entropy"], 2e-5)
        if meaning.get("mode"):
            self.close(found["scores"], expected[meaning["mode"]], 2e-5)
            self.assertEqual(found["scores"].dtype, np.float32)
        return found

    def arrays(self, batch=2, heads=4, kv_heads=2, queries=9, keys=13, d=8, d_v=6):
        return (self.normal(batch, heads, queries, d), self.normal(batch, kv_heads, keys, d),
                self.normal(batch, kv_heads, keys, d_v))

    def test_windows(self):
        q, k, v = self.arrays()
        for window in ((2, 3), (-1, 0), (0, -1), (-1, -1), (0, 0), (100, 1)):
            with self.subTest(window=window):
                self.check(q, k, v, window=window)
        self.check(q, k, v, window=(4, -1), causal=True, bottom_right=True)
        if FULL:
            self.check(q, k, v, window=(1, 1), bottom_right=True)

    def test_softcap_and_scale(self):
        q, k, v = self.arrays()
        for cap, scale in ((0.5, None), (30.0, -2.0), (3.0, 0.0)):
            self.check(q, k, v, softcap=cap, scale=scale)
        # The softcap is applied before the mask, so masked keys stay excluded.
        mask = np.zeros((9, 13), np.float32)
        mask[:, 4:] = -np.inf
        self.check(q, k, v, softcap=2.0, mask=mask)

    @slow
    def test_additive(self):
        q, k, v = self.arrays()
        for shape, scale in (((1, 8), None), ((4, 8), 0.25), ((8,), -1.0)):
            self.check(q, k, v, vector=self.normal(*shape), scale=scale)

    def test_biases_and_sinks(self):
        q, k, v = self.arrays()
        for shape in ((9, 13), (2, 1, 1, 13), (1, 4, 9, 1)):
            self.check(q, k, v, bias=self.normal(*shape))
        self.check(q, k, v, "--short-mask", bias=self.normal(9, 5))
        for shape in ((4,), (1, 4), (2, 4)):
            self.check(q, k, v, alibi=np.abs(self.normal(*shape)))
        if FULL:
            self.check(q, k, v, alibi=np.abs(self.normal(4)), bottom_right=True, causal=True)
            self.check(q, k, v, sinks=self.normal(4))
        none = np.zeros((9, 13), bool)
        found = self.check(q, k, v, sinks=self.normal(4), mask=none)
        self.assertFalse(np.any(found["output"]) or np.any(np.signbit(found["output"])))
        self.check(q, k, v, mask=np.float16(self.normal(9, 13)), bias=self.normal(4, 1, 13).astype(np.float16))

    @slow
    def test_lengths_and_offsets(self):
        q, k, v = self.arrays(batch=3)
        for dtype in (np.int32, np.int64):
            lengths, rows = np.array([13, 0, 5], dtype), np.array([9, 4, 0], dtype)
            self.check(q, k, v, kv_lengths=lengths, query_lengths=rows, offsets=np.array([3, -2, 0], dtype),
                       causal=True)
        if FULL:
            self.check(q, k, v, kv_lengths=lengths, query_lengths=rows, causal=True, bottom_right=True)
        k[1], v[1] = np.nan, np.nan  # keys beyond an item's length may hold anything
        clean = self.command(q, np.nan_to_num(k), np.nan_to_num(v), kv_lengths=lengths)
        self.assertEqual(self.command(q, k, v, kv_lengths=lengths)["output"].tobytes(), clean["output"].tobytes())

    def test_packed_sequences(self):
        starts, key_starts = np.array([1, 5, 5, 8], np.int32), np.array([0, 3, 9, 11], np.int32)
        q, k, v = self.normal(9, 4, 8), self.normal(12, 2, 8), self.normal(12, 2, 6)
        found = self.command(q, k, v, "--layout", "shd", "--query-starts", self.save("qs.npy", starts), "--key-starts",
                             self.save("ks.npy", key_starts), causal=True, bottom_right=True)
        self.assertIs(self.report["verified"], True)
        self.assertEqual(found["output"].shape, (9, 4, 6))
        owned = np.zeros(9, bool)
        for b in range(3):
            rows, keys = slice(starts[b], starts[b + 1]), slice(key_starts[b], key_starts[b + 1])
            owned[rows] = True
            expected = attend(*(a.transpose(1, 0, 2)[None] for a in (q[rows], k[keys], v[keys])), causal=True,
                              bottom_right=True)
            self.close(found["output"][rows].transpose(1, 0, 2)[None], expected["output"])
            self.close(found["lse"][:, :, rows], expected["lse"])
        self.assertTrue(np.all(np.isnan(found["output"][~owned])))

    def test_layouts(self):
        q, k, v = self.arrays()
        expected = attend(q, k, v)
        for order in ("bshd", "sbhd", "hbsd", "dshb"):
            with self.subTest(layout=order):
                axes = tuple("bhsd".index(letter) for letter in order)
                found = self.command(*(np.ascontiguousarray(a.transpose(axes)) for a in (q, k, v)), "--layout", order)
                self.close(found["output"], expected["output"].transpose(axes))
                self.close(found["lse"], expected["lse"])
        joined = [np.ascontiguousarray(a.transpose(0, 2, 1, 3)).reshape(a.shape[0], a.shape[2], -1) for a in (q, k, v)]
        found = self.command(*joined, "--layout", "bse", "--heads", "4,2")
        self.close(found["output"], expected["output"].transpose(0, 2, 1, 3).reshape(2, 9, 24))

    def fused(self, array, *options):
        self.succeed("attention", "--qkv", self.save("qkv.npy", array), "-o", self.path("o.npy"), "--verify",
                     *([] if FULL else ["--solver", "generic"]), *options)
        return np.load(self.path("o.npy"))

    @slow
    def test_fused_arrays(self):
        q, k, v = self.normal(2, 3, 9, 8), self.normal(2, 3, 9, 8), self.normal(2, 3, 9, 8)
        expected = attend(q, k, v)["output"]
        stacked = np.stack([a.transpose(0, 2, 1, 3) for a in (q, k, v)], axis=2)
        self.close(self.fused(stacked, "--layout", "bs3hd"), expected.transpose(0, 2, 1, 3))
        stacked = np.stack([a.transpose(0, 2, 1, 3).reshape(2, 9, 24) for a in (q, k, v)])
        self.close(self.fused(stacked, "--layout", "3bse", "--heads", "3,3"),
                   expected.transpose(0, 2, 1, 3).reshape(2, 9, 24))
        k, v = self.normal(2, 1, 9, 8), self.normal(2, 1, 9, 8)
        expected = attend(q, k, v)["output"].transpose(0, 2, 1, 3).reshape(2, 9, 24)
        side_by_side = np.concatenate([a.transpose(0, 2, 1, 3).reshape(2, 9, -1) for a in (q, k, v)], axis=2)
        self.close(self.fused(side_by_side, "--layout", "bse", "--heads", "3,1"), expected)
        k, v = quantised(k, 8), quantised(v, 8)
        expected = attend(q, k, v)["output"].transpose(0, 2, 1, 3).reshape(2, 9, 24)
        self.close(self.fused(side_by_side, "--layout", "bse", "--heads", "3,1", "--kv-int8", "--page-size", "4"), expected)

    @slow
    def test_element_types(self):
        q, k, v = self.arrays()
        half = [a.astype(np.float16) for a in (q, k, v)]
        found = self.check(*half, tolerance=1e-3)
        self.assertEqual(found["output"].dtype, np.float16)
        found = self.check(*half, "--dtype", "f32")
        self.assertEqual(found["output"].dtype, np.float32)
        if FULL:
            found = self.check(half[0], k, half[2], "--dtype", "f16", tolerance=1e-3)
            self.assertEqual(found["output"].dtype, np.float16)
        double = [a.astype(np.float64) for a in (q, k, v)]
        found = self.command(*double, "--dtype", "f64", causal=True)
        self.assertIs(self.report["verified"], True)
        self.close(found["output"], attend(*double, causal=True)["output"], 1e-14)
        brain = [to_bf16(a) for a in (q, k, v)]
        widened = [from_bf16(a) for a in brain]
        found = self.command(*brain, "--dtype", "bf16", mask=to_bf16(self.normal(9, 1)))
        self.assertEqual(found["output"].dtype, np.uint16)
        self.assertEqual(self.report["dtype"], "bfloat16")
        self.close(from_bf16(found["output"]), attend(*widened)["output"], 8e-3)

    @slow
    def test_quantised_keys_and_values(self):
        q, k, v = self.arrays(d=12, d_v=6)
        for bits, group in ((8, None), (8, 3), (4, None), (4, 2)) if FULL else ((8, 3), (4, None)):
            with self.subTest(bits=bits, group=group):
                options = ["--kv-int%d" % bits] + (["--kv-group", group] if group else [])
                self.check(q, k, v, *options, widened=(q, quantised(k, bits, group), quantised(v, bits, group)))
                self.assertEqual(self.report["kv_dtype"], "int%d" % bits)
                self.assertEqual(self.report["kv_group"], group or 12)
        self.assertGreater(np.max(np.abs(quantised(k, 4) - k)), 0.01)  # quantisation does change k

    def test_pages(self):
        q, k, v = self.arrays()
        for size in (1, 4, 16) if FULL else (4,):
            self.check(q, k, v, "--page-size", size, kv_lengths=np.array([13, 6], np.int32), mode="bias", causal=True)
            self.assertEqual(self.report["pages"], 2 * -(-13 // size))
        self.check(q, k, v, "--page-size", 4, "--kv-int4", mask=self.random.random((9, 13)) < 0.7,
                   widened=(q, quantised(k, 4), quantised(v, 4)))

    def test_rings(self):
        q, k, v = self.arrays(batch=3)
        lengths = np.array([5, 13, 29], np.int64)
        if FULL:
            self.check(q, k, v, ring=True, kv_lengths=lengths)
        self.check(q, k, v, ring=True, kv_lengths=lengths, causal=True, bottom_right=True, window=(6, -1),
                   alibi=np.abs(self.normal(4)), mask=self.normal(4, 9, 1))

    def test_dropout(self):
        q, k, v = self.arrays()
        found = self.check(q, k, v, dropout=(0.25, 2 ** 40 + 7, 3))
        other = self.check(q, k, v, dropout=(0.25, 2 ** 40 + 7, 4))
        self.assertTrue(np.any(found["output"] != other["output"]))
        self.check(q, k, v, dropout=(0.25, 2 ** 64 - 1, 2 ** 32 - 1))
        if FULL:
            self.check(q, k, v, dropout=(0.25, 2 ** 64 - 1, 2 ** 32 - 1), mode="probabilities")
            self.check(q, k, v, dropout=(0.0, 1, 0))

    @slow
    def test_scores(self):
        q, k, v = self.arrays()
        for mode in ("raw", "softcap", "bias", "probabilities") if FULL else ("bias", "probabilities"):
            with self.subTest(mode=mode):
                self.check(q, k, v, mode=mode, softcap=1.5, bias=self.normal(13), causal=True,
                           kv_lengths=np.array([13, 7], np.int32), query_lengths=np.array([9, 5], np.int32))
                self.assertIs(self.report["scores_verified"], True)

    def test_short_launches_change_nothing(self):
        q, k, v = self.arrays(queries=200, keys=300, d=64)
        whole = self.command(q, k, v, "--solver", "generic", verify=False)
        cut = self.command(q, k, v, "--solver", "generic", "--max-launch-ms", 1, verify=False)
        self.assertEqual(whole["output"].tobytes(), cut["output"].tobytes())

    def test_devices_share_heads(self):
        """Each of two devices computes some of the heads, and results are in their places."""
        self.two_devices()
        q, k, v = self.arrays(batch=2, heads=6, kv_heads=3)
        two = ["--device", "0,1"]
        self.check(q, k, v, *two, mask=self.normal(6, 9, 1), bias=self.normal(2, 1, 1, 13), alibi=self.normal(6), sinks=self.normal(6),
                   kv_lengths=np.array([13, 7], np.int32), mode="bias", causal=True)
        self.assertEqual(len(self.report["devices"]), 2)
        self.assertEqual(sum(self.report["heads"]), 3)
        one = self.command(q, k, v, dropout=(0.25, 7, 3))
        self.assertEqual(self.check(q, k, v, *two, dropout=(0.25, 7, 3))["output"].tobytes(), one["output"].tobytes())
        self.check(q, k, v, *two, "--kv-int8", "--page-size", 4, widened=(q, quantised(k, 8), quantised(v, 8)))
        for order in ("sbhd", "dshb"):
            axes = tuple("bhsd".index(letter) for letter in order)
            found = self.command(*(np.ascontiguousarray(a.transpose(axes)) for a in (q, k, v)), "--layout", order, *two)
            self.close(found["output"], attend(q, k, v)["output"].transpose(axes))

    def test_devices_share_items(self):
        """If there are more items than key heads, each device computes some of the items."""
        self.two_devices()
        two = ["--device", "0,1"]

        def same(*options, **meaning):
            """Holds that two devices compute the same bits as one."""
            one = self.command(*arrays, *options, **meaning)
            found = self.check(*arrays, *options, *two, **meaning)
            self.assertEqual((len(self.report["devices"]), sum(self.report["items"])), (2, len(arrays[0])))
            for name, result in found.items():
                self.assertEqual(result.tobytes(), one[name].tobytes(), name)

        arrays = self.arrays(batch=5, heads=4, kv_heads=2)
        lengths = np.array([13, 7, 1, 0, 9], np.int32)
        same(mask=self.normal(5, 1, 9, 1), bias=self.normal(4, 1, 13), alibi=self.normal(5, 4), sinks=self.normal(4), mode="bias",
             causal=True, kv_lengths=lengths, query_lengths=np.array([9, 4, 9, 2, 0], np.int64))
        same(mode="probabilities", alibi=self.normal(4), offsets=np.array([3, -2, 0, 5, 1], np.int32), causal=True)
        same(dropout=(0.25, 2 ** 40 + 7, 3), kv_lengths=lengths)
        same(ring=True, kv_lengths=lengths + 16)
        self.check(*arrays, *two, "--kv-int8", "--page-size", 4, kv_lengths=lengths,
                   widened=(arrays[0], *(quantised(array, 8) for array in arrays[1:])))
        arrays = self.arrays(batch=3, heads=1, kv_heads=1)
        same(vector=self.normal(8), mask=self.random.random((13,)) < 0.7)
        for order in ("sbhd", "dshb"):
            axes = tuple("bhsd".index(letter) for letter in order)
            found = self.command(*(np.ascontiguousarray(a.transpose(axes)) for a in arrays), "--layout", order, *two)
            self.close(found["output"], attend(*arrays)["output"].transpose(axes))

    def test_devices_share_packed_sequences(self):
        """Their items are rows, so that devices share the heads, if there are enough.

        A device that measures 32 times as slow as the other would have none of 32."""
        self.two_devices()
        q, k, v = self.normal(1, 32, 300, 8), self.normal(1, 32, 300, 8), self.normal(1, 32, 300, 8)
        starts = ["--query-starts", self.save("starts.npy", np.array([0, 64, 150, 300], np.int32)), "--key-starts", self.path("starts.npy")]
        outputs = []
        for device in ("0", "0,1"):
            report = self.succeed(*self.attention_of(q, k, v), *starts, "--device", device, "--verify", "--json").json()
            self.assertIs(report["verified"], True)
            outputs.append(np.load(self.path("o.npy")))
        np.testing.assert_array_equal(*outputs)
        self.assertEqual((len(report["heads"]), sum(report["heads"])), (2, 32))
        self.assertGreater(min(report["heads"]), 0)
        self.refuse(2, *self.attention_of(q[:, :1], k[:, :1], v[:, :1]), *starts, "--device", "0,1",
                    saying="has 2 devices, expected at most 1, the number of key heads")

    @unittest.skipUnless("RUSTICL_ENABLE" in os.environ, "needs rusticl beside PoCL")
    def test_two_drivers(self):
        """PoCL and rusticl, which is slow and may have none, share items."""
        self.check(*self.arrays(batch=5), "--device", "0,1", "--solver", "generic", dropout=(0.25, 7, 3), causal=True)
        self.assertEqual((len(set(self.report["devices"])), sum(self.report["items"])), (2, 5))

    def test_devices_refused(self):
        self.two_devices()
        q, k, v = self.arrays(batch=1, heads=1, kv_heads=1)
        command = self.attention_of(q, k, v)
        self.refuse(2, *command, "--device", "0,1", saying="has 2 devices, expected at most 1, the number of key heads")
        self.refuse(2, *command, "--device", "0,0", saying="attention: --device '0,0' has device 0 twice")
        self.refuse(3, *command, "--device", "0,99", saying='"99"')
        self.refuse(3, *command, "--device", "0,", saying='"0,"')
        command = self.attention_of(*self.arrays(batch=3, heads=2))
        function = self.write("f.cl", "inline float score_mod(float score, int b, int h, int q, int k) { return score; }\n")
        self.refuse(2, *command, "--device", "0,1", "--score-mod", function, saying="no user functions")
        self.refuse(2, *command, "--device", "0,1", "--page-size", 4, "--dropout", 0.5, saying="no dropout with a ring or pages")
        self.refuse(2, *command, "--device", "0,1", "--solver", "nobody", saying=("clattn: device ", "nobody"))

    @slow
    def test_everything_at_once(self):
        print("seed %d" % SEED)
        pick = self.random.integers
        for _ in range(30 if FULL else 3):
            kv_heads, group, batch, d_v = (int(n) for n in pick(1, 4, 4))
            s_q, s_k = int(pick(1, 20)), int(pick(1, 40))
            q, k, v = self.arrays(batch, kv_heads * group, kv_heads, s_q, s_k, 8, 2 * d_v)
            heads = kv_heads * group
            choices = {
                "mask": lambda: self.random.random((batch, 1, s_q, s_k)) < 0.8 if pick(2) else self.normal(s_q, s_k),
                "bias": lambda: self.normal(heads, s_q, 1), "causal": lambda: True,
                "window": lambda: (int(pick(-1, 9)), int(pick(-1, 9))), "softcap": lambda: 2.5,
                "scale": lambda: float(np.float32(self.random.normal())), "alibi": lambda: self.normal(heads),
                "sinks": lambda: self.normal(heads), "kv_lengths": lambda: pick(0, s_k + 1, batch),
                "query_lengths": lambda: pick(0, s_q + 1, batch), "dropout": lambda: (0.4, int(pick(1 << 62)), 1),
                "vector": lambda: self.normal(1, 8)}
            meaning = {name: make() for name, make in choices.items() if pick(2)}
            meaning["mode"] = ("raw", "softcap", "bias", "probabilities")[pick(4)]
            if pick(2):
                meaning["bottom_right"] = True
            elif pick(2):
                meaning["offsets"] = pick(-9, 9, batch)
            options = (["--page-size", int(pick(1, 9))] if pick(2) else []) + (["--kv-int8"] if pick(2) else [])
            widened = (q, quantised(k, 8), quantised(v, 8)) if "--kv-int8" in options else None
            with self.subTest(q=q.shape, k=k.shape, options=options, meaning=meaning):
                self.check(q, k, v, *options, widened=widened, tolerance=2e-5, **meaning)


class UserFunctions(CommandTest):
    """Kernels include the user's OpenCL C."""

    def files(self):
        self.q, self.k, self.v = self.normal(2, 4, 5, 8), self.normal(2, 2, 7, 8), self.normal(2, 2, 7, 6)
        return self.attention_of(self.q, self.k, self.v)

    @slow
    def test_both_with_buffers_and_numbers(self):
        table, allowed = self.normal(7), self.random.integers(0, 2, (4, 7)).astype(np.int32)
        score = self.write("score.cl", """
            float helper(float x) { return 2.0f * x; }
            float score_mod(float score, int batch, int head, int query, int key, user_data user)
            {
                return helper(score) + user.buffer1[key] * user.scalar3 + (float)(batch - query);
            }
            """)
        mask = self.write("mask.cl", """
            int mask_mod(int batch, int head, int query, int key, user_data user)
            {
                return user.buffer2[head * user.key_length + key] || key <= query;
            }
            """)
        self.succeed(*self.files(), "--score-mod", score, "--mask-mod", mask, "--user", "1:" + self.save("t.npy", table),
                     "--user", "2:" + self.save("a.npy", allowed), "--user-scalar", "3:-0.75", "--scores",
                     "bias:" + self.path("s.npy"), "--verify")
        expected = attend(self.q, self.k, self.v,
                          score_mod=lambda s, b, h, i, j: 2 * s - 0.75 * table[j].astype(np.float64) + (b - i),
                          mask_mod=lambda b, h, i, j: (allowed[h][j] != 0) | (j <= i))
        self.close(np.load(self.path("o.npy")), expected["output"])
        self.close(np.load(self.path("s.npy")), expected["bias"])

    def test_packed_items_have_their_own_indices(self):
        q, k, v = self.normal(6, 4, 8), self.normal(9, 4, 8), self.normal(9, 4, 6)
        band = self.write("band.cl", "int mask_mod(int b, int h, int q, int k, user_data user)"
                                       " { return k <= q + user.position && k < user.key_length - b; }")
        starts, key_starts = np.array([0, 2, 6]), np.array([0, 4, 9])
        report = self.succeed(*self.attention_of(q, k, v), "--layout", "shd", "--solver", "generic", "--query-starts",
                              self.save("qs.npy", starts), "--key-starts", self.save("ks.npy", key_starts), "--align",
                              "bottom-right", "--mask-mod", band, "--verify", "--json").json()
        self.assertIs(report["verified"], True)
        for b, (rows, keys) in enumerate(((slice(0, 2), slice(0, 4)), (slice(2, 6), slice(4, 9)))):
            offset = (keys.stop - keys.start) - (rows.stop - rows.start)
            expected = attend(*(a.transpose(1, 0, 2)[None] for a in (q[rows], k[keys], v[keys])),
                              mask_mod=lambda _, h, i, j: (j <= i + offset) & (j < keys.stop - keys.start - b))
            self.close(np.load(self.path("o.npy"))[rows].transpose(1, 0, 2)[None], expected["output"])

    def test_verify_finds_a_wrong_kernel(self):
        # With a user's function there is no self-check on the device, which would refuse this kernel.
        kernels = self.path("cl")
        shutil.copytree(pathlib.Path(__file__).resolve().parents[2] / "cl", kernels)
        text = self.read("cl/attention/generic.cl")
        self.assertEqual(text.count(b"sum += p;"), 1)
        self.write("cl/attention/generic.cl", text.replace(b"sum += p;", b"sum += p * 1.001f;"))
        nothing = self.write("n.cl", "float score_mod(float s, int b, int h, int q, int k, user_data u) { return s; }")
        self.refuse(1, *self.files(), "--score-mod", nothing, "--verify", "--solver", "generic",
                    env={"CLATTN_KERNEL_DIR": kernels}, saying=("o.npy", "differs from the reference"))

    @slow
    def test_kernels_that_do_not_build_with_them(self):
        """Nothing is wrong with the functions by themselves, so the kernels' first error is told, with the files' names."""
        kernels = self.path("kernels")
        shutil.copytree(pathlib.Path(__file__).resolve().parents[2] / "cl", kernels)
        self.write("kernels/attention/core.h", "#error a_broken_line\n")
        parameters = "int batch, int head, int query, int key, user_data user"
        score = self.write("score.cl", f"float score_mod(float score, {parameters}) {{ return score; }}")
        mask = self.write("mask.cl", f"int mask_mod({parameters}) {{ return 1; }}")
        for options, names in ((["--score-mod", score], score), (["--mask-mod", mask], mask),
                               (["--score-mod", score, "--mask-mod", mask], f"{score} or {mask}")):
            self.refuse(2, *self.files(), *options, env={"CLATTN_KERNEL_DIR": kernels},
                        saying=(f"{names}: does not compile together with the kernels", "a_broken_line"))

    @slow
    def test_mistakes_are_found_in_the_users_file(self):
        bad = self.write("bad.cl", "float score_mod(float s, int b, int h, int q, int k, user_data u)\n{\n"
                                     "    return s + oops;\n}\n")
        self.refuse(2, *self.files(), "--score-mod", bad, saying=("bad.cl:3:", "oops"))
        self.refuse(2, *self.files(), "--mask-mod", bad, saying="bad.cl")
        good = "float score_mod(float s, int b, int h, int q, int k, user_data u)\n{\n    return s;\n}\n"
        os.mkfifo(self.path("endless"))
        for name, text in (("brace", good.rstrip("}\n")), ("name", good.replace("score_mod", "mod_score")),
                           ("few", good.replace(", int k, user_data u", "")), ("more", good.replace("u)", "u, int m)")),
                           ("twice", 2 * good), ("macro", "#define kernel\n" + good),
                           ("include", '#include "%s"\n' % self.path("endless") + good), ("nothing", good.replace("return s", "s")),
                           ("clash", "float attention_user(int x)\n{\n    return x;\n}\n" + good),
                           ("call", good.replace("return s", "return helper(s)")),
                           ("prose", "Subtract the distance of query and key, please.\n")):
            with self.subTest(name):
                path = self.write(name + ".cl", text)
                for command in (self.files(), ["explain", "--shape", "1,4,2,5,7,8,6"],
                                ["bench", "attention", "--shape", "1,4,2,5,7,8,6"]):
                    line = self.refuse(2, *command, "--score-mod", path, "--solver", "generic", saying=path).errors[0]
                    self.assertTrue(line.startswith("clattn: " + path + ":"), line)
                    self.assertLess(len(line), 400)
                    self.assertNotIn("|", line)
        self.refuse(2, *self.files(), "--mask-mod", self.path("none.cl"), saying=("none.cl", "No such file"))
        self.refuse(2, *self.files(), "--score-mod", self.write("empty.cl", ""), saying=("empty.cl", "empty"))
        self.refuse(2, *self.files(), "--score-mod", self.write("nul.cl", "a\0b"), saying=("nul.cl", "no text"))
        self.refuse(2, *self.files(), "--score-mod", self.write("long.cl", " " * 8192), saying=("long.cl", "8191"))

    def test_names_of_the_kernels_macros_are_the_users(self):
        mask = self.write("mask.cl", "#define WINDOW 4\n#define CAUSAL 3\n#de\\\nfine D_K 1\n#define key_length 2\n"
                                     "int mask_mod(int b, int h, int q, int k, user_data u)\n"
                                     "{\n    return q - k < WINDOW && k <= q + CAUSAL - D_K - key_length;\n}\n")
        report = self.succeed(*self.files(), "--mask-mod", mask, "--verify", "--json").json()
        self.assertIs(report["verified"], True)
        expected = attend(self.q, self.k, self.v, mask_mod=lambda b, h, i, j: (i - j < 4) & (j <= i))
        self.close(np.load(self.path("o.npy")), expected["output"])

    def test_warnings_name_the_users_file(self):
        text = "float score_mod(float s, int b, int h, int q, int k, user_data u)\n{\n    if (k < 3)\n        return s;\n}\n"
        path = self.write("half.cl", text)
        explained = self.succeed("explain", "--shape", "1,4,2,5,7,8,6", "--score-mod", path)
        for result in explained, self.succeed(*self.files(), "--score-mod", path):
            self.assertEqual(len(result.errors), 1, result)
            self.assertTrue(result.errors[0].startswith("clattn: warning: " + path + ":5:1: "), result)
            self.assertIn("does not return a value", result.errors[0])
        self.assertIn("    score_mod:5:1: ", explained.out)

    def test_buffers_and_numbers_are_strict(self):
        good = ["--score-mod", self.write("s.cl", "float score_mod(float s, int b, int h, int q, int k, user_data u)"
                                                    " { return s; }")]
        table = self.save("t.npy", self.normal(3))
        for option, value in (("--user", "4:" + table), ("--user", table), ("--user", "0:"), ("--user", "-1:" + table),
                              ("--user-scalar", "0:nan"), ("--user-scalar", "0"), ("--user-scalar", "9:1")):
            self.refuse(2, *self.files(), *good, "%s=%s" % (option, value), saying=option)
        self.refuse(2, *self.files(), *good, "--user", "0:" + table, "--user", "0:" + table, saying="twice")
        self.refuse(2, *self.files(), *good, "--user-scalar", "0:1", "--user-scalar", "0:1", saying="twice")
        self.refuse(2, *self.files(), *good, "--user", "0:" + self.save("d.npy", np.ones(3)), saying=("d.npy", "float64"))
        self.refuse(2, *self.files(), "--user", "0:" + table, saying=("--user", "--score-mod"))


class Explain(CommandTest):
    SHAPE = ("--shape", "1,4,2,5,7,8,6")

    @slow
    def test_shapes_need_no_data(self):
        result = self.succeed("explain", *self.SHAPE, "--json")
        report = result.json()
        self.assertEqual(len(result.out.splitlines()), 1)
        self.assertIs(report["supported"], True)
        self.assertEqual(report["kernel_launches"], 1)
        verdicts = {row["solver"]: row["verdict"] for row in report["solvers"]}
        self.assertTrue(verdicts[report["solver"]].startswith("chosen"))
        self.assertIn("generic", verdicts)
        self.assertIn("chosen", self.succeed("explain", *self.SHAPE).out)
        # A shape of hundreds of gigabytes is planned for, not allocated.
        self.succeed("explain", "--shape", "1,64,8,1,100000000,128,128", "--kv-int8", "--page-size", 16)
        self.succeed("explain", "--shape", "1,64,8,100000,100000000,128,128", "--layout", "bse", "--heads", "64,8")

    def test_arrays_and_the_options_of_attention(self):
        files = ["-q", self.save("q.npy", self.normal(2, 4, 5, 8)), "-k", self.save("k.npy", self.normal(2, 2, 7, 8)), "-v",
                 self.save("v.npy", self.normal(2, 2, 7, 6))]
        asked = ["--window", "2,1", "--scores", "probabilities:" + self.path("s.npy"), "--lse", self.path("l.npy"), "-o",
                 self.path("o.npy"), "--sinks", self.save("sinks.npy", self.normal(4))]
        planned = self.succeed("explain", *files, *asked, "--json").json()
        self.assertEqual(planned["kernel_launches"], 2)  # one of them is the scores'
        self.assertEqual(self.succeed("attention", *files, *asked, "--json").json()["solver"], planned["solver"])
        self.assertEqual(sorted(n for n in os.listdir(self.folder) if n[0] in "lo"), ["l.npy", "o.npy"])

    @slow
    def test_neither_launches_nor_workspace_grow_with_the_scores(self):
        for options in ([], ["--window", "9,9", "--kv-int8", "--page-size", 4, "--dropout", "0.1"]):
            small, large = (self.succeed("explain", "--shape", "1,4,2,%d,%d,8,6" % (n, n), "--solver", "generic", *options,
                                         "--json").json() for n in (64, 65536))
            for field in ("kernel_launches", "workspace_bytes"):
                self.assertLessEqual(large[field], small[field] * 1024)

    def test_refusals_have_their_reasons(self):
        refused = self.refuse(2, "explain", "--shape", "1,4,2,5,7,8,600", "--solver", "tile", saying="head size")
        self.assertIn("tile: refused, a head size is above 512\n", refused.out)
        self.assertIn("cpu: would be chosen", refused.out)
        result = self.run_clattn("explain", "--shape", "1,4,2,5,7,8,600", "--solver", "tile", "--json")
        self.assertEqual(result.status, 2)
        self.assertIs(result.json()["supported"], False)
        self.assertIn("head size", result.json()["reason"])
        verdicts = {row["solver"]: row["verdict"] for row in result.json()["solvers"]}
        self.assertEqual(verdicts["tile"], "refused, a head size is above 512")
        self.assertTrue(verdicts["cpu"].startswith("would be chosen"))
        self.assertEqual(set(verdicts), {"cpu-amx", "cpu-bf16", "cpu", "decode", "matrix", "sub-group", "tile",
                                         "generic"})
        self.refuse(2, "explain", *self.SHAPE, "--solver", "nonsense", saying="nonsense")
        self.refuse(2, "explain", "--shape", "1,3,2,5,7,8,6", saying="divisor")
        self.refuse(2, "explain", saying="-q")
        self.refuse(2, "explain", *self.SHAPE, "-q", "q.npy", saying=("--shape", "-q"))
        self.refuse(2, "explain", *self.SHAPE, "--verify", saying=("--verify", "computes nothing"))
        self.refuse(2, "explain", *self.SHAPE, "--repeat", 3, saying=("--repeat", "computes nothing"))
        self.refuse(2, "explain", "--shape", "2000000000,1,1,2000000000,2000000000,8,8", saying="layout")
        self.refuse(3, "explain", *self.SHAPE, "--device", "nonsense", saying="nonsense")
        self.refuse(2, "attention", *self.SHAPE, saying="--shape")


class BadFiles(CommandTest):
    def setUp(self):
        super().setUp()
        self.good = {"q": self.save("q.npy", self.normal(2, 4, 5, 8)),
                     "k": self.save("k.npy", self.normal(2, 2, 7, 8)),
                     "v": self.save("v.npy", self.normal(2, 2, 7, 3))}

    def attention_with(self, status, *more, saying=(), **files):
        files = {**self.good, "o": self.path("o.npy"), **files}
        arguments = [part for name in "qkvo" for part in ("-" + name, files[name])]
        self.refuse(status, "attention", *arguments, *more, saying=saying)
        if files["o"] == self.path("o.npy"):
            self.assertFalse(os.path.exists(files["o"]))

    def test_wrong_shapes(self):
        n, save = self.normal, self.save
        self.attention_with(2, q=save("q3.npy", n(4, 5, 8)), saying=("q3.npy", "(4, 5, 8)", "expected 4"))
        self.attention_with(2, k=save("k2.npy", n(7, 8)), saying=("k2.npy", "expected 4"))
        self.attention_with(2, v=save("v5.npy", n(1, 2, 2, 7, 3)), saying=("v5.npy", "expected 4"))
        self.attention_with(2, q=save("q0.npy", np.float32(1)), saying=("q0.npy", "expected 4"))
        self.attention_with(2, k=save("kd.npy", n(2, 2, 7, 9)), saying=("kd.npy", "9", "expected 8"))
        self.attention_with(2, k=save("kb.npy", n(3, 2, 7, 8)), saying=("kb.npy", "3", "expected 2"))
        self.attention_with(2, k=save("kh.npy", n(2, 3, 7, 8)), saying=("kh.npy", "3", "4"))
        self.attention_with(2, v=save("vl.npy", n(2, 2, 6, 3)), saying=("vl.npy", "6", "expected 7"))
        self.attention_with(2, v=save("vh.npy", n(2, 4, 7, 3)), saying=("vh.npy", "4", "expected 2"))
        self.attention_with(2, v=save("vz.npy", n(2, 2, 7, 0)), saying=("vz.npy", "at least 1"))

    def test_wrong_element_types(self):
        for dtype, text in ((np.float64, "float64"), (np.int32, "int32"), (np.uint16, "--dtype bf16"),
                            (np.bool_, "bool")):
            path = self.save("wrong.npy", np.ones((2, 4, 5, 8), dtype))
            self.attention_with(2, q=path, saying=("wrong.npy", text, "float32"))
        self.attention_with(2, q=self.save("d.npy", np.ones((2, 4, 5, 8))), saying='.astype("float32")')
        self.attention_with(2, q=self.save("big.npy", np.ones((2, 4, 5, 8), ">f4")), saying="big.npy")
        self.attention_with(2, q=self.save("c8.npy", np.ones((2, 4, 5, 8), np.complex64)), saying="c8.npy")
        fortran = np.asfortranarray(self.normal(2, 4, 5, 8))
        self.attention_with(2, q=self.save("f.npy", fortran), saying="f.npy")

    def test_wrong_masks(self):
        for shape in ((3, 4, 5, 7), (2, 2, 5, 7), (2, 4, 4, 7), (2, 4, 5, 8), (1, 2, 4, 5, 7), (), (5, 0),
                      (0, 7)):
            mask = self.save("mask.npy", np.ones(shape, bool))
            self.attention_with(2, "--mask", mask, saying="mask.npy")
        for dtype in (np.float64, np.int32, np.uint8, np.uint16):
            self.attention_with(2, "--mask", self.save("mask.npy", np.ones((5, 7), dtype)),
                                saying=("mask.npy", "bool", "float32"))

    def test_wrong_optional_arrays(self):
        n, save = self.normal, self.save
        whole = np.array([1, 2], np.int32)
        for option, array, text in (
                ("--bias", n(3, 7), "does not broadcast"), ("--bias", np.ones((5, 7), bool), "bool"),
                ("--alibi", n(3), "(4,)"), ("--alibi", n(3, 4), "(batch or 1, heads)"), ("--sinks", n(1, 4), "(4,)"),
                ("--sinks", np.ones(4), "float64"), ("--kv-lengths", np.array([1, 8], np.int32), "element 1 is 8"),
                ("--kv-lengths", np.array([-1, 8]), "element 0 is -1, expected 0 to 7"),
                ("--kv-lengths", np.ones(2, np.float32), "int32 or int64"), ("--kv-lengths", np.ones(3, int), "(2,)"),
                ("--query-lengths", np.array([6, 0]), "element 0 is 6"), ("--query-offset", np.ones((2, 1), int), "(2,)"),
                ("--query-offset", np.array([0, 1 << 41]), "element 1 is 2199023255552"),
                ("--key-starts", np.array([0, 4, 3]), "expected 1: all items' keys"),
                ("--query-starts", whole, "expected 1: all items' queries")):
            with self.subTest(option=option, text=text):
                self.attention_with(2, option, save("wrong.npy", array), saying=("wrong.npy" if "all items" not in text
                                                                                 else ".npy", text))
        self.attention_with(2, "--score", "additive", "--vector", save("w.npy", n(7)), saying=("w.npy", "(8,) or (4, 8)"))
        self.attention_with(2, "--ring", "--mask", save("m.npy", n(5, 7)), saying=("m.npy", "--ring"))
        packed = {"q": save("qp.npy", n(1, 4, 5, 8)), "k": save("kp.npy", n(1, 2, 7, 8)), "v": save("vp.npy", n(1, 2, 7, 3))}
        self.attention_with(2, "--query-starts", save("s.npy", np.array([0, 4, 3])), "--key-starts",
                            save("t.npy", np.array([0, 1, 7])), saying=("s.npy", "element 2 is 3, expected 4 to 5"), **packed)

    def test_options_that_do_not_go_together(self):
        lengths = self.save("l.npy", np.array([1, 2]))
        for options, text in (
                (["--query-offset", lengths, "--align", "top-left"], "--align"), (["--kv-int8", "--kv-int4"], "--kv-int4"),
                (["--ring", "--page-size", 4], "--page-size"),
                (["--ring", "--key-starts", lengths], "--key-starts"),
                (["--page-size", 4, "--key-starts", lengths], "--key-starts"),
                (["--scores", "raw:x.npy", "--query-starts", lengths], "--query-starts"),
                (["--scores", "raw:x.npy", "--key-starts", lengths], "--key-starts"),
                (["--kv-int8", "--dtype", "f64"], "--dtype f64"), (["--kv-group", 4], "--kv-int8"),
                (["--align", "bottom-right"], "--align is for --causal"),
                (["--seed", 4], "--seed is for --dropout"), (["--dropout-offset", 4], "--dropout-offset is for --dropout"),
                (["--scores", "raw:x.npy", "--ring"], "--ring"), (["--vector", lengths], "--score additive"),
                (["--score", "additive"], "--vector"), (["--heads", "4,2"], "--layout"),
                (["--layout", "bse"], "--heads"), (["--layout", "bhs"], "'bhs'"), (["--layout", "3bhsd"], "3 is for --qkv"),
                (["--layout", "bhs"], "s and d, with b and h unless there is only one of them, or s and e, with b unless"),
                (["--layout", "bhsdd"], "'bhsdd'"),
                (["--layout", "bs3hd"], "'bs3hd'"), (["--qkv", lengths], "--qkv"), (["--kv-int8", "--kv-group", 3], "divisor"),
                (["--softcap", 0], "positive"), (["--softcap=-1"], "positive"), (["--dropout", 1], "below 1"),
                (["--dropout=-0.1"], "at least 0"), (["--dropout-offset", 1 << 32], "4294967295"),
                (["--seed", 1 << 64], "18446744073709551615"), (["--seed=-1"], "--seed"), (["--window", "1"], "LEFT,RIGHT"),
                (["--window=-2,1"], "LEFT,RIGHT"), (["--window", "1,2,3"], "LEFT,RIGHT"), (["--scores", "raw"], "colon"),
                (["--scores", "some:x.npy"], "some:x.npy"), (["--dtype", "f64"], "float64"),
                (["--scores", "raw:" + self.path("o.npy")], "two outputs")):
            with self.subTest(options=options):
                self.attention_with(2, *options, saying=text)

    def test_sources(self):
        """What is missing, given twice, or does not agree with --layout or --heads."""
        q, k, o = self.good["q"], self.good["k"], self.path("o.npy")
        shape = ["--shape", "2,4,2,5,7,8,3"]
        for options, text in (
                ([], "-q Q.npy"), (["-q", q], "-k K.npy"), (["-q", q, "-k", k], "-v V.npy"),
                (["--qkv", q], "--layout of --qkv")):
            with self.subTest(text):
                self.refuse(2, "attention", *options, "-o", o, saying=text)
        for options, text in (
                ([*shape, "--qkv", q], "--qkv does not go together with --shape"),
                ([*shape, "--layout", "bse", "--heads", "4,3"], "expected a divisor of 4"),
                ([*shape, "--layout", "hsd"], "B is 2, expected 1"),
                (["--shape", "1,4,2,5,7,8,3", "--layout", "bsd"], "HQ is 4, expected 1"),
                (["--shape", "1,1,2,5,7,8,3", "--layout", "bsd"], "HQ is 1, expected 1"),
                ([*shape, "--layout", "b"], "'b' is not valid"), ([*shape, "--layout", "bhbsd"], "'bhbsd' is not valid"),
                ([*shape, "--verify"], "--verify does not go together"), ([*shape, "--repeat", 2], "--repeat does not go together")):
            with self.subTest(text):
                self.refuse(2, "explain", *options, saying=text)
        wide = self.save("wide.npy", self.normal(2, 5, 33))
        self.refuse(2, "attention", "-q", wide, "-k", wide, "-v", wide, "-o", o, "--layout", "bse", "--heads", "4,4",
                    saying=("wide.npy", "dimension 2 is 33, expected a multiple of the 4 heads"))
        self.refuse(2, "attention", "--qkv", self.save("two.npy", self.normal(2, 5, 2, 4, 8)), "-o", o, "--layout", "bs3hd",
                    saying=("two.npy", "dimension 2 is 2, expected 3"))

    def test_starts_that_do_not_fit(self):
        for starts, text in ((np.zeros((2, 2), int), "(batch + 1,)"), (np.zeros(0, int), "(batch + 1,)")):
            for option in ("--query-starts", "--key-starts"):
                self.attention_with(2, option, self.save("s.npy", starts), saying=("s.npy", text))
        one = {"q": self.save("q1.npy", self.normal(1, 4, 5, 8))}
        self.attention_with(2, "--query-starts", self.save("s.npy", np.array([0, 1, 3, 5])), saying="as many as --query-starts has",
                            **one)
        two = {"k": self.save("k1.npy", self.normal(1, 2, 7, 8)), "v": self.save("v1.npy", self.normal(1, 2, 7, 3))}
        self.attention_with(2, "--key-starts", self.save("s.npy", np.array([0, 1, 3, 7])), saying="as many as --key-starts has",
                            **two)

    def test_unreadable_files(self):
        self.attention_with(2, "--score-mod", self.folder, saying=(self.folder, "cannot be read"))
        self.attention_with(2, "--mask-mod", self.path("none.cl"), saying="none.cl")
        self.attention_with(2, q=self.path("none.npy"), saying=("none.npy", "No such file"))
        self.attention_with(2, q=self.folder, saying=self.folder)
        self.attention_with(2, "--mask", self.path("none.npy"), saying="none.npy")
        whole = self.read("q.npy")
        for name, content in (("empty", b""), ("short", whole[:-1]), ("long", whole + b"\0"),
                              ("header", whole[:40]), ("magic", whole[:6]), ("text", b"not an array\n" * 20),
                              ("zip", b"PK\3\4" + whole)):
            self.attention_with(2, q=self.write(name, content), saying=self.path(name))

    def test_long_names_hide_no_reason(self):
        long = self.path("y" * 9000)
        self.attention_with(2, o=long, saying=("cannot be written", "..."))
        self.attention_with(2, q=long, saying="cannot be opened")

    def test_hostile_names_stay_one_line(self):
        self.attention_with(2, q=self.path("a\nb\x1b[31m.npy"), saying="b")

    def test_unwritable_outputs(self):
        self.attention_with(2, o=self.folder, saying=(self.folder, "directory"))
        self.attention_with(2, o=self.path("none/o.npy"), saying="none/o.npy")
        self.attention_with(2, o=self.good["q"] + "/o.npy", saying="q.npy/o.npy")
        self.attention_with(2, "--lse", self.folder, saying="directory")
        self.attention_with(2, "--lse", self.path("o.npy"), saying=("o.npy", "two outputs"))
        self.attention_with(1, o="/dev/full", saying="/dev/full")

    def test_no_output_takes_an_input_away(self):
        """An output must not replace an input under its own name, another spelling, a symbolic link or a hard link."""
        content = {path: self.read(path) for path in self.good.values()}
        os.symlink("q.npy", self.path("soft.npy"))
        os.link(self.path("q.npy"), self.path("hard.npy"))
        for name in ("q.npy", "./q.npy", "../" + os.path.basename(self.folder) + "/q.npy", "soft.npy", "hard.npy"):
            path = self.path(name)
            self.attention_with(2, "--lse", path, saying=(path, "is the input", self.good["q"]))
            self.attention_with(2, "--entropy", path, saying="is the input")
            self.attention_with(2, "--scores", "raw:" + path, saying="is the input")
            self.attention_with(2, o=path, saying="is the input")
        snippet = self.write("s.cl", "float score_mod(float s, int b, int h, int q, int k, user_data u) { return s; }\n")
        mask, lengths = self.save("m.npy", np.ones((5, 7), bool)), self.save("l.npy", np.array([1, 2]))
        for option, path in (("--mask", mask), ("--kv-lengths", lengths), ("--score-mod", snippet)):
            self.attention_with(2, option, path, o=path, saying=(path, "is the input"))
        self.attention_with(2, "--score-mod", snippet, "--user", "0:" + lengths, o=lengths, saying=(lengths, "is the input"))
        self.assertEqual({path: self.read(path) for path in self.good.values()}, content)

    def test_two_outputs_are_two_files(self):
        os.symlink(".", self.path("here"))
        for other in (self.path("./o.npy"), self.path("here/o.npy")):  # these files do not exist yet
            self.attention_with(2, "--lse", other, saying="two outputs")
        old = self.save("old.npy", np.arange(3))
        os.symlink(old, self.path("link.npy"))
        self.attention_with(2, "--lse", self.path("link.npy"), o=old, saying="two outputs")

    def test_a_failure_leaves_the_old_output(self):
        old = self.save("old.npy", np.arange(3))
        before = self.read(old)
        self.attention_with(2, k=self.path("none.npy"), o=old, saying="none.npy")
        self.attention_with(3, "--device", "nonsense", o=old, saying="nonsense")
        self.assertEqual(self.read(old), before)
        self.assertEqual(sorted(os.listdir(self.folder)), ["k.npy", "old.npy", "q.npy", "v.npy"])

    def test_solvers_that_are_not_there(self):
        self.attention_with(2, "--solver", "nonsense", saying="nonsense")


if __name__ == "__main__":
    main()
