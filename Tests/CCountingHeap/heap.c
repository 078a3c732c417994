// Counts the blocks that each thread of the program asks for that links this file: in place of malloc(3) and its
// relatives, as SwiftNIO counts. The __libc_ functions are in glibc's ABI, for programs that wrap the allocator.
#include "CCountingHeap.h"
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(__GLIBC__)
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static _Thread_local uint64_t allocations;

uint64_t heap_allocations_of_this_thread(void) { return allocations; }

void *malloc(size_t size) {
    allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    allocations++;
    return __libc_calloc(count, size);
}

void *realloc(void *block, size_t size) {
    allocations++;
    return __libc_realloc(block, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    allocations++;
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **block, size_t alignment, size_t size) {
    allocations++;
    *block = __libc_memalign(alignment, size);
    return *block == NULL ? ENOMEM : 0;
}
#else
uint64_t heap_allocations_of_this_thread(void) { return 0; }
#endif
