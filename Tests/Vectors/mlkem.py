"""ML-KEM-768 from FIPS 203 alone, with its names and numbers of algorithms: slow, short, and no code of ours."""

import hashlib
import pathlib

Q, N, K, ETA, DU, DV = 3329, 256, 3, 2, 10, 4
PUBLISHED = pathlib.Path(__file__).resolve().parent.parent / "CryptoTests" / "Vectors" / "mlkem768.txt"


def reversed_bits(number):
    return int(f"{number:07b}"[::-1], 2)


ZETAS = [pow(17, reversed_bits(index), Q) for index in range(128)]
GAMMAS = [pow(17, 2 * reversed_bits(index) + 1, Q) for index in range(128)]


def ntt(f):
    """Algorithm 9."""
    f, index, length = list(f), 1, 128
    while length >= 2:
        for start in range(0, N, 2 * length):
            for j in range(start, start + length):
                t = ZETAS[index] * f[j + length] % Q
                f[j], f[j + length] = (f[j] + t) % Q, (f[j] - t) % Q
            index += 1
        length //= 2
    return f


def inverse_ntt(f):
    """Algorithm 10."""
    f, index, length = list(f), 127, 2
    while length <= 128:
        for start in range(0, N, 2 * length):
            for j in range(start, start + length):
                t = f[j]
                f[j], f[j + length] = (t + f[j + length]) % Q, ZETAS[index] * (f[j + length] - t) % Q
            index -= 1
        length *= 2
    return [value * 3303 % Q for value in f]


def times(f, g):
    """Algorithms 11 and 12."""
    h = []
    for index in range(128):
        a0, a1, b0, b1 = *f[2 * index : 2 * index + 2], *g[2 * index : 2 * index + 2]
        h += [(a0 * b0 + a1 * b1 * GAMMAS[index]) % Q, (a0 * b1 + a1 * b0) % Q]
    return h


def plus(*polynomials):
    return [sum(values) % Q for values in zip(*polynomials)]


def dot(row, vector):
    return plus(*(times(f, g) for f, g in zip(row, vector)))


def encode(f, d):
    """Algorithm 5."""
    return sum(value << d * index for index, value in enumerate(f)).to_bytes(32 * d, "little")


def decode(data, d):
    """Algorithm 6."""
    number = int.from_bytes(data, "little")
    return [number >> d * index & (1 << d) - 1 for index in range(N)]


def compress(f, d):
    return [((value << d + 1) + Q) // (2 * Q) % (1 << d) for value in f]


def decompress(f, d):
    return [(value * Q * 2 + (1 << d)) >> d + 1 for value in f]


def pieces(data, d):
    return [decode(data[start : start + 32 * d], d) for start in range(0, len(data), 32 * d)]


def sample_ntt(seed):
    """Algorithm 7."""
    stream, a, index = hashlib.shake_128(seed).digest(1344), [], 0
    while len(a) < N:
        low, middle, high = stream[index : index + 3]
        a += [value for value in (low + 256 * (middle % 16), middle // 16 + 16 * high) if value < Q]
        index += 3
    return a[:N]


def matrix(rho):
    return [[sample_ntt(rho + bytes([j, i])) for j in range(K)] for i in range(K)]


def noise(seed, number):
    """Algorithm 8 over PRF."""
    bits = int.from_bytes(hashlib.shake_256(seed + bytes([number])).digest(64 * ETA), "little")
    pairs = [bits >> 2 * ETA * index for index in range(N)]
    return [((b & 1) + (b >> 1 & 1) - (b >> 2 & 1) - (b >> 3 & 1)) % Q for b in pairs]


def g(data):
    digest = hashlib.sha3_512(data).digest()
    return digest[:32], digest[32:]


def key_pair(seed):
    """Algorithms 13 and 16, of d and z: the encapsulation key and the decapsulation key."""
    d, z = seed[:32], seed[32:]
    rho, sigma = g(d + bytes([K]))
    s = [ntt(noise(sigma, index)) for index in range(K)]
    e = [ntt(noise(sigma, K + index)) for index in range(K)]
    t = [plus(dot(row, s), error) for row, error in zip(matrix(rho), e)]
    key = b"".join(encode(f, 12) for f in t) + rho
    return key, b"".join(encode(f, 12) for f in s) + key + hashlib.sha3_256(key).digest() + z


def encrypt(key, message, randomness):
    """Algorithm 14."""
    t, a = pieces(key[: 384 * K], 12), matrix(key[384 * K :])
    y = [ntt(noise(randomness, index)) for index in range(K)]
    u = [plus(inverse_ntt(dot([a[j][i] for j in range(K)], y)), noise(randomness, K + i)) for i in range(K)]
    v = plus(inverse_ntt(dot(t, y)), noise(randomness, 2 * K), decompress(decode(message, 1), 1))
    return b"".join(encode(compress(f, DU), DU) for f in u) + encode(compress(v, DV), DV)


def encapsulate(key, message):
    """Algorithm 17: the secret and the ciphertext."""
    secret, randomness = g(message + hashlib.sha3_256(key).digest())
    return secret, encrypt(key, message, randomness)


def decapsulate(secret_key, ciphertext):
    """Algorithms 15 and 18."""
    s, key = pieces(secret_key[: 384 * K], 12), secret_key[384 * K : 768 * K + 32]
    u = [ntt(decompress(f, DU)) for f in pieces(ciphertext[: 32 * DU * K], DU)]
    v = decompress(decode(ciphertext[32 * DU * K :], DV), DV)
    w = plus(v, [-value for value in inverse_ntt(dot(s, u))])
    message = encode(compress(w, 1), 1)
    secret, randomness = g(message + secret_key[768 * K + 32 : -32])
    if encrypt(key, message, randomness) == ciphertext:
        return secret
    return hashlib.shake_256(secret_key[-32:] + ciphertext).digest(32)


def check():
    """The published answers."""
    lines = [line.split(": ") for line in PUBLISHED.read_text().splitlines() if ": " in line and line[0] != "#"]
    known = {name: bytes.fromhex(value) for name, value in lines}
    key, secret_key = key_pair(known["seed"])
    assert key == known["key"]
    assert decapsulate(secret_key, known["ciphertext"]) == known["secret"]
    changed = bytes([known["ciphertext"][0] ^ 1]) + known["ciphertext"][1:]
    assert decapsulate(secret_key, changed) == known["secret of the ciphertext with its first bit changed"]
