#include "CFuzz.h"

// libFuzzer reads and clears every counter of the program for every input. There are half a million, a target reaches some
// thousands, and a small decoder is done long before libFuzzer has looked at those that it does not reach. So libFuzzer is
// given a block of counters when an input reaches it for the first time, at the end of this very input, before libFuzzer
// looks: it sees the same as before, never later and never less.
//
// That a page of blocks is reached is told by the fault of the first write to it: until then it is protected. Which of its
// blocks are is looked up after each input. The linker puts the functions of coverage below between the program and
// libFuzzer (`--wrap`); they are not instrumented themselves, or the handler of a fault would cause another.

#if defined(__has_feature) && __has_feature(coverage_sanitizer)

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define UNSEEN __attribute__((no_sanitize("coverage", "address")))

// Counters of a block: libFuzzer takes at most 4,096 blocks.
enum { BLOCK = 256, BLOCK_LIMIT = 4000, PAGE_LIMIT = 4096 };

typedef struct {
    uintptr_t address;
    uintptr_t flags;
} Place;

void __real___sanitizer_cov_8bit_counters_init(uint8_t *first, uint8_t *end);
void __real___sanitizer_cov_pcs_init(const Place *first, const Place *end);

static uint8_t *counters, *counters_end;
static const Place *places, *places_end;
static uint8_t *pages, *pages_end;
static size_t page_size;
static volatile sig_atomic_t is_reached[PAGE_LIMIT];
static volatile sig_atomic_t reached[PAGE_LIMIT];
static volatile sig_atomic_t reached_count;
static uint8_t is_shown[PAGE_LIMIT * 16];
static uint8_t *shown[BLOCK_LIMIT];
static size_t shown_count;
static struct sigaction before;

// Every object file of the program says the same. Those of another library, should one be built with coverage, go through.
UNSEEN void __wrap___sanitizer_cov_8bit_counters_init(uint8_t *first, uint8_t *end) {
    if (counters == NULL) {
        counters = first;
        counters_end = end;
    } else if (counters != first) {
        __real___sanitizer_cov_8bit_counters_init(first, end);
    }
}

UNSEEN void __wrap___sanitizer_cov_pcs_init(const Place *first, const Place *end) {
    if (places == NULL) {
        places = first;
        places_end = end;
    } else if (places != first) {
        __real___sanitizer_cov_pcs_init(first, end);
    }
}

UNSEEN static void show(uint8_t *first, uint8_t *end) {
    if (first == end) return;
    __real___sanitizer_cov_8bit_counters_init(first, end);
    __real___sanitizer_cov_pcs_init(places + (first - counters), places + (end - counters));
}

UNSEEN static void reach(size_t page) {
    mprotect(pages + page * page_size, page_size, PROT_READ | PROT_WRITE);
    is_reached[page] = 1;
    reached[reached_count] = (sig_atomic_t)page;
    reached_count += 1;
}

UNSEEN static void fault(int number, siginfo_t *information, void *context) {
    uint8_t *address = information->si_addr;
    if (address >= pages && address < pages_end) {
        size_t page = (size_t)(address - pages) / page_size;
        if (!is_reached[page]) {
            reach(page);
            return;
        }
    }
    // A mistake of the program: whoever was there before tells of it.
    if (before.sa_flags & SA_SIGINFO && before.sa_sigaction != NULL) {
        before.sa_sigaction(number, information, context);
    } else {
        sigaction(SIGSEGV, &before, NULL);
    }
}

UNSEEN void fuzz_counters_begin(void) {
    if (counters == NULL || pages != NULL) return;
    if (places_end - places != counters_end - counters) abort();
    page_size = (size_t)sysconf(_SC_PAGESIZE);
    pages = (uint8_t *)(((uintptr_t)counters + page_size - 1) / page_size * page_size);
    pages_end = (uint8_t *)((uintptr_t)counters_end / page_size * page_size);
    if (pages >= pages_end || (size_t)(pages_end - pages) / BLOCK > BLOCK_LIMIT || page_size > 16 * BLOCK) {
        // Too few to bother, or more than we count: all of them at once.
        pages = pages_end = counters_end;
    }
    // The first and the last page belong to others, too.
    show(counters, pages);
    show(pages_end, counters_end);
    if (pages == pages_end) return;

    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before);
    // What the start of the program has reached is not an input's.
    memset(pages, 0, (size_t)(pages_end - pages));
    mprotect(pages, (size_t)(pages_end - pages), PROT_NONE);
}

