/* The transports of this build. */
#include "memd/transports.h"

const struct memd_listener_ops *const memd_transports[] = {
#ifdef FARSIDE_UCX
    &memd_ucx,
#endif
#ifdef FARSIDE_VERBS
    &memd_verbs,
#endif
    NULL,
};
