/* The command line with an ordered index, for the scripts of this folder: as $ORDERED. */
#include "support/ordered_index.h"

__attribute__((constructor)) static void add(void)
{
    ordered_index_add();
}
