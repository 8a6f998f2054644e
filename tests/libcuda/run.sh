#!/bin/sh
# usage: run.sh LIBRARY COMMAND...: runs COMMAND where LIBRARY is the libcuda.so.1 that the dynamic linker finds.
set -eu
library=$(realpath "$1")
shift
folder=$(mktemp -d "${TMPDIR:-/var/tmp}/spillway-libcuda.XXXXXX")
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
ln -s "$library" "$folder/libcuda.so.1"
LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$@"
