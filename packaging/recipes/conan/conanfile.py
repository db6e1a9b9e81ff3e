"""clattn for Conan 2: the libraries that need nothing but OpenCL's headers."""

import shutil

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy, get, rm, rmdir
from conan.tools.layout import basic_layout
from conan.tools.meson import Meson, MesonToolchain

LEFT_OUT = (
    "clblast",
    "pictures",
    "command",
    "png",
    "utf8proc",
    "speech",
    "sentencepiece",
    "frei0r",
    "gegl",
    "mpi",
    "onnxruntime",
    "gtk",
    "tests",
)


class Clattn(ConanFile):
    name = "clattn"
    version = "@VERSION@"
    description = "The attention library for OpenCL"
    license = "MIT"
    topics = ("opencl", "attention", "transformer")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False]}
    default_options = {"shared": False, "fPIC": True}

    def configure(self):
        if self.options.shared:
            self.options.rm_safe("fPIC")
        self.settings.rm_safe("compiler.libcxx")

    def layout(self):
        basic_layout(self, src_folder="src")

    def requirements(self):
        self.requires("opencl-headers/[>=2022]", transitive_headers=True)

    def validate(self):
        if self.settings.get_safe("compiler.cppstd"):
            check_min_cppstd(self, 11)  # clattn.hpp's

    def build_requirements(self):
        if not shutil.which("meson"):
            self.tool_requires("meson/[>=1.0]")

    def source(self):
        get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def generate(self):
        toolchain = MesonToolchain(self)
        toolchain.project_options |= {"opencl": "dlopen", "io": "enabled"}
        toolchain.project_options |= dict.fromkeys(LEFT_OUT, "disabled")
        headers = self.dependencies["opencl-headers"].cpp_info.includedirs
        toolchain.extra_cflags += [f"-I{folder}" for folder in headers]
        toolchain.extra_cxxflags += [f"-I{folder}" for folder in headers]
        toolchain.generate()

    def build(self):
        meson = Meson(self)
        meson.configure()
        meson.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, f"{self.package_folder}/licenses")
        Meson(self).install()
        for folder in ("pkgconfig", "cmake"):  # Conan makes its own
            rmdir(self, f"{self.package_folder}/lib/{folder}")
        rmdir(self, f"{self.package_folder}/share")
        rm(self, "*.pdb", self.package_folder, recursive=True)

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "clattn")
        parts = {"clattn": ("clattn", []), "io": ("clattn-io", ["clattn"])}
        for name, (library, needs) in parts.items():
            part = self.cpp_info.components[name]
            part.set_property("cmake_target_name", f"clattn::{name}")
            part.set_property("pkg_config_name", library)
            part.libs = [library]
            part.requires = [*needs, "opencl-headers::opencl-headers"]
            if not self.options.shared:
                part.defines = ["CLATTN_STATIC"]
                part.system_libs = ["m", "pthread", "dl"] if self.settings.os in ("Linux", "FreeBSD") else []
