#pragma once
#include <stdint.h>

/// How often the calling thread has asked for a block since it began. 0 where malloc(3) cannot be replaced.
uint64_t heap_allocations_of_this_thread(void);
