// Replaces free(3) and realloc(3) of the program that links this file, and of all its shared libraries, so that no block
// goes back to the heap with its contents. glibc's own M_PERTURB skips the blocks that a thread caches (tcache, up to
// 1,032 bytes), which is where most texts and names are.
//
// malloc(3) and its relatives stay glibc's: what is freed here came from there. __libc_free is in glibc's ABI
// (GLIBC_2.2.5), for programs that wrap the allocator.
#include "CWipingHeap.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer) \
    || __has_feature(leak_sanitizer)
#define HAS_OTHER_HEAP 1
#endif
#endif

#if defined(__GLIBC__) && !defined(HAS_OTHER_HEAP)
#include <malloc.h>

extern void __libc_free(void *block);

int heap_wipes_freed_blocks(void) { return 1; }

// Most blocks are small, and for them a call of memset costs more than what it does. Volatile, for what nobody reads any
// more is left out by compilers. Blocks are aligned to 16 bytes, and their sizes are multiples of 8.
static void wipe(void *block, size_t size) {
    if (size > 256) {
        explicit_bzero(block, size);
        return;
    }
    volatile uint64_t *words = block;
    for (size_t index = 0; index < size / sizeof *words; index++) words[index] = 0;
}

void free(void *block) {
    if (!block) return;
    // All of the block, not what was asked for: its owner may use the rest (malloc_usable_size), and Swift's arrays do.
    wipe(block, malloc_usable_size(block));
    __libc_free(block);
}

// glibc's would leave the contents behind in the block that it moves out of, and in the end that it cuts off.
void *realloc(void *block, size_t size) {
    if (!block) return malloc(size);
    if (size == 0) {
        free(block);
        return NULL;
    }
    size_t held = malloc_usable_size(block);
    if (size <= held && size > held / 2) {
        explicit_bzero((char *)block + size, held - size);
        return block;
    }
    void *moved = malloc(size);
    if (!moved) return size <= held ? block : NULL;
    memcpy(moved, block, size < held ? size : held);
    free(block);
    return moved;
}

#else

int heap_wipes_freed_blocks(void) { return 0; }

#endif
