/* What a module exports, and what it has of the code that opened it. */
#ifndef MODULE_ENTRY_H
#define MODULE_ENTRY_H

#include "fabric/module.h"

extern const struct module farside_module __attribute__((visibility("default")));

/* Set when the module has been opened, before anything else of it is used. */
extern const struct module_host *module_host;

#endif
