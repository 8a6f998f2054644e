#!/bin/sh
# Sets up this machine, builds in build/, and runs all tests but the long campaigns (meson test -C build --suite long).
# Ends with the test runner's own summary. Arguments go to `meson test`: `sh tests/run.sh --suite unit`.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
sh "$root/tests/setup.sh"
exec meson test -C "$root/build" --no-rebuild --no-suite long --print-errorlogs "$@"
