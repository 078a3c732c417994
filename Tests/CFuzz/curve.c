// A fuzzer asks for the same operations on the curve again and again: the handshake of every input has the same keys, and
// most of a changed script is as it was. What an operation gives depends on its arguments alone, so the last results are
// kept, with all the arguments, which are compared in full. The library is below what is tried here: it is not looked at
// less, only less often.
//
// The linker puts these functions between the program and the library (`--wrap`).

#if defined(__has_feature) && __has_feature(coverage_sanitizer)

#include <secp256k1.h>
#include <secp256k1_ecdh.h>
#include <secp256k1_extrakeys.h>
#include <secp256k1_recovery.h>
#include <secp256k1_schnorrsig.h>
#include <stdint.h>
#include <string.h>

// Whether a result was kept is no coverage.
#define UNSEEN __attribute__((no_sanitize("coverage", "address")))

#define WRAPPED(result, name, ...)          \
    result __real_##name(__VA_ARGS__);      \
    UNSEEN result __wrap_##name(__VA_ARGS__)

enum { WORDS = 20, RESULT = 96, ENTRIES = 1 << 14 };

typedef enum { NONE, CREATE, PARSE, EXCHANGE, PAIR, SIGN, VERIFY, RECOVER, SIGN_RECOVERABLE } Operation;

typedef struct {
    Operation operation;
    int returned;
    uint64_t arguments[WORDS];
    uint8_t result[RESULT];
} Entry;

// Two places for each hash; the one used last stays.
static Entry entries[ENTRIES][2];
static uint8_t last_used[ENTRIES];

typedef struct {
    Operation operation;
    size_t byte_count;
    uint64_t arguments[WORDS];
} Call;

UNSEEN static void add(Call *call, const void *bytes, size_t count) {
    memcpy((uint8_t *)call->arguments + call->byte_count, bytes, count);
    call->byte_count += count;
}

/// The place of this call: `*is_known` says whether its result is there.
UNSEEN static Entry *find(const Call *call, int *is_known) {
    uint64_t hash = 0x9e3779b97f4a7c15u * call->operation;
    for (size_t index = 0; index < WORDS; index++) {
        hash = (hash ^ call->arguments[index]) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 29;
    }
    size_t place = hash % ENTRIES;
    for (uint8_t way = 0; way < 2; way++) {
        Entry *entry = &entries[place][way];
        if (entry->operation != call->operation) continue;
        uint64_t differs = 0;
        for (size_t index = 0; index < WORDS; index++) differs |= entry->arguments[index] ^ call->arguments[index];
        if (differs) continue;
        last_used[place] = way;
        *is_known = 1;
        return entry;
    }
    last_used[place] ^= 1;
    Entry *entry = &entries[place][last_used[place]];
    entry->operation = call->operation;
    memcpy(entry->arguments, call->arguments, sizeof entry->arguments);
    *is_known = 0;
    return entry;
}

/// `CALL` writes to `OUTPUT`, of `COUNT` bytes, unless it is known what it writes.
#define REMEMBER(CALLED, OUTPUT, COUNT, CALL)                               \
    do {                                                                    \
        int is_known;                                                       \
        Entry *entry = find(&(CALLED), &is_known);                          \
        if (!is_known) {                                                    \
            entry->returned = (CALL);                                       \
            if ((COUNT) > 0) memcpy(entry->result, (OUTPUT), (COUNT));      \
        } else if ((COUNT) > 0) {                                           \
            memcpy((OUTPUT), entry->result, (COUNT));                       \
        }                                                                   \
        return entry->returned;                                             \
    } while (0)

WRAPPED(int, secp256k1_ec_pubkey_create, const secp256k1_context *context, secp256k1_pubkey *key,
        const unsigned char *secret) {
    Call call = {CREATE, 0, {0}};
    add(&call, secret, 32);
    REMEMBER(call, key, sizeof *key, __real_secp256k1_ec_pubkey_create(context, key, secret));
}

