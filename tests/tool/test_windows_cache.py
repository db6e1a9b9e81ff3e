#!/usr/bin/env python3
"""Where the command for Windows keeps its cache, and whom it trusts: CLATTN=COMMAND WINEPREFIX=FOLDER python3 test_windows_cache.py

wine makes a folder's access list of its mode."""
import os
import shutil
import unittest

from command_support import CommandTest, main


class WindowsCache(CommandTest):
    def test_folder_and_its_owner(self):
        env = {"CLATTN_CACHE": None, "CLATTN_CACHE_DIR": None, "CLATTN_SAVE": "release"}
        before = self.succeed("cache", "list", env=env).out
        path = next(line for line in before.splitlines() if line.startswith("path: ")).removeprefix("path: ").strip()
        self.assertRegex(path, r"^C:\\users\\[^\\]+\\AppData\\Local[/\\]clattn$")
        folder = os.path.join(os.environ["WINEPREFIX"], "drive_c", *path[3:].replace("/", "\\").split("\\"))
        shutil.rmtree(folder, ignore_errors=True)
        x = self.save("x.npy", self.normal(3, 4))
        self.succeed("softmax", x, "-o", self.path("y.npy"), env=env)
        self.assertIn("count: 1", self.succeed("cache", "list", env=env).out)
        self.assertEqual(os.stat(folder).st_mode & 0o007, 0)
        for mode in (0o777, 0o702):
            os.chmod(folder, mode)
            self.refuse(1, "cache", "list", env=env, saying="belongs to another user or others may write to it")
        os.chmod(folder, 0o700)
        self.assertIn("count: 1", self.succeed("cache", "list", env=env).out)


if __name__ == "__main__":
    main()
