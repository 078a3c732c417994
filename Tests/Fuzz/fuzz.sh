#!/bin/bash
# A campaign of every target (or of some) with libFuzzer and AddressSanitizer.
#
#     fuzz.sh PROGRAM WORK SECONDS RUNS [TARGET...]
#
# Each target runs SECONDS, or until RUNS inputs were run of the same code, those of earlier campaigns in WORK with them; a
# target that has had them is passed over. JOBS processes at a time (as many as there are cores). WORK keeps what was
# learned for the next time, the inputs that have failed, and in `runs` a line for every run: commit, code, target, inputs,
# seconds of processor time, result. Of the same code are runs with equal sources of the modules under the target.
# Ends with an error if an input fails, hangs for TIMEOUT (5 s; more where others come first) or takes 256 MiB; or if the
# planted mistake is not found; with 64 if there is no such target. MERGE=1 puts what covers more into the repository's
# corpus at the end.
set -euo pipefail
program=$1 work=$2 seconds=$3 runs=$4
shift 4
here=$(cd "$(dirname "$0")" && pwd)
export SWIFT_BACKTRACE=enable=no
# What is freed and kept by the sanitizer counts as memory, and little of it stays near the processor. What a block holds
# before it is written is not filled. Where a block was made is asked again of an input
# that has failed. What an input has taught is run once more at the end, with all checks.
quick=detect_leaks=0:quarantine_size_mb=1:thread_local_quarantine_size_kb=128:malloc_context_size=1:max_malloc_fill_size=0
quick+=:detect_stack_use_after_return=0
thorough=detect_leaks=0:quarantine_size_mb=16:detect_stack_use_after_return=1
# A campaign of nothing would find nothing and say that all is well.
targets=$("$program" --list | cut -d ' ' -f 1)
for name in "$@"; do
    if ! grep -qxF -- "$name" <<<"$targets"; then
        printf 'fuzz: there is no target %s; there are:\n%s\n' "$name" "$targets" >&2
        exit 64
    fi
done
mkdir -p "$work/corpus" "$work/failed" "$work/log"
touch "$work/runs"
"$program" --write-seeds="$work/seeds" >/dev/null

# Leaks are not looked for: what a first use keeps would make libFuzzer run an input twice.
limits=(-timeout="${TIMEOUT:-5}" -rss_limit_mb=256 -print_final_stats=1 -verbosity=0 -print_funcs=0 -close_fd_mask=1
    -detect_leaks=0)

# The harness must be able to fail.
mkdir -p "$work/corpus/canary"
if ASAN_OPTIONS=$quick "$program" --target=canary "${limits[@]}" -max_len=64 -max_total_time=60 \
    -artifact_prefix="$work/canary-" "$work/corpus/canary" >"$work/log/canary" 2>&1; then
    echo "fuzz: the planted mistake was not found" >&2
    exit 1
fi
grep -q "reads byte" "$work/log/canary" || { cat "$work/log/canary" >&2; exit 1; }
if ASAN_OPTIONS=$quick "$program" --target=memory-canary "${limits[@]}" -runs=1 -artifact_prefix="$work/canary-" \
    >"$work/log/memory-canary" 2>&1 || ! grep -q "heap-buffer-overflow" "$work/log/memory-canary"; then
    echo "fuzz: AddressSanitizer does not see the planted mistake" >&2
    exit 1
fi
rm -f "$work"/canary-*

