#pragma once

/// Begins to watch the coverage counters: libFuzzer is shown those that inputs reach.
/// Where the program was built without coverage nothing happens.
void fuzz_counters_begin(void);

/// Shows libFuzzer the counters that were reached for the first time, and their neighbours. At the end of every input, before it looks.
void fuzz_counters_show(void);

/// Shows all of them, once and for all: when inputs are compared, not run.
void fuzz_counters_show_all(void);
