/*
 * A lock on one byte of a file that lasts as long as its process. The kernel keeps it while the
 * process is stopped, and releases it when the process has ended, however it ended.
 *
 * It is a lock of an open file description (F_OFD_SETLK), and all that keeps the description open
 * is a mapping that nobody touches. So there is no descriptor that a program could close by
 * mistake, and a child of fork() does not inherit the lock (MADV_DONTFORK). Asking for it takes no
 * process id and no permission but to open the file: it works between users, and between containers
 * that have the same file.
 *
 * `fd` is any descriptor of the file, open for writing. The byte may be far beyond the file's end.
 */
#ifndef BASE_PROCESS_LOCK_H
#define BASE_PROCESS_LOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct process_lock {
    void *mapping; /* NULL: there is no lock */
    size_t bytes;
    unsigned process; /* that has it; see process.h */
};

/* Takes the lock. Maps `bytes` of the file; some files can be mapped only as a whole. False, and no
 * lock, if the system refuses. */
bool process_lock_take(struct process_lock *lock, int fd, uint64_t byte, size_t bytes);

/* In a child of fork() this does nothing, because the mapping is not there. */
void process_lock_release(struct process_lock *lock);

/* Does a process have the lock, this one included? False if the system does not answer. */
bool process_lock_ask(int fd, uint64_t byte, bool *taken);

/* A number that is the same for all processes that see each other's locks on the file, and for no
 * others: it stands for the running kernel and the file's inode. 0: it cannot be told. */
uint64_t process_lock_scope(int fd);

#endif
