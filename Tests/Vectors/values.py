"""The values of SignedValues.md, made from that page's rules."""

import datetime
import json
import struct

from primitives import *

ANN, BOB = b"\x11" * 32, b"\x22" * 32
ANN_KEY, BOB_KEY = public(ANN), public(BOB)
CONVERSATION = bytes(range(0x20, 0x40))
TIME = 1_795_247_146_133  # milliseconds since 1970
TOKEN = bytes(range(0x50, 0x60))  # any routing token
TAG = "AbCdEf0123"
SECRET = bytes(range(0x60, 0x80))  # of an invite
ENDPOINTS = ["tcp://192.0.2.1:7440", "tcp://[2001:db8::1]:7440"]
SEND, READ = "send", "read"


def nonce24(first):
    return bytes(range(first, first + 24))


def number(value):
    return struct.pack(">Q", value)


def field(value):
    data = value.encode() if isinstance(value, str) else value
    return number(len(data)) + data


def iso(milliseconds):
    seconds = milliseconds // 1000
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Signed:
    def __init__(self, tag, transcript, secret):
        self.tag, self.transcript = tag, transcript
        self.digest = tagged(tag, transcript)
        self.signature = schnorr(secret, self.digest) if secret else b""

    def lines(self, *fields):
        signature = [("signature", self.signature)] if self.signature else []
        return [*fields, ("transcript", self.transcript), ("digest", self.digest), *signature]


GENESIS = Signed("mayfly/genesis", field(CONVERSATION) + field(ANN_KEY) + number(TIME), ANN)


def member(secret, name, endpoints, version):
    transcript = field(public(secret)) + field(name) + number(len(endpoints))
    transcript += b"".join(field(endpoint) for endpoint in endpoints) + number(version)
    return Signed("mayfly/profile", transcript, secret)


ANN_NAME, BOB_NAME = "Änn", ""
ANN_MEMBER = member(ANN, ANN_NAME, ENDPOINTS, TIME)
BOB_MEMBER = member(BOB, BOB_NAME, [], TIME + 1)

GROUP_NAME = "Räume"
GROUP = Signed(
    "mayfly/group_updated",
    field(CONVERSATION) + number(3) + number(2) + field(GROUP_NAME) + number(0) + number(2)
    + field(ANN_KEY) + field(BOB_KEY),
    ANN,
)
KNOWN = sorted([(ANN_KEY, ANN_MEMBER), (BOB_KEY, BOB_MEMBER)], key=lambda known: known[0])
GROUP_DIGEST = Signed(
    "mayfly/group_digest", field(GROUP.digest) + b"".join(field(member.digest) for _, member in KNOWN), None
)
DEPARTURE = Signed("mayfly/member_left", field(CONVERSATION) + field(BOB_KEY), BOB)


class Proposal(Signed):
    def __init__(self, epoch, previous, nonce, lifetime, attachment="", unopened=0, timer=SEND, mailbox=""):
        self.epoch, self.previous, self.nonce = epoch, previous, nonce
        self.lifetime, self.attachment, self.unopened, self.timer = lifetime, attachment, unopened, timer
        self.mailbox = mailbox
        transcript = field(CONVERSATION) + number(2) + number(epoch) + field(previous) + field(lifetime)
        transcript += number(TIME) + field(nonce) + field(ANN_KEY) + field(attachment) + number(unopened)
        transcript += field(timer) + (field(mailbox) if mailbox else b"")
        super().__init__("mayfly/lifetime_proposal", transcript, ANN)
        self.agreement = tagged("mayfly/lifetime_agreement", field(self.digest))

    def json(self):
        body = {
            "type": "lifetime_proposal", "sessionId": CONVERSATION.hex(), "id": self.digest.hex(),
            "lifetime": self.lifetime, "proposedAt": TIME / 1000, "epoch": self.epoch, "membership": 2,
            "previous": self.previous.hex(), "nonce": self.nonce.hex(), "proposer": ANN_KEY.hex(),
            "signature": self.signature.hex(),
        }  # fmt: skip
        body |= {"attachments": self.attachment} if self.attachment else {}
        body |= {"unopened": self.unopened} if self.unopened else {}
        body |= {"timer": self.timer} if self.timer != SEND else {}
        body |= {"mailbox": self.mailbox} if self.mailbox else {}
        return text(body)

    def block(self):
        fields = [("epoch", self.epoch), ("previous", self.previous), ("nonce", self.nonce)]
        fields += [("lifetime", self.lifetime), ("attachment", self.attachment)]
        fields += [("unopened", self.unopened), ("timer", self.timer)]
        fields += [("mailbox", self.mailbox)] if self.mailbox else []
        return self.lines(*fields) + [("agreement", self.agreement), ("json", self.json())]


