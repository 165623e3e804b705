/* A library that the dynamic linker loads into every program of a sandbox, before the C library:
 * what differs from one run to the next on a real machine is here a function of the episode.
 *
 * It reads the episode from a file (`struct episode`, written by the host), answers the functions
 * below in place of the C library, and makes system calls by itself. It needs no C library of a
 * certain version, so that one build serves all hosts. `make preload` builds it.
 *
 * Clock: the wall clock stands at the moment of the call. It goes on by STEP with each reading, so
 * that no two readings are equal and a loop that waits for it ends, and by what is slept. The
 * monotonic clock goes with it but in Python, whose waits compare it with the kernel's; other
 * programs take it for a random number (mktemp) or to show how fast they were (dd).
 * File times: what the kernel stamped during the run is shown as the moment of the call.
 * Randomness: a stream for each process, by the seed, its id and its arguments.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#undef stat64
#undef lstat64
#undef fstat64
#undef fstatat64
#undef statfs64
#undef fstatfs64
#undef statvfs64
#undef fstatvfs64
#undef mkstemp64
#undef mkostemp64
#undef mkstemps64
#undef mkostemps64
#undef errno

#define EXPORT __attribute__((visibility("default")))
#define ALIAS(name) __attribute__((visibility("default"), alias(#name)))
#define SECOND 1000000000LL
#define STEP 100000LL             /* nanoseconds: a loop that waits for a second reads the clock 10,000 times */
#define WINDOW (86400LL * SECOND) /* no run lasts a day: later times were set by a program */
#define BOOTED (1000 * SECOND)    /* the age of the machine at the moment of the call */
#define TMPFS 0x01021994
#define FILES 1000000
#define PAGES (1L << 18) /* of memory: 1 GiB */

extern int *__errno_location(void);
extern void *dlsym(void *, const char *) __attribute__((weak)); /* old programs may be without it */
extern int Py_BytesMain(int, char **) __attribute__((weak));    /* only Python has it */

struct episode {
    int64_t start;   /* the moment of the call, in nanoseconds since 1970 */
    int64_t real;    /* the real time at its beginning */
    uint64_t seed;
    int64_t elapsed; /* how far the clock has gone on; all processes share it */
};

/* Before the constructor has run, and where there is no episode, the host shows through. */
static struct episode absent;
static volatile struct episode *episode = &absent;
static uint64_t program;   /* a hash of the arguments: a program that takes the place of another has other numbers */
static uint64_t drawn;     /* numbers drawn by this process */
static dev_t folders[3];   /* the devices of folders in memory, whose numbers the kernel deals out */

static long raw(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#endif
}

static long checked(long result) {
    if (result < 0 && result > -4096) {
        *__errno_location() = (int)-result;
        return -1;
    }
    return result;
}

__attribute__((constructor)) static void begin(int argc, char **argv) {
    long file = raw(SYS_openat, AT_FDCWD, (long)EPISODE_FILE, O_RDWR | O_CLOEXEC, 0, 0, 0);
    if (file < 0)
        return;
    long page = raw(SYS_mmap, 0, 4096, 3 /* read, write */, 1 /* shared */, file, 0);
    raw(SYS_close, file, 0, 0, 0, 0, 0);
    if (page < 0 && page > -4096)
        return;
    for (int k = 0; k < argc; k++)
        for (const char *c = argv[k]; *c; c++)
            program = (program ^ (unsigned char)*c) * 0x100000001b3ULL;
    static const char *const names[3] = {"/", "/tmp", "/workspace"};
    for (int k = 0; k < 3; k++) {
        struct stat status;
        if (raw(SYS_newfstatat, AT_FDCWD, (long)names[k], (long)&status, 0, 0, 0) == 0)
            folders[k] = status.st_dev;
    }
    episode = (volatile struct episode *)page;
}

/* The clock. */

static int64_t real_time(void) {
    struct timespec now;
    raw(SYS_clock_gettime, CLOCK_REALTIME, (long)&now, 0, 0, 0, 0);
    return now.tv_sec * SECOND + now.tv_nsec;
}

static int64_t pass(int64_t nanoseconds) {
    return episode->start + __atomic_add_fetch(&episode->elapsed, nanoseconds, __ATOMIC_RELAXED);
}

