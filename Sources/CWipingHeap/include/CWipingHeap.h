// The heap of the process overwrites a block when it is freed. A program gets this by linking the target.
#pragma once

// Whether freed blocks are overwritten: not under a sanitizer, which has a heap of its own, nor without glibc.
int heap_wipes_freed_blocks(void);
