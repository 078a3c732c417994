// Takes rights from this process for good, execve(2) included. Types of the kernel's headers are written out: Swift's Glibc
// module has some of them.
#include <sys/prctl.h>
#include <sys/syscall.h>

extern long syscall(long number, ...);
extern int open(const char *path, int flags, ...);
extern int close(int descriptor);

// landlock(7): of the file system only the system's own programs, libraries and settings can be read and executed. -1 where
// the kernel has no Landlock.
static inline int confine_files(void) {
    struct { unsigned long long file_system; } rules = {0x1fff};
    int set = (int)syscall(444, &rules, sizeof rules, 0);
    if (set < 0) return -1;
    static const char *const trees[] = {"/usr", "/lib", "/lib64", "/etc/fonts"};
    static const char *const files[] = {"/etc/ld.so.cache", "/etc/ld.so.preload"};
    struct { unsigned long long allowed; int directory; } __attribute__((packed)) rule;
    for (unsigned i = 0; i < sizeof trees / sizeof *trees + sizeof files / sizeof *files; i++) {
        int is_tree = i < sizeof trees / sizeof *trees;
        // O_PATH | O_CLOEXEC
        rule.directory = open(is_tree ? trees[i] : files[i - sizeof trees / sizeof *trees], 010000000 | 02000000);
        if (rule.directory < 0) continue;
        rule.allowed = is_tree ? 0xd : 0x5; // execute, read a file, and list a directory
        syscall(445, set, 1, &rule, 0);
        close(rule.directory);
    }
    int result = (int)syscall(446, set, 0);
    close(set);
    return result;
}

// seccomp(2): no socket, nothing written to a file system, no other process, no ioctl, no new kernel interface. -1 where the
// kernel has none, or the machine is neither x86-64 nor 64-bit ARM.
static inline int confine_calls(void) {
    struct step { unsigned short code; unsigned char yes, no; unsigned value; };
    enum { load = 0x20, is = 0x15, any = 0x45, at_least = 0x35, end = 0x06, allow = 0x7fff0000, refuse = 0x00050001,
           unknown = 0x00050026, kill = 0x80000000 };
#if defined(__x86_64__)
    unsigned machine = 0xc000003e;
#elif defined(__aarch64__)
    unsigned machine = 0xc00000b7;
#else
    return -1;
#endif
    static const int refused[] = {
        SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_sendto, SYS_sendmsg,
        SYS_sendmmsg, SYS_kill, SYS_tkill, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, 424, 434, 438,
        SYS_mount, SYS_umount2, SYS_unshare, SYS_setns, SYS_pivot_root, SYS_chroot, SYS_unlinkat, SYS_renameat2,
        SYS_linkat, SYS_symlinkat, SYS_mkdirat, SYS_mknodat, SYS_fchmod, SYS_fchmodat, SYS_fchown, SYS_fchownat,
        SYS_truncate, SYS_ftruncate, SYS_fallocate, SYS_utimensat, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_bpf,
        SYS_perf_event_open, 425, 426, 427, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_userfaultfd, SYS_init_module,
        SYS_finit_module, SYS_ioctl, SYS_shmget, SYS_shmat, SYS_shmctl, SYS_msgget, SYS_msgsnd,
        SYS_msgrcv, SYS_msgctl, SYS_semget, SYS_semop, SYS_semtimedop, SYS_semctl, SYS_mq_open, SYS_mq_unlink,
        // Signals by other ways, process groups, and what changes another process of the same user.
        SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_setpgid, SYS_setsid, SYS_setpriority, SYS_ioprio_set,
        SYS_sched_setaffinity, SYS_sched_setscheduler, SYS_sched_setparam, SYS_sched_setattr, SYS_kcmp, 440, 448,
        // Files by handles and new calls: fchmodat2, setxattrat, removexattrat, file_setattr; memory that no limit counts.
        SYS_open_by_handle_at, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, 452, 463, 466, 469, SYS_memfd_create,
#if defined(__x86_64__)
        SYS_fork, SYS_vfork, SYS_unlink, SYS_rename, SYS_renameat, SYS_link, SYS_symlink, SYS_mkdir, SYS_rmdir, SYS_mknod,
        SYS_chmod, SYS_chown, SYS_lchown, SYS_creat, SYS_utime, SYS_utimes, SYS_futimesat,
#else
        SYS_renameat,
#endif
    };
    enum { count = sizeof refused / sizeof *refused };
    struct step steps[count * 2 + 48];
    unsigned n = 0;
#define STEP(c, y, f, v) steps[n++] = (struct step){c, y, f, v}
    STEP(load, 0, 0, 4);
    STEP(is, 1, 0, machine);
    STEP(end, 0, 0, kill);
    STEP(load, 0, 0, 0);
    // The other calling convention of x86-64.
    STEP(at_least, 0, 1, 0x40000000);
    STEP(end, 0, 0, refuse);
    for (unsigned i = 0; i < count; i++) {
        STEP(is, 0, 1, (unsigned)refused[i]);
        STEP(end, 0, 0, refuse);
    }
    // clone3 and openat2 pass their flags by a pointer, which no filter can follow: "not implemented" makes the C library use
    // the older calls.
    STEP(is, 1, 0, 435);
    STEP(is, 0, 1, 437);
    STEP(end, 0, 0, unknown);
    // The limits of this process alone: prlimit(2) of pid 0.
    STEP(is, 0, 4, SYS_prlimit64);
    STEP(load, 0, 0, 16);
    STEP(is, 0, 1, 0);
    STEP(end, 0, 0, allow);
    STEP(end, 0, 0, refuse);
    // No signals by a descriptor: F_SETOWN, F_SETSIG, F_SETOWN_EX.
    STEP(is, 0, 6, SYS_fcntl);
    STEP(load, 0, 0, 24);
    STEP(is, 3, 0, 8);
    STEP(is, 2, 0, 10);
    STEP(is, 1, 0, 15);
    STEP(end, 0, 0, allow);
    STEP(end, 0, 0, refuse);
    // A thread may be made, a process may not: CLONE_THREAD.
    STEP(is, 0, 4, SYS_clone);
    STEP(load, 0, 0, 16);
    STEP(any, 0, 1, 0x10000);
    STEP(end, 0, 0, allow);
    STEP(end, 0, 0, refuse);
    // Files are opened for reading: neither O_WRONLY, O_RDWR, O_CREAT, O_TRUNC nor O_TMPFILE.
#if defined(__x86_64__)
    STEP(is, 0, 4, SYS_open);
    STEP(load, 0, 0, 24);
    STEP(any, 1, 0, 03 | 0100 | 01000 | 020000000);
    STEP(end, 0, 0, allow);
    STEP(end, 0, 0, refuse);
#endif
    STEP(is, 0, 4, SYS_openat);
    STEP(load, 0, 0, 32);
    STEP(any, 1, 0, 03 | 0100 | 01000 | 020000000);
    STEP(end, 0, 0, allow);
    STEP(end, 0, 0, refuse);
    STEP(end, 0, 0, allow);
#undef STEP
    struct { unsigned short count; struct step *steps; } program = {(unsigned short)n, steps};
    return prctl(PR_SET_SECCOMP, 2ul, &program, 0ul, 0ul);
}

// No program that is executed gets more rights than this process has: PR_SET_NO_NEW_PRIVS. To be called first.
static inline int confine_rights(void) { return prctl(PR_SET_NO_NEW_PRIVS, 1ul, 0ul, 0ul, 0ul); }
