#!/bin/bash
# A campaign of every target (or of one) with libFuzzer and AddressSanitizer.
#
#     fuzz.sh PROGRAM WORK SECONDS RUNS [TARGET...]
#
# Each target runs SECONDS, or RUNS inputs if that is sooner. WORK keeps what was learned for the next time, and the inputs
# that have failed. Ends with an error if one fails, hangs for 5 s or takes 256 MiB; or if the planted mistake is not found.
# MERGE=1 puts what covers more into the repository's corpus at the end.
set -euo pipefail
program=$1 work=$2 seconds=$3 runs=$4
shift 4
here=$(cd "$(dirname "$0")" && pwd)
export SWIFT_BACKTRACE=enable=no
# What is freed and kept by the sanitizer counts as memory: little of it.
export ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16
mkdir -p "$work/corpus" "$work/failed" "$work/log"
"$program" --write-seeds="$work/seeds" >/dev/null

limits=(-timeout=5 -rss_limit_mb=256 -print_final_stats=1 -verbosity=0 -close_fd_mask=1)

# The harness must be able to fail.
mkdir -p "$work/corpus/canary"
if "$program" --target=canary "${limits[@]}" -max_len=64 -max_total_time=60 -artifact_prefix="$work/canary-" \
    "$work/corpus/canary" >"$work/log/canary" 2>&1; then
    echo "fuzz: the planted mistake was not found" >&2
    exit 1
fi
grep -q "reads byte" "$work/log/canary" || { cat "$work/log/canary" >&2; exit 1; }
if "$program" --target=memory-canary "${limits[@]}" -runs=1 -artifact_prefix="$work/canary-" \
    >"$work/log/memory-canary" 2>&1 || ! grep -q "heap-buffer-overflow" "$work/log/memory-canary"; then
    echo "fuzz: AddressSanitizer does not see the planted mistake" >&2
    exit 1
fi
rm -f "$work"/canary-*

targets=("$@")
failed=0
printf '%-18s %12s %9s %6s %7s %s\n' target inputs inputs/s MiB corpus result
while read -r name length; do
    if [ ${#targets[@]} -gt 0 ] && [[ ! " ${targets[*]} " == *" $name "* ]]; then continue; fi
    mkdir -p "$work/corpus/$name" "$here/Corpus/$name"
    options=("${limits[@]}" -max_len="$length" -max_total_time="$seconds" -runs="$runs")
    options+=(-artifact_prefix="$work/failed/$name-")
    case $name in
        *-json | json | control | response | peers-file | configuration | inbox-snapshot | fan-out)
            options+=(-dict="$here/Dictionaries/json") ;;
    esac
    result=ok
    "$program" --target="$name" "${options[@]}" "$work/corpus/$name" "$work/seeds/$name" "$here/Corpus/$name" \
        >"$work/log/$name" 2>&1 || { result=FAILED; failed=1; }
    stat() { sed -n "s/^stat::$1: *//p" "$work/log/$name" | tail -1; }
    printf '%-18s %12s %9s %6s %7s %s\n' "$name" "$(stat number_of_executed_units)" "$(stat average_exec_per_sec)" \
        "$(stat peak_rss_mb)" "$(find "$work/corpus/$name" -type f | wc -l)" "$result"
    if [ "$result" = FAILED ]; then grep -aE "Fatal|ERROR|SUMMARY|Test unit written" "$work/log/$name" >&2 || true; fi
    if [ "${MERGE:-}" = 1 ]; then
        rm -rf "$work/merged" && mkdir -p "$work/merged"
        "$program" --target="$name" -merge=1 -max_len=1024 -timeout=5 "$work/merged" "$here/Corpus/$name" \
            "$work/corpus/$name" >"$work/log/$name-merge" 2>&1 || true
        # The smallest first, at most twelve: together they stay well below a megabyte.
        rm -f "$here/Corpus/$name"/*
        find "$work/merged" -type f -printf '%s %p\n' | sort -n | awk -v most=12 '
            { line[NR] = $2 } END { step = NR > most ? NR / most : 1
                for (i = 1; i <= NR; i += step) print line[int(i)] }' | head -12 | while read -r file; do
            cp "$file" "$here/Corpus/$name/"
        done
    fi
done < <("$program" --list)
exit $failed
