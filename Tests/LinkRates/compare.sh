#!/bin/bash
# Links over UDP and over TCP through a path with loss and delay, and both at one bottleneck; for root.
#
#     compare.sh LINKRATES SECONDS [ROUNDS]
#
# Prints bytes per second in the second half of the time: each round and the median.
set -euo pipefail
program=$1 seconds=${2:-30} rounds=${3:-3}
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
    # The emulator needs the highest priority, and both ends a higher one than the rest: an emulator that waits for a
    # processor sends in bursts, and BBR takes the bursts for a property of the path.
    chrt -f 10 python3 "$here/emulator.py" "$@" >"$log/emulator" &
    emulator=$!
    until grep -qs ready "$log/emulator"; do sleep 0.2; done
}
serve() {
    ip netns exec mf-right nice -n -20 "$program" serve "$1" 10.77.0.2 "$2" >"$log/$2" &
    servers+=($!)
    until grep -qs ready "$log/$2"; do sleep 0.2; done
}
send() { ip netns exec mf-left nice -n -20 "$program" send "$1" 10.77.0.2 "$2" "$seconds" "${3:-cubic}" >/dev/null; }
rate() { awk -v from="$((seconds / 2))" '/^[0-9]/ { n++; if (n > from) { s += $1; c++ } } END { print c ? int(s / c) : 0 }' "$log/$1"; }
middle() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", b ? a / b : 0 }'; }

# One transfer at a time: name, then delay, loss, rate and queue of the path.
alone() {
    echo "$1, ${seconds} s each:"
    shift
    for kind in udp tcp-cubic tcp-bbr; do
        all=
        for ((round = 1; round <= rounds; round++)); do
            path "$@" "$round"
            serve "${kind%-*}" 4001
            send "${kind%-*}" 4001 "${kind#*-}"
            all+="$(rate 4001) "
        done
        echo "  $kind $all middle $(tr ' ' '\n' <<<"$all" | grep . | middle) B/s"
    done
}
alone "1 % loss, 40 ms, no limit" 20 1 0 1000
alone "1 % loss, 40 ms, 50 Mbit/s, 375 kB" 20 1 50 375
alone "5 % loss, 40 ms, 50 Mbit/s, 375 kB" 20 5 50 375

echo "together at 20 Mbit/s, 40 ms, 150 kB, ${seconds} s each:"
for kind in tcp-bbr tcp-cubic udp; do
    all=
    for ((round = 1; round <= rounds; round++)); do
        path 20 0 20 150 "$round"
        serve udp 4001
        serve "${kind%-*}" 4002
        send udp 4001 & one=$!
        send "${kind%-*}" 4002 "${kind#*-}" & two=$!
        wait $one $two
        u=$(rate 4001) t=$(rate 4002)
        echo "  udp $u, $kind $t B/s"
        all+="$(ratio "$u" "$t") "
    done
    echo "  udp : $kind $all middle $(tr ' ' '\n' <<<"$all" | grep . | middle)"
done
