#!/bin/sh
# Set-up for tests/run.sh and bench/demo.sh: installs what is missing, configures build/ in the checkout, and builds.
#
# usage: setup.sh [TARGET...]     (ninja's; without one, everything)
#
# Looks for the tools and libraries themselves, not for Debian's packages, so that nothing is installed, and the network
# is not touched, where they came from elsewhere. Says nothing when nothing is to be done.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
build=$root/build

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

# need PACKAGE COMMAND...: PACKAGE is missing unless COMMAND succeeds.
missing=
need() {
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}

compiles() {
    echo '#include <stdio.h>' | "${CC:-cc}" -E - >/dev/null
}

need gcc command -v "${CC:-cc}"
need g++ command -v "${CXX:-c++}"
need libc6-dev compiles
need meson command -v meson
need ninja-build command -v ninja
need pkg-config command -v pkg-config
need liburing-dev pkg-config --exists liburing
need libxxhash-dev pkg-config --exists libxxhash
need check pkg-config --exists check
need libjemalloc-dev pkg-config --exists jemalloc
need jq command -v jq

log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM

# quietly WHAT COMMAND...: shows what COMMAND said only when it fails.
quietly() {
    what=$1
    shift
    "$@" >"$log" 2>&1 </dev/null || {
        cat "$log" >&2
        fail "$what failed: the messages are above."
    }
}

if [ -n "$missing" ]; then
    command -v apt-get >/dev/null 2>&1 || fail \
        "Missing on this machine (names of Debian's packages):$missing" \
        "There is no apt-get here: install them by this system's own means, then run the command again."
    [ "$(id -u)" = 0 ] || fail \
        "Missing on this machine:$missing" \
        "Run this line, then the command again:" \
        "  sudo apt-get update && sudo apt-get install -y --no-install-recommends$missing"
    echo "Installing:$missing"
    quietly 'apt-get update' apt-get update
    # shellcheck disable=SC2086 # a list of words
    quietly 'apt-get install' env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
fi

# A build folder that was configured elsewhere (a moved or copied checkout) would build that other tree.
configured() {
    [ -e "$build/build.ninja" ] &&
        [ "$(jq -r .directories.source "$build/meson-info/meson-info.json" 2>/dev/null)" = "$root" ]
}
if ! configured; then
    echo "Configuring and building in $build: this takes a minute."
    rm -rf "$build"
    quietly "Configuring $build" meson setup "$build" "$root"
fi
quietly "Building in $build" ninja -C "$build" --quiet "$@"
# A compiler's warning is worth seeing; the rest, a new configuration included, is not.
if grep -q ' warning: ' "$log"; then cat "$log"; fi
