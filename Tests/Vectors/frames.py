"""The frames of Frames.md, made from that page's tables."""

import hashlib
import struct
import zlib

import values as v
from primitives import recoverable, sha256
from values import ANN, ANN_KEY, BOB, BOB_KEY, CONVERSATION, ENDPOINTS, MESSAGE, TAG, TIME, base64url, text

CREDIT, PIECE = 16_384, b"piece"


def varint(value):
    if value < 0:
        value += 1 << 64
    result = b""
    while value > 0x7F:
        result += bytes([value & 0x7F | 0x80])
        value >>= 7
    return result + bytes([value])


def message(*fields):
    """Protobuf, fields in the order of their numbers. Empty and zero ones are left out unless marked."""
    result = b""
    for number, value, *mark in fields:
        if value is None or (not mark and value in ("", b"", 0, False)):
            continue
        if isinstance(value, str):
            value = value.encode()
        if isinstance(value, bytes):
            result += varint(number << 3 | 2) + varint(len(value)) + value
        else:
            result += varint(number << 3) + varint(int(value))
    return result


PRESENT = True

OTHER_MESSAGES = [bytes(range(first, first + 16)) for first in (0x10, 0x20, 0x30)]


def content(kind, payload, id=b"", sent=0, lifetime="", agreement=b"", age=0, fallback="", push=True):
    fields = (1, kind), (2, id), (3, sent), (4, lifetime), (5, agreement), (6, age), (7, fallback), (8, push)
    return message((2, message(*fields, (9, payload)), PRESENT))


def contents(*frames):
    """One frame of the chat contents of several."""
    # Each is the field 2 of a frame of its own: the field 1 of `Contents` has the same value.
    return message((8, b"".join(b"\x0a" + frame[1:] for frame in frames), PRESENT))


def chat(kind, payload, fallback="", push=True):
    return contents(content(kind, payload, MESSAGE, TIME, "1d", v.PLAIN.agreement, 1_500, fallback, push))


def member(key, name, endpoints, version, signature):
    texts = [(3, endpoint, PRESENT) for endpoint in endpoints]
    return message((1, key), (2, name), *texts, (4, version), (5, signature))


ANN_MEMBER = member(ANN_KEY, v.ANN_NAME, ENDPOINTS, TIME, v.ANN_MEMBER.signature)
BOB_MEMBER = member(BOB_KEY, v.BOB_NAME, [], TIME + 1, v.BOB_MEMBER.signature)
GROUP = message(
    (1, CONVERSATION), (2, 3), (3, 2), (4, v.GROUP_NAME), (5, False), (6, ANN_KEY), (6, BOB_KEY), (7, v.GROUP.signature)
)
DEPARTURE = message((1, CONVERSATION), (2, BOB_KEY), (3, v.DEPARTURE.signature))
GENESIS = message((1, CONVERSATION), (2, ANN_KEY), (3, TIME), (4, v.GENESIS.signature))
AGREEMENT = message((1, v.PLAIN.json()), (3, v.ACCEPT_JSON))
TERMS = message((1, "7d"), (2, "1d"), (3, 5_400_000), (4, "read"))
PLAIN_TERMS = message((1, "1d"), (4, "send"))

INVITE_PAYLOAD = message(
    (1, TAG), (2, v.CONVERSATION_TOKEN), (3, v.INBOX), (4, v.SECRET), (5, ENDPOINTS[0]), (5, ENDPOINTS[1]),
    (6, v.GROUP_NAME), (7, ""), (8, "1d"), (10, TIME + 86_400_000), (11, True),
)  # fmt: skip
INVITE_SIGNATURE = recoverable(ANN, sha256(INVITE_PAYLOAD))
SIGNED_INVITE = message((1, INVITE_PAYLOAD), (2, INVITE_SIGNATURE))
SLUG = "mayfly:join/" + base64url(SIGNED_INVITE)


def deflate(data):
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


SLUG_DEFLATED = "mayfly:join/" + base64url(b"\x1f" + deflate(SIGNED_INVITE))

# Of the whole group: see Join.md. Its examples name the digest as any eight bytes.
DIGEST = bytes(range(0xF0, 0xF8))
HASH = hashlib.blake2b(b"a file", digest_size=32).digest()
NONCE = bytes(range(0xE0, 0xF0))


def relay(field, *fields):
    return message((field, message(*fields), PRESENT))


def stream(number, field, value):
    return message((1, number), (field, value, PRESENT))


