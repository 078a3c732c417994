"""The kinds of network a node is behind, and what physics allows two of them."""
from dataclasses import dataclass

PORT = 7440


@dataclass(frozen=True)
class Kind:
    name: str
    what: str
    families: frozenset = frozenset({4})
    #: Of a NAT (RFC 4787): what the outer port depends on, and from whom it lets datagrams in. `None` without one.
    mapping: str = None
    filtering: str = None
    #: None if it passes, else how it is stopped.
    tcp: str = None
    udp: str = None
    #: Its router makes mappings when it is asked (PCP), and the node asks.
    maps: bool = False

    @property
    def is_public(self):
        return self.mapping is None


KINDS = {kind.name: kind for kind in [
    Kind("none", "a public address of either family, no filter", families=frozenset({4, 6})),
    Kind("full", "endpoint-independent mapping and filtering (full cone)",
         mapping="independent", filtering="independent"),
    Kind("restricted", "endpoint-independent mapping, address-dependent filtering",
         mapping="independent", filtering="address"),
    Kind("cone", "endpoint-independent mapping, address- and port-dependent filtering",
         mapping="independent", filtering="port"),
    Kind("address", "address-dependent mapping, address- and port-dependent filtering",
         mapping="address", filtering="port"),
    Kind("symmetric", "a random outer port for each destination", mapping="port", filtering="port"),
    Kind("ipv6", "a public IPv6 address, no IPv4 at all", families=frozenset({6})),
    Kind("no-udp", "as cone; UDP is dropped", mapping="independent", filtering="port", udp="drop"),
    Kind("no-tcp", "as cone; TCP is dropped", mapping="independent", filtering="port", tcp="drop"),
    Kind("tcp-reset", "as cone; TCP is answered by a reset", mapping="independent", filtering="port", tcp="reject"),
    Kind("mapped", "as symmetric; the router makes port mappings", mapping="port", filtering="port", maps=True),
]}

#: How good a path is. Whether a direct link came about by punching makes no difference to what goes over it.
RANK = {None: -1, "relayed": 0, "punched": 1, "direct": 1, "lan": 2}


def gets_in(x, y):
    """Whether a datagram of x's gets through y's NAT to y, when each sends to the address that a third node saw the
    other come from. The answer to one that got in goes back by the same way.

    - y's mapping must be the one that the third node saw: independent of the destination.
    - y's filter lets everybody in; or it lets x's address in, to which y has sent; or x's address and port, and y has
      sent there only if the port that the third node saw is the one that x sends from.
    """
    if y.mapping != "independent":
        return False
    if y.filtering in ("independent", "address"):
        return True
    return x.mapping == "independent"


def expected(a, b, punching=True, same_network=False):
    """The best path that there can be, and why."""
    if same_network:
        return "lan", "one network"
    if not a.families & b.families:
        return "relayed", "no address family in common"
    for x, y in ((a, b), (b, a)):
        for carrier in ("tcp", "udp"):
            if (y.is_public or y.maps) and not getattr(x, carrier) and not getattr(y, carrier):
                return "direct", f"{y.name} can be dialled over {carrier}"
    if a.udp or b.udp:
        return "relayed", "neither can be dialled, and there is no UDP to punch with"
    for x, y in ((a, b), (b, a)):
        if gets_in(x, y):
            if not punching:
                return "relayed", "needs hole punching"
            return "punched", f"datagrams from {x.name} get in at {y.name}"
    return "relayed", "the outer ports cannot be known beforehand"


def ruleset(kind, public, host, seed):
    """nftables' rules of a router: `lan` and `wan` are its devices, `public` its address, `host` the one behind it."""
    stopped = [f"iifname lan meta l4proto {carrier} " + ("reject with tcp reset" if how == "reject" else "drop")
               for carrier, how in (("tcp", kind.tcp), ("udp", kind.udp)) if how]
    # The kernel's mapping: the inner port if it is free, and the same for all destinations. Its filter: the peer's
    # address and port. What is wider is let in by a translation back, for as long as the mapping lives.
    learn, let_in, source = "", "", f"snat to {public}"
    if kind.filtering == "independent":
        learn = "oifname wan meta l4proto udp update @known { udp sport }"
        let_in = f"iifname wan udp dport @known dnat to {host}"
        known = "typeof udp sport"
    else:
        known = "typeof ip daddr . udp sport"
    if kind.filtering == "address":
        learn = "oifname wan meta l4proto udp update @known { ip daddr . udp sport }"
        let_in = f"iifname wan ip saddr . udp dport @known dnat to {host}"
    udp_source = source
    if kind.mapping == "address":
        # One port for all ports of an address: a hash of it.
        udp_source = f"snat to {public}:jhash ip daddr . udp sport mod 20000 seed {seed % 0xffffffff:#x} offset 40000"
    elif kind.mapping == "port":
        source = udp_source = "masquerade random,fully-random"
    # What miniupnpd fills; what it translates is let in below.
    gateway = """
          chain miniupnpd {}
          chain prerouting_miniupnpd {}
          chain postrouting_miniupnpd {}
          chain prerouting {
            type nat hook prerouting priority -100
            jump prerouting_miniupnpd
          }""" if kind.maps else ""
    return f"""
        flush ruleset
        table inet filter {{{gateway}
          chain forward {{
            type filter hook forward priority 0
            policy drop
            {chr(10).join(stopped)}
            ct state established,related accept
            ct state invalid drop
            iifname lan accept
            ct status dnat accept
          }}
          chain input {{
            type filter hook input priority 0
            policy drop
            iifname lan accept
            ct state established,related accept
            meta l4proto {{ icmp, ipv6-icmp }} accept
          }}
        }}
        table ip nat {{
          set known {{
            {known}
            size 4096
            flags dynamic,timeout
            timeout 120s
          }}
          chain learn {{
            type filter hook forward priority 1
            {learn}
          }}
          chain in {{
            type nat hook prerouting priority -100
            {let_in}
          }}
          chain out {{
            type nat hook postrouting priority 100
            oifname wan meta l4proto udp {udp_source}
            oifname wan {source}
          }}
        }}
    """
