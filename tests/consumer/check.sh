#!/bin/sh
# Tests an installation.  Installs a build into an empty prefix; then builds and runs consumer.c and
# consumer.cpp with find_package and with pkg-config, and the program of the README with pkg-config.
# Prints one line for each check, as cmocka does.
#
#   check.sh BUILD_FOLDER THIS_FOLDER C_COMPILER CXX_COMPILER
set -u
build=$1 here=$2 cc=$3 cxx=$4
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
version=$(awk '/define WB_VERSION_M/ { printf "%s%s", dot, $3; dot = "." }' \
    "$here/../../include/weber/base.h")
status=0
check() {
    name=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        echo "[       OK ] $name"
    else
        cat "$work/log"
        echo "[  FAILED  ] $name"
        status=1
    fi
}

in_work() { (cd "$work" && "$@"); }           # it writes a log there
check install cmake --install "$build" --prefix "$prefix"

by_cmake() {
    cmake -S "$here" -B "$work/build" -DVERSION="$version" \
        -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" \
        -DCMAKE_BUILD_TYPE=Release && cmake --build "$work/build"
}
check find_package by_cmake
check find_package_c "$work/build/consumer_c"
check find_package_cxx in_work "$work/build/consumer_cxx"
# A program that does not need libweber.so
static_runs() { ! readelf -d "$1" | grep "NEEDED.*libweber" && "$1"; }
check find_package_static static_runs "$work/build/consumer_static"
# Where no library is found that it needs
echo 'set(CMAKE_FIND_LIBRARY_SUFFIXES .none)' >"$work/none.cmake"
no_static() {
    ! cmake -S "$here" -B "$work/none" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
        -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PROJECT_consumer_INCLUDE="$work/none.cmake" \
        >"$work/refusal" 2>&1 &&
        tr -s ' \n' ' ' <"$work/refusal" | grep "The static library needs lib"
}
if grep "^Libs.private:.* -lz" "$(find "$prefix" -name weber.pc)" >"$work/log"; then
    check find_package_no_static no_static
fi

pc=$(dirname "$(find "$prefix" -name weber.pc)")
PKG_CONFIG_PATH=$pc
export PKG_CONFIG_PATH
strict="-Wall -Wextra -pedantic -Werror"
# weber.pc names the prefix of the build; the variables replace it by the empty prefix.
pkg() { pkg-config --define-variable=prefix="$prefix" --define-variable=libdir="$(dirname "$pc")" \
    --define-variable=includedir="$prefix/include" "$@"; }
# The shell splits the flags into words.
# shellcheck disable=SC2046,SC2086
by_pkg_config() {
    "$cc" -std=c11 $strict "$here/consumer.c" -o "$work/c" $(pkg --cflags --libs weber) &&
        "$cxx" -std=c++17 $strict "$here/consumer.cpp" -o "$work/cxx" $(pkg --cflags --libs weber)
}
check pkg_config by_pkg_config
LD_LIBRARY_PATH=$(dirname "$pc")
export LD_LIBRARY_PATH
check pkg_config_c "$work/c"
check pkg_config_cxx in_work "$work/cxx"

# shellcheck disable=SC2046,SC2086
by_pkg_config_static() {
    "$cc" -std=c11 $strict "$here/consumer.c" -o "$work/static" \
        $(pkg --cflags --libs weber-static)
}
check pkg_config_static by_pkg_config_static
check pkg_config_static_runs static_runs "$work/static"
mkdir "$work/only"
cp "$(dirname "$pc")/libweber.a" "$work/only"
# shellcheck disable=SC2046,SC2086
by_pkg_config_alone() {
    "$cc" -std=c11 $strict "$here/consumer.c" -o "$work/alone" \
        $(pkg --define-variable=libdir="$work/only" --static --cflags --libs weber)
}
check pkg_config_only_static by_pkg_config_alone
check pkg_config_only_static_runs static_runs "$work/alone"

# A program of ranks, with the MPI whose compiler is mpicc.
by_cmake_ranks() {
    cmake -S "$here/ranks" -B "$work/ranks" -DVERSION="$version" -DCMAKE_PREFIX_PATH="$prefix" \
        -DCMAKE_C_COMPILER="$cc" && cmake --build "$work/ranks"
}
# shellcheck disable=SC2046,SC2086
by_pkg_config_ranks() {
    "$cc" -std=c11 $strict "$here/ranks/ranks.c" -o "$work/ranks_pc" \
        $(pkg --cflags --libs weber-mpi weber)
}
of_ranks() {
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        OMPI_MCA_rmaps_base_oversubscribe=1 mpirun -np 2 "$1"
}
names_ranks() { "$prefix/bin/weber" devices | grep "ranks: MPI: .*, in libweber-mpi.so"; }
if [ -e "$pc/weber-mpi.pc" ]; then
    check find_package_mpi by_cmake_ranks
    check find_package_mpi_runs of_ranks "$work/ranks/ranks"
    check pkg_config_mpi by_pkg_config_ranks
    check pkg_config_mpi_runs of_ranks "$work/ranks_pc"
    check devices_names_mpi names_ranks
