/* The audit of a quiet pool, for tests that also look into its memory. */
#ifndef TESTS_AUDIT_H
#define TESTS_AUDIT_H

#include "probe.h"
#include "sim/audit.h"

#include <stdio.h>
#include <stdlib.h>

#endif