BOX, SLOT, TAG_OF_SLOT = bytes(range(0x40, 0x50)), bytes(range(0x50, 0x60)), bytes(range(0x60, 0x80))
PROOF = bytes(range(0x80, 0xA0))
NOTICE_ANSWER = b"answer"


def mailbox(field, number, *fields):
    return message((field, message((number, message(*fields), PRESENT)), PRESENT))


def rejection(reason):
    return text({"type": "lifetime_reject", "proposal": v.PLAIN.digest.hex(), "reason": reason})


def join_error():
    body = text({"errorType": "generic_failure", "inviteTag": TAG, "timestamp": v.iso(TIME)})
    return body + " " * (160 - len(body))


def start(*fields):
    return message((1, message(*fields), PRESENT))


def examples():
    id = v.PLAIN.agreement
    first = [(6, BOB_MEMBER), (7, DIGEST)]
    run = (13, 0x0807060504030201)
    attachment = (1, "grüße.txt"), (2, "text/plain"), (3, 100_000), (4, 61_440), (5, HASH), (6, "look"), (7, MESSAGE)
    receipt = (1, CONVERSATION), (2, BOB_KEY), (3, v.DESTROYED), (4, v.RECEIPT.signature)
    request = (1, INVITE_PAYLOAD), (2, INVITE_SIGNATURE), (3, v.SECRET), (6, BOB_MEMBER)
    welcome = [(1, TAG), (2, GENESIS), (5, ANN_MEMBER)]
    withdrawal = text({"type": "lifetime_withdraw", "proposal": v.PLAIN.digest.hex()})
    return {
        "session": start(
            (1, True), (2, id), (3, AGREEMENT), (6, ANN_MEMBER), (7, DIGEST), (8, 3), (10, PLAIN_TERMS), (11, 1),
            (12, v.FULL.digest), (13, 0x0102030405060708), (14, True),
        ),
        "session of a joiner, nothing agreed": start(*first, run),
        "session of a joiner under an agreement": start((2, id), (3, AGREEMENT), *first, (11, 1), run),
        "text": chat("mayfly/text:1.0", "grüße"),
        "ephemeral text": contents(content("mayfly/text:1.0", "hi", MESSAGE, TIME, "ephemeral")),
        "two texts": contents(
            content("mayfly/text:1.0", "hi", MESSAGE, TIME, "ephemeral", age=20),
            content("mayfly/text:1.0", "ho", OTHER_MESSAGES[0], TIME + 15, "ephemeral", age=5),
        ),
        "reply": chat("mayfly/reply:1.0", message((1, MESSAGE), (2, "ja")), "ja"),
        "reaction": chat("mayfly/reaction:1.0", message((1, MESSAGE), (2, "👍")), "reacted 👍", push=False),
        "reaction taken back": chat(
            "mayfly/reaction:1.0", message((1, MESSAGE), (2, "👍"), (3, True)), "took back 👍", push=False
        ),
        "attachment": chat("mayfly/attachment:1.0", message(*attachment), "[file grüße.txt, 100000 bytes] look"),
        "unknown type": chat("example.org/poll:2.1", b"\x00\xff", "a poll"),
        "receipt": content("mayfly/receipt:1.0", message((1, 1), (2, MESSAGE))),
        "acknowledgement": message((3, message((4, MESSAGE)), PRESENT)),
        "acknowledgement of four contents": message(
            (3, message((4, MESSAGE + OTHER_MESSAGES[0]), (5, OTHER_MESSAGES[1]), (6, OTHER_MESSAGES[2])), PRESENT)
        ),
        "acknowledgement, expired on arrival": message((3, message((6, MESSAGE)), PRESENT)),
        "ping": message((4, 7, PRESENT)),
        "pong": message((5, 7, PRESENT)),
        "closing, another link is kept": message((6, True, PRESENT)),
        "closing, asleep": message((6, False, PRESENT)),
        "explosion": message((7, v.NOW.sealed)),
        "attachment request": message((20, message((1, MESSAGE), (2, 4), (3, 32)), PRESENT)),
        "attachment chunk": message((21, message((1, MESSAGE), (2, 3), (3, True), (4, deflate(b"a" * 64))), PRESENT)),
        "attachment gone": message((22, MESSAGE)),
        "proposal": content("mayfly/lifetime_proposal:1.0", v.FULL.json()),
        "accept": content("mayfly/lifetime_accept:1.0", v.ACCEPT_JSON),
        "reject": content("mayfly/lifetime_reject:1.0", rejection("policy")),
        "withdraw": content("mayfly/lifetime_withdraw:1.0", withdrawal),
        "agreement": content("mayfly/lifetime_agreement:1.0", AGREEMENT),
        "ended": content("mayfly/lifetime_ended:1.0", message((1, id), (2, TERMS))),
        "join request": content("mayfly/join_request:1.0", message(*request)),
        "welcome": content("mayfly/welcome:1.0", message(*welcome, (7, GROUP), (20, AGREEMENT))),
        "welcome, explosion scheduled": content(
            "mayfly/welcome:1.0",
            message(*welcome, (6, TIME // 1000 * 1000, PRESENT), (7, GROUP), (15, v.LATER.sealed)),
        ),
        "join error": content("convos.org/invite_join_error:1.0", join_error()),
        "join cancelled": content("mayfly/join_cancelled:1.0", b""),
        "group updated": content("mayfly/group_updated:1.0", message((1, GROUP), (2, BOB_MEMBER), (3, DEPARTURE))),
        "profile": content("mayfly/profile:1.0", ANN_MEMBER),
        "member left": content("mayfly/member_left:1.0", DEPARTURE),
        "deletion receipt": content("mayfly/deletion_receipt:1.0", message(*receipt)),
        "invitation": content("mayfly/invitation:1.0", message((1, MESSAGE), (2, SLUG), (3, v.GROUP_NAME))),
        "reserve": relay(30, (4, message((1, NONCE)), PRESENT)),
        "withdraw reservations": relay(30, (5, message((1, NONCE)), PRESENT)),
        "release": relay(30, (6, True, PRESENT)),
        "open": relay(30, (2, NONCE)),
        "stream data to the rendezvous node": relay(30, (3, stream(0, 2, PIECE))),
        "reserved": relay(31, (1, message((2, 32), (3, 1_048_576), (4, 1_024), (5, 8)))),
        "refused": relay(31, (2, 2, PRESENT)),
        "incoming": relay(31, (5, message((1, 7), (2, NONCE)))),
        "stream data": relay(31, (4, stream(7, 2, PIECE))),
        "stream credit": relay(31, (4, stream(7, 3, CREDIT))),
        "stream end": relay(31, (4, stream(7, 4, True))),
        "stream close": relay(31, (4, stream(7, 5, 2))),
        "punch offer": message((32, message((1, 1), (2, NONCE), (3, ENDPOINTS[0])), PRESENT)),
        "punch go": message((32, message((1, 3), (2, NONCE)), PRESENT)),
        "mailbox claim": mailbox(40, 1, (1, ANN_KEY), (2, PROOF), (3, NONCE)),
        "mailbox drop": message((40, message((2, NONCE, PRESENT)), PRESENT)),
        "mailbox list": message((40, message((3, BOX, PRESENT)), PRESENT)),
        "mailbox purge": mailbox(40, 4, (1, BOX), (2, SLOT)),
        "mailbox put": mailbox(40, 5, (1, BOX), (2, SLOT), (3, 2), (4, 3), (5, b"a" * 1_024)),
        "mailbox take": mailbox(40, 6, (1, BOX), (2, TAG_OF_SLOT)),
        "mailbox discard": mailbox(40, 7, (1, BOX), (2, TAG_OF_SLOT)),
        "mailbox discard, a notice answered": mailbox(40, 7, (1, BOX), (2, TAG_OF_SLOT), (3, NOTICE_ANSWER)),
        "mailbox granted": mailbox(41, 1, (1, 128), (2, 256), (3, 4_194_304), (4, 2_592_000_000)),
        "mailbox refused": message((41, message((2, 2, PRESENT)), PRESENT)),
        "mailbox waiting": message((41, message((3, BOX, PRESENT)), PRESENT)),
        "mailbox slots": mailbox(41, 4, (1, BOX), (2, SLOT)),
        "mailbox put, stored": mailbox(41, 5, (1, BOX), (2, SLOT), (3, 1)),
        "mailbox slot, a notice answered": mailbox(
            41, 6, (1, BOX), (2, SLOT), (3, 1_500), (4, True), (5, NOTICE_ANSWER)
        ),
        "mailbox absent": mailbox(41, 7, (1, BOX), (2, SLOT)),
        "mailbox discarded": mailbox(41, 8, (1, BOX), (2, SLOT)),
        "slices wanted": mailbox(42, 1, (1, id), (2, 41_556, PRESENT)),
        "slices wanted, of none known": mailbox(42, 1, (1, id)),
        "slice keys": mailbox(42, 2, (1, id), (2, 41_557), (3, 41_556), (4, 900_000), (5, ANN_KEY + BOB_KEY)),
    }


def blocks():
    return {f"frame: {name}": [("bytes", data)] for name, data in examples().items()}
