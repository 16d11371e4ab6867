/* Programs that are linked with this file find the trie by its name; nothing lists it. */
#include "trie/trie.h"

__attribute__((constructor)) static void add(void)
{
    index_add_unlisted(&trie_index);
}
