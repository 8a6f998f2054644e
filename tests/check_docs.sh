#!/bin/sh
# Checks the documentation against the code: every command that README.md and docs/*.md show as ```sh runs and succeeds,
# the C examples of README.md and docs/groups.md are docs/example.c and docs/example_groups.c, which the build compiles
# and runs, and every link to a file finds it.
#
# Commands run from a folder that holds links to the checkout's files, with build/ being BUILD. A block whose line above
# is `<!-- not run: REASON -->` is left out.
#
# usage: check_docs.sh [BUILD]
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
build=$(CDPATH='' cd -- "${1:-$root/build}" && pwd)

work=$(mktemp -d "${TMPDIR:-/var/tmp}/spillway-docs.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# blocks LANGUAGE FILE: writes each fenced block of FILE that is to be run to a file in $work/blocks.
blocks() {
    rm -rf "$work/blocks"
    mkdir "$work/blocks"
    awk -v language="$1" -v folder="$work/blocks" '
        !inside && /^```/ {
            inside = 1
            wanted = $0 == "```" language && !skip
            path = sprintf("%s/%04d", folder, NR + 1)
            if (wanted) printf "" >path
            next
        }
        inside && /^```/ { inside = 0; skip = 0; if (wanted) close(path); next }
        inside { if (wanted) print >path; next }
        /^<!-- not run: [^ ].* -->$/ { skip = 1; next }
        NF { skip = 0 }' "$2"
}

failed=0
ran=0
mkdir "$work/checkout"
for entry in "$root"/*; do
    name=${entry##*/}
    case $name in build*) ;; *) ln -s "$entry" "$work/checkout/$name" ;; esac
done
ln -s "$build" "$work/checkout/build"

cd "$root"
for file in README.md docs/*.md; do
    [ -e "$file" ] || continue
    blocks sh "$file"
    for block in "$work"/blocks/*; do
        [ -e "$block" ] || continue
        ran=$((ran + 1))
        if ! (cd "$work/checkout" && sh -eu "$block") >"$work/said" 2>&1 </dev/null; then
            failed=$((failed + 1))
            echo "FAIL: $file:${block##*/}: these commands failed:"
            sed 's/^/    /' "$block"
            echo "  with the output:"
            tail -n 20 "$work/said" | sed 's/^/    /'
        fi
    done
done

for file in *.md docs/*.md; do
    grep -o ']([^)#:]*[)#]' "$file" | sed 's/^](//; s/.$//' | sort -u >"$work/links" || :
    while read -r link; do
        [ -z "$link" ] || [ -e "$(dirname "$file")/$link" ] && continue
        failed=$((failed + 1))
        echo "FAIL: $file links to $link, which is not there"
    done <"$work/links"
done

# shows FILE EXAMPLE: the C code that FILE shows is EXAMPLE.
shows() {
    blocks c "$root/$1"
    cat "$work"/blocks/* >"$work/example.c" 2>/dev/null || :
    diff -u --label "$1" --label "$2" "$work/example.c" "$root/$2" && return
    failed=$((failed + 1))
    echo "FAIL: the C example of $1 is not $2"
}
shows README.md docs/example.c
shows docs/groups.md docs/example_groups.c
echo "$ran blocks of commands ran, $failed failures"
[ "$failed" = 0 ]