def text(body):
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


PLAIN = Proposal(1, bytes(32), bytes(range(16)), "1d")
FULL = Proposal(2, PLAIN.agreement, bytes(range(16, 32)), "7d", "1d", 5_400_000, READ)
HELD = Proposal(3, FULL.agreement, bytes(range(32, 48)), "1d", mailbox="disk")

ACCEPTED = TIME + 2_000
ACCEPT = Signed(
    "mayfly/lifetime_accept",
    field(CONVERSATION) + field(PLAIN.digest) + field("1d") + number(ACCEPTED) + field(BOB_KEY),
    BOB,
)
ACCEPT_JSON = text(
    {
        "type": "lifetime_accept", "sessionId": CONVERSATION.hex(), "lifetime": "1d",
        "acceptedAt": ACCEPTED / 1000, "proposal": PLAIN.digest.hex(), "acceptor": BOB_KEY.hex(),
        "signature": ACCEPT.signature.hex(),
    }  # fmt: skip
)

# Explosions

NOTICE_KEY = hkdf(CONVERSATION, b"mayfly explode notice v1")


class Notice(Signed):
    def __init__(self, immediate, nonce):
        extra = ',"immediate":true' if immediate else ""
        self.settings = '{"expiresAt":"%s"%s}' % (iso(TIME), extra)
        transcript = field(CONVERSATION) + field(GENESIS.digest)
        transcript += field("convos.org/explode_settings:1.0") + field(self.settings)
        super().__init__("mayfly/explode_notice", transcript, ANN)
        plain = CONVERSATION + GENESIS.digest + self.signature + self.settings.encode()
        self.sealed = xchacha(NOTICE_KEY, nonce, plain + bytes(472 - len(plain)), b"notice")

    def block(self):
        return self.lines(("settings", self.settings)) + [("nonce", self.sealed[:24]), ("sealed", self.sealed)]


NOW, LATER = Notice(True, nonce24(0x80)), Notice(False, nonce24(0x80))

DESTROYED = TIME + 5_000
RECEIPT = Signed("mayfly/deletion_receipt", field(CONVERSATION) + field(BOB_KEY) + number(DESTROYED), BOB)
RECEIPT_SEALED = xchacha(
    NOTICE_KEY, nonce24(0xA0), CONVERSATION + BOB_KEY + RECEIPT.signature + number(DESTROYED), b"receipt"
)

# Routing secrets and what comes from them

SHARED = ecdh(ANN, BOB_KEY)
INVITE_ID = sha256(SECRET)
CARD_SECRET = bytes(range(0xC0, 0xE0))
ANN_TO_BOB = hkdf(SHARED, b"mayfly/1 routing member" + ANN_KEY + BOB_KEY, CONVERSATION)
BOB_TO_ANN = hkdf(SHARED, b"mayfly/1 routing member" + BOB_KEY + ANN_KEY, CONVERSATION)
INVITE_ROUTE = hkdf(INVITE_ID, b"mayfly/1 routing invite")
CARD_ROUTE = hkdf(CARD_SECRET, b"mayfly/1 routing card")
INVITE_KNOCK = hkdf(INVITE_ROUTE, b"mayfly/1 knock")
SEAL = hkdf(INVITE_KNOCK, b"mayfly/1 knock seal")
QUESTION = xchacha(SEAL, nonce24(0xB0), bytes(472), TOKEN)

STATED = TIME + 7_000
STATEMENT = Signed(
    "mayfly/join_error", field("conversation_expired") + field(TAG) + number(STATED) + field(ANN_KEY), ANN
)
STATEMENT_SEALED = xchacha(
    SEAL, nonce24(0xD0), TAG.encode() + number(STATED) + STATEMENT.signature, b"join error" + TOKEN
)

