#!/bin/sh
# Compiles the kernel texts with every compiler that is installed.
#
#   check.sh GPU_TEXTS FOLDER
#
# GPU_TEXTS is the program tests/gpu_texts of a build, which writes the texts.  FOLDER receives the
# texts, the program rtc, which calls run-time compilers, and the table of results.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$2/texts"
mkdir -p "$2/texts"
${CC:-cc} -O1 "$here/rtc.c" -o "$2/rtc" -ldl
WEBER_DUMP_KERNELS=$2/texts "$1" >"$2/texts.log" 2>&1 || { tail -n 40 "$2/texts.log"; exit 1; }
status=0
python3 "$here/check.py" "$2/texts" "$2/rtc" >"$2/table.txt" 2>&1 || status=$?
cat "$2/table.txt"
exit $status
