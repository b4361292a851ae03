#!/bin/sh
# Checks the packages of Debian: builds them in a bare root of each release, installs them in
# another, builds and runs programs there, and removes them.  Called by ./run packages --check.
#
#   packages.sh [--must] [RELEASE...]     RELEASE: bookworm and trixie, which are Debian 12 and 13
#
# Without root, unshare, debootstrap or an answer of the package server it prints NOT CHECKED, which
# is an error with --must only.  All else that does not work is FAILED.
#
# A bare root is what debootstrap makes of the variant minbase.  build/roots/RELEASE.tar keeps it;
# WEBER_ROOTS names another folder of such archives, WEBER_DEBIAN_MIRROR another server.  Each
# release builds its own packages, because the versions of oneDNN, libzip and Open MPI differ; they
# are in build/packages/RELEASE/ in the end, with the logs.
#
# What is compared before the installation and after the removal is every path of the root, except
# STATE.  The packages that ours depend on are installed before.  Needs root.  Every command in a
# root has its own mounts and processes, which end with it; compilations use the cache of ccache.
#
# set -e is off in functions that `||` follows, so they join their commands with &&.
#
# The shell splits $apt and the lists of packages into words.
# shellcheck disable=SC2086
set -eu
cd "$(dirname "$0")/.."
must='' releases=''
for word in "$@"; do
    case $word in
        --must) must=1 ;;
        bookworm | trixie) releases="$releases $word" ;;
        *) echo "packages.sh: $word is neither --must nor bookworm nor trixie" >&2; exit 2 ;;
    esac
done
releases=${releases:-bookworm trixie}
failed='' missing=''
ours="libweber libweber-dev weber weber-mpi"
tools="gcc g++ libc6-dev make cmake pkg-config openmpi-bin mpich"
# Paths not compared: the package managers' state, /check and /home.
STATE='^/(var/lib/dpkg|var/lib/apt|var/cache/(apt|ldconfig)|var/log|check|home)(/|$)'

have() { command -v "$1" >/dev/null 2>&1; }
info() { printf '%s\n' "$*"; }
not_checked() { info "NOT CHECKED: $1: $2"; missing="$missing $1"; }

# in_root ROOT COMMAND...: runs a command with /proc, /dev and, where ccache is here, its folder.
in_root() {
    root=$1
    shift
    # The text is for the shell inside.
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child sh -eu -c '
        root=$1
        shift
        mount --make-rprivate /
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs shm "$root/dev/shm"
        [ -z "$WEBER_CCACHE" ] || mount --bind "$WEBER_CCACHE" "$root/ccache"
        exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/home LC_ALL=C \
            DEBIAN_FRONTEND=noninteractive "$@"' sh "$root" "$@"
}

apt="apt-get -qq -y -o Acquire::Retries=2 --no-install-recommends"

# step NAME COMMAND...: prints a line; shows the end of the log if the command fails.
step() {
    name=$1 begin=$(date +%s)
    shift
    if "$@" >>"$log" 2>&1; then
        printf '%-10s %-28s %5d s\n' "$release" "$name" $(($(date +%s) - begin))
    else
        tail -n 30 "$log"
        info "FAILED: $release: $name (log: $log)"
        failed="$failed $release:$(echo "$name" | tr ' ' '-')"
        return 1
    fi
}

# empty FOLDER: makes it anew.  What is mounted there stays.
empty() { rm -rf --one-file-system "$1" && mkdir -p "$1"; }

# strap FOLDER OPTION...: runs debootstrap with mounts and processes of its own.
strap() {
    folder=$1
    shift
    unshare --mount --propagation private --pid --fork --kill-child --mount-proc \
        debootstrap --variant=minbase "$@" "$release" "$folder" \
        "${WEBER_DEBIAN_MIRROR:-http://deb.debian.org/debian}"
}

keep() {
    mkdir -p "$(dirname "$2")" && tar -C "$1" -cf "$2.$$" . && mv "$2.$$" "$2" && return 0
    rm -f "$2.$$"
    return 1
}

unpack() {
    empty "$2" && tar -C "$2" -xf "$1" &&
        mkdir -p "$2/ccache" "$2/check" "$2/home" "$2/dev/shm" &&
        cp -L /etc/resolv.conf "$2/etc/resolv.conf" && in_root "$2" true
}

