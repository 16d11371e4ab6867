/* File descriptors, which may run out. */
#ifndef BASE_FDS_H
#define BASE_FDS_H

/* FAR_SYSTEM: fewer than `count` are free; the detail says how many. It opens and closes that many
 * descriptors, so it is slow. */
int fds_check(unsigned count);

#endif
