/* Replaces a file as a whole. SPDX-License-Identifier: Apache-2.0 */
#include "cli/replace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static tpw_status cannot(const char *path, const char *what, int code, tpw_error *err)
{
    return tpw_fail(err, TPW_ERR_IO, "%s: %s cannot be written: %s", path, what, strerror(code));
}

/* 0, or errno. The temporary file stays for the caller to remove. */
static int write_synced(const char *path, const char *text)
{
    size_t bytes = strlen(text);
    size_t done = 0;
    int code = 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return errno;
    while (done < bytes && code == 0) {
        ssize_t n = write(fd, text + done, bytes - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            code = n == 0 ? EIO : errno;
    }
    if (code == 0 && fsync(fd) != 0)
        code = errno;
    if (close(fd) != 0 && code == 0)
        code = errno;
    return code;
}

tpw_status tpw_file_replace(const char *path, const char *what, const char *text, tpw_error *err)
{
    char temporary[PATH_MAX];
    struct stat found;
    int length = snprintf(temporary, sizeof temporary, "%s.tmp.%lld", path, (long long)getpid());
    if (length < 0 || (size_t)length >= sizeof temporary)
        return cannot(path, what, ENAMETOOLONG, err);
    if (stat(path, &found) == 0 && !S_ISREG(found.st_mode))
        return tpw_fail(err, TPW_ERR_IO, "%s: %s cannot be written: not a regular file", path, what);
    int code = write_synced(temporary, text);
    if (code == 0 && rename(temporary, path) != 0)
        code = errno;
    if (code == 0)
        return TPW_OK;
    unlink(temporary);
    return cannot(path, what, code, err);
}
