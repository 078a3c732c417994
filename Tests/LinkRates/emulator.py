#!/usr/bin/env python3
"""A path between two network namespaces, with loss, delay, a rate and a queue, in user space.

    emulator.py DELAY_MS LOSS_PERCENT RATE_MBIT QUEUE_KB SEED

Makes the namespaces mf-left (10.77.0.1) and mf-right (10.77.0.2), each with a TUN device, and passes packets between
them until it is killed. DELAY_MS is one way, RATE_MBIT 0 is no limit. For root, on one machine: nothing leaves it.
"""
import ctypes, fcntl, heapq, os, random, select, signal, struct, subprocess, sys, time

delay, loss, rate, queue, seed = (float(x) for x in sys.argv[1:6])
delay /= 1000; loss /= 100; rate *= 1e6 / 8; queue *= 1000
chance = random.Random(int(seed))
libc = ctypes.CDLL(None, use_errno=True)
names = ["mf-left", "mf-right"]
here = os.open("/proc/self/ns/net", os.O_RDONLY)


def run(*words):
    subprocess.run(words, check=True)


def tear_down(*_):
    for name in names:
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
    sys.exit(0)


def make(name, own, other):
    subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
    run("ip", "netns", "add", name)
    space = os.open(f"/var/run/netns/{name}", os.O_RDONLY)
    if libc.setns(space, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", b"mf0", 0x0001 | 0x1000))
    for words in (["addr", "add", f"{own}/24", "dev", "mf0"], ["link", "set", "mf0", "mtu", "1500", "up"],
                  ["link", "set", "lo", "up"], ["link", "set", "mf0", "txqueuelen", "10000"]):
        run("ip", *words)
    libc.setns(here, 0x40000000)
    os.close(space)
    return tun


signal.signal(signal.SIGTERM, tear_down)
signal.signal(signal.SIGINT, tear_down)
ends = [make(names[0], "10.77.0.1", "10.77.0.2"), make(names[1], "10.77.0.2", "10.77.0.1")]
print("ready", flush=True)
free = [0.0, 0.0]
waiting, order, dropped = [], 0, 0
while True:
    wait = None if not waiting else max(0, waiting[0][0] - time.monotonic())
    ready, _, _ = select.select(ends, [], [], wait)
    now = time.monotonic()
    for side, end in enumerate(ends):
        if end not in ready:
            continue
        for _ in range(64):
            try:
                packet = os.read(end, 65536)
            except BlockingIOError:
                break
            at = now
            if rate:
                at = max(now, free[side])
                if (at - now) * rate + len(packet) > queue:
                    dropped += 1
                    continue
                at += len(packet) / rate
                free[side] = at
            if chance.random() < loss:
                dropped += 1
                continue
            order += 1
            heapq.heappush(waiting, (at + delay, order, 1 - side, packet))
    now = time.monotonic()
    while waiting and waiting[0][0] <= now:
        _, _, side, packet = heapq.heappop(waiting)
        try:
            os.write(ends[side], packet)
        except OSError:
            pass
