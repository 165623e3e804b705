/* A library that the dynamic linker loads into every program of a sandbox, before the C library: the
 * wall clock, random numbers and file times that programs ask the C library for follow from the
 * episode.
 *
 * It reads the episode from a file (`struct episode`, written by the host) and makes system calls by
 * itself. It needs no C library of a certain version, so one build serves all hosts. `make preload`
 * builds it.
 *
 * Clock: the wall clock starts at the moment of the call. It advances by STEP with each reading, so
 * that a loop that waits for it ends, and by sleeps.
 * File times: the kernel's time stamps during the run appear as the moment of the call.
 * Randomness: a stream for each process, from the seed, its id and its arguments.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#undef stat64
#undef lstat64
#undef fstat64
#undef fstatat64
#undef errno

#define EXPORT __attribute__((visibility("default")))
#define ALIAS(name) __attribute__((visibility("default"), alias(#name)))
#define SECOND 1000000000LL
#define STEP 100000LL             /* nanoseconds: a loop that waits for a second reads the clock 10,000 times */
#define WINDOW (86400LL * SECOND) /* no run lasts a day: later times were set by a program */

extern int *__errno_location(void);
extern void *dlsym(void *, const char *) __attribute__((weak)); /* old programs may lack it */

struct episode {
    int64_t start;   /* the moment of the call, in nanoseconds since 1970 */
    int64_t real;    /* the real time when the sandbox started */
    uint64_t seed;
    int64_t elapsed; /* of the clock; all processes share it */
};

/* Before the constructor has run, and without an episode, the host shows through. */
static struct episode absent;
static volatile struct episode *episode = &absent;
static uint64_t program; /* a hash of the arguments, so that a program that replaces another draws other numbers */
static uint64_t drawn;   /* numbers drawn by this process */

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

EXPORT int clock_gettime(clockid_t clock, struct timespec *time) {
    if (is_wall_clock(clock))
        set(time, read_clock());
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

/* The kernel waits by the real clock. Small numbers belong to the monotonic clock, which a program
 * may have chosen for the wait. */
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

static int show(long result, struct stat *status) {
    if (result == 0) {
        show_time(&status->st_atim);
        show_time(&status->st_mtim);
        show_time(&status->st_ctim);
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

/* The names before version 2.33 of the C library. */
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
    }
    return (int)checked(result);
}

/* So that a build can be compared with this file. */
EXPORT const char episode_source[] = "source:" SOURCE;
