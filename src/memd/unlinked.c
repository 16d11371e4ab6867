/* Stand-ins for networks that the program is not linked with; see fabric/unlinked.c. */
#include "memd/transports.h"

__attribute__((weak)) const struct memd_listener_ops memd_ucx = {.open = NULL};
__attribute__((weak)) const struct memd_listener_ops memd_verbs = {.open = NULL};