UNSEEN static int is_touched(const uint8_t *block) {
    uint64_t any = 0;
    for (size_t at = 0; at < BLOCK; at += 8) {
        uint64_t eight;
        __builtin_memcpy(&eight, block + at, 8);
        any |= eight;
    }
    return any != 0;
}

UNSEEN void fuzz_counters_show(void) {
    size_t per_page = page_size / BLOCK;
    for (sig_atomic_t index = 0; index < reached_count; index++) {
        size_t page = (size_t)reached[index];
        for (size_t block = 0; block < per_page; block++) {
            uint8_t *first = pages + page * page_size + block * BLOCK;
            uint8_t *flag = &is_shown[page * per_page + block];
            if (*flag || !is_touched(first)) continue;
            *flag = 1;
            if (shown_count < BLOCK_LIMIT) shown[shown_count++] = first;
            show(first, first + BLOCK);
        }
    }
}

UNSEEN void fuzz_counters_forget(void) {
    if (pages == NULL) return;
    memset(counters, 0, (size_t)(pages - counters));
    memset(pages_end, 0, (size_t)(counters_end - pages_end));
    for (size_t index = 0; index < shown_count; index++) memset(shown[index], 0, BLOCK);
}

UNSEEN void fuzz_counters_show_all(void) {
    if (pages == NULL) return;
    size_t per_page = page_size / BLOCK;
    for (size_t page = 0; page < (size_t)(pages_end - pages) / page_size; page++) {
        if (!is_reached[page]) reach(page);
        for (size_t block = 0; block < per_page; block++) {
            if (is_shown[page * per_page + block]) continue;
            is_shown[page * per_page + block] = 1;
            uint8_t *first = pages + page * page_size + block * BLOCK;
            show(first, first + BLOCK);
        }
    }
}

// Of comparisons of one or two bytes, and of calls through a pointer, libFuzzer keeps nothing but a profile of values, which
// it looks at with `-use_value_profile=1` only; a tenth of the time goes into it. Longer comparisons teach it numbers.

UNSEEN void __wrap___sanitizer_cov_trace_cmp1(uint8_t left, uint8_t right) { (void)left, (void)right; }
UNSEEN void __wrap___sanitizer_cov_trace_cmp2(uint16_t left, uint16_t right) { (void)left, (void)right; }
UNSEEN void __wrap___sanitizer_cov_trace_const_cmp1(uint8_t left, uint8_t right) { (void)left, (void)right; }
UNSEEN void __wrap___sanitizer_cov_trace_const_cmp2(uint16_t left, uint16_t right) { (void)left, (void)right; }
UNSEEN void __wrap___sanitizer_cov_trace_pc_indir(uintptr_t callee) { (void)callee; }

// Those teach it something, and cost more than what they compare. A long session is told in one input of some; libFuzzer
// keeps the numbers for the inputs after it.

void __real___sanitizer_cov_trace_cmp4(uint32_t left, uint32_t right);
void __real___sanitizer_cov_trace_cmp8(uint64_t left, uint64_t right);
void __real___sanitizer_cov_trace_const_cmp4(uint32_t left, uint32_t right);
void __real___sanitizer_cov_trace_const_cmp8(uint64_t left, uint64_t right);

static int comparisons_are_told = 1;

UNSEEN void fuzz_comparisons_tell(int are_told) { comparisons_are_told = are_told; }

UNSEEN void __wrap___sanitizer_cov_trace_cmp4(uint32_t left, uint32_t right) {
    if (comparisons_are_told) __real___sanitizer_cov_trace_cmp4(left, right);
}
UNSEEN void __wrap___sanitizer_cov_trace_cmp8(uint64_t left, uint64_t right) {
    if (comparisons_are_told) __real___sanitizer_cov_trace_cmp8(left, right);
}
UNSEEN void __wrap___sanitizer_cov_trace_const_cmp4(uint32_t left, uint32_t right) {
    if (comparisons_are_told) __real___sanitizer_cov_trace_const_cmp4(left, right);
}
UNSEEN void __wrap___sanitizer_cov_trace_const_cmp8(uint64_t left, uint64_t right) {
    if (comparisons_are_told) __real___sanitizer_cov_trace_const_cmp8(left, right);
}

#else

void fuzz_counters_begin(void) {}
void fuzz_counters_show(void) {}
void fuzz_counters_forget(void) {}
void fuzz_counters_show_all(void) {}
void fuzz_comparisons_tell(int are_told) { (void)are_told; }

#endif
