#!/usr/bin/env python3
"""Writes a C file that holds the kernel sources: embed.py OUTPUT ROOT FILE..., each FILE below ROOT."""
import hashlib
import os
import sys


def c_string(line):
    out = []
    for byte in line.encode("utf-8"):
        char = chr(byte)
        if char in '"\\':
            out.append("\\" + char)
        elif 32 <= byte < 127:
            out.append(char)
        else:
            out.append("\\%03o" % byte)
    return '    "' + "".join(out) + '\\n"\n'


def main():
    output, root, files = sys.argv[1], sys.argv[2], sys.argv[3:]
    digest = hashlib.sha256()
    with open(output, "w", encoding="ascii") as out:
        out.write('#include "program/source.h"\n\n')
        out.write("const struct embedded_source embedded_sources[] = {\n")
        for path in sorted(files):
            name = os.path.relpath(path, root).replace(os.sep, "/")
            with open(path, "rb") as source:
                digest.update(source.read())
            with open(path, encoding="utf-8") as source:
                out.write('    {"%s",\n' % name)
                out.writelines(c_string(line.rstrip("\n")) for line in source)
                out.write("    },\n")
        out.write("};\n\n")
        out.write("const size_t embedded_source_count = sizeof embedded_sources / sizeof embedded_sources[0];\n")
        out.write('const char embedded_digest[] = "%s";\n' % digest.hexdigest()[:16])


if __name__ == "__main__":
    main()
