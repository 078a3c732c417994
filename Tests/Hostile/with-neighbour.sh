#!/bin/bash
# Runs a command as root in its own network namespace, with a neighbour of more than 30,000 addresses at the other end
# of a cable. The command gets the neighbour's namespace, device and address.
#
#     with-neighbour.sh COMMAND...
set -euo pipefail
home=mf-home-$$
neighbour=mf-near-$$
ip netns add "$home"
trap 'ip netns del "$home"; ip netns del "$neighbour" 2>/dev/null || true' EXIT
ip netns add "$neighbour"
ip link add veth0 netns "$home" type veth peer name veth0 netns "$neighbour"
for name in "$home" "$neighbour"; do
    for device in lo veth0; do ip -n "$name" link set "$device" up; done
done
ip -n "$home" addr add 10.77.0.1/16 dev veth0
ip -n "$neighbour" addr add 10.77.0.2/16 dev veth0
ip -n "$neighbour" route add local 10.77.128.0/17 dev lo
ip netns exec "$home" "$@" --neighbour "/run/netns/$neighbour,veth0,10.77.128.0"
