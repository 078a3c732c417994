#pragma once

#include <stdint.h>

/// Begins to watch the coverage counters: libFuzzer is shown those that inputs reach.
/// Where the program was built without coverage nothing happens.
void fuzz_counters_begin(void);

/// Shows libFuzzer the counters that were reached for the first time, and their neighbours. At the end of every input, before it looks.
void fuzz_counters_show(void);

/// What was reached so far is not counted for this input: every input begins with it.
void fuzz_counters_forget(void);

/// Shows all of them, once and for all: when inputs are compared, not run.
void fuzz_counters_show_all(void);

/// Whether libFuzzer is told of the comparisons of four and eight bytes from here on. At first it is.
void fuzz_comparisons_tell(int are_told);

/// Chance begins anew: what the library's random generator gives from here on depends on `seed` alone.
void fuzz_chance_begin(uint64_t seed);
