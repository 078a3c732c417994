// What Swift's Glibc module leaves out, because C declares it variadic or for GNU sources only. No header with types that
// Glibc has, too: they would belong to this module then.
#include <sys/prctl.h>
#include <sys/syscall.h>

// No core dump, no ptrace by others of the same user: prctl(2), PR_SET_DUMPABLE.
static inline int process_set_undumpable(void) { return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

// From now on what is freed is overwritten: mallopt(3), M_PERTURB. Only small blocks that a thread keeps for itself to use
// again (its cache, a few of each size) are left as they are until then.
extern int mallopt(int parameter, int value);
static inline int process_overwrite_freed(void) { return mallopt(-6, 0xA5); }

extern long syscall(long number, ...);

// A descriptor that becomes readable when a child has ended: pidfd_open(2). -1 and errno before Linux 5.3.
static inline int process_descriptor(int pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

// A pipe that no child inherits: pipe2(2) with O_CLOEXEC.
static inline int process_pipe(int ends[2]) { return (int)syscall(SYS_pipe2, ends, 02000000); }

// Several messages in one call: sendmmsg(2). `messages` are `struct mmsghdr`, which Swift does not see.
static inline int socket_send_messages(int socket, void *messages, unsigned count, int flags) {
    return (int)syscall(SYS_sendmmsg, socket, messages, count, flags);
}

// A child closes all descriptors from this one on: posix_spawn_file_actions_addclosefrom_np, glibc 2.34.
extern int posix_spawn_file_actions_addclosefrom_np(void *actions, int from);
static inline int spawn_close_from(void *actions, int from) {
    return posix_spawn_file_actions_addclosefrom_np(actions, from);
}
