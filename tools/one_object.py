#!/usr/bin/env python3
"""Makes a static library whose only names are public: one_object.py INPUT OUTPUT AR OBJCOPY LINKER...

All objects of the archive INPUT become one, whose names are local but for clattn_*: an application's own functions can
neither clash with the library's internal ones nor take their place.
"""
import os
import subprocess
import sys


def main():
    source, output, ar, objcopy, *linker = sys.argv[1:]
    merged = output + ".o"
    if os.path.exists(output):
        os.remove(output)
    subprocess.run([*linker, "-r", "-nostdlib", "-o", merged, "-Wl,--whole-archive", source], check=True)
    subprocess.run([objcopy, "--wildcard", "--keep-global-symbol=clattn_*", merged], check=True)
    subprocess.run([ar, "rcs", output, merged], check=True)
    os.remove(merged)


if __name__ == "__main__":
    main()
