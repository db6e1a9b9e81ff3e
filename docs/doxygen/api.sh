#!/bin/sh
# Renders the public headers to HTML: api.sh DOXYFILE HTML_FOLDER [DOXYGEN]
#
# Two passes, because doxygen does not say which members are undocumented if structs are shown on their header's page.
set -eu
doxygen=${3-doxygen}
{
    cat "$1"
    echo "INLINE_SIMPLE_STRUCTS = NO"
    echo "GENERATE_HTML = NO"
    echo "GENERATE_XML = YES"
} | "$doxygen" -
"$doxygen" "$1"
touch "$2"
