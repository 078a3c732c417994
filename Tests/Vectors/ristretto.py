"""ristretto255 (RFC 9496) and CPACE-RISTR255-SHA512 (draft-irtf-cfrg-cpace-21), with Python's standard library alone."""

import hashlib
import hmac

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
I = pow(2, (P - 1) // 4, P)


def negative(x):
    return x % P & 1


def absolute(x):
    return -x % P if negative(x) else x % P


def root(u, v):
    """SQRT_RATIO_M1 (4.2): whether u/v is a square, and the root of u/v or of i·u/v that is not negative."""
    r = u * v**3 * pow(u * v**7, (P - 5) // 8, P) % P
    check = v * r * r % P
    if check in (-u % P, -u * I % P):
        r = r * I % P
    return check in (u % P, -u % P), absolute(r)


INVERSE_ROOT_A_MINUS_D = root(1, -1 - D)[1]
# RFC 9496, 4.1: this constant is the negative root.
ROOT_AD_MINUS_ONE = -root(-D - 1, 1)[1] % P


def encode(point):
    """4.3.2"""
    x, y, z, t = point
    u1, u2 = (z + y) * (z - y) % P, x * y % P
    _, inverse = root(1, u1 * u2 * u2)
    d1, d2 = inverse * u1 % P, inverse * u2 % P
    z_inverse = d1 * d2 * t % P
    d = d2
    if negative(t * z_inverse):
        x, y, d = y * I % P, x * I % P, d1 * INVERSE_ROOT_A_MINUS_D % P
    if negative(x * z_inverse):
        y = -y
    return absolute(d * (z - y)).to_bytes(32, "little")


def decode(data):
    """4.3.1"""
    s = int.from_bytes(data, "little")
    u1, u2 = 1 - s * s, 1 + s * s
    v = (-D * u1 * u1 - u2 * u2) % P
    is_square, inverse = root(1, v * u2 * u2)
    d_x = inverse * u2 % P
    x = absolute(2 * s * d_x)
    y = u1 * inverse * d_x * v % P
    assert s < P and not negative(s) and is_square and not negative(x * y) and y
    return x, y, 1, x * y % P


def add(a, b):
    """RFC 8032, 5.1.4; for equal points, too."""
    e, f = (a[1] - a[0]) * (b[1] - b[0]), (a[1] + a[0]) * (b[1] + b[0])
    g, h = 2 * a[3] * b[3] * D, 2 * a[2] * b[2]
    e, f, g, h = f - e, h - g, h + g, f + e
    return e * f % P, g * h % P, f * g % P, e * h % P


def multiply(scalar, data):
    point, result, k = decode(data), (0, 1, 1, 0), int.from_bytes(scalar, "little")
    while k:
        if k & 1:
            result = add(result, point)
        point, k = add(point, point), k >> 1
    return encode(result)


def mapped(data):
    """MAP (4.3.4)."""
    t = int.from_bytes(data, "little") % 2**255
    r = I * t * t % P
    u = (r + 1) * (1 - D * D) % P
    v = (-1 - r * D) * (r + D) % P
    is_square, s = root(u, v)
    c = -1
    if not is_square:
        s, c = -absolute(s * t), r
    n = c * (r - 1) * (D - 1) ** 2 - v
    w0, w1, w2, w3 = 2 * s * v, n * ROOT_AD_MINUS_ONE, 1 - s * s, 1 + s * s
    return w0 * w3 % P, w2 * w1 % P, w1 * w3 % P, w0 * w2 % P


def from_hash(data):
    """4.3.4: 64 bytes to an element."""
    return encode(add(mapped(data[:32]), mapped(data[32:])))


def sha512(data):
    return hashlib.sha512(data).digest()


def prefixed(*parts):
    """lv_cat: each part behind its length. No length here takes a second byte of LEB128."""
    assert all(len(part) < 128 for part in parts)
    return b"".join(bytes([len(part)]) + part for part in parts)


def generator(password, channel, session):
    domain = b"CPaceRistretto255"
    zeros = bytes(max(0, 128 - 1 - len(prefixed(password)) - len(prefixed(domain))))
    return from_hash(sha512(prefixed(domain, password, zeros, channel, session)))


def session_key(session, product, initiator, responder):
    """ISK. The last two are each a share and its sender's data."""
    return sha512(prefixed(b"CPaceRistretto255_ISK", session, product) + prefixed(*initiator) + prefixed(*responder))


def confirmation(session, key, sender):
    """The draft's 10.4."""
    return hmac.new(sha512(b"CPaceMac" + session + key), prefixed(*sender), hashlib.sha512).digest()


def check():
    """The draft's B.3."""
    session = bytes.fromhex("7e4b4791d6a8ef019b936c79fb7f2c57")
    channel = b"\x0bA_initiator\x0bB_responder"
    g = generator(b"Password", channel, session)
    assert g.hex() == "222b6b195fe84b1652badb6f6a3ae3d24341e7306967f0b8115b40d5698c7e56"
    ya = bytes.fromhex("da3d23700a9e5699258aef94dc060dfda5ebb61f02a5ea77fad53f4ff0976d08")
    yb = bytes.fromhex("d2316b454718c35362d83d69df6320f38578ed5984651435e2949762d900b80d")
    a, b = multiply(ya, g), multiply(yb, g)
    assert a.hex() == "d6bac480f2c386c394efc7c47adb9925dcd2630b64f240c50f8d0eec482b9157"
    assert b.hex() == "3ea7e0b19560d7c0b0f5734f63b955286dfa8232b5ebe63324e2d9e7433f7258"
    assert multiply(ya, b) == multiply(yb, a)
    key = session_key(session, multiply(ya, b), (a, b"ADa"), (b, b"ADb"))
    assert key.hex().startswith("b69effbf61b51d56401c0f65601abe428de8206feaaf0e32198896dcae7b35cd")
