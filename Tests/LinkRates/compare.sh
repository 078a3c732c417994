#!/bin/bash
# Links over UDP and over TCP through a path with loss and delay, and both at one bottleneck; for root.
#
#     compare.sh LINKRATES SECONDS
set -euo pipefail
program=$1 seconds=${2:-30}
here=$(cd "$(dirname "$0")" && pwd)
log=$(mktemp -d)
emulator=
servers=()
stop() {
    for pid in "${servers[@]}" $emulator; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    servers=() emulator=
}
trap 'stop; rm -rf "$log"' EXIT
path() {
    stop
    rm -f "$log"/*
    python3 "$here/emulator.py" "$@" >"$log/emulator" &
    emulator=$!
    until grep -qs ready "$log/emulator"; do sleep 0.2; done
}
serve() {
    ip netns exec mf-right "$program" serve "$1" 10.77.0.2 "$2" >"$log/$2" &
    servers+=($!)
    until grep -qs ready "$log/$2"; do sleep 0.2; done
}
send() { ip netns exec mf-left "$program" send "$1" 10.77.0.2 "$2" "$seconds" "${3:-cubic}"; }
# Bytes a second in the second half of the time.
rate() { awk -v from="$((seconds / 2))" '/^[0-9]/ { n++; if (n > from) { s += $1; c++ } } END { print c ? int(s / c) : 0 }' "$log/$1"; }

echo "1 % loss, 40 ms, no limit, ${seconds} s each:"
for kind in udp tcp-cubic tcp-bbr; do
    path 20 1 0 1000 1
    serve "${kind%-*}" 4001
    send "${kind%-*}" 4001 "${kind#*-}" >/dev/null
    echo "  $kind $(rate 4001) B/s"
done
for kind in cubic bbr; do
    path 20 0 20 150 1
    serve udp 4001
    serve tcp 4002
    send udp 4001 >/dev/null & one=$!
    send tcp 4002 $kind >/dev/null & two=$!
    wait $one $two
    u=$(rate 4001) t=$(rate 4002)
    echo "20 Mbit/s, 40 ms, 150 kB: udp $u, tcp ($kind) $t B/s, ratio $(awk -v a="$u" -v b="$t" 'BEGIN { print b ? a / b : 0 }')"
done
