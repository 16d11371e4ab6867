/* The command line with an ordered index; scripts of this folder find it as $ORDERED. */
#include "support/ordered_index.h"

__attribute__((constructor)) static void add(void)
{
    ordered_index_add();
}
