"""Where NVIDIA's OpenCL driver lies on a machine that may have no ICD file, and what makes the loader take it."""
import glob
import os
import re
import shutil
import subprocess

import compare

DRIVER = "libnvidia-opencl.so.1"
FOLDERS = [
    "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/*/nvidia/current", "/usr/lib/*/nvidia", "/usr/lib64", "/usr/lib64/nvidia", "/usr/lib/nvidia*", "/usr/lib",
    "/usr/local/cuda/compat", "/usr/lib/wsl/lib", "/usr/lib/wsl/drivers/*", "/run/nvidia/driver/usr/lib/*-linux-gnu",
    "/run/nvidia/driver/usr/lib64", "/opt/nvidia/lib64", "/opt/nvidia/lib",
]


def parse_ldconfig(text, name):
    """The paths of the 64-bit libraries of that name in what `ldconfig -p` prints."""
    found = re.findall(r"^\s*%s \(([^)]*)\) => (\S+)$" % re.escape(name), text, re.MULTILINE)
    return [path for kind, path in found if "64" in kind]


def find_library(name, cached, folders, root=""):
    """The first that is there: of the cache's paths, then by its name or a longer version of it in the folders."""
    for path in cached:
        if os.path.exists(path):
            return path
    for pattern in (name, os.path.splitext(name)[0] + ".*"):
        for folder in folders:
            for path in sorted(glob.glob(os.path.join(root + folder, pattern))):
                if os.path.exists(path):
                    return path
    return None


def ldconfig():
    tool = shutil.which("ldconfig", path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")
    if not tool:
        return ""
    return subprocess.run([tool, "-p"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def write_icd(library, folder):
    """The loader's file for that driver, alone in its folder."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    compare.write_whole(os.path.join(folder, "nvidia.icd"), library + "\n")
    return folder


def find_driver(options):
    """What of the driver there is to record, with the variables that make the loader use it."""
    if options.icd:
        return {"icd": options.icd}, {"OCL_ICD_VENDORS": os.path.abspath(options.icd)}
    folders = [each for each in os.environ.get("LD_LIBRARY_PATH", "").split(":") if each] + FOLDERS
    cache = ldconfig()
    library = find_library(DRIVER, parse_ldconfig(cache, DRIVER), folders)
    if library:
        folder = os.path.dirname(library)
        # What it loads itself lies beside it.
        paths = [each for each in os.environ.get("LD_LIBRARY_PATH", "").split(":") if each]
        return ({"library": library, "file": os.path.realpath(library)},
                {"OCL_ICD_VENDORS": write_icd(library, os.path.join(options.work, "vendors")),
                 "LD_LIBRARY_PATH": ":".join(paths + [each for each in [folder] if each not in paths])})
    cuda = find_library("libcuda.so.1", parse_ldconfig(cache, "libcuda.so.1"), folders)
    return {"error": "no %s in the loader's cache or the usual folders: the loader's own ICD files are left to choose from"
                     % DRIVER, "libcuda": cuda}, {}
