// What Swift's Glibc module leaves out, because C declares it variadic or for GNU sources only. No header with types that
// Glibc has, too: they would belong to this module then.
#include <sys/prctl.h>
#include <sys/syscall.h>

// No core dump, no ptrace by others of the same user: prctl(2), PR_SET_DUMPABLE.
static inline int process_set_undumpable(void) { return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

// This process is killed when the thread that has started it ends: prctl(2), PR_SET_PDEATHSIG.
static inline int process_end_with_parent(void) { return prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0); }

extern long syscall(long number, ...);

// What the calling thread is called in ps and top, at most 15 bytes.
static inline int thread_name(const char *name) { return prctl(PR_SET_NAME, name, 0, 0, 0); }

// What is free of the heap goes back to the system, and the program's code leaves memory until it runs again: malloc_trim(3),
// madvise(2) with MADV_DONTNEED. The code equals its file. A start touches much code that an idle node never runs again, and
// the kernel maps 16 pages around each touched one.
extern int malloc_trim(unsigned long kept);
extern int madvise(void *start, unsigned long length, int advice);
extern char __executable_start[], etext[];
static inline void process_give_back(void) {
    malloc_trim(0);
    madvise(__executable_start, (unsigned long)(etext - __executable_start) & ~4095ul, 4);
}

// A descriptor that becomes readable when a child has ended: pidfd_open(2). -1 and errno before Linux 5.3.
static inline int process_descriptor(int pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

// Everything that was written to the file system of a descriptor: syncfs(2). Says of errors since Linux 5.8.
static inline int file_system_synchronize(int file) { return (int)syscall(SYS_syncfs, file); }

// Two names of one file system change places: renameat2(2) with RENAME_EXCHANGE. -1 and errno where it cannot do that.
static inline int file_exchange(const char *one, const char *other) {
    return (int)syscall(SYS_renameat2, -100, one, -100, other, 2);
}

// Gives a file another name, which nothing may have yet: renameat2(2) with RENAME_NOREPLACE.
static inline int file_rename_new(const char *name, const char *new_name) {
    return (int)syscall(SYS_renameat2, -100, name, -100, new_name, 1);
}

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

// How many columns of a terminal a scalar takes, in the locale of the thread; -1 if that is not known: wcwidth(3).
extern int wcwidth(int scalar);
static inline int scalar_width(unsigned scalar) { return wcwidth((int)scalar); }

// The next connection of a listening socket, which no child inherits and which never blocks: accept4(2).
static inline int socket_accept(int listener) {
    return (int)syscall(SYS_accept4, listener, 0, 0, 02000000 | 04000);
}

// A counter that becomes readable when it is rung: eventfd(2) with EFD_CLOEXEC and EFD_NONBLOCK.
static inline int bell_make(void) { return (int)syscall(SYS_eventfd2, 0, 02000000 | 04000); }

// epoll(7), without its types: `struct epoll_event` is packed on x86-64.
#if defined(__x86_64__)
#define WATCH_PACKED __attribute__((packed))
#else
#define WATCH_PACKED
#endif
struct watch_event {
    unsigned events;
    unsigned long long name;
} WATCH_PACKED;

// A set of descriptors that no child inherits.
static inline int watch_make(void) { return (int)syscall(SYS_epoll_create1, 02000000); }

// From now on `name` is told while `descriptor` has something to read, or its peer has ended: EPOLLIN and EPOLLRDHUP.
static inline int watch_add(int set, int descriptor, unsigned long long name) {
    struct watch_event event = {0x2001, name};
    return (int)syscall(SYS_epoll_ctl, set, 1, descriptor, &event);
}

static inline int watch_remove(int set, int descriptor) {
    struct watch_event event = {0, 0};
    return (int)syscall(SYS_epoll_ctl, set, 2, descriptor, &event);
}

// Waits, at most so many milliseconds (-1: for ever), and tells at most 64 names. -1 and errno on error.
static inline int watch_wait(int set, unsigned long long *names, int limit, int milliseconds) {
    struct watch_event events[64];
    int count = (int)syscall(SYS_epoll_pwait, set, events, limit < 64 ? limit : 64, milliseconds, 0, 8);
    for (int i = 0; i < count; i++) names[i] = events[i].name;
    return count;
}
