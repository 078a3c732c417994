#!/bin/bash
# Runs a command as root in its own network namespace with only a loopback that refuses TCP, so that links use UDP.
#
#     without-tcp.sh COMMAND...
set -euo pipefail
name=mf-udp-$$
ip netns add "$name"
trap 'ip netns del "$name"' EXIT
ip -n "$name" link set lo up
ip netns exec "$name" nft -f - <<'RULES'
table inet filter {
    chain input {
        type filter hook input priority 0;
        tcp flags & (syn | ack) == syn reject with tcp reset
    }
}
RULES
ip netns exec "$name" "$@"
