"""The tokens and the link over TCP of Links.md, made from that page's rules, the Noise specification and BOLT 8."""

import struct

from datagrams import EPHEMERAL, MESSAGE, SEED, encapsulation, handshake, split
from primitives import *
from values import ANN, ANN_TO_BOB, BOB, INVITE_KNOCK, INVITE_ROUTE, TOKEN

DAY, GENERATION, COUNTER = 20_782, (20_780, 3), 7
FRAME = b"\x20\x07"


def token(secret, *numbers):
    return hmac_sha256(secret, b"".join(struct.pack(">I", number) for number in numbers))[:16]


def sealed(key, frame):
    """The first frame under a key: nonces 0 and 1, no associated data."""
    length = chacha20poly1305(key, bytes(12), struct.pack(">H", len(frame)), b"")
    return length + chacha20poly1305(key, bytes(4) + struct.pack("<Q", 1), frame, b"")


def secrets(chaining):
    """Both keys, the dialer's first, and the root key."""
    return split(hkdf(b"", b"", chaining, 64)), hkdf(b"", b"root", chaining)


def new_secrets(root, curve, encapsulated):
    chaining = split(hkdf(curve, b"", root, 64))[0]
    return secrets(split(hkdf(encapsulated, b"", chaining, 64))[0])


def blocks():
    prologue = b"mayfly\x01M" + TOKEN
    kem = encapsulation()
    acts, keys, h, chaining = handshake(prologue, ANN, BOB, EPHEMERAL["dialer"], EPHEMERAL["listener"], kem)
    root = secrets(chaining)[1]
    near, far, encapsulated = b"\x55" * 32, b"\x66" * 32, b"\x77" * 32
    new_keys, new_root = new_secrets(root, ecdh(near, public(far)), encapsulated)
    return {
        "routing tokens": [
            ("day", DAY), ("generation's day", GENERATION[0]), ("generation's counter", GENERATION[1]),
            ("counter", COUNTER),
            ("counter of a member", token(ANN_TO_BOB, *GENERATION, COUNTER)),
            ("day of a member", token(ANN_TO_BOB, DAY, COUNTER)),
            ("day of an invite", token(INVITE_ROUTE, DAY, COUNTER)),
            ("any day of an invite", token(INVITE_ROUTE, COUNTER)),
            ("knock of a day", token(INVITE_KNOCK, DAY)), ("knock of any day", token(INVITE_KNOCK)),
        ],
        "link": [
            ("dialer's ephemeral", EPHEMERAL["dialer"]), ("listener's ephemeral", EPHEMERAL["listener"]),
            ("dialer's seed", SEED), ("listener's message", MESSAGE), ("ciphertext", kem[1]), ("secret", kem[2]),
            ("prologue", prologue), ("preamble", b"M" + TOKEN),
            ("act 1", acts[0]), ("act 2", acts[1]), ("act 3", acts[2]),
            ("dialer's key", keys[0]), ("listener's key", keys[1]), ("handshake hash", h),
            ("frame", FRAME), ("first from the dialer", sealed(keys[0], FRAME)),
            ("first from the listener", sealed(keys[1], FRAME)), ("root key", root),
        ],
        "new secrets": [
            ("root key", root), ("dialer's ephemeral", near), ("listener's ephemeral", far),
            ("secret of ekem1", encapsulated), ("new root key", new_root), ("frame", FRAME),
            ("first from the dialer", sealed(new_keys[0], FRAME)),
            ("first from the listener", sealed(new_keys[1], FRAME)),
        ],
    }  # fmt: skip
