#!/bin/sh
# Checks that three lists are the same: the functions that the public headers declare, the version map's, and the
# symbols that the built library exports.
#
# usage: check_symbols.sh LIBSPILLWAY.SO
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
library=${1:-$root/build/libspillway.so}
map=$root/src/core/spillway.map

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# SPW_API expands to an attribute; the first name before a parenthesis behind it is the function's.
for header in "$root"/include/spillway/*.h; do
    echo "#include <spillway/${header##*/}>"
done | ${CC:-cc} -E -P -I"$root/include" -x c - | tr '\n' ' ' | grep -o 'visibility("default")[^;]*' |
    awk 'match($0, /spw_[a-z0-9_]+ *[(]/) { print substr($0, RSTART, RLENGTH - 1) }' | sort >"$work/declared"
# The names of every node's global part; the node names themselves are exported as absolute symbols.
sed 's,/\*.*\*/,,' "$map" | tr -s ';{}\n' '\n' | awk '
    $1 == "global:" { on = 1; next } $1 == "local:" { on = 0 } on && NF == 1 { print $1 }' | tr -d ' ' |
    sort >"$work/mapped"
nm -D --defined-only --format=posix "$library" | awk '$2 != "A" { sub(/@.*/, "", $1); print $1 }' |
    sort >"$work/exported"

[ -s "$work/declared" ] || {
    echo "no declaration found in $root/include/spillway"
    exit 1
}
status=0
diff -u --label 'declared in include/' --label "exported by the library" "$work/declared" "$work/exported" || status=1
diff -u --label 'declared in include/' --label 'src/core/spillway.map' "$work/declared" "$work/mapped" || status=1
[ $status = 0 ] && echo "$(wc -l <"$work/exported") symbols, all declared, mapped and exported"
exit $status
