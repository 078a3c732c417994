"""The exchange of a spoken code (Join.md), made from that page's rules."""

import struct

from frames import SLUG
from primitives import chacha20poly1305, hkdf, sha256
from ristretto import confirmation, generator, multiply, session_key

CODE, SLOT = "7-harvest-lamp", 7
# What SplitMix64 draws from the state 7, so that a test can have the program draw the same: nonce and ya, then yb.
NONCE = bytes.fromhex("d70d3259e4e1cb631c663cf4d73c")
JOINER = bytes.fromhex("022ab1ba804098e6cb293e6770eb3a95da211e6a663bd37311aabecb86beda0f")
CREATOR = bytes.fromhex("f6d0c233a1c4cb77febe023d51d6fc53616750997ac05e226953798876a2c309")
TEXT = SLUG.encode()


def blocks():
    sid = struct.pack(">H", SLOT) + NONCE
    g = generator(CODE.encode(), b"mayfly/1 code", sid)
    share_a, share_b = multiply(JOINER, g), multiply(CREATOR, g)
    product = multiply(JOINER, share_b)
    assert product == multiply(CREATOR, share_a)
    joiner, creator = (share_a, b"joiner"), (share_b, b"creator")
    isk = session_key(sid, product, joiner, creator)
    key = hkdf(isk, b"mayfly/1 code invite")
    plain = struct.pack(">H", len(TEXT)) + TEXT
    sealed = chacha20poly1305(key, bytes(12), plain + bytes(4_096 - len(plain)), b"")
    last = confirmation(sid, isk, creator) + sealed
    return {
        "exchange of a code": [
            ("code", CODE), ("sid", sid), ("generator", g), ("ya", JOINER), ("yb", CREATOR),
            ("message 1", b"c" + sid + share_a), ("message 2", share_b),
            ("K", product), ("ISK", isk), ("message 3", confirmation(sid, isk, joiner)),
            ("invite", TEXT.decode()), ("key of the seal", key),
            ("message 4, first 128 bytes", last[:128]), ("message 4, last 16 bytes", last[-16:]),
            ("message 4, SHA-256", sha256(last)),
        ]
    }  # fmt: skip
