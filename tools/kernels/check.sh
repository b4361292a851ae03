#!/bin/sh
# Compiles the kernel texts with every compiler that is installed, and compares what the compilers
# made of them with bench/results/kernels.md.
#
#   check.sh GPU_TEXTS FOLDER [--update]
#
# GPU_TEXTS is the program tests/gpu_texts of a build, which writes the texts.  FOLDER receives the
# texts, the program rtc, which calls run-time compilers, and the table of results.
# --update writes kernels.md.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$2/texts"
mkdir -p "$2/texts"
${CC:-cc} -O1 "$here/rtc.c" -o "$2/rtc" -ldl
WEBER_DUMP_KERNELS=$2/texts "$1" >"$2/texts.log" 2>&1 || { tail -n 40 "$2/texts.log"; exit 1; }
status=0
python3 "$here/check.py" "$2/texts" "$2/rtc" >"$2/table.txt" 2>&1 || status=$?
python3 "$here/table.py" "$2/texts" "$2/rtc" ${3+"$3"} >>"$2/table.txt" 2>&1 || status=$?
cat "$2/table.txt"
exit $status