WRAPPED(int, secp256k1_ec_pubkey_parse, const secp256k1_context *context, secp256k1_pubkey *key,
        const unsigned char *bytes, size_t count) {
    if (count != 33) return __real_secp256k1_ec_pubkey_parse(context, key, bytes, count);
    Call call = {PARSE, 0, {0}};
    add(&call, bytes, count);
    REMEMBER(call, key, sizeof *key, __real_secp256k1_ec_pubkey_parse(context, key, bytes, count));
}

WRAPPED(int, secp256k1_ecdh, const secp256k1_context *context, unsigned char *output, const secp256k1_pubkey *point,
        const unsigned char *secret, secp256k1_ecdh_hash_function hash, void *data) {
    if (hash != NULL) return __real_secp256k1_ecdh(context, output, point, secret, hash, data);
    Call call = {EXCHANGE, 0, {0}};
    add(&call, point, sizeof *point);
    add(&call, secret, 32);
    REMEMBER(call, output, 32, __real_secp256k1_ecdh(context, output, point, secret, hash, data));
}

WRAPPED(int, secp256k1_keypair_create, const secp256k1_context *context, secp256k1_keypair *pair,
        const unsigned char *secret) {
    Call call = {PAIR, 0, {0}};
    add(&call, secret, 32);
    REMEMBER(call, pair, sizeof *pair, __real_secp256k1_keypair_create(context, pair, secret));
}

WRAPPED(int, secp256k1_schnorrsig_sign32, const secp256k1_context *context, unsigned char *signature,
        const unsigned char *digest, const secp256k1_keypair *pair, const unsigned char *randomness) {
    if (randomness == NULL) return __real_secp256k1_schnorrsig_sign32(context, signature, digest, pair, randomness);
    Call call = {SIGN, 0, {0}};
    add(&call, digest, 32);
    add(&call, pair, sizeof *pair);
    add(&call, randomness, 32);
    REMEMBER(call, signature, 64, __real_secp256k1_schnorrsig_sign32(context, signature, digest, pair, randomness));
}

WRAPPED(int, secp256k1_schnorrsig_verify, const secp256k1_context *context, const unsigned char *signature,
        const unsigned char *message, size_t count, const secp256k1_xonly_pubkey *key) {
    if (count != 32) return __real_secp256k1_schnorrsig_verify(context, signature, message, count, key);
    Call call = {VERIFY, 0, {0}};
    add(&call, signature, 64);
    add(&call, message, count);
    add(&call, key, sizeof *key);
    REMEMBER(call, NULL, 0, __real_secp256k1_schnorrsig_verify(context, signature, message, count, key));
}

WRAPPED(int, secp256k1_ecdsa_recover, const secp256k1_context *context, secp256k1_pubkey *key,
        const secp256k1_ecdsa_recoverable_signature *signature, const unsigned char *digest) {
    Call call = {RECOVER, 0, {0}};
    add(&call, signature, sizeof *signature);
    add(&call, digest, 32);
    REMEMBER(call, key, sizeof *key, __real_secp256k1_ecdsa_recover(context, key, signature, digest));
}

WRAPPED(int, secp256k1_ecdsa_sign_recoverable, const secp256k1_context *context,
        secp256k1_ecdsa_recoverable_signature *signature, const unsigned char *digest, const unsigned char *secret,
        secp256k1_nonce_function nonce, const void *data) {
    if (nonce != NULL || data != NULL) {
        return __real_secp256k1_ecdsa_sign_recoverable(context, signature, digest, secret, nonce, data);
    }
    Call call = {SIGN_RECOVERABLE, 0, {0}};
    add(&call, digest, 32);
    add(&call, secret, 32);
    REMEMBER(call, signature, sizeof *signature,
             __real_secp256k1_ecdsa_sign_recoverable(context, signature, digest, secret, nonce, data));
}

#endif
