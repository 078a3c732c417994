"""The link of DatagramLinks.md, from the dial to new keys, made from that page's rules and the Noise specification."""

import struct

import mlkem
from primitives import *
from values import ANN, ANN_KEY, BOB, BOB_KEY, TOKEN

EPHEMERAL = {"dialer": b"\x33" * 32, "listener": b"\x44" * 32}
# Of ML-KEM: the dialer's d ‖ z, and the listener's m (FIPS 203, algorithms 16 and 17).
SEED, MESSAGE = b"\x77" * 32 + b"\x88" * 32, b"\x99" * 32
DIALER_ID, LISTENER_ID = bytes(range(0x10, 0x18)), bytes(range(0x18, 0x20))


class Side:
    """SymmetricState and HandshakeState of XKhfs, as far as both sides share them."""

    def __init__(self, name, prologue, responder_key):
        self.h = self.ck = sha256(name)
        self.key, self.count = None, 0
        self.mix_hash(prologue)
        self.mix_hash(responder_key)

    def mix_hash(self, data):
        self.h = sha256(self.h + data)

    def mix_key(self, secret):
        self.ck, self.key = split(hkdf(secret, b"", self.ck, 64))
        self.count = 0

    def seal(self, plain):
        nonce = bytes(4) + struct.pack("<Q", self.count)
        sealed = chacha20poly1305(self.key, nonce, plain, self.h)
        self.count += 1
        self.mix_hash(sealed)
        return sealed


def split(material):
    return material[:32], material[32:]


def encapsulation():
    """The dialer's key, the listener's ciphertext and the secret of ML-KEM."""
    key, _ = mlkem.key_pair(SEED)
    secret, ciphertext = mlkem.encapsulate(key, MESSAGE)
    return key, ciphertext, secret


def handshake(prologue, initiator, responder, initiator_ephemeral, responder_ephemeral, kem):
    """The three acts, both directions' keys (the initiator's first), the handshake hash and the chaining key."""
    state = Side(b"Noise_XKhfs_secp256k1+MLKEM768_ChaChaPoly_SHA256", prologue, public(responder))
    e = public(initiator_ephemeral)
    state.mix_hash(e)
    state.mix_key(ecdh(initiator_ephemeral, public(responder)))
    one = b"\0" + e + state.seal(kem[0]) + state.seal(b"")
    e = public(responder_ephemeral)
    state.mix_hash(e)
    state.mix_key(ecdh(responder_ephemeral, public(initiator_ephemeral)))
    two = b"\0" + e + state.seal(kem[1])
    state.mix_key(kem[2])
    two += state.seal(b"")
    s = state.seal(public(initiator))
    state.mix_key(ecdh(initiator, public(responder_ephemeral)))
    three = b"\0" + s + state.seal(b"")
    return (one, two, three), split(hkdf(b"", b"", state.ck, 64)), state.h, state.ck


def packet(key, epoch, receiver, number, frames):
    header = b"\x0d\x15" + bytes([epoch]) + receiver + struct.pack(">Q", number)
    return header + chacha20poly1305(key, bytes(4) + struct.pack("<Q", number), frames, header)


def integer(value):
    """RFC 9000, section 16, in as few bytes as it takes."""
    for bits, length in ((6, 1), (14, 2), (30, 4), (62, 8)):
        if value < 1 << bits:
            return (value | (length.bit_length() - 1) << (8 * length - 2)).to_bytes(length, "big")


def data(offset, message):
    stream = struct.pack(">I", len(message)) + message
    return b"\x03" + integer(offset) + integer(len(stream)) + stream


def rotated(key, chaining):
    return hkdf(key, b"", chaining, 64)[32:]


def blocks():
    prologue = b"mayfly\x01\x0d" + TOKEN
    kem = encapsulation()
    acts, keys, h, chaining = handshake(prologue, ANN, BOB, EPHEMERAL["dialer"], EPHEMERAL["listener"], kem)
    half = len(acts[0]) // 2
    dials = [
        b"\x0d\x11" + TOKEN + DIALER_ID + bytes([number, 0]) + acts[0][number * half :][:half]
        for number in (0, 1)
    ]
    answer = b"\x0d\x12" + DIALER_ID + LISTENER_ID + acts[1]
    finish = b"\x0d\x13" + LISTENER_ID + acts[2]
    # 0 to 9 received but for 4: largest 9, 250 µs, one further range, 5 to 9, a gap of one, 0 to 3.
    ack = b"\x02" + integer(9) + integer(250) + integer(1) + integer(4) + integer(0) + integer(3)
    frames = ack + data(0, b"\x20\x07")
    return {
        "datagram handshake": [
            ("dialer's ephemeral", EPHEMERAL["dialer"]), ("listener's ephemeral", EPHEMERAL["listener"]),
            ("dialer's seed", SEED), ("listener's message", MESSAGE), ("ciphertext", kem[1]), ("secret", kem[2]),
            ("dialer's id", DIALER_ID), ("listener's id", LISTENER_ID), ("prologue", prologue),
            ("first half", dials[0]), ("second half", dials[1]), ("answer", answer), ("finish", finish),
            ("dialer's key", keys[0]), ("listener's key", keys[1]), ("handshake hash", h),
        ],
        "sealed packets": [
            ("ping", packet(keys[1], 0, DIALER_ID, 0, b"\x01")),
            ("number", 10), ("frames", frames), ("packet", packet(keys[0], 0, LISTENER_ID, 10, frames)),
            ("close", packet(keys[0], 0, LISTENER_ID, 11, b"\x08\x00")),
            ("rotated", packet(rotated(keys[0], chaining), 1, LISTENER_ID, 4096, b"\x01")),
        ],
    }  # fmt: skip
