// What Swift's Glibc module leaves out because C declares it variadic.
#include <sys/prctl.h>

// No core dump, no ptrace by others of the same user: prctl(2), PR_SET_DUMPABLE.
static inline int process_set_undumpable(void) { return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }
