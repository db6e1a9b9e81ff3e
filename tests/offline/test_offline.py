#!/usr/bin/env python3
"""Runs tests/offline/machine_code.py on stored disassemblies and compares its counts of warps with worked examples."""
import os
import sys
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, FOLDER)
sys.dont_write_bytecode = True

import machine_code


def sample(name):
    with open(os.path.join(FOLDER, "samples", name), encoding="utf-8") as file:
        return file.read()


class HotLoops(unittest.TestCase):
    def test_the_inner_of_two_loops_is_counted_alone(self):
        # nvdisasm's own output for a small kernel on sm_90: ten instructions from .L_x_2 to its branch.
        self.assertEqual(machine_code.hot_loops(sample("nested.sass")),
                         {"dots": machine_code.Loop(instructions=10, products=1, matrix=0, loads=1)})

    def test_a_block_moved_behind_the_end_belongs_to_its_loop_and_makes_no_other(self):
        # .L_x_2 is entered from the loop and branches back into it, though not to a block that must be passed.
        loop = machine_code.hot_loops(sample("moved.sass"))["moved"]
        self.assertEqual(loop, machine_code.Loop(instructions=9, products=3, matrix=2, loads=2))
        self.assertAlmostEqual(machine_code.share(loop), 3 / 9)

    def test_a_loop_around_one_with_products_is_not_hot_however_many_it_has(self):
        # Four more multiply-adds stand behind the inner loop, whose one product still counts.
        more = "\n".join(f"        /*02{n}1*/                   FFMA R8, R9, R10, R8 ;" for n in range(4))
        text = sample("nested.sass").replace(".L_x_1:\n", ".L_x_1:\n" + more + "\n")
        self.assertEqual(machine_code.hot_loops(text)["dots"].products, 1)

    def test_products_of_matrices_come_before_multiply_adds(self):
        # One loop has three multiply-adds, the other two products of matrices.
        lines = [".text.both:"]
        for label, operations in ((".L_x_0", ["FFMA"] * 3), (".L_x_1", ["HGMMA.64x128x16.F32"] * 2)):
            lines.append(label + ":")
            lines += [f"        /*0000*/                   {operation} R8, R9, R10, R8 ;" for operation in operations]
            lines.append(f"        /*0000*/              @P0 BRA `({label}) ;")
        lines.append("        /*0000*/                   EXIT ;")
        self.assertEqual(machine_code.hot_loops("\n".join(lines) + "\n"),
                         {"both": machine_code.Loop(instructions=3, products=2, matrix=2, loads=0)})

    def test_code_without_a_loop_has_no_hot_one(self):
        self.assertIsNone(machine_code.hot_loops(sample("moved.sass"))["straight"])

    def test_text_that_is_no_disassembly_has_no_kernels(self):
        self.assertEqual(machine_code.hot_loops("nvdisasm fatal : nothing to disassemble\n"), {})


class Occupancy(unittest.TestCase):
    def test_warps_are_limited_by_registers(self):
        # 256 items are 8 warps.  A quarter has 16,384 registers: four warps of 128 each, two of 168 or of 255.
        self.assertEqual(machine_code.warps("sm_80", 128, 0, 256), (16, 64))
        self.assertEqual(machine_code.warps("sm_80", 129, 0, 256), (8, 64))
        self.assertEqual(machine_code.warps("sm_90", 255, 0, 256), (8, 64))
        self.assertEqual(machine_code.warps("sm_90", 32, 0, 256), (64, 64))

    def test_warps_are_limited_by_local_memory(self):
        # 46.5 KiB and the driver's 1 KiB fit three times into 164 KiB and four times into 228 KiB.
        self.assertEqual(machine_code.warps("sm_80", 32, 47616, 128), (12, 64))
        self.assertEqual(machine_code.warps("sm_90", 32, 47616, 128), (16, 64))

    def test_warps_are_limited_by_the_number_of_groups(self):
        self.assertEqual(machine_code.warps("sm_90", 16, 0, 32), (32, 64))

    def test_a_group_that_does_not_fit_gives_no_warps(self):
        self.assertEqual(machine_code.warps("sm_80", 255, 0, 1024), (0, 64))

    def test_engines_run_half_the_threads_where_these_have_twice_the_registers(self):
        self.assertEqual([machine_code.engine_threads(128), machine_code.engine_threads(256)], [8, 4])


if __name__ == "__main__":
    unittest.main()
