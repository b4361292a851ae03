#!/bin/sh
# Kernel texts through every compiler that is here: check.sh GPU_TEXTS FOLDER.  GPU_TEXTS is the built
# tests/gpu_texts, which writes them; FOLDER gets them, the little compiler driver and the table.
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
