/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os/lock.h"

#include <fcntl.h>
#include <unistd.h>

/* Two bytes a place: the first is held, the second is shared by those who wait. */
static struct flock range(const struct bn_lock *l, short type, int byte)
{
    return (struct flock){.l_type = type,
                          .l_whence = SEEK_SET,
                          .l_start = (off_t)(2 * (l->place >> 2)) + byte,
                          .l_len = 1};
}

bool bn_lock_open(struct bn_lock *l, const char *path, uint64_t place)
{
    l->place = place;
    l->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    return l->fd >= 0;
}

bool bn_lock_take(struct bn_lock *l)
{
    struct flock held = range(l, F_WRLCK, 0), asked = range(l, F_UNLCK, 1);
    if (l->fd < 0 || fcntl(l->fd, F_OFD_SETLK, &held) != 0) return false;
    fcntl(l->fd, F_OFD_SETLK, &asked);
    return true;
}

void bn_lock_ask(struct bn_lock *l)
{
    struct flock asked = range(l, F_RDLCK, 1);
    if (l->fd >= 0) fcntl(l->fd, F_OFD_SETLK, &asked);
}

bool bn_lock_is_asked(const struct bn_lock *l)
{
    struct flock asked = range(l, F_WRLCK, 1);
    return l->fd >= 0 && fcntl(l->fd, F_OFD_GETLK, &asked) == 0 && asked.l_type != F_UNLCK;
}

void bn_lock_close(struct bn_lock *l)
{
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
}
