#!/bin/sh
# Tests an installation.  Installs a build into an empty prefix; then builds and runs consumer.c and
# consumer.cpp with find_package and with pkg-config, and the program of the README with pkg-config;
# and with what `weber new` writes.  A second prefix is moved before it is used.  Prints one line
# for each check, as cmocka does.
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
# The shell splits the flags into words.
# shellcheck disable=SC2046,SC2086
by_pkg_config() {
    "$cc" -std=c11 $strict "$here/consumer.c" -o "$work/c" $(pkg-config --cflags --libs weber) &&
        "$cxx" -std=c++17 $strict "$here/consumer.cpp" -o "$work/cxx" \
            $(pkg-config --cflags --libs weber)
}
check pkg_config by_pkg_config
LD_LIBRARY_PATH=$(dirname "$pc")
export LD_LIBRARY_PATH
check pkg_config_c "$work/c"
check pkg_config_cxx in_work "$work/cxx"

# shellcheck disable=SC2046,SC2086
by_pkg_config_static() {
    "$cc" -std=c11 $strict "$here/consumer.c" -o "$work/static" \
        $(pkg-config --cflags --libs weber-static)
}
check pkg_config_static by_pkg_config_static
check pkg_config_static_runs static_runs "$work/static"
mkdir -p "$work/only/lib"
cp "$(dirname "$pc")/libweber.a" "$work/only/lib"
cp -r "$pc" "$work/only/lib"
cp -r "$prefix/include" "$work/only"
# shellcheck disable=SC2046,SC2086
by_pkg_config_alone() {
    "$cc" -std=c11 $strict "$here/consumer.c" -o "$work/alone" \
        $(PKG_CONFIG_PATH="$work/only/lib/pkgconfig" pkg-config --static --cflags --libs weber)
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
        $(pkg-config --cflags --libs weber-mpi weber)
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
    "$cc" -std=c11 "$work/using.c" -o "$work/using" $(pkg-config --cflags --libs weber) &&
        "$work/using"
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
    "$cc" -std=c11 $strict "$work/readme.c" -o "$work/readme" $(pkg-config --cflags --libs weber) &&
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
    make -C "$work/$1" CC="$cc" CXX="$cxx" CFLAGS="$strict" CXXFLAGS="$strict"
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
# A prefix that is moved, whose name has a blank.  Its command is called by its path: PATH and the
# variables of pkg-config, CMake and the dynamic linker do not have it, unless a check sets them.
unset PKG_CONFIG_PATH LD_LIBRARY_PATH CMAKE_PREFIX_PATH weber_DIR
moved="$work/moved there" command="$work/moved there/bin/weber"
moved_lib=$moved${pc#"$prefix"}
moved_lib=${moved_lib%/pkgconfig}
move() { cmake --install "$build" --prefix "$work/second" && mv "$work/second" "$moved"; }
check move move
names_only() {          # the words of pkg-config name the folder and no other prefix
    PKG_CONFIG_PATH=$moved_lib/pkgconfig pkg-config --cflags --libs "$1" >"$work/words" &&
        cat "$work/words" && grep -q "moved..there" "$work/words" &&
        ! grep -E "second|/usr/local|$prefix" "$work/words"
}
with_moved() {          # with_moved PACKAGE PROGRAM: builds the program and runs it
    words=$(PKG_CONFIG_PATH=$moved_lib/pkgconfig pkg-config --cflags --libs "$1") || return 1
    eval "set -- \"$2\" $words"
    program=$1
    shift
    "$cc" -std=c11 "$here/consumer.c" -o "$program" "$@" && LD_LIBRARY_PATH=$moved_lib "$program"
}
check moved_names names_only weber
check moved_shared with_moved weber "$work/by_pc"
if [ -e "$moved_lib/pkgconfig/weber-static.pc" ]; then
    check moved_names_static names_only weber-static
    check moved_static with_moved weber-static "$work/by_static_pc"
    check moved_static_alone static_runs "$work/by_static_pc"
fi
if [ -e "$moved_lib/pkgconfig/weber-mpi.pc" ]; then
    check moved_names_mpi names_only weber-mpi
fi
# CMake's own use of pkg-config takes the folder of the headers from -I.
printf '%s\n' 'cmake_minimum_required(VERSION 3.18)' 'project(p LANGUAGES C)' \
    'find_package(PkgConfig REQUIRED)' 'pkg_check_modules(weber REQUIRED IMPORTED_TARGET weber)' \
    'if(NOT EXISTS "${weber_INCLUDE_DIRS}/weber.h")' 'message(FATAL_ERROR "no headers")' 'endif()' \
    "add_executable(p \"$here/consumer.c\")" 'target_link_libraries(p PkgConfig::weber)' \
    >"$work/only/CMakeLists.txt"
by_modules() {
    PKG_CONFIG_PATH=$moved_lib/pkgconfig cmake -S "$work/only" -B "$work/modules" \
        -DCMAKE_C_COMPILER="$cc" && cmake --build "$work/modules" && "$work/modules/p"
}
check moved_modules by_modules
new_moved() { (cd "$work" && "$command" new "$@"); }
new_by_found_cmake() {
    cmake -S "$work/$1" -B "$work/$1/build" -DCMAKE_C_COMPILER="$cc" \
        -DCMAKE_CXX_COMPILER="$cxx" && cmake --build "$work/$1/build"
}
check moved_new new_moved there_c
check moved_new_cxx new_moved --cxx there_cxx
for program in there_c there_cxx; do
    check ${program}_make new_by_make $program
    check ${program}_make_runs here_learns $program ./$program
    check ${program}_cmake new_by_found_cmake $program
    check ${program}_cmake_runs here_learns $program build/$program
done

# `weber doctor` compiles and runs a program.
doctor() {              # doctor STATUS WORDS...: has this exit status and prints all these words
    expected=$1
    shift
    WEBER_NUM_THREADS=1 CC=$cc "$command" doctor >"$work/doctor" 2>&1
    found=$?
    cat "$work/doctor"
    [ $found = "$expected" ] || return 1
    for words in "$@"; do
        grep -qF -- "$words" "$work/doctor" || { echo "no: $words"; return 1; }
    done
}
doctor_finds() {
    PKG_CONFIG_PATH=$moved_lib/pkgconfig LD_LIBRARY_PATH=$moved_lib CMAKE_PREFIX_PATH=$moved \
        doctor 0 "  pkg-config: a program is built and runs" "  CMake: a program is built and runs"
}
doctor_without_headers() {
    mv "$moved/include" "$moved/away"
    PKG_CONFIG_PATH=$moved_lib/pkgconfig LD_LIBRARY_PATH=$moved_lib doctor 1 "is not built" \
        "weber.h" "The headers are not where \`pkg-config --cflags weber\` names" \
        "The headers are not where its weber-config.cmake is"
    found=$?
    mv "$moved/away" "$moved/include"
    return $found
}
check doctor_finds doctor_finds
check doctor_does_not_find doctor 1 "export PKG_CONFIG_PATH=$moved_lib/pkgconfig" \
    "export weber_DIR=$moved_lib/cmake/weber" "export LD_LIBRARY_PATH=$moved_lib" \
    "-Wl,-rpath,$moved_lib" "  CMake: a program is built and runs"
check doctor_without_headers doctor_without_headers

# Other folders of libraries: below the prefix, as Debian has them, and an absolute path.
pc_of() {               # pc_of NAME LIBDIR: configures with it and installs its files by hand
    tree=$work/$1 folder=$2
    cmake -S "$here/../.." -B "$tree/build" -DWEBER_TESTS=OFF -DWEBER_EXAMPLES=OFF \
        -DWEBER_BENCH=OFF -DWEBER_MPI=OFF -DCMAKE_C_COMPILER="$cc" \
        -DCMAKE_INSTALL_LIBDIR="$folder" -DCMAKE_INSTALL_PREFIX="$tree/prefix" || return 1
    case $folder in
        /*) ;;
        *) folder=$tree/prefix/$folder ;;
    esac
    mkdir -p "$folder/pkgconfig" && cp -r "$prefix/include" "$tree/prefix" &&
        cp "$(dirname "$pc")"/libweber.* "$folder" &&
        cp "$tree/build/weber.pc" "$folder/pkgconfig" &&
        { [ "$1" != deep ] || mv "$tree/prefix" "$tree/moved"; }
}
runs_from() {           # runs_from FOLDER: of libraries
    # shellcheck disable=SC2046
    "$cc" -std=c11 "$here/consumer.c" -o "$1/consumer" \
        $(PKG_CONFIG_PATH="$1/pkgconfig" pkg-config --cflags --libs weber) &&
        LD_LIBRARY_PATH=$1 "$1/consumer"
}
mkdir -p "$work/deep" "$work/absolute/prefix"
check deep_libdir pc_of deep lib/of-a-processor
check deep_libdir_runs runs_from "$work/deep/moved/lib/of-a-processor"
check absolute_libdir pc_of absolute "$work/absolute/libraries"
check absolute_libdir_runs runs_from "$work/absolute/libraries"

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