static int64_t read_clock(void) {
    return episode->start ? pass(STEP) : real_time();
}

static void set(struct timespec *time, int64_t nanoseconds) {
    time->tv_sec = nanoseconds / SECOND;
    time->tv_nsec = nanoseconds % SECOND;
}

static int is_wall_clock(clockid_t clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_REALTIME_ALARM || clock == CLOCK_TAI;
}

static int is_monotonic(clockid_t clock) {
    return clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_BOOTTIME;
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *time) {
    if (is_wall_clock(clock))
        set(time, read_clock());
    else if (is_monotonic(clock) && !Py_BytesMain && episode->start)
        set(time, BOOTED + read_clock() - episode->start / SECOND * SECOND);
    else
        return (int)checked(raw(SYS_clock_gettime, clock, (long)time, 0, 0, 0, 0));
    return 0;
}

EXPORT int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    int64_t now = read_clock();
    if (time) {
        time->tv_sec = now / SECOND;
        time->tv_usec = now % SECOND / 1000;
    }
    return 0;
}

EXPORT time_t time(time_t *result) {
    time_t now = read_clock() / SECOND;
    if (result)
        *result = now;
    return now;
}

EXPORT int timespec_get(struct timespec *time, int base) {
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, time) == 0 ? base : 0;
}

static int64_t nanoseconds(const struct timespec *time) {
    return time->tv_sec * SECOND + time->tv_nsec;
}

/* Milliseconds, since a sleep until a moment of another clock is some microseconds shorter. */
static void slept(int64_t duration) {
    if (episode->start && duration > 0)
        pass((duration + 500000) / 1000000 * 1000000);
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *request, struct timespec *left) {
    struct timespec length = *request, rest = {0, 0}, now;
    if (flags & TIMER_ABSTIME) {
        if (clock_gettime(clock, &now) != 0)
            return EINVAL;
        int64_t duration = nanoseconds(request) - nanoseconds(&now);
        if (duration <= 0)
            return 0;
        set(&length, duration);
    }
    clockid_t kind = clock == CLOCK_REALTIME ? CLOCK_MONOTONIC : clock;
    long result = raw(SYS_clock_nanosleep, kind, 0, (long)&length, (long)&rest, 0, 0);
    if (result == 0 || result == -EINTR)
        slept(nanoseconds(&length) - nanoseconds(&rest));
    if (left && !(flags & TIMER_ABSTIME) && result == -EINTR)
        *left = rest;
    return (int)-result;
}

EXPORT int nanosleep(const struct timespec *request, struct timespec *left) {
    return (int)checked(-clock_nanosleep(CLOCK_REALTIME, 0, request, left));
}

EXPORT int usleep(useconds_t duration) {
    struct timespec length = {duration / 1000000, duration % 1000000 * 1000};
    return nanosleep(&length, 0);
}

EXPORT unsigned sleep(unsigned duration) {
    struct timespec length = {duration, 0}, rest = {0, 0};
    return nanosleep(&length, &rest) == 0 ? 0 : (unsigned)rest.tv_sec;
}

/* The kernel waits by the real clock. Where a program waits until a moment of a clock that it chose
 * before, small numbers are those of the monotonic clock. */
static struct timespec real_moment(const struct timespec *moment) {
    struct timespec result = *moment;
    if (episode->start && moment->tv_sec > 500000000)
        set(&result, real_time() + nanoseconds(moment) - pass(0));
    return result;
}

static void *next(const char *name) {
    return dlsym ? dlsym((void *)-1L /* RTLD_NEXT */, name) : 0;
}

EXPORT int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    int (*wait)(sem_t *, const struct timespec *) = next("sem_timedwait");
    struct timespec moment = real_moment(until);
    return wait ? wait(semaphore, &moment) : (int)checked(-ENOSYS);
}

EXPORT int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *) = next("pthread_cond_timedwait");
    struct timespec moment = real_moment(until);
    return wait ? wait(condition, mutex, &moment) : ENOSYS;
}

EXPORT int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    int (*wait)(pthread_mutex_t *, const struct timespec *) = next("pthread_mutex_timedlock");
    struct timespec moment = real_moment(until);
    return wait ? wait(mutex, &moment) : ENOSYS;
}

