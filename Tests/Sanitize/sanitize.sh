#!/bin/bash
# The shell's tests, some scripts, and three nodes under load, with a sanitizer: fails at its first report, wherever that is.
#
#     sanitize.sh thread|address SCRATCH SECONDS
set -euo pipefail
kind=$1 scratch=$2 seconds=$3
here=$(cd "$(dirname "$0")/.." && pwd)
reports=$scratch/reports
rm -rf "$reports" && mkdir -p "$reports"
export SWIFT_BACKTRACE=enable=no
# Each process writes its reports into a file of its own; the daemons of the load inherit this.
export TSAN_OPTIONS="halt_on_error=0 exitcode=66 log_path=$(realpath "$reports")/report"
TSAN_OPTIONS+=" suppressions=$here/Sanitize/thread.suppressions"
# What was freed and is kept for a while counts as memory, of which the scripts have bounds.
export ASAN_OPTIONS="detect_leaks=0 quarantine_size_mb=4 exitcode=66 log_path=$(realpath "$reports")/report"

swift build --build-tests --sanitize="$kind" --scratch-path "$scratch"
# The shell, and the scripts in which nodes meet over UDP, through a rendezvous node, on a LAN, and under attack. One after
# the other: a sanitizer makes all of it ten times as slow, and some of it watches the clock. The store's crash states are
# many and the simulated paths of congestion control long, so they are left out; where races are looked for, so is whatever
# has one thread, and of Transport the suites of its folders without I/O.
result=0
: >"$scratch/tests.log"
pure='|Crypto|Wire' skip='CrashTests|CongestionTests'
if [ "$kind" = thread ]; then
    pure=
    skip+=$(grep -rhoE 'struct \w+(Tests|Vectors) \{' "$here"/TransportTests/{Datagrams,LAN/LanD*} | sed -E 's/struct (.*) \{/|TransportTests\\.\1/' | tr -d '\n')
fi
for suites in "^(Transport$pure)Tests\\." '^(NodeRuntime|Control)Tests\.' '^StoreTests\.' \
    '^EndToEndTests\.(DatagramTests|RendezvousTests|LanTests)' '^EndToEndTests\.HostileNetworkTests'; do
    swift test --skip-build --no-parallel --sanitize="$kind" --scratch-path "$scratch" \
        --filter "$suites" --skip "$skip" >>"$scratch/tests.log" 2>&1 || result=$?
done
grep -aE '^(✘|✔ Test run|✘ Test run)' "$scratch/tests.log" || tail -5 "$scratch/tests.log"
python3 "$here/Soak/soak.py" "$scratch/debug/mayfly" --seconds "$seconds" --no-bounds || result=$?

found=$(find "$reports" -type f | wc -l)
echo "sanitize: $kind, $found reports"
if [ "$found" -gt 0 ]; then head -60 "$reports"/*; exit 1; fi
exit $result
