#!/bin/sh
# Writes the manual page of the command `weber`: a frame around what `weber help` prints.
#
#   manual.sh COMMAND FRAME PAGE.gz
set -eu
# A backslash, a hyphen and a dot or quotation mark at the start of a line have meanings in a page.
"$1" help | sed 's/\\/\\e/g; s/-/\\-/g; s/^[.'"'"']/\\\&&/' >"$3.help"
[ -s "$3.help" ]
sed -e "/%HELP%/{r $3.help" -e 'd}' "$2" | gzip -9n >"$3"
rm "$3.help"
