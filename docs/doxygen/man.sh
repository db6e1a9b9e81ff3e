#!/bin/sh
# Renders the public C headers as man pages of section 3: man.sh DOXYFILE FOLDER [DOXYGEN]
#
# FOLDER gets a page for each header, such as clattn_softmax.h.3; clattn_calls.3, the contract of every operator's calls;
# and for each function and type a link to its header's page, or, for a struct with functions, a page.  doxygen writes to the
# folder man beside FOLDER, which is removed first.
set -eu
rm -rf "$2"
mkdir "$2"
out=$(cd "$2" && pwd)
pages=${out%/*}/man/man3
rm -rf "$pages"
{
    cat "$1"
    echo "GENERATE_HTML = NO"
    echo "GENERATE_MAN = YES"
    echo "MAN_LINKS = YES"
    echo "EXCLUDE_PATTERNS = *.hpp */clattn.h"
    echo "LAYOUT_FILE ="
} | "${3-doxygen}" -
cd "$pages"

# doxygen begins lines with a space, which breaks them, or with an apostrophe, which makes them requests, and uses a
# font that groff lacks.  Pages are those of headers, of calls and of structs with functions; the other files are links.
# shellcheck disable=SC2046 # no name has a space
sed -i -e '/^\.PP/{n;s/^ //}' -e "s/^'/\\\\\&'/" -e 's/\\fC/\\fB/g' $(grep -L "^\.so " ./*.3)
for page in *.h.3; do
    { cat "$page"; printf '.SH "See also"\n.BR clattn_calls (3)\n'; } > "$out/clattn_$page"
done
sed -e 's/^\(.TH "\|\)calls\b/\1clattn_calls/' -e '/ \\- /a .SH DESCRIPTION' calls.3 > "$out/clattn_calls.3"
for link in clattn_*.3; do
    sed 's|man3/|&clattn_|' "$link" > "$out/$link"
done
