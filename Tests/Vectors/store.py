"""A home, made from Store.md: keystore, pages, a state log, a segment, a journal, a tombstone and the clock."""

import ctypes
import struct

from primitives import *
from values import nonce24

KEY_FILE = bytes(range(0x40, 0x60))
ROOT = bytes(range(0x60, 0x80))
SALT = bytes(range(0x80, 0x90))
PASSPHRASE = b"correct horse battery staple"
ROW_SLOT, COLUMN_SLOT, TOMBSTONE_SLOT = 5, 2, 0
BUCKET = 180_000_001  # of 10 s: ends on 2027-01-15 at 08:00:10 UTC
NOT_AFTER = BUCKET * 10_000
FILE_ID, SEGMENT_ID = bytes(range(0xA0, 0xB0)), bytes(range(0xB0, 0xC0))
MESSAGE_ID, TOMBSTONE_ID = bytes(range(0xC0, 0xD0)), bytes(range(0xD0, 0xE0))


def little(value, count=8):
    return value.to_bytes(count, "little")


def argon2id(passphrase, salt, passes, memory):
    """The one thing that Python has not: libsodium's."""
    sodium = ctypes.CDLL("libsodium.so.23")
    key = ctypes.create_string_buffer(32)
    sizes = ctypes.c_ulonglong(len(passphrase)), salt, ctypes.c_ulonglong(passes), ctypes.c_size_t(memory)
    assert sodium.crypto_pwhash(key, ctypes.c_ulonglong(32), passphrase, *sizes, 2) == 0
    return key.raw


def keystore(protection, wrapping, passes=3, memory=256 << 20):
    header = b"MFKEYS1\0" + little(1) + bytes([protection]) + bytes(7) + little(passes) + little(memory) + SALT
    copy = header + xchacha(wrapping, nonce24(0x10), ROOT, header)
    return copy + blake2b(b"mayfly keystore", copy, count=16)


def payload(count):
    """Of the examples' pages: of a real page it is random."""
    return bytes(i % 251 for i in range(count))


def key_page(keys, name, index, header):
    associated = b"mayfly " + name + b"\0" + little(index) + header
    plain = payload(4_096 - len(header) - 40)
    page = header + xchacha(keys["KS"], nonce24(0x30), plain, associated)
    return page, associated, blake2b(associated, plain, key=keys["KX"])


def page_lines(page, header):
    return [("page begins", page[: header + 24 + 16]), ("page ends", page[-16:]), ("page's SHA-256", sha256(page))]


