"""A public header as doxygen reads it: filter.py HEADER

Leaves out the enumerators that only fix an enum's size, and reserved members.  Turns the names of functions, types and
constants in comments into links (#name), so that a name that does not exist is a warning.  Declares each member by itself,
because doxygen gives the comment of `int a, b; /**< both */` to the first alone.  Line numbers stay."""
import re
import sys

DROPPED = re.compile(r"\w+_FORCE_32BIT = 0x7fffffff|int32_t reserved;.*")
MEMBERS = re.compile(r"^( +)((?:const )?\w+ )(\**\w+(?:\[\w+\])?(?:, \**\w+(?:\[\w+\])?)+); +(/\*\*<.*\*/)$")
CODE = re.compile(r" *\*     ")
# What is not to be changed is a match of its own: code in backticks, and words that are links already.
NAME = re.compile(r"`[^`]*`|[#@]\w+|\b(?:clattn_[a-z0-9_]+|CLATTN_[A-Z0-9_]+)\b(?![./*])")


def linked(text):
    return NAME.sub(lambda found: found[0] if found[0][0] in "`#@" else "#" + found[0], text)


def main(path):
    in_comment = False
    for line in open(path, encoding="utf-8"):
        line = DROPPED.sub("", line.rstrip("\n"))
        begin = 0 if in_comment else line.find("/**")
        if begin >= 0:
            if not (in_comment and CODE.match(line)):
                line = line[:begin] + linked(line[begin:])
            in_comment = "*/" not in line[begin:]
        members = MEMBERS.match(line)
        if members:
            indent, kind, names, comment = members.groups()
            line = indent + " ".join(f"{kind}{name}; {comment}" for name in names.split(", "))
        print(line)


main(sys.argv[1])
