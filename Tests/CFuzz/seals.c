// A home that somebody has changed a little is opened again and again, and most of its pages are as they were: what a page
// opens to is remembered, with all that it depends on, which is compared in full. And chance is the same for every input,
// so that one that has failed fails again.
//
// The linker puts these functions between the program and the library (`--wrap`).

#include "CFuzz.h"

#if defined(__has_feature) && __has_feature(coverage_sanitizer)

#include <sodium.h>
#include <stdint.h>
#include <string.h>

// Whether a result was kept is no coverage.
#define UNSEEN __attribute__((no_sanitize("coverage", "address")))

enum { PAGE = 4096, DATA = 160, ENTRIES = 512, LEAST = 1024 };

typedef struct {
    int is_used;
    int returned;
    uint64_t sealed_count;
    uint64_t data_count;
    uint8_t key[crypto_aead_xchacha20poly1305_ietf_KEYBYTES];
    uint8_t nonce[crypto_aead_xchacha20poly1305_ietf_NPUBBYTES];
    uint8_t data[DATA];
    uint8_t sealed[PAGE];
    uint8_t opened[PAGE];
} Entry;

static Entry entries[ENTRIES];

int __real_crypto_aead_xchacha20poly1305_ietf_decrypt(
    unsigned char *opened, unsigned long long *opened_count, unsigned char *secret_nonce, const unsigned char *sealed,
    unsigned long long sealed_count, const unsigned char *data, unsigned long long data_count,
    const unsigned char *nonce, const unsigned char *key);

UNSEEN int __wrap_crypto_aead_xchacha20poly1305_ietf_decrypt(
    unsigned char *opened, unsigned long long *opened_count, unsigned char *secret_nonce, const unsigned char *sealed,
    unsigned long long sealed_count, const unsigned char *data, unsigned long long data_count,
    const unsigned char *nonce, const unsigned char *key) {
    if (sealed_count < LEAST || sealed_count > PAGE || data_count > DATA) {
        return __real_crypto_aead_xchacha20poly1305_ietf_decrypt(opened, opened_count, secret_nonce, sealed,
                                                                 sealed_count, data, data_count, nonce, key);
    }
    uint64_t words[2];
    memcpy(words, nonce, sizeof words);
    uint64_t place = (words[0] ^ words[1] * 0x9e3779b97f4a7c15u ^ data_count) * 0xff51afd7ed558ccdu >> 55;
    Entry *entry = &entries[place % ENTRIES];
    size_t count = sealed_count - crypto_aead_xchacha20poly1305_ietf_ABYTES;
    if (!entry->is_used || entry->sealed_count != sealed_count || entry->data_count != data_count ||
        memcmp(entry->nonce, nonce, sizeof entry->nonce) != 0 || memcmp(entry->key, key, sizeof entry->key) != 0 ||
        (data_count > 0 && memcmp(entry->data, data, data_count) != 0) ||
        memcmp(entry->sealed, sealed, sealed_count) != 0) {
        entry->is_used = 1;
        entry->sealed_count = sealed_count;
        entry->data_count = data_count;
        memcpy(entry->nonce, nonce, sizeof entry->nonce);
        memcpy(entry->key, key, sizeof entry->key);
        if (data_count > 0) memcpy(entry->data, data, data_count);
        memcpy(entry->sealed, sealed, sealed_count);
        entry->returned = __real_crypto_aead_xchacha20poly1305_ietf_decrypt(
            opened, opened_count, secret_nonce, sealed, sealed_count, data, data_count, nonce, key);
        if (entry->returned == 0) memcpy(entry->opened, opened, count);
        return entry->returned;
    }
    if (entry->returned == 0) memcpy(opened, entry->opened, count);
    if (opened_count != NULL) *opened_count = entry->returned == 0 ? count : 0;
    return entry->returned;
}

// SplitMix64 (Steele, Lea and Flood, 2014).
static uint64_t chance = 1;

UNSEEN void fuzz_chance_begin(uint64_t seed) { chance = seed; }

UNSEEN void __wrap_randombytes_buf(void *bytes, size_t count) {
    uint8_t *next = bytes;
    while (count > 0) {
        chance += 0x9e3779b97f4a7c15u;
        uint64_t value = chance;
        value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
        value = (value ^ value >> 27) * 0x94d049bb133111ebu;
        value ^= value >> 31;
        size_t part = count < sizeof value ? count : sizeof value;
        memcpy(next, &value, part);
        next += part;
        count -= part;
    }
}

#else

void fuzz_chance_begin(uint64_t seed) { (void)seed; }

#endif
