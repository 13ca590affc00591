/* Moves the wall clock of every program that is started with this library in LD_PRELOAD.
 *
 * The file that MOVED_CLOCK_FILE names holds the offset as a 64-bit number of nanoseconds. It is mapped, so a
 * new offset takes effect in all these programs at once. Monotonic clocks, and with them all time-outs, stay
 * right. libfaketime cannot do this for Python: its clock_nanosleep refuses what time.sleep() asks for while
 * the monotonic clock stays right, and Event.wait(timeout) never returns while both are moved.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static const int64_t no_offset = 0;
static const volatile int64_t *offset = &no_offset;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void map_offset(void) {
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("MOVED_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) offset = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *result) {
    int code = real_clock_gettime ? real_clock_gettime(clock, result) : (int)syscall(SYS_clock_gettime, clock, result);
    if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t moved = result->tv_sec * SECOND + result->tv_nsec + *offset;
        result->tv_sec = moved / SECOND;
        result->tv_nsec = moved % SECOND;
    }
    return code;
}

int gettimeofday(struct timeval *restrict result, void *restrict zone) {
    (void)zone;
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    result->tv_sec = now.tv_sec;
    result->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}
