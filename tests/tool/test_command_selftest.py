#!/usr/bin/env python3
"""clattn selftest on the default device: each operator by each solver, so that every kernel is compiled."""
from command_support import CommandTest, main


class Selftest(CommandTest):
    def test_selftest(self):
        every_kernel = 900 # seconds: Intel's runtime takes 170 of a core to compile them
        result = self.succeed("selftest", timeout=every_kernel)
        rows, products = "cpu sub-group tile generic", "cpu-amx cpu-bf16 matrix cpu tile generic"
        attention = "cpu-amx cpu-bf16 matrix cpu decode sub-group tile generic"
        operators = {"softmax": rows, "attention": attention, "matmul": "clblast " + products, "mha": products,
                     "merge": "generic", "kv_append": "generic", "neighbourhood": "cpu generic",
                     "neighbourhood_backward": "generic",
                     "conv2d": "cpu generic", "norm": rows, "pool": "cpu generic", "resize": "cpu generic",
                     "rope": "cpu generic", "activation": "cpu generic", "dropout": "cpu generic", "embedding": "generic",
                     "adam": "generic", "square_sum": "generic",
                     "cross_entropy": rows, "image": "cpu generic"}
        for operator in operators:
            self.assertRegex(result.out, r"(?m)^%s +\(any\) +ok" % operator)
        self.assertNotIn("failed", result.out)
        report = self.succeed("selftest", "--json", timeout=every_kernel).json()
        self.assertIs(report["ok"], True)
        self.assertTrue(all(row["result"] in ("ok", "refused") for row in report["results"]))
        for operator, solvers in operators.items():
            rows = [row for row in report["results"] if row["operator"] == operator]
            self.assertEqual([row["solver"] for row in rows], ["(any)"] + solvers.split(), operator)
            self.assertTrue(all(row["result"] == "ok" for row in rows if row["solver"] in ("(any)", "generic")), rows)
            # On a CPU device every 16-bit case runs by the solver that is asked for.
            self.assertTrue(all(row["refused"] == 0 for row in rows if row["solver"] in ("cpu", "generic")), rows)
            self.assertTrue(all(row["passed"] >= 1 for row in rows if row["solver"] in ("cpu-amx", "cpu-bf16")), rows)


if __name__ == "__main__":
    main()
