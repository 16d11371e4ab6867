/*
 * Networks in modules.
 *
 * A network needs libraries that a program without that network should not load: UCX, for one,
 * handles signals and hooks into the functions that map memory. So each network is a shared object,
 * farside-SCHEME.so, which is opened when a URI asks for it. It contains the network's fabric and
 * the memory node's transport. src/module has what only modules contain.
 *
 * A program may also be linked with the network itself. Then nothing is opened, and module.c is not
 * needed. The static library and the tests are like that.
 *
 *   MODULE-1  A module uses functions of the program or library that opened it only by struct
 *       module_host: errors and fibers, which have a state for each thread. It has its own copies
 *       of all other functions, and those keep no state.
 *   MODULE-2  A module is used only if `build` equals MODULE_BUILD of the code that opened it. That
 *       names the version and the contents of all headers that both were compiled with, so both
 *       know structures of one layout.
 */
#ifndef FABRIC_MODULE_H
#define FABRIC_MODULE_H

#include "base/fiber.h"
#include "fabric/fabric.h"

/* CMakeLists.txt sets these. Without it there are no modules. */
#ifndef MODULE_BUILD
#define MODULE_BUILD    "unnamed"
#define MODULE_DIR      "/nonexistent" /* where modules are installed                        */
#define MODULE_FROM_BIN "."            /* the way there from where the programs are installed */
#endif

struct memd_listener_ops;

/* What a module gets from the code that opened it (MODULE-1). */
struct module_host {
    int (*err_fail)(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
    const char *(*error_detail)(void);
    void (*assert_failed)(const char *what, const char *file, int line);
    struct fiber *(*fiber_create)(size_t stack_bytes, fiber_fn *fn, void *arg);
    void (*fiber_reset)(struct fiber *f, fiber_fn *fn, void *arg);
    void (*fiber_destroy)(struct fiber *f);
    void (*fiber_resume)(struct fiber *f);
    void (*fiber_yield)(void);
    struct fiber *(*fiber_current)(void);
};

/* The only name that a module exports is `farside_module`, one of these. */
#define MODULE_BUILD_BYTES 64
struct module {
    char build[MODULE_BUILD_BYTES]; /* comes first in every version */
    const struct module_host **host;
    const struct fab_ops *fabric;
    const struct memd_listener_ops *listener;
};

/* Opens the module of a network, once; any thread may call it. FAR_NO_FABRIC: there is none, or it
 * does not open, or it is of another build, or module.c is not linked; the detail says which. */
int module_find(const char *scheme, const struct module **module);

/* Opens farside-NAME.so, of a network or of something else that needs a library, and sets *entry to
 * its `farside_module`. `needs`: the packages with which it is built. FAR_NO_FABRIC, as above. */
int module_open(const char *name, const char *needs, const void **entry);

#endif