commit=$(git -C "$here" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
# The code of some modules: the same for every commit that leaves them as they are.
code_of() {
    local paths=() module
    for module in "$@"; do paths+=("../../Sources/$module/*.swift"); done
    local changes=
    git -C "$here" diff --quiet HEAD -- "${paths[@]}" 2>/dev/null || changes=+
    echo "$(git -C "$here" ls-files -s -- "${paths[@]}" 2>/dev/null | sha256sum | head -c 12)$changes"
}
# Inputs of a target so far: of this code, or of any.
count_of() { awk -F '\t' -v target="$1" -v code="${2:-}" '$3 == target && (code == "" || $2 == code) { sum += $4 }
    END { printf "%d", sum }' "$work/runs"; }

row='%-18s %11s %8s %12s %12s %5s %7s %s\n'
# shellcheck disable=SC2059
show() { printf "$row" "$@"; }
stat_of() { sed -n "s/^stat::$2: *//p" "$work/log/$1" | tail -1; }

# One target, in a process of its own; what it says in the end is a line of the table.
run_target() {
    local name=$1 length=$2 code=$3 known result=ok
    known=$(count_of "$name" "$code")
    mkdir -p "$work/corpus/$name" "$here/Corpus/$name"
    if [ "$known" -ge "$runs" ]; then
        show "$name" 0 - "$known" "$(count_of "$name")" - "$(find "$work/corpus/$name" -type f | wc -l)" "enough"
        return 0
    fi
    local options=("${limits[@]}" -max_len="$length" -max_total_time="$seconds" -runs=$((runs - known)))
    options+=(-artifact_prefix="$work/failed/$name-")
    case $name in
        *-json | json | control | response | peers-file | configuration | inbox-snapshot | fan-out)
            options+=(-dict="$here/Dictionaries/json") ;;
        # The core reaches so many places that to count for each how many inputs have reached it takes a third of the time.
        core-two | core-three | core-joining | store-open) options+=(-entropic=0) ;;
        # Where some inputs take a hundred times as long as others, the short ones more often.
        core-* | link-* | datagram-* | sealed-frames | lan-network) options+=(-entropic_scale_per_exec_time=1) ;;
    esac
    local corpus=("$work/corpus/$name" "$work/seeds/$name" "$here/Corpus/$name")
    local TIMEFORMAT='processor %U %S' status=0
    { time ASAN_OPTIONS=$quick "$program" --target="$name" "${options[@]}" "${corpus[@]}" \
        >"$work/log/$name" 2>&1; } 2>"$work/log/$name-time" || status=$?
    # 72: told to stop, and what it has done counts.
    case $status in 0) ;; 72) result=stopped ;; *) result=FAILED ;; esac
    if [ $result = ok ]; then
        ASAN_OPTIONS=$thorough "$program" --target="$name" "${options[@]}" -runs=0 "${corpus[@]}" \
            >"$work/log/$name-thorough" 2>&1 || { result=FAILED; cat "$work/log/$name-thorough" >>"$work/log/$name"; }
    fi
    local inputs processor
    inputs=$(stat_of "$name" number_of_executed_units)
    processor=$(awk '/^processor/ { printf "%.1f", $2 + $3 }' "$work/log/$name-time")
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$commit" "$code" "$name" "${inputs:-0}" "$processor" "$result" >>"$work/runs"
    show "$name" "${inputs:-0}" "$(awk -v n="${inputs:-0}" -v s="$processor" 'BEGIN { printf "%d", (s > 0 ? n / s : 0) }')" \
        "$(count_of "$name" "$code")" "$(count_of "$name")" "$(stat_of "$name" peak_rss_mb)" \
        "$(find "$work/corpus/$name" -type f | wc -l)" "$result"
    [ "$result" != FAILED ] && return 0
    grep -aE "Fatal|ERROR|SUMMARY|Test unit written" "$work/log/$name" >&2 || true
    return 1
}

merge_target() {
    local name=$1
    rm -rf "$work/merged/$name" && mkdir -p "$work/merged/$name"
    ASAN_OPTIONS=$quick "$program" --target="$name" -merge=1 -max_len=1024 -timeout=5 "$work/merged/$name" \
        "$here/Corpus/$name" "$work/corpus/$name" >"$work/log/$name-merge" 2>&1 || true
    # The smallest first, at most twelve: together they stay well below a megabyte.
    rm -f "$here/Corpus/$name"/*
    find "$work/merged/$name" -type f -printf '%s %p\n' | sort -n | awk -v most=12 '
        { line[NR] = $2 } END { step = NR > most ? NR / most : 1
            for (i = 1; i <= NR; i += step) print line[int(i)] }' | head -12 | while read -r file; do
        cp "$file" "$here/Corpus/$name/"
    done
}

# Those that are asked for, with the code that the program was made of.
wanted=()
while read -r name length modules; do
    if [ $# -gt 0 ] && [[ ! " $* " == *" $name "* ]]; then continue; fi
    # shellcheck disable=SC2086
    wanted+=("$name $length $(code_of $modules)")
done < <("$program" --list)

failed=0 running=0 stopped=0 jobs=${JOBS:-$(nproc)}
# What runs is told to stop, too, and says how far it came.
trap 'stopped=1; kill -INT $(ps -o pid= --ppid "$(jobs -p | paste -sd,)") 2>/dev/null' INT TERM
show target inputs per-cpu-s "of this code" "in all" MiB corpus result
for line in "${wanted[@]}"; do
    [ $stopped = 0 ] || break
    read -r name length code <<<"$line"
    {
        trap '' INT TERM
        status=0
        run_target "$name" "$length" "$code" || status=1
        if [ "${MERGE:-}" = 1 ]; then merge_target "$name"; fi
        exit $status
    } </dev/null &
    running=$((running + 1))
    if [ "$running" -ge "$jobs" ]; then
        wait -n || failed=1
        running=$((running - 1))
    fi
done
while [ -n "$(jobs -p)" ]; do wait -n || failed=1; done
exit $failed
