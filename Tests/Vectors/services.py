"""The names and bytes of Relay.md and Mailbox.md, made from those pages' rules."""

import struct

from frames import examples
from primitives import *
from values import ANN, ANN_KEY, BOB, BOB_KEY, CONVERSATION, NOTICE_KEY, NOW, PLAIN, RECEIPT_SEALED, base64url, nonce24

# The contact inboxes of a node that serves and of its user; the routing secret of the server's card.
SERVER, USER, CARD_SECRET = b"\x77" * 32, b"\x88" * 32, bytes(range(0xC0, 0xE0))
SERVER_KEY, USER_KEY = public(SERVER), public(USER)
LINK_KEY = public(b"\x99" * 32)
GENERATION = 2
SEED = hkdf(ANN, b"mayfly/1 relay inbox" + struct.pack(">Q", GENERATION))
CARD_SEED = hkdf(USER, b"mayfly/1 relay card" + bytes(8))
SHARED = ecdh(USER, SERVER_KEY)


def relay():
    label = hkdf(SEED, b"mayfly/1 relay label" + SERVER_KEY)[:16]
    reservation = hkdf(SHARED, b"mayfly/1 reservation" + SERVER_KEY + USER_KEY + label)[:16]
    address = base64url(SERVER_KEY + CARD_SECRET + reservation)
    return {
        "reservation": [
            ("contact inbox of R", SERVER), ("contact inbox of A", USER), ("inbox", ANN), ("generation", GENERATION),
            ("seed", SEED), ("seed of the card", CARD_SEED), ("label", label), ("reservation", reservation),
            ("routing secret of R", CARD_SECRET), ("endpoint", "relay://192.0.2.9:7440/" + address),
        ]
    }  # fmt: skip


# Slots of bob for ann: P is bob, O is ann, who uses the mailbox under the contact inbox of a user.
LABEL = hkdf(SEED, b"mayfly/1 mailbox label" + SERVER_KEY)[:16]
BOX = hkdf(SHARED, b"mayfly/1 mailbox box" + SERVER_KEY + USER_KEY + LABEL)[:16]
PROOF = hkdf(SHARED, b"mayfly/1 mailbox claim" + SERVER_KEY + USER_KEY + LINK_KEY)
SECRET = hkdf(ecdh(BOB, ANN_KEY), b"mayfly/1 mailbox slots" + CONVERSATION + BOB_KEY + ANN_KEY + BOX)
NUMBER = 1_795_247_146_133 << 20 | 5
SLICE, SLICE_SECRET, SLOT_EPHEMERAL = 41_556, b"\xaa" * 32, b"\xbb" * 32


def exclusive(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


def derived(purpose, number):
    return hmac_sha256(SECRET, purpose + struct.pack(">Q", number))


def name(number):
    secret = derived(b"slot", number)[:24]
    hash_ = blake2b(secret, count=16)[:8]
    mark = exclusive(struct.pack(">Q", number), hmac_sha256(SECRET, b"name" + hash_)[:8])
    return secret + mark, hash_ + mark


def slot(frames):
    hint = exclusive(PLAIN.agreement[:8] + struct.pack(">I", SLICE), derived(b"mask", NUMBER))
    head = hint + public(SLOT_EPHEMERAL)
    slice_key = public(SLICE_SECRET)
    key = hkdf(ecdh(SLOT_EPHEMERAL, slice_key) + SECRET, b"mayfly/1 mailbox seal" + head + slice_key)
    plain = b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)
    plain += bytes(1_024 - len(head) - 40 - len(plain))
    return head + xchacha(key, nonce24(0xE0), plain, head + BOX + struct.pack(">Q", NUMBER))


def mailbox():
    frame = examples()["acknowledgement"]
    tag, identifier = name(NUMBER)
    notice_tag = derived(b"notice", 0)
    notice_key = hkdf(SECRET, b"notice seal")
    body = xchacha(notice_key, nonce24(0xE0), NOW.sealed + bytes(472), b"notice" + BOX)
    answer = xchacha(notice_key, nonce24(0xE0), RECEIPT_SEALED, b"answer" + BOX)
    address = base64url(SERVER_KEY + CARD_SECRET + BOX)
    return {
        "box": [
            ("contact inbox of M", SERVER), ("contact inbox of O", USER), ("seed", SEED), ("label", LABEL),
            ("box", BOX), ("key of the link", LINK_KEY), ("proof", PROOF),
            ("address", "mailbox://192.0.2.9:7440/" + address),
        ],
        "slot": [
            ("P", BOB), ("O", ANN), ("secret", SECRET), ("n", NUMBER), ("tag", tag), ("id", identifier),
            ("agreement", PLAIN.agreement), ("slice", SLICE), ("key of the slice", SLICE_SECRET),
            ("ephemeral", SLOT_EPHEMERAL), ("nonce", nonce24(0xE0)), ("frame", frame), ("body", slot([frame])),
        ],
        "slot of a notice": [
            ("tag", notice_tag), ("id", blake2b(notice_tag[:24], count=16)[:8] + notice_tag[24:]),
            ("key", notice_key), ("nonce", nonce24(0xE0)), ("body", body), ("answer", answer),
        ],
    }  # fmt: skip
