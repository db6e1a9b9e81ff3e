#!/usr/bin/env python3
"""The library as a static one and as a subproject of README's project, by the wrap file of a release: test_subproject.py FOLDER.

FOLDER is where the release is packed, built and installed.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def output(*command, **environment):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, **environment}).stdout


def pack(folder):
    """Packs the sources as a release has them, changes that are not committed included; the wrap file for that."""
    listed = output("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    version = re.search(r"^  version: '(.*)',$", (ROOT / "meson.build").read_text(encoding="utf-8"), re.M)[1]
    archive = folder / f"clattn-{version}.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as file:
        for name in filter(lambda name: name and (ROOT / name).exists(), listed):
            file.add(ROOT / name, f"clattn-{version}/{name}")
    output("sh", ROOT / "packaging/recipes.sh", archive, f"file://{archive}", folder / "recipes")
    return folder / "recipes/meson/clattn.wrap"


class Subproject(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)
        source, cls.build, cls.prefix = FOLDER / "first", FOLDER / "first/build", FOLDER / "prefix"
        (source / "subprojects").mkdir(parents=True)
        shutil.copy(pack(FOLDER), source / "subprojects")
        cls.said = output("sh", ROOT / "tests/external/readme.sh", source, "meson", f"--prefix={cls.prefix}", "--libdir=lib",
                          "--force-fallback-for=clattn", "-Ddefault_library=static", "-Dwarning_level=2", "-Dwerror=true")
        output("meson", "install", "--no-rebuild", "-C", cls.build)

    def test_builds_nothing_but_the_library(self):
        targets = json.loads(output("meson", "introspect", "--targets", self.build))
        self.assertEqual({target["name"] for target in targets},
                         {"first", "clattn.a", "clattn-parts", "embedded_kernels"})
        tests = json.loads(output("meson", "introspect", "--tests", self.build))
        self.assertEqual(tests, [])

    def test_installs_the_library_its_headers_and_nothing_else(self):
        installed = {path.relative_to(self.prefix).as_posix() for path in self.prefix.rglob("*") if path.is_file()}
        self.assertEqual({path for path in installed if not path.startswith("include/clattn/")},
                         {"lib/libclattn.a", "lib/pkgconfig/clattn.pc"})
        self.assertIn("include/clattn/clattn.h", installed)
        self.assertNotIn("include/clattn/io.h", installed)

    def test_only_public_names_are_global(self):
        symbols = output("nm", "--defined-only", "--extern-only", self.prefix / "lib/libclattn.a").splitlines()
        names = {line.split()[-1] for line in symbols if len(line.split()) == 3}
        self.assertIn("clattn_version", names)
        self.assertEqual([name for name in names if not name.startswith("clattn_")], [])

    def test_program_of_the_project_runs(self):
        self.assertTrue(self.said.endswith("found 5 6 7 8\nfound 9 10 11 12\n"), self.said)

    def test_application_that_knows_pkg_config_alone_runs(self):
        package = {"PKG_CONFIG_PATH": f"{self.prefix}/lib/pkgconfig"}
        flags = output("pkg-config", "--static", "--cflags", "--libs", "clattn", **package).split()
        self.assertIn("-lm", flags)
        output("cc", HERE / "application.c", "-o", FOLDER / "alone", *flags)
        self.assertIn("0.25 0.25 0.25 0.25", output(FOLDER / "alone"))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    FOLDER = pathlib.Path(sys.argv.pop(1)).absolute()
    unittest.main(verbosity=2)
