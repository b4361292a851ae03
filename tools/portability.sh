#!/bin/sh
# Checks that Weber builds beyond glibc on x86-64.  ./run portability installs what this needs.
#
#   portability.sh [--must]      --must: a check whose tools are missing fails
#
# musl      libweber, the command and a set of tests are built with musl-gcc and run.
# aarch64   The same for 64-bit ARM, with Debian's cross compiler; the tests run in qemu-user.  They
#           have every operation and layer, on fewer shapes (WEBER_TEST_FEWER).
# macos     clang compiles every source of the library, the command and the examples for macOS on
#           arm64, and every source of the library for macOS on x86-64, with the headers of
#           portability/macos-headers.txt.  lld links the library, the command and the examples for
#           arm64.  This proves that the sources use only what these headers declare, and that
#           neither CMakeLists.txt nor the sources need GNU's linker or Linux.  It does not prove
#           that Apple's headers agree, with which they were not compared, that Apple's tools accept
#           the options, or that anything works on macOS: nothing is run.
#
# All builds are without zlib, oneDNN, libbson, libzip and utf8proc, whose versions for these
# systems Debian does not have, or only beside the machine's own packages.  The results are in
# build-portable/.
set -eu
cd "$(dirname "$0")/.."
here=tools/portability root=build-portable
must=
[ "${1-}" != --must ] || must=1
mkdir -p $root
missing='' failed='' folders=''

have() { command -v "$1" >/dev/null 2>&1; }
cores() { nproc 2>/dev/null || getconf _NPROCESSORS_ONLN; }
seconds() { date +%s; }

# not_checked NAME TOOL: prints what is missing.
not_checked() {
    printf 'NOT CHECKED: %s: there is no %s\n' "$1" "$2"
    missing="$missing $1"
}

# build NAME TARGETS OPTION...: configures and builds the targets (words) in $root/NAME.
build() {
    name=$1 targets=$2 begin=$(seconds)
    shift 2
    folder=$root/$name
    mkdir -p "$folder"
    generator=
    [ -e "$folder/CMakeCache.txt" ] || ! have ninja || generator="-G Ninja"
    # The shell splits $generator and $targets into words.
    # shellcheck disable=SC2086
    if cmake -S . -B "$folder" $generator -DCMAKE_BUILD_TYPE=Release -DWEBER_WERROR=ON \
        -DWEBER_BENCH=OFF -DWEBER_TEST_DEVICES=OFF -DWEBER_ZLIB=OFF -DWEBER_ONEDNN=OFF \
        -DWEBER_BSON=OFF -DWEBER_ZIP=OFF -DWEBER_UTF8PROC=OFF "$@" >"$folder/build.log" 2>&1 &&
        cmake --build "$folder" -j "$(cores)" --target $targets >>"$folder/build.log" 2>&1; then
        printf '%-14s built in %d s\n' "$name" $(($(seconds) - begin))
        return 0
    fi
    tail -n 40 "$folder/build.log" | cut -c 1-400
    printf '%s: the build failed (log: %s/build.log)\n' "$name" "$folder"
    failed="$failed $name"
    return 1
}

# run_tests NAME PROGRAMS: runs the programs (words) of $root/NAME by ctest.
run_tests() {
    folder=$root/$1 begin=$(seconds)
    # shellcheck disable=SC2086
    names=$(printf '%s|' $2)
    rm -f "$folder/results.xml"
    ctest --test-dir "$folder" -R "^(${names%|})\$" -j "$(cores)" --output-junit results.xml \
        --timeout 120 --test-output-size-passed 10000000 --test-output-size-failed 10000000 \
        >"$folder/test.log" 2>&1 || true
    folders="$folders $folder"
    printf '%-14s tested in %d s\n' "$1" $(($(seconds) - begin))
}

# ---- musl ----------------------------------------------------------------------------------------

# What depends on the C library: files, processes, threads and their stacks, numbers as text,
# locales, mathematical functions; and one training.
musl_tests="base_core base_dtype base_file base_philox scalar toml conformance crash checkpoints
cli_files data_loader device_command engine_numerics io_csv io_idx io_json io_model io_npy
io_safetensors nn_layers train_loop"

musl() {
    have musl-gcc || { not_checked musl musl-gcc; return 0; }
    build musl "weber weber_cli weber_fakes $(echo $musl_tests)" -DCMAKE_C_COMPILER=musl-gcc \
        -DCMAKE_C_FLAGS_RELEASE="-O1 -DNDEBUG" -DWEBER_CPU_LEVEL=-O1 -DWEBER_X86_ISA=OFF \
        -DWEBER_EXAMPLES=OFF -DWEBER_TESTS=ON -DCMAKE_DISABLE_FIND_PACKAGE_Python3=ON || return 0
    run_tests musl "$musl_tests"
}

