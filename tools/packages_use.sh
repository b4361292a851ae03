#!/bin/sh
# Uses the installed packages as a program of a user does: in a root of tools/packages.sh, with the
# programs of tests/consumer in /check/consumer.  Prints one line for each check, as cmocka does.
set -u
cd /check || exit 1
status=0
check() {
    name=$1
    shift
    if "$@" >log 2>&1; then
        echo "[       OK ] $name"
    else
        cat log
        echo "[  FAILED  ] $name"
        status=1
    fi
}
strict="-std=c11 -Wall -Wextra -pedantic -Werror"
needs() { readelf -d "$1" | grep "NEEDED.*libweber\\.so"; }
is_static() { ./"$1" && ! needs "$1"; }

# The shell splits the flags into words.
# shellcheck disable=SC2046,SC2086
by_pkg_config() { cc $strict consumer/consumer.c -o shared $(pkg-config --cflags --libs weber); }
# shellcheck disable=SC2046,SC2086
by_pkg_config_static() {
    cc $strict consumer/consumer.c -o static \
        $(pkg-config --cflags --libs weber-static)
}
version=$(awk '/define WB_VERSION_M/ { printf "%s%s", dot, $3; dot = "." }' \
    /usr/include/weber/base.h)
by_cmake() { cmake -S "consumer/$1" -B "$2" -DVERSION="$version" && cmake --build "$2"; }
new() { weber new x && make -C x && (cd x && ./x); }
doctor() { weber doctor && ! weber doctor | grep 'no: .* build Weber again'; }
# shellcheck disable=SC2046,SC2086
ranks() {
    cc $strict consumer/ranks/ranks.c -o "$1" $(pkg-config --cflags --libs "$1" weber) &&
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
            "mpirun$2" $3 -np 2 "./$1"
}

check pkg_config by_pkg_config
check pkg_config_runs ./shared
check pkg_config_needs_library needs shared
check pkg_config_static by_pkg_config_static
check pkg_config_static_runs is_static static
check cmake by_cmake . built
check cmake_c built/consumer_c
check cmake_cxx built/consumer_cxx
check cmake_static is_static built/consumer_static
check new new
check doctor doctor
check devices_names_mpi sh -c "weber devices | grep 'ranks: MPI: .*, in libweber-mpi.so'"
check ranks ranks weber-mpi "" --oversubscribe
check ranks_openmpi ranks weber-mpi-openmpi .openmpi --oversubscribe
check ranks_mpich ranks weber-mpi-mpich .mpich ""
check cmake_ranks by_cmake ranks built-ranks
check manual_page test -s /usr/share/man/man1/weber.1.gz
exit $status
