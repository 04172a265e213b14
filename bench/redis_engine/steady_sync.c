/* Preloaded into a server: a sync takes a fixed time, so that a busy disk does not decide between contenders. */
#include <stdlib.h>
#include <time.h>

static int pause_for_sync(void)
{
    const char *given = getenv("STEADY_SYNC_MICROSECONDS");
    struct timespec pause = {0, given ? atol(given) * 1000 : 0};
    return nanosleep(&pause, NULL);
}

int fsync(int file)
{
    (void)file;
    return pause_for_sync();
}

int fdatasync(int file)
{
    (void)file;
    return pause_for_sync();
}