# bare FOLDER: makes a folder the bare root of the release.
bare() {
    archive=${WEBER_ROOTS:-build/roots}/$release.tar
    if [ ! -e "$archive" ]; then
        have debootstrap || { not_checked "$release" "there is no debootstrap"; return 1; }
        info "Making the bare root of $release (log: $log)"
        step "folder is empty" empty "$1" || return 1
        strap "$1" --download-only >>"$log" 2>&1 || {
            tail -n 5 "$log"
            not_checked "$release" "debootstrap could not download the packages"
            return 1
        }
        step "bare root is made" strap "$1" && step "bare root is kept" keep "$1" "$archive" ||
            return 1
    fi
    step "bare root is unpacked" unpack "$archive" "$1" || return 1
    in_root "$1" $apt update -o APT::Update::Error-Mode=any >>"$log" 2>&1 ||
        { tail -n 5 "$log"; not_checked "$release" "no package server answers"; return 1; }
}

# The names of the source files
sources() {
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files -co --exclude-standard | while read -r file; do
            [ ! -e "$file" ] || printf '%s\n' "$file"
        done
    else
        find . -path './build*' -prune -o -type f -print
    fi
}

build() {
    sources >"$debs/sources" && tar -cf "$debs/sources.tar" -T "$debs/sources" &&
        tar -C "$1/check" -xf "$debs/sources.tar" && rm "$debs/sources" "$debs/sources.tar" ||
        return 1
    launcher='' size=''
    if [ -n "$WEBER_CCACHE" ]; then
        in_root "$1" $apt install ccache || return 1
        launcher=ccache size=$(ccache -k max_size)
    fi
    in_root "$1" env SOURCE_DATE_EPOCH="$epoch" CMAKE_C_COMPILER_LAUNCHER=$launcher \
        CCACHE_DIR=/ccache CCACHE_MAXSIZE="$size" CCACHE_BASEDIR=/check CCACHE_NOHASHDIR=1 \
        /check/run packages &&
        cp "$1"/check/build/packages/*.deb "$debs/"
}

paths() { find "$1" -xdev -printf '/%P\n' | grep -vE "$STATE" | sort; }

# apt must find everything that ours depend on.
dependencies() {
    cp "$debs"/*.deb "$1/check/" &&
        in_root "$1" sh -c "$apt install -s /check/*.deb" >"$1/check/simulated" &&
        others=$(sed -n 's/^Inst \([^ ]*\).*/\1/p' "$1/check/simulated" |
            grep -vxE "$(echo "$ours" | tr ' ' '|')") &&
        in_root "$1" $apt install $others $tools && paths "$1" >"$debs/before"
}

install_ours() {
    in_root "$1" sh -c "$apt install /check/*.deb" &&
        paths "$1" >"$debs/between" && ! cmp -s "$debs/before" "$debs/between"
}

remove_ours() {
    in_root "$1" $apt purge $ours && paths "$1" >"$debs/after" &&
        diff "$debs/before" "$debs/after"
}

one_release() {
    release=$1 debs=$PWD/build/packages/$1
    work=build/packages-check/$1
    rm -rf "$debs"
    mkdir -p "$debs" "$work"
    log=$debs/check.log
    bare "$work/build" || return 0
    step "packages are built" build "$work/build" || return 0
    rm -rf --one-file-system "$work/build"
    bare "$work/use" || return 0
    step "dependencies are found" dependencies "$work/use" &&
        step "packages are installed" install_ours "$work/use" || return 0
    cp -r tests/consumer tools/packages_use.sh "$work/use/check/"
    if in_root "$work/use" sh /check/packages_use.sh >"$debs/use.log" 2>&1; then :
    else failed="$failed $1:programs"
    fi
    cat "$debs/use.log" >>"$log"
    grep -E '^\[ ' "$debs/use.log" | sed "s/^/$1    /"
    grep -q 'FAILED' "$debs/use.log" && cat "$debs/use.log"
    step "nothing is left" remove_ours "$work/use" || return 0
    rm -rf --one-file-system "$work"
}

if [ "$(id -u)" != 0 ]; then
    not_checked packages "this needs root"
elif ! have unshare; then
    not_checked packages "there is no unshare (util-linux)"
else
    WEBER_CCACHE=
    ! have ccache || WEBER_CCACHE=$(ccache -k cache_dir)
    [ -z "$WEBER_CCACHE" ] || mkdir -p "$WEBER_CCACHE"
    export WEBER_CCACHE
    epoch=$(git log -1 --format=%ct 2>/dev/null || date +%s)
    for one in $releases; do one_release "$one"; done
fi
[ -z "$failed" ] || info "FAILED:$failed"
[ -z "$missing" ] || info "NOT CHECKED:$missing"
[ -z "$failed" ] && { [ -z "$missing" ] || [ -z "$must" ]; }
