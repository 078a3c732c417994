"""A little Internet of network namespaces: a core, a rendezvous node, and two sites behind routers or without."""
import os
import shutil
import subprocess
import sys
import tempfile

from kinds import ruleset

#: The exit code of whoever may not make namespaces (automake's: skipped).
NOT_PERMITTED = 77
PREFIX = "mayfly"

_flush = """
import socket, struct
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
# IPCTNL_MSG_CT_DELETE with no more than its header, acknowledged: all entries.
s.send(struct.pack("=IHHII", 20, 0x102, 5, 1, 0) + bytes(4))
raise SystemExit(0 if struct.unpack_from("=i", s.recv(4096), 16)[0] == 0 else 1)
"""


class NetworkError(Exception):
    pass


class Gateway:
    """A router's miniupnpd, for as long as its addresses are the same."""

    program = shutil.which("miniupnpd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")

    def __init__(self, space):
        self.configuration = tempfile.NamedTemporaryFile("w", prefix="mx-gateway-")
        self.configuration.write("ext_ifname=wan\nlistening_ip=lan\nenable_natpmp=yes\nsecure_mode=yes\n"
                                 "uuid=00000000-0000-4000-8000-000000000001\n"
                                 "upnp_table_name=filter\nupnp_nat_table_name=filter\n")
        self.configuration.flush()
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", space, self.program, "-d", "-f", self.configuration.name,
             "-P", f"{self.configuration.name}.pid"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.configuration.close()


def run(*words, text=""):
    done = subprocess.run(words, input=text, capture_output=True, text=True)
    if done.returncode:
        raise NetworkError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}\n{text}")
    return done.stdout


def require_namespaces():
    """Ends the program with `NOT_PERMITTED` if this is no place for namespaces."""
    name = f"{PREFIX}-{os.getpid()}-probe"
    try:
        run("ip", "netns", "add", name)
        try:
            run("ip", "netns", "exec", name, "nft", "-f", "-", text="table ip nat {\n chain out {\n"
                "  type nat hook postrouting priority 100\n  masquerade random,fully-random\n }\n}\n")
            run("ip", "-n", name, "link", "add", "one", "type", "veth", "peer", "name", "other")
        finally:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
    except (NetworkError, FileNotFoundError, PermissionError) as error:
        print("matrix: SKIPPED: it needs root, iproute2 and nftables, and a kernel with network namespaces: "
              f"{str(error).splitlines()[0]}", file=sys.stderr)
        sys.exit(NOT_PERMITTED)


def remove_stale():
    """Namespaces of a run that was killed; its number is in their names."""
    for line in run("ip", "netns", "list").splitlines():
        words = line.split()[0].split("-")
        if len(words) >= 3 and words[0] == PREFIX and words[1].isdigit() and not os.path.exists(f"/proc/{words[1]}"):
            subprocess.run(["ip", "netns", "del", line.split()[0]], capture_output=True)


class Site:
    """Where one of the two nodes lives; its addresses change when it moves."""

    def __init__(self, number, kind):
        #: Of each site one: what is public, of both families, and what is behind a NAT. The private networks of both
        #: sites are the same, as those of most homes are, and so are the nodes' addresses in them.
        self.number = number
        self.kind = kind
        self.generation = 0

    @property
    def network(self):
        # Not of those for documentation: to miniupnpd a router with such an address is behind another NAT.
        return {1: "5.5.1", 2: "5.5.2"}[self.number]

    @property
    def public(self):
        return f"{self.network}.{10 + self.generation}"

    @property
    def public6(self):
        return f"2001:db8:{self.number}::{10 + self.generation}"

    @property
    def private_network(self):
        return f"192.168.{1 + self.generation}"

    @property
    def private(self):
        return f"{self.private_network}.2"


