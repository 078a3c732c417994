// What Swift's Glibc module leaves out, because C declares it variadic or for GNU sources only.
#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// No core dump, no ptrace by others of the same user: prctl(2), PR_SET_DUMPABLE.
static inline int process_set_undumpable(void) { return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

// A descriptor that becomes readable when a child has ended: pidfd_open(2). -1 and errno before Linux 5.3.
static inline int process_descriptor(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

// A pipe that no child inherits: pipe2(2).
static inline int process_pipe(int ends[2]) { return (int)syscall(SYS_pipe2, ends, O_CLOEXEC); }

// A child closes all descriptors from this one on: since glibc 2.34.
extern int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *actions, int from);
static inline int spawn_close_from(posix_spawn_file_actions_t *actions, int from) {
    return posix_spawn_file_actions_addclosefrom_np(actions, from);
}