# ---- aarch64 -------------------------------------------------------------------------------------

arm_tests="base_core base_dtype base_file base_philox toml conformance conformance_product
conformance_shape cpu_lib cpu_tile cpu_tile_rows engine_semantics engine_values io_model
io_safetensors nn_activations nn_layers nn_loss_options nn_losses optim_rules train_loop"

aarch64() {
    have aarch64-linux-gnu-gcc || { not_checked aarch64 aarch64-linux-gnu-gcc; return 0; }
    have qemu-aarch64 || { not_checked aarch64 qemu-aarch64; return 0; }
    build aarch64 "weber weber_cli $(echo $arm_tests)" -DWEBER_TESTS=ON -DWEBER_EXAMPLES=OFF \
        "-DCMAKE_TOOLCHAIN_FILE=$PWD/$here/aarch64.cmake" "-DCMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG" \
        -DCMAKE_DISABLE_FIND_PACKAGE_Python3=ON || return 0
    WEBER_TEST_FEWER=13                 # has no factor in common with the cycles of the tests
    export WEBER_TEST_FEWER
    run_tests aarch64 "$arm_tests"
    unset WEBER_TEST_FEWER
}

# ---- macOS ---------------------------------------------------------------------------------------

# Writes the headers of macos-headers.txt into a folder, and the names of their functions into the
# list that lld links with in the place of macOS's libSystem.
macos_system() {
    awk -v to="$1/include" '
        /^==== / {
            file = to "/" $2
            folder = file
            sub("/[^/]*$", "", folder)
            system("mkdir -p " folder)
            printf "" >file
            next
        }
        file { print >file }' $here/macos-headers.txt
    mkdir -p "$1/usr/lib"
    awk -v targets="[ arm64-macos, x86_64-macos ]" '
        BEGIN {
            print "--- !tapi-tbd\ntbd-version: 4\ntargets: " targets
            print "install-name: /usr/lib/libSystem.B.dylib\nexports:"
            printf "  - targets: %s\n    symbols: [ dyld_stub_binder", targets
        }
        /^#/ || !headers && !/^====/ { next }
        /^====/ { headers = 1; next }
        /^(ONE|TWO)_\(/ {           # a function for double, float and long double
            gsub("(ONE|TWO)_", "")
            gsub("[()]", "")
            for (i = 1; i <= NF; i++) printf ", _%s, _%sf, _%sl", $i, $i, $i
            next
        }
        /^extern [^(]*;/ { gsub("[*;,]", ""); for (i = 3; i <= NF; i++) printf ", _%s", $i }
        {
            line = $0
            while (match(line, /[A-Za-z_][A-Za-z_0-9]*\(/)) {
                name = substr(line, RSTART, RLENGTH - 1)
                if (name !~ /^__(attribute|printflike|scanflike)/) printf ", _%s", name
                line = substr(line, RSTART + RLENGTH)
            }
        }
        END { print " ]\n..." }' $here/macos-headers.txt >"$1/usr/lib/libSystem.tbd"
    cp "$1/usr/lib/libSystem.tbd" "$1/usr/lib/libm.tbd"
}

macos() {
    have clang || { not_checked macos clang; return 0; }
    system=$PWD/$root/macos-system
    macos_system "$system"
    targets=all
    for tool in ld64.lld llvm-ar; do
        case $(clang -print-prog-name=$tool) in
            /*) ;;
            *) not_checked "macos (linking)" "$tool"; targets=weber_objects ;;
        esac
    done
    toolchain="-DCMAKE_TOOLCHAIN_FILE=$PWD/$here/macos.cmake -DWEBER_MACOS=$system"
    # -O0: the code is not run.
    # shellcheck disable=SC2086
    build macos-arm64 "$targets" $toolchain -DWEBER_ARCH=arm64 -DWEBER_TESTS=OFF \
        -DCMAKE_C_FLAGS_RELEASE=-O0 -DWEBER_CPU_LEVEL=-O0 || true
    # shellcheck disable=SC2086
    build macos-x86_64 weber_objects $toolchain -DWEBER_ARCH=x86_64 -DWEBER_TESTS=OFF \
        -DCMAKE_C_FLAGS_RELEASE=-fsyntax-only || true
}

macos
musl
aarch64
status=0
# shellcheck disable=SC2086
[ -z "$folders" ] || python3 tools/count_tests.py $folders || status=1
[ -z "$failed" ] || { printf 'FAILED:%s\n' "$failed"; status=1; }
[ -z "$missing" ] || { printf 'NOT CHECKED:%s\n' "$missing"; [ -z "$must" ] || status=1; }
exit $status