# Invites, cards and names

INBOX = blake2b(b"mayfly inbox id v1", ANN_KEY)
MESSAGE_NONCE = bytes(range(8))
MESSAGE = MESSAGE_NONCE + blake2b(b"mayfly message id v1", CONVERSATION, ANN_KEY, MESSAGE_NONCE)[:8]
TOKEN_NONCE = bytes(range(0x40, 0x4C))
TOKEN_KEY = hkdf(ANN, b"mayfly conversation token v1")
CONVERSATION_TOKEN = b"\1" + TOKEN_NONCE + chacha20poly1305(TOKEN_KEY, TOKEN_NONCE, CONVERSATION, INBOX)
CARD_BODY = b"\2" + ANN_KEY + CARD_SECRET + "\n".join(ENDPOINTS).encode()


def base64url(data):
    import base64

    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


CARD = "mayfly:card/" + base64url(CARD_BODY + sha256(CARD_BODY)[:4])


def blocks():
    from frames import INVITE_PAYLOAD, INVITE_SIGNATURE, SLUG, SLUG_DEFLATED

    endpoints = [("endpoint", endpoint) for endpoint in ENDPOINTS]
    accept_fields = ("proposal", PLAIN.digest), ("lifetime", "1d"), ("acceptedAt", ACCEPTED)
    return {
        "inputs": [
            ("ann", ANN), ("ann's key", ANN_KEY), ("bob", BOB), ("bob's key", BOB_KEY),
            ("conversation", CONVERSATION), ("time", TIME), ("token", TOKEN), ("join secret", SECRET),
            ("tag", TAG),
        ],
        "names": [
            ("ann's inbox id", INBOX), ("nonce", MESSAGE_NONCE), ("message id", MESSAGE), ("invite id", INVITE_ID),
        ],
        "genesis": GENESIS.lines(("createdAt", TIME)),
        "member": ANN_MEMBER.lines(("name", ANN_NAME), *endpoints, ("version", TIME)),
        "member without name and endpoints": BOB_MEMBER.lines(("name", ""), ("version", TIME + 1)),
        "group state": GROUP.lines(("version", 3), ("membership", 2), ("name", GROUP_NAME), ("locked", 0)),
        "group digest": GROUP_DIGEST.lines() + [("group_digest", GROUP_DIGEST.digest[:8])],
        "departure": DEPARTURE.lines(("member", BOB_KEY)),
        "proposal with a lifetime alone": PLAIN.block(),
        "proposal with all terms": FULL.block(),
        "proposal with a mailbox": HELD.block(),
        "accept": ACCEPT.lines(*accept_fields) + [("json", ACCEPT_JSON)],
        "notice, immediate": NOW.block(),
        "notice, scheduled": LATER.block(),
        "deletion receipt": RECEIPT.lines(("destroyedAt", DESTROYED))
        + [("nonce", RECEIPT_SEALED[:24]), ("sealed", RECEIPT_SEALED)],
        "statement": STATEMENT.lines(("statedAt", STATED))
        + [("nonce", STATEMENT_SEALED[:24]), ("sealed", STATEMENT_SEALED)],
        "conversation token": [("key", TOKEN_KEY), ("nonce", TOKEN_NONCE), ("conversation token", CONVERSATION_TOKEN)],
        "invite": [
            ("payload", INVITE_PAYLOAD), ("signature", INVITE_SIGNATURE), ("slug", SLUG), ("deflated", SLUG_DEFLATED),
        ],
        "contact card": [("routing secret", CARD_SECRET), *endpoints, ("card", CARD)],
        "routing secrets": [
            ("ecdh", SHARED), ("ann dials bob", ANN_TO_BOB), ("bob dials ann", BOB_TO_ANN),
            ("invite", INVITE_ROUTE), ("card", CARD_ROUTE),
        ],
        "knock": [
            ("notice key", NOTICE_KEY), ("knock secret of the invite", INVITE_KNOCK), ("sealing key", SEAL),
            ("nonce", QUESTION[:24]), ("question", QUESTION),
        ],
    }  # fmt: skip