class Network:
    """All namespaces of a cell. `same` puts both nodes behind the first router; `island` cuts that off from the rest."""

    def __init__(self, name, a, b, seed, same=False, island=False):
        self.prefix = f"{PREFIX}-{os.getpid()}-{name}"
        self.seed = seed
        self.same = same
        self.island = island
        self.sites = {"a": Site(1, a), "b": Site(2, b)}
        self.names = []
        self.gateways = {}

    def space(self, role):
        return f"{self.prefix}-{role}"

    def add(self, role):
        # Before it is there: whoever is interrupted meanwhile removes it.
        self.names.append(self.space(role))
        run("ip", "netns", "add", self.space(role))
        self.ip(role, "link set lo up")

    def ip(self, role, *lines):
        run("ip", "-n", self.space(role), "-batch", "-", text="\n".join(lines) + "\n")

    def forward(self, role):
        run("ip", "netns", "exec", self.space(role), "sh", "-c",
            "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")

    def up(self):
        self.add("core")
        self.forward("core")
        # The Internet has no way to private addresses, and says nothing about it.
        self.ip("core", *[f"route add blackhole {block}" for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")])
        self.add("r")
        self.attach("r", "eth0", "203.0.113.1/24", "2001:db8:3::1/64")
        self.address("r", "203.0.113.2", "2001:db8:3::2")
        for role, site in self.sites.items():
            self.add(role)
            if self.same and role == "b":
                self.plug(role, "lan-b")
            elif site.kind.is_public:
                families = site.kind.families
                self.attach(role, "eth0", *([f"{site.network}.1/24"] if 4 in families else []),
                            *([f"2001:db8:{site.number}::1/64"] if 6 in families else []))
            else:
                self.add(f"r{role}")
                self.forward(f"r{role}")
                if not self.island:
                    self.attach(f"r{role}", "wan", f"{site.network}.1/24")
                # A switch: the devices of the site are its ports.
                self.ip(f"r{role}", "link add lan type bridge forward_delay 0", "link set lan up")
                self.plug(role, f"lan-{role}")
        for role in self.sites:
            self.settle(role)

    def attach(self, role, device, *gateways):
        self.ip("core", f"link add to-{role} type veth peer name {device} netns {self.space(role)}", f"link set to-{role} up",
                *[f"addr add {gateway} dev to-{role}" + (" nodad" if ":" in gateway else "") for gateway in gateways])
        self.ip(role, f"link set {device} up")

    def plug(self, role, device):
        router = "ra" if self.same else f"r{role}"
        self.ip(router, f"link add {device} type veth peer name eth0 netns {self.space(role)}",
                f"link set {device} master lan up")
        self.ip(role, "link set eth0 up")

    def address(self, role, v4=None, v6=None, device="eth0"):
        lines = [f"addr flush dev {device} scope global"]
        if v4:
            lines += [f"addr add {v4}/24 dev {device}",
                      f"route replace default via {v4.rsplit('.', 1)[0]}.1 src {v4}"]
        if v6:
            lines += [f"addr add {v6}/64 dev {device} nodad",
                      f"route replace ::/0 via {v6.rsplit('::', 1)[0]}::1 src {v6}"]
        self.ip(role, *lines)

    def settle(self, role):
        """Gives a site the addresses of its generation."""
        site = self.sites[role]
        families = site.kind.families
        if self.same and role == "b":
            return self.address(role, f"{self.sites['a'].private_network}.{3 + site.generation}")
        if site.kind.is_public:
            return self.address(role, site.public if 4 in families else None, site.public6 if 6 in families else None)
        router = f"r{role}"
        run("ip", "netns", "exec", self.space(router), "nft", "-f", "-",
            text=ruleset(site.kind, site.public, site.private, self.seed + site.number))
        if not self.island:
            self.address(router, site.public, device="wan")
        self.ip(router, "addr flush dev lan scope global", f"addr add {site.private_network}.1/24 dev lan")
        if role in self.gateways:
            self.gateways.pop(role).stop()
        if site.kind.maps:
            self.gateways[role] = Gateway(self.space(router))
        self.address(role, site.private)

    def move(self, role):
        """A new address for a node and its router; the router has forgotten all connections."""
        self.sites[role].generation += 1
        self.settle(role)
        router = self.space(f"r{role}")
        if router in self.names:
            run("ip", "netns", "exec", router, sys.executable, "-c", _flush)

    def command(self, role, *words):
        return ["ip", "netns", "exec", self.space(role), *words]

    def down(self):
        while self.gateways:
            self.gateways.popitem()[1].stop()
        while self.names:
            subprocess.run(["ip", "netns", "del", self.names[-1]], capture_output=True)
            self.names.pop()
