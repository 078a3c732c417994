"""Whether the routers of the matrix are what they are said to be: measured with plain datagrams, as RFC 4787 has it."""
import ctypes
import os
import socket

from kinds import KINDS
from network import Network

CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def socket_in(space, address, port, kind=socket.SOCK_DGRAM):
    """A socket stays in the namespace in which it was made."""
    with open("/proc/thread-self/ns/net") as own, open(f"/run/netns/{space}") as other:
        if libc.setns(other.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        try:
            one = socket.socket(socket.AF_INET, kind)
        finally:
            if libc.setns(own.fileno(), CLONE_NEWNET):
                os._exit(70)
    one.settimeout(1)
    one.bind((address, port))
    return one


def source_seen(sender, receiver):
    """The address from which a datagram comes; None if it does not."""
    sender.sendto(b"?", receiver.getsockname())
    try:
        return receiver.recvfrom(16)[1]
    except TimeoutError:
        return None


def measure(kind, seed):
    """- Returns: mapping, filtering, whether UDP gets out, what becomes of TCP: as in `Kind`."""
    network = Network(f"nat-{kind.name}", kind, KINDS["none"], seed)
    sockets = []

    def make(role, address, port, how=socket.SOCK_DGRAM):
        sockets.append(socket_in(network.space(role), address, port, how))
        return sockets[-1]
    try:
        network.up()
        inner = network.sites["a"].private
        first, second = (make("r", "203.0.113.2", port) for port in (1001, 1002))
        other = make("b", network.sites["b"].public, 1003)
        server = make("r", "203.0.113.2", 1004, socket.SOCK_STREAM)
        server.listen()
        client = make("a", inner, 7440, socket.SOCK_STREAM)
        try:
            client.connect(server.getsockname())
            tcp = None
        except ConnectionRefusedError:
            tcp = "reject"
        except TimeoutError:
            tcp = "drop"
        host = make("a", inner, 7440)
        seen = [source_seen(host, one) for one in (first, second, other)]
        if None in seen:
            return None, None, "drop", tcp
        mapping = ("independent" if seen[0] == seen[2] else "address") if seen[0] == seen[1] else "port"
        host = make("a", inner, 7441)
        outer = source_seen(host, first)

        def gets_in(one):
            one.sendto(b"!", outer)
            try:
                host.recvfrom(16)
                return True
            except TimeoutError:
                return False
        if not gets_in(first):
            return mapping, "nobody", None, tcp
        filtering = "independent" if gets_in(other) else "address" if gets_in(second) else "port"
        return mapping, filtering, None, tcp
    finally:
        for one in sockets:
            one.close()
        network.down()


def wrong(kind, seed):
    """What is not as it is said of a kind; None if all is well."""
    if kind.is_public:
        return None
    found = measure(kind, seed)
    said = (None, None, "drop", kind.tcp) if kind.udp else (kind.mapping, kind.filtering, None, kind.tcp)
    return None if found == said else f"the router {kind.name} is to be {said}, and is {found}"
