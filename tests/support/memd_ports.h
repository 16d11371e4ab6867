/* The addresses at which a memory node listens: its own, and those of UCX's transports. */
#ifndef TESTS_SUPPORT_MEMD_PORTS_H
#define TESTS_SUPPORT_MEMD_PORTS_H

#include "support/memd_child.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <sys/socket.h>

#define PORTS_MAX 16

/* Is it a socket of the node? */
static inline bool memd_has_socket(const struct memd_child *node, unsigned long inode)
{
    char path[64], wanted[64], target[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)node->pid);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *dir = opendir(path);
    bool found = false;
    ASSERT(dir);
    for (struct dirent *e = readdir(dir); e && !found; e = readdir(dir)) {
        ssize_t bytes = readlinkat(dirfd(dir), e->d_name, target, sizeof target - 1);
        target[bytes > 0 ? bytes : 0] = '\0';
        found = strcmp(target, wanted) == 0;
    }
    closedir(dir);
    return found;
}

static inline unsigned memd_ports(const struct memd_child *node, struct sockaddr_in at[PORTS_MAX])
{
    char line[512];
    unsigned count = 0, address, port, kind;
    unsigned long inode;
    FILE *f = fopen("/proc/net/tcp", "r");
    ASSERT(f);
    while (count < PORTS_MAX && fgets(line, sizeof line, f)) {
        if (sscanf(line, " %*u: %x:%x %*x:%*x %x %*x:%*x %*x:%*x %*x %*u %*u %lu", &address, &port,
                   &kind, &inode) == 4 &&
            kind == 10 /* LISTEN */ && memd_has_socket(node, inode))
            at[count++] = (struct sockaddr_in){
                .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {address}};
    }
    fclose(f);
    return count;
}

static inline int memd_connect(const struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT(fd >= 0);
    ASSERT(connect(fd, (const struct sockaddr *)at, sizeof *at) == 0);
    return fd;
}

#endif
