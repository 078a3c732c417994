"""The cryptography that the pages name, with Python's standard library alone: slow, short, and no code of ours."""

import hashlib
import hmac
import struct

# secp256k1 (SEC 2, 2.4.1)
P = 2**256 - 2**32 - 977
N = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
G = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)


def add(a, b):
    if a is None:
        return b
    if b is None:
        return a
    if a[0] == b[0]:
        if (a[1] + b[1]) % P == 0:
            return None
        slope = 3 * a[0] * a[0] * pow(2 * a[1], -1, P) % P
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, P) % P
    x = (slope * slope - a[0] - b[0]) % P
    return x, (slope * (a[0] - x) - a[1]) % P


def multiply(scalar, point=G):
    result = None
    while scalar:
        if scalar & 1:
            result = add(result, point)
        point = add(point, point)
        scalar >>= 1
    return result


def compress(point):
    return bytes([2 + (point[1] & 1)]) + point[0].to_bytes(32, "big")


def decompress(key):
    x = int.from_bytes(key[1:], "big")
    y = pow(x**3 + 7, (P + 1) // 4, P)
    assert y * y % P == (x**3 + 7) % P
    return x, y if y & 1 == key[0] & 1 else P - y


def public(secret):
    return compress(multiply(int.from_bytes(secret, "big")))


def ecdh(secret, key):
    """BOLT 8: SHA-256 of the compressed shared point."""
    return sha256(compress(multiply(int.from_bytes(secret, "big"), decompress(key))))


def sha256(data):
    return hashlib.sha256(data).digest()


def tagged(tag, data):
    prefix = sha256(tag.encode())
    return sha256(prefix + prefix + data)


def schnorr(secret, digest, auxiliary=bytes(32)):
    """BIP 340, default signing."""
    d = int.from_bytes(secret, "big")
    point = multiply(d)
    if point[1] & 1:
        d = N - d
    x = point[0].to_bytes(32, "big")
    mask = int.from_bytes(tagged("BIP0340/aux", auxiliary), "big")
    nonce = tagged("BIP0340/nonce", (d ^ mask).to_bytes(32, "big") + x + digest)
    k = int.from_bytes(nonce, "big") % N
    r = multiply(k)
    if r[1] & 1:
        k = N - k
    rx = r[0].to_bytes(32, "big")
    e = int.from_bytes(tagged("BIP0340/challenge", rx + x + digest), "big") % N
    return rx + ((k + e * d) % N).to_bytes(32, "big")


def recoverable(secret, digest):
    """ECDSA with the nonce of RFC 6979 and a low s: r, s, recovery id."""
    v, k = b"\1" * 32, b"\0" * 32
    for step in (b"\0", b"\1"):
        k = hmac_sha256(k, v + step + secret + digest)
        v = hmac_sha256(k, v)
    v = hmac_sha256(k, v)
    nonce = int.from_bytes(v, "big")
    assert 0 < nonce < N
    point = multiply(nonce)
    r = point[0] % N
    s = pow(nonce, -1, N) * (int.from_bytes(digest, "big") + r * int.from_bytes(secret, "big")) % N
    recovery = (point[1] & 1) | (2 if point[0] >= N else 0)
    if s > N // 2:
        s, recovery = N - s, recovery ^ 1
    return r.to_bytes(32, "big") + s.to_bytes(32, "big") + bytes([recovery])


def hmac_sha256(key, data):
    return hmac.new(key, data, hashlib.sha256).digest()


def hkdf(secret, info, salt=b"", count=32):
    """RFC 5869 with SHA-256."""
    pseudorandom = hmac_sha256(salt, secret)
    result, block, number = b"", b"", 1
    while len(result) < count:
        block = hmac_sha256(pseudorandom, block + info + bytes([number]))
        result, number = result + block, number + 1
    return result[:count]


def blake2b(*parts, key=b"", count=32):
    return hashlib.blake2b(b"".join(parts), digest_size=count, key=key).digest()


# ChaCha20-Poly1305 (RFC 8439) and XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha)


def rotate(value, count):
    return (value << count | value >> (32 - count)) & 0xFFFFFFFF


def rounds(state):
    state = list(state)

    def quarter(a, b, c, d):
        for first, second, third, count in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[first] = (state[first] + state[second]) & 0xFFFFFFFF
            state[third] = rotate(state[third] ^ state[first], count)

    for _ in range(10):
        for column in range(4):
            quarter(column, column + 4, column + 8, column + 12)
        for diagonal in range(4):
            quarter(
                diagonal, 4 + (diagonal + 1) % 4, 8 + (diagonal + 2) % 4, 12 + (diagonal + 3) % 4
            )
    return state


SIGMA = struct.unpack("<4I", b"expand 32-byte k")


def chacha20(key, counter, nonce):
    state = SIGMA + struct.unpack("<8I", key) + (counter,) + struct.unpack("<3I", nonce)
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(rounds(state), state)))


def hchacha20(key, nonce):
    state = rounds(SIGMA + struct.unpack("<8I", key) + struct.unpack("<4I", nonce))
    return struct.pack("<8I", *(state[:4] + state[12:]))


def poly1305(key, data):
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    accumulator = 0
    for start in range(0, len(data), 16):
        block = data[start : start + 16]
        accumulator = (accumulator + int.from_bytes(block + b"\1", "little")) * r % (2**130 - 5)
    return ((accumulator + int.from_bytes(key[16:], "little")) & (2**128 - 1)).to_bytes(16, "little")


def chacha20poly1305(key, nonce, plain, associated):
    """Ciphertext and tag."""
    sealed = b""
    for start in range(0, len(plain), 64):
        stream = chacha20(key, 1 + start // 64, nonce)
        sealed += bytes(a ^ b for a, b in zip(plain[start : start + 64], stream))

    def padded(data):
        return data + bytes(-len(data) % 16)

    message = padded(associated) + padded(sealed) + struct.pack("<QQ", len(associated), len(sealed))
    return sealed + poly1305(chacha20(key, 0, nonce)[:32], message)


def xchacha(key, nonce, plain, associated):
    """Nonce, ciphertext and tag: what the pages call sealed by XChaCha20-Poly1305."""
    sub = hchacha20(key, nonce[:16])
    return nonce + chacha20poly1305(sub, bytes(4) + nonce[16:], plain, associated)


def check():
    """Published vectors: RFC 8439, 2.8.2; BIP 340, vector 0; RFC 5869, A.1."""
    key = bytes(range(0x80, 0xA0))
    nonce = bytes.fromhex("070000004041424344454647")
    text = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
        b"sunscreen would be it."
    )
    sealed = chacha20poly1305(key, nonce, text, bytes.fromhex("50515253c0c1c2c3c4c5c6c7"))
    assert sealed[-16:].hex() == "1ae10b594f09e26a7e902ecbd0600691"
    signature = schnorr((3).to_bytes(32, "big"), bytes(32))
    assert signature.hex().upper().startswith("E907831F80848D1069A5371B402410364BDF1C5F8307B0084C55F1CE2DCA8215")
    assert hkdf(b"\x0b" * 22, bytes(range(0xF0, 0xFA)), bytes(range(13)), 42).hex().startswith("3cb25f25faacd57a")