else
    check devices_names_no_mpi sh -c "'$prefix/bin/weber' devices | grep 'ranks: MPI: not built in'"
fi

# The installed library and command have the backends and are not linked with a vendor's library.
unset WEBER_BACKENDS
has_backends() {
    "$prefix/bin/weber" devices >"$work/devices"
    ! grep -E "^(CUDA|OpenCL) +not built in" "$work/devices" || { cat "$work/devices"; return 1; }
    echo '#include <weber.h>
          int main(void) { return wb_using("OpenCL") || wb_using("CUDA"); }' >"$work/using.c"
    # shellcheck disable=SC2046
    "$cc" -std=c11 "$work/using.c" -o "$work/using" $(pkg --cflags --libs weber) && "$work/using"
}
links_no_driver() {
    for file in "$(dirname "$pc")/libweber.so" "$prefix/bin/weber"; do
        readelf -d "$file" >"$work/needs" || return 1
        ! grep NEEDED "$work/needs" | grep -iE "opencl|cuda|nvrtc|cublas|cudnn|clblast" || return 1
    done
}
cache=$build/CMakeCache.txt
if grep -q "WEBER_CUDA:BOOL=ON" "$cache" && grep -q "WEBER_OPENCL:BOOL=ON" "$cache"; then
    check has_backends has_backends
fi
check links_no_driver links_no_driver

# The first block of the README is a program, the second its output.
block() {
    awk -v number="$1" '/^```/ { n += open ? 0 : 1; open = !open; next } open && n == number' \
        "$here/../../README.md"
}
block 1 >"$work/readme.c"
block 2 >"$work/expected"
# shellcheck disable=SC2046,SC2086
readme() {
    "$cc" -std=c11 $strict "$work/readme.c" -o "$work/readme" $(pkg --cflags --libs weber) &&
        "$work/readme" >"$work/printed" && diff "$work/expected" "$work/printed"
}
check readme readme

# `weber new`: what it writes is built in both ways, and learns.
new() { (cd "$work" && "$prefix/bin/weber" new "$@"); }
learns() {
    "$@" >"$work/printed" && cat "$work/printed" &&
        grep -E "held out: (9[5-9]|100)\.[0-9] % right" "$work/printed"
}
here_learns() { (cd "$work/$1" && shift && learns "$@"); }
new_by_make() {
    make -C "$work/$1" CC="$cc" CXX="$cxx" CFLAGS="$strict" CXXFLAGS="$strict" \
        PKG_CONFIG="pkg-config --define-variable=prefix=$prefix \
            --define-variable=libdir=$(dirname "$pc") \
            --define-variable=includedir=$prefix/include"
}
new_by_cmake() {
    cmake -S "$work/$1" -B "$work/$1/build" -DCMAKE_PREFIX_PATH="$prefix" \
        -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" && cmake --build "$work/$1/build"
}
for program in of_c of_cxx; do
    if [ $program = of_c ]; then
        check new_c new of_c
    else
        check new_cxx new --cxx of_cxx
    fi
    check ${program}_make new_by_make $program
    check ${program}_make_runs here_learns $program ./$program
    check ${program}_cmake new_by_cmake $program
    check ${program}_cmake_runs here_learns $program build/$program
    awk 'BEGIN { print "a,b,class"; for (i = 0; i < 400; i++)
                 print i "," i % 7 "," (i < 200 ? "x" : "y") }' >"$work/$program/data.csv"
    check ${program}_csv here_learns $program ./$program data.csv
    check ${program}_show "$prefix/bin/weber" show "$work/$program/model.safetensors"
done
refuses() {
    words=$1
    shift
    ! new "$@" >"$work/refused" 2>&1 && cat "$work/refused" && grep -q "$words" "$work/refused"
}
check new_existing refuses "of_c: File exists" of_c
check new_taken refuses "name is that of a target" test
for name in build CMakeFiles makefile; do
    check new_taken_$name refuses "name is that of a file" $name
done
check new_letter refuses "begins with a letter" 1st
check new_name refuses "letters, digits" "two words"
check new_folder refuses "No such file" no/such
check new_option refuses "weber new" --zig x
check new_nothing refuses "weber new"
no_traces() {
    for name in test CMakeFiles makefile 1st "two words" x; do
        [ ! -e "$work/$name" ] || return 1
    done
}
check new_leaves_nothing no_traces
exit $status
