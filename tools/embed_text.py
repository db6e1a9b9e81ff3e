#!/usr/bin/env python3
"""Writes a C file that holds text files as strings: embed_text.py OUTPUT HEADER PREFIX FILE...

FILE name.ext becomes `const char PREFIX_name_ext[]`, which HEADER declares."""
import os
import sys

sys.dont_write_bytecode = True
from embed import c_string  # noqa: E402


def main():
    output, header, prefix, files = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    with open(output, "w", encoding="ascii") as out:
        out.write('#include "%s"\n' % header)
        for path in files:
            name = os.path.basename(path).replace(".", "_")
            out.write("\nconst char %s_%s[] =\n" % (prefix, name))
            with open(path, encoding="utf-8", newline="") as source:
                out.writelines(c_string(line.rstrip("\n")) for line in source)
            out.write("    ;\n")


if __name__ == "__main__":
    main()
