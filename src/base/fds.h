/* File descriptors, which run out. */
#ifndef BASE_FDS_H
#define BASE_FDS_H

/* FAR_SYSTEM: fewer than that many are free, and how many there may be. It opens and closes that
 * many: not for paths that matter. */
int fds_check(unsigned count);

#endif
