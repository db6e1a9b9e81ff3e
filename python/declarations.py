"""Writes the module in which clattn's Python package has the C declarations: cffi's, made of the public headers.

    declarations.py OUTPUT INCLUDE COMPILER [ARGUMENT...]

There is no second list of prototypes: the compiler's preprocessor expands the headers in the folder INCLUDE, and what comes from
them and from OpenCL's stays.  Macros that are numbers become an enumeration."""

import pathlib
import re
import subprocess
import sys

import cffi

HEADERS = "#include <clattn/clattn.h>\n#include <clattn/io.h>\n"
CONSTANTS = [
    "CL_TRUE",
    "CL_MEM_READ_WRITE",
    "CL_MEM_READ_ONLY",
    "CL_MEM_USE_HOST_PTR",
    "CL_MEM_COPY_HOST_PTR",
    "CLATTN_MAX_RANK",
    "CLATTN_MAX_STAGES",
    "CLATTN_USER_BUFFERS",
    "CLATTN_VERSION",
]


def preprocess(compiler, include, text, *options):
    done = subprocess.run(
        [*compiler, "-E", *options, "-x", "c", "-D__attribute__(x)=", f"-I{include}", "-"],
        input=text,
        text=True,
        check=True,
        capture_output=True,
    )
    return done.stdout


def kept(expanded, include):
    """The lines of clattn's headers and of OpenCL's, and the latter's types of one number."""
    folder, lines, whole, scalars = str(pathlib.Path(include).resolve() / "clattn"), [], False, False
    for line in expanded.splitlines():
        marker = re.match(r'# \d+ "(.*?)"', line)
        if marker:
            file = marker[1]
            whole = file.endswith("/cl.h") or str(pathlib.Path(file).resolve()).startswith(folder)
            scalars = file.endswith("/cl_platform.h")
        elif line.strip() and (whole or (scalars and re.match(r"typedef [a-z0-9_ ]+ cl_[a-z]+ *;", line))):
            lines.append(line)
    return "\n".join(lines)


def main():
    output, include, *compiler = sys.argv[1:]
    declarations = kept(preprocess(compiler, include, HEADERS), include)
    macros = HEADERS + "".join(f"value {number} = {name};\n" for number, name in enumerate(CONSTANTS))
    values = re.findall(r"^value \d+ = ([^;]*);", preprocess(compiler, include, macros, "-P"), re.MULTILINE)
    constants = "".join(f"    C_{name} = {value},\n" for name, value in zip(CONSTANTS, values, strict=True))
    ffi = cffi.FFI()
    ffi.cdef(f"typedef struct _IO_FILE FILE;\n{declarations}\nenum {{\n{constants}}};\n")
    ffi.set_source("clattn._declarations", None)
    ffi.emit_python_code(output)


if __name__ == "__main__":
    main()