/* Randomness. */

static uint64_t mix(uint64_t x) { /* the finaliser of splitmix64 */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

static uint64_t draw(void) {
    uint64_t number = __atomic_add_fetch(&drawn, 1, __ATOMIC_RELAXED);
    uint64_t process = mix(raw(SYS_getpid, 0, 0, 0, 0, 0, 0) + 0x9e3779b97f4a7c15ULL);
    return mix(mix(episode->seed ^ program) + mix(process + number * 0x9e3779b97f4a7c15ULL));
}

static void fill(void *buffer, size_t length) {
    unsigned char *bytes = buffer;
    for (size_t k = 0; k < length;) {
        uint64_t number = draw();
        for (int j = 0; j < 8 && k < length; j++, number >>= 8)
            bytes[k++] = (unsigned char)number;
    }
}

EXPORT ssize_t getrandom(void *buffer, size_t length, unsigned flags) {
    fill(buffer, length);
    return (ssize_t)length;
}

EXPORT int getentropy(void *buffer, size_t length) {
    if (length > 256)
        return (int)checked(-EIO);
    fill(buffer, length);
    return 0;
}

EXPORT uint32_t arc4random(void) {
    return (uint32_t)draw();
}

EXPORT void arc4random_buf(void *buffer, size_t length) {
    fill(buffer, length);
}

EXPORT uint32_t arc4random_uniform(uint32_t bound) {
    return bound ? (uint32_t)(draw() % bound) : 0;
}

/* The C library draws the names of temporary files without these functions. */
static int temporary(char *name, int suffix, int flags, int folder) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    char *end = name;
    while (*end)
        end++;
    end -= suffix;
    if (suffix < 0 || end - name < 6)
        return (int)checked(-EINVAL);
    for (int k = 1; k <= 6; k++)
        if (end[-k] != 'X')
            return (int)checked(-EINVAL);
    for (int tries = 0; tries < 1000; tries++) {
        uint64_t number = draw();
        for (int k = 1; k <= 6; k++, number /= 62)
            end[-k] = letters[number % 62];
        struct stat status;
        long result = folder == 1 ? raw(SYS_mkdirat, AT_FDCWD, (long)name, 0700, 0, 0, 0)
                    : folder == 0 ? raw(SYS_openat, AT_FDCWD, (long)name, (flags & ~O_ACCMODE) | O_RDWR | O_CREAT | O_EXCL, 0600, 0, 0)
                    : raw(SYS_newfstatat, AT_FDCWD, (long)name, (long)&status, 0, 0, 0) == -ENOENT ? 0 : -EEXIST;
        if (result != -EEXIST)
            return (int)checked(result);
    }
    return (int)checked(-EEXIST);
}

EXPORT int mkostemps(char *name, int suffix, int flags) {
    return temporary(name, suffix, flags, 0);
}

EXPORT int mkstemps(char *name, int suffix) {
    return temporary(name, suffix, 0, 0);
}

EXPORT int mkostemp(char *name, int flags) {
    return temporary(name, 0, flags, 0);
}

EXPORT int mkstemp(char *name) {
    return temporary(name, 0, 0, 0);
}

EXPORT char *mkdtemp(char *name) {
    return temporary(name, 0, 0, 1) < 0 ? 0 : name;
}

EXPORT char *mktemp(char *name) {
    if (temporary(name, 0, 0, 2) < 0)
        *name = 0;
    return name;
}

int mkostemps64(char *, int, int) ALIAS(mkostemps);
int mkstemps64(char *, int) ALIAS(mkstemps);
int mkostemp64(char *, int) ALIAS(mkostemp);
int mkstemp64(char *) ALIAS(mkstemp);

/* Files. */

static int stamped(int64_t seconds, int64_t rest) {
    int64_t since = seconds * SECOND + rest - episode->real;
    /* The kernel stamps files by a coarse clock, which is late by up to a tick of 10 ms. */
    return episode->start && since > -SECOND && since < WINDOW;
}

static void show_time(struct timespec *time) {
    if (stamped(time->tv_sec, time->tv_nsec)) {
        time->tv_sec = episode->start / SECOND;
        time->tv_nsec = 0;
    }
}

