#!/usr/bin/env python3
"""clattn selftest on the default device: some operators, and in the full run each operator by each solver, so that every kernel
is compiled."""
from command_support import FULL, CommandTest, main

ROWS, PRODUCTS = "cpu sub-group tile generic", "cpu-amx cpu-bf16 matrix cpu tile generic"
ATTENTION = "cpu-amx cpu-bf16 matrix cpu decode sub-group tile generic"
SOLVERS = {"softmax": ROWS, "attention": ATTENTION, "attention_backward": PRODUCTS, "matmul": "clblast " + PRODUCTS,
           "mha": PRODUCTS, "merge": "generic", "kv_append": "generic", "neighbourhood": "cpu generic",
           "neighbourhood_backward": "generic", "conv2d": "cpu generic",
           "norm": ROWS, "pool": "cpu generic", "resize": "cpu generic", "rope": "cpu generic", "activation": "cpu generic",
           "dropout": "cpu generic", "embedding": "generic", "adam": "generic", "square_sum": "generic", "cross_entropy": ROWS,
           "image": "cpu generic"}
REFUSED = {("attention_backward", "cpu"): 1}  # the gradient of a mask
EVERY_KERNEL = 900  # seconds: Intel's runtime takes 170 of a core to compile them


class Selftest(CommandTest):
    def test_selftest(self):
        names = [] if FULL else ["merge", "softmax", "rope"]
        operators = {name: solvers for name, solvers in SOLVERS.items() if name in names or not names}
        result = self.succeed("selftest", *names, timeout=EVERY_KERNEL)
        for operator in operators:
            self.assertRegex(result.out, r"(?m)^%s +\(any\) +ok" % operator)
        self.assertNotIn("failed", result.out)
        report = self.succeed("selftest", *names, "--json", timeout=EVERY_KERNEL).json()
        self.assertIs(report["ok"], True)
        self.assertEqual({row["operator"] for row in report["results"]}, set(operators))
        self.assertTrue(all(row["result"] in ("ok", "refused") for row in report["results"]))
        for operator, solvers in operators.items():
            rows = [row for row in report["results"] if row["operator"] == operator]
            self.assertEqual([row["solver"] for row in rows], ["(any)"] + solvers.split(), operator)
            self.assertTrue(all(row["result"] == "ok" for row in rows if row["solver"] in ("(any)", "generic")), rows)
            # On a CPU device every 16-bit case runs by the solver that is asked for.
            self.assertTrue(all(row["refused"] == REFUSED.get((operator, row["solver"]), 0) for row in rows
                                if row["solver"] in ("cpu", "generic")), rows)
            self.assertTrue(all(row["passed"] >= 1 for row in rows if row["solver"] in ("cpu-amx", "cpu-bf16")), rows)

    def test_unknown(self):
        self.refuse(2, "selftest", "softmax", "softmix", saying="unknown operator 'softmix'")


if __name__ == "__main__":
    main()
