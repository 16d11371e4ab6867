/* The module of verbs:, farside-verbs.so. */
#include "fabric/backends.h"
#include "memd/transports.h"
#include "module/entry.h"

const struct module farside_module = {
    .build = MODULE_BUILD, .host = &module_host, .fabric = &verbs_fabric, .listener = &memd_verbs};