static dev_t show_device(dev_t device) {
    for (int k = 0; k < 3; k++)
        if (folders[k] == device)
            return makedev(0, 1 + k);
    return device;
}

static int show(long result, struct stat *status) {
    if (result == 0) {
        show_time(&status->st_atim);
        show_time(&status->st_mtim);
        show_time(&status->st_ctim);
        status->st_dev = show_device(status->st_dev);
    }
    return (int)checked(result);
}

EXPORT int fstatat(int folder, const char *restrict path, struct stat *restrict status, int flags) {
    return show(raw(SYS_newfstatat, folder, (long)path, (long)status, flags, 0, 0), status);
}

EXPORT int stat(const char *restrict path, struct stat *restrict status) {
    return fstatat(AT_FDCWD, path, status, 0);
}

EXPORT int lstat(const char *restrict path, struct stat *restrict status) {
    return fstatat(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}

EXPORT int fstat(int file, struct stat *status) {
    return show(raw(SYS_fstat, file, (long)status, 0, 0, 0, 0), status);
}

/* What programs call that were built for a C library before 2.33. */
EXPORT int __fxstatat(int version, int folder, const char *path, struct stat *status, int flags) {
    return fstatat(folder, path, status, flags);
}

EXPORT int __xstat(int version, const char *path, struct stat *status) {
    return stat(path, status);
}

EXPORT int __lxstat(int version, const char *path, struct stat *status) {
    return lstat(path, status);
}

EXPORT int __fxstat(int version, int file, struct stat *status) {
    return fstat(file, status);
}

int fstatat64(int, const char *restrict, struct stat *restrict, int) ALIAS(fstatat);
int stat64(const char *restrict, struct stat *restrict) ALIAS(stat);
int lstat64(const char *restrict, struct stat *restrict) ALIAS(lstat);
int fstat64(int, struct stat *) ALIAS(fstat);
int __fxstatat64(int, int, const char *, struct stat *, int) ALIAS(__fxstatat);
int __xstat64(int, const char *, struct stat *) ALIAS(__xstat);
int __lxstat64(int, const char *, struct stat *) ALIAS(__lxstat);
int __fxstat64(int, int, struct stat *) ALIAS(__fxstat);

static void show_statx_time(struct statx_timestamp *time) {
    if (stamped(time->tv_sec, time->tv_nsec)) {
        time->tv_sec = episode->start / SECOND;
        time->tv_nsec = 0;
    }
}

EXPORT int statx(int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict status) {
    long result = raw(SYS_statx, folder, (long)path, flags, mask, (long)status, 0);
    if (result == 0) {
        show_statx_time(&status->stx_atime);
        show_statx_time(&status->stx_btime);
        show_statx_time(&status->stx_ctime);
        show_statx_time(&status->stx_mtime);
        dev_t device = show_device(makedev(status->stx_dev_major, status->stx_dev_minor));
        status->stx_dev_major = major(device);
        status->stx_dev_minor = minor(device);
        *(uint64_t *)((char *)status + 0x90) = 0; /* the number of the mount, which older headers lack */
        status->stx_mask &= ~0x5000u;
    }
    return (int)checked(result);
}

/* How full the disks of the host are is not shown; folders in memory are the sandbox's own. */
static int show_room(long result, struct statfs *room) {
    if (result == 0) {
        unsigned char *id = (unsigned char *)&room->f_fsid;
        for (unsigned k = 0; k < sizeof room->f_fsid; k++)
            id[k] = 0;
        if (room->f_type != TMPFS && episode->start) {
            room->f_blocks = room->f_bfree = room->f_bavail = 0;
            room->f_files = room->f_ffree = 0;
        } else if (episode->start) { /* by default as many files as the host has memory for */
            room->f_ffree = FILES - (room->f_files - room->f_ffree);
            room->f_files = FILES;
        }
    }
    return (int)checked(result);
}

EXPORT int statfs(const char *path, struct statfs *room) {
    return show_room(raw(SYS_statfs, (long)path, (long)room, 0, 0, 0, 0), room);
}

EXPORT int fstatfs(int file, struct statfs *room) {
    return show_room(raw(SYS_fstatfs, file, (long)room, 0, 0, 0, 0), room);
}

static int as_statvfs(int result, const struct statfs *from, struct statvfs *to) {
    if (result == 0) {
        to->f_bsize = from->f_bsize;
        to->f_frsize = from->f_frsize ? from->f_frsize : from->f_bsize;
        to->f_blocks = from->f_blocks;
        to->f_bfree = from->f_bfree;
        to->f_bavail = from->f_bavail;
        to->f_files = from->f_files;
        to->f_ffree = to->f_favail = from->f_ffree;
        to->f_fsid = 0;
        to->f_flag = from->f_flags & ~0x20UL; /* the kernel's mark that there are flags */
        to->f_namemax = from->f_namelen;
    }
    return result;
}

EXPORT int statvfs(const char *restrict path, struct statvfs *restrict room) {
    struct statfs from;
    return as_statvfs(statfs(path, &from), &from, room);
}

EXPORT int fstatvfs(int file, struct statvfs *room) {
    struct statfs from;
    return as_statvfs(fstatfs(file, &from), &from, room);
}

int statfs64(const char *, struct statfs *) ALIAS(statfs);
int fstatfs64(int, struct statfs *) ALIAS(fstatfs);
int statvfs64(const char *restrict, struct statvfs *restrict) ALIAS(statvfs);
int fstatvfs64(int, struct statvfs *) ALIAS(fstatvfs);

/* The machine: one processor, 1 GiB of memory, and no kernel in particular. */

static void write_text(char *field, const char *text) {
    do
        *field++ = *text;
    while (*text++);
}

EXPORT int uname(struct utsname *names) {
    long result = raw(SYS_uname, (long)names, 0, 0, 0, 0, 0);
    if (result == 0 && episode->start) {
        write_text(names->release, "6.1.0");
        write_text(names->version, "#1 SMP");
    }
    return (int)checked(result);
}

EXPORT int sched_getaffinity(pid_t process, size_t size, cpu_set_t *processors) {
    for (size_t k = 0; k < size; k++)
        ((unsigned char *)processors)[k] = k == 0;
    return 0;
}

EXPORT int pthread_getaffinity_np(pthread_t thread, size_t size, cpu_set_t *processors) {
    return sched_getaffinity(0, size, processors);
}

EXPORT int sched_getcpu(void) {
    return 0;
}

EXPORT int get_nprocs(void) {
    return 1;
}

EXPORT int get_nprocs_conf(void) {
    return 1;
}

EXPORT long sysconf(int name) {
    if (name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF)
        return 1;
    if (name == _SC_PHYS_PAGES || name == _SC_AVPHYS_PAGES)
        return PAGES;
    long (*ask)(int) = next("sysconf");
    return ask ? ask(name) : checked(-EINVAL);
}

EXPORT int sysinfo(struct sysinfo *info) {
    for (size_t k = 0; k < 112 /* the kernel's; headers differ */; k++)
        ((unsigned char *)info)[k] = 0;
    info->totalram = info->freeram = PAGES;
    info->mem_unit = 4096;
    info->procs = 1;
    return 0;
}

EXPORT int getloadavg(double *loads, int count) {
    for (int k = 0; k < count; k++)
        loads[k] = 0;
    return count < 3 ? count : 3;
}

EXPORT long get_phys_pages(void) {
    return PAGES;
}

EXPORT long get_avphys_pages(void) {
    return PAGES;
}

/* The same for programs that make these system calls by number. */
EXPORT long syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    long a[6];
    for (int k = 0; k < 6; k++)
        a[k] = va_arg(list, long);
    va_end(list);
    switch (number) {
    case SYS_getrandom:
        return getrandom((void *)a[0], (size_t)a[1], (unsigned)a[2]);
    case SYS_clock_gettime:
        return clock_gettime((clockid_t)a[0], (struct timespec *)a[1]);
    case SYS_sysinfo:
        return sysinfo((struct sysinfo *)a[0]);
    case SYS_gettimeofday:
        return gettimeofday((struct timeval *)a[0], 0);
#ifdef SYS_time
    case SYS_time:
        return time((time_t *)a[0]);
#endif
    default:
        return checked(raw(number, a[0], a[1], a[2], a[3], a[4], a[5]));
    }
}

/* So that a build can be compared with this file. */
EXPORT const char episode_source[] = "source:" SOURCE;