def siphash(key, data):
    """SipHash-2-4."""
    mask = 2**64 - 1
    k = struct.unpack("<QQ", key)
    v = [k[0] ^ 0x736F6D6570736575, k[1] ^ 0x646F72616E646F6D, k[0] ^ 0x6C7967656E657261, k[1] ^ 0x7465646279746573]

    def turn(x, b):
        return (x << b | x >> (64 - b)) & mask

    def rounds(count):
        for _ in range(count):
            v[0] = (v[0] + v[1]) & mask
            v[1] = turn(v[1], 13) ^ v[0]
            v[0] = turn(v[0], 32)
            v[2] = (v[2] + v[3]) & mask
            v[3] = turn(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & mask
            v[3] = turn(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & mask
            v[1] = turn(v[1], 17) ^ v[2]
            v[2] = turn(v[2], 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return little(v[0] ^ v[1] ^ v[2] ^ v[3])


assert siphash(bytes(range(16)), bytes(range(15))).hex() == "e545be4961ca29a1"


def record(key, file_data, number, plain, nonce):
    tag = blake2b(b"mayfly file", file_data, count=16)
    sealed = xchacha(key, nonce, plain, tag + little(number))
    head = little(len(sealed), 4) + little(number, 4)
    return head + siphash(tag, head) + sealed + little(len(sealed), 4)


def plaintext(message_id, order, ceiling, floor, payload):
    head = little(NOT_AFTER) + little(order) + little(0, 4) + message_id + little(ceiling) + little(floor)
    return head + payload


def column_header(tier, bucket, not_after):
    head = b"MFCOL1\0\0" + bytes([tier, 0, 0, 0]) + little(0, 4) + little(bucket) + little(not_after) + bytes(16)
    return head + blake2b(b"mayfly column header", head, count=16)


def blocks():
    wrapping = blake2b(b"mayfly key file", SALT, key=KEY_FILE)
    stretched = argon2id(PASSPHRASE, SALT, 3, 256 << 20)
    labels = {"KS": "key pages", "KX": "page to secret", "KT": "tombstones", "KC": "control row", "KJ": "journal"}
    keys = {name: blake2b(f"mayfly {name}: {label}".encode(), key=ROOT) for name, label in labels.items()}

    row, row_data, s = key_page(keys, b"rows.slots", ROW_SLOT, b"")
    names = {name: blake2b(b"mayfly row " + name.encode(), key=s, count=16) for name in
             ("generation", "directory", "log name", "tag")}  # fmt: skip
    header = column_header(1, BUCKET, NOT_AFTER)
    column, column_data, e = key_page(keys, b"columns.slots", COLUMN_SLOT, header)
    column_tag = blake2b(b"mayfly column tag", key=e, count=16)

    side = b"MFEXP1\0\0" + SEGMENT_ID + bytes([1]) + bytes(7) + little(BUCKET) + little(NOT_AFTER)
    side += names["tag"] + column_tag + bytes(16)
    side += blake2b(b"mayfly sidecar", side, key=blake2b(b"mayfly row sidecar", key=s))
    segment_key = blake2b(b"mayfly segment", SEGMENT_ID, key=s + e)
    plain = plaintext(MESSAGE_ID, 0, 0, 2**63 - 1, b"a message")
    segment = record(segment_key, side, 0, plain, nonce24(0x50))

    log_key = blake2b(b"mayfly row log", FILE_ID, key=s)
    log_data = b"mayfly state" + FILE_ID
    log = b"MFLOG1\0\0" + FILE_ID + record(log_key, log_data, 0, b"a state", nonce24(0x70))
    log += record(log_key, log_data, 1, b"the state", nonce24(0x90))

    later = plaintext(bytes(range(0xE0, 0xF0)), 1, 1, NOT_AFTER, b"a message in the journal")
    body = record(segment_key, side, 1, later, nonce24(0xD0))
    table = bytes([1]) + names["directory"] + SEGMENT_ID + little(len(segment)) + little(len(body), 4)
    block = b"MFJRNL1\0" + little(0) + little(1) + little(0) + little(1)
    block += little(len(body), 4) + little(len(table) + 40, 4) + body
    block += xchacha(keys["KJ"], nonce24(0xF0 - 24), table, block)

    tomb = b"MFTOMB1\0" + little(NOT_AFTER)
    tomb += blake2b(b"mayfly tombstone", tomb, count=16)
    tomb_data = b"mayfly tombstones.slots\0" + little(TOMBSTONE_SLOT) + tomb
    text = b"a tombstone"
    tomb_plain = TOMBSTONE_ID + little(0, 4) + little(len(text), 2) + text + bytes(4_002 - len(text))
    tombstone = tomb + xchacha(keys["KT"], nonce24(0xB0), tomb_plain, tomb_data)
    time = NOT_AFTER - 10_000
    return {
        "keystore": [
            ("key", KEY_FILE), ("salt", SALT), ("wrapping key", wrapping), ("root", ROOT),
            ("keystore", keystore(1, wrapping)),
            ("passphrase", PASSPHRASE.decode()), ("wrapping key of it", stretched),
            ("keystore of it", keystore(2, stretched)), *keys.items(),
        ],
        "row page": [
            ("index", ROW_SLOT), ("nonce", nonce24(0x30)), ("associated data", row_data), *page_lines(row, 0),
            ("S", s), ("identity key 0", blake2b(b"mayfly row use: identity key 0", key=s)),
            *names.items(),
        ],
        "column page": [
            ("index", COLUMN_SLOT), ("nonce", nonce24(0x30)), ("associated data", column_data),
            *page_lines(column, 64), ("E", e), ("tag", column_tag),
        ],
        "segment": [
            ("segment id", SEGMENT_ID), ("sidecar", side), ("segment key", segment_key), ("plaintext", plain),
            ("segment", segment),
        ],
        "journal": [("table", table), ("body", body), ("block", block)],
        "state log": [("file id", FILE_ID), ("key", log_key), ("log", log)],
        "tombstone page": [
            ("index", TOMBSTONE_SLOT), ("associated data", tomb_data), ("plaintext begins", tomb_plain[:33]),
            ("nonce", nonce24(0xB0)), *page_lines(tombstone, 32),
        ],
        "clock": [("time", time), ("copy", little(time) + blake2b(b"mayfly clock", little(time), count=16)[:8])],
    }  # fmt: skip
