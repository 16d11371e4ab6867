/*
 * libcuckoo: keys and values inline, if all have one size, and as std::string.
 *
 * Both hash keys with XXH3, as Farside does. Lookups make no std::string. A get copies the value
 * out while libcuckoo holds the locks of its two buckets.
 */
#include "compare/rival.h"

#include <libcuckoo/cuckoohash_map.hh>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>

namespace
{

uint64_t hash_bytes(const void *bytes, size_t len)
{
    return XXH3_64bits(bytes, len);
}

/* One map, whatever its types are. The virtual call runs many operations. */
struct store {
    const struct rival_setup *setup;
    const char *kind;
    virtual ~store() = default;
    virtual void run(struct rival_op *ops, unsigned count) = 0;
};

/* ---- inline ---------------------------------------------------------------------------------- */

template <size_t N> struct block {
    unsigned char bytes[N];
    bool operator==(const block &other) const
    {
        return memcmp(bytes, other.bytes, N) == 0;
    }
};

template <size_t N> struct block_hash {
    size_t operator()(const block<N> &key) const
    {
        return hash_bytes(key.bytes, N);
    }
};

template <size_t K, size_t V> struct inline_store final : store {
    libcuckoo::cuckoohash_map<block<K>, block<V>, block_hash<K>> map;

    void put(const struct rival_op *op)
    {
        block<K> key;
        block<V> value; /* the bytes behind value_len are never read */
        memcpy(key.bytes, op->key, K);
        memcpy(value.bytes, op->value, op->value_len);
        map.insert_or_assign(key, value);
    }

    void get(struct rival_op *op)
    {
        block<K> key;
        uint32_t len = setup->value_max;
        memcpy(key.bytes, op->key, K);
        op->got_len = len;
        op->found = map.find_fn(
            key, [op, len](const block<V> &value) { memcpy(op->buf, value.bytes, len); });
    }

    void run(struct rival_op *ops, unsigned count) override
    {
        for (unsigned i = 0; i < count; i++) {
            if (ops[i].put)
                put(&ops[i]);
            else
                get(&ops[i]);
        }
    }
};

template <size_t K> store *new_inline_of(uint32_t value_size)
{
    if (value_size <= 8)
        return new inline_store<K, 8>;
    if (value_size <= 32)
        return new inline_store<K, 32>;
    if (value_size <= 128)
        return new inline_store<K, 128>;
    return value_size <= 1024 ? new inline_store<K, 1024> : nullptr;
}

store *new_inline(const struct rival_setup *s)
{
    if (s->key_min != s->key_max || s->value_min != s->value_max)
        return nullptr;
    switch (s->key_max) {
    case 8:
        return new_inline_of<8>(s->value_max);
    case 16:
        return new_inline_of<16>(s->value_max);
    case 32:
        return new_inline_of<32>(s->value_max);
    case 64:
        return new_inline_of<64>(s->value_max);
    default:
        return nullptr;
    }
}

/* ---- std::string ----------------------------------------------------------------------------- */

struct text_hash {
    size_t operator()(std::string_view key) const
    {
        return hash_bytes(key.data(), key.size());
    }
};

struct text_equal {
    bool operator()(std::string_view a, std::string_view b) const
    {
        return a == b;
    }
};

struct string_store final : store {
    libcuckoo::cuckoohash_map<std::string, std::string, text_hash, text_equal> map;

    void put(const struct rival_op *op)
    {
        std::string_view key(static_cast<const char *>(op->key), op->key_len);
        std::string_view value(static_cast<const char *>(op->value), op->value_len);
        map.upsert(
            key, [value](std::string &old) { old.assign(value); }, value);
    }

    void get(struct rival_op *op)
    {
        std::string_view key(static_cast<const char *>(op->key), op->key_len);
        uint32_t room = setup->value_max;
        op->found = map.find_fn(key, [op, room](const std::string &value) {
            op->got_len = static_cast<uint32_t>(value.size());
            memcpy(op->buf, value.data(), value.size() < room ? value.size() : room);
        });
    }

    void run(struct rival_op *ops, unsigned count) override
    {
        for (unsigned i = 0; i < count; i++) {
            if (ops[i].put)
                put(&ops[i]);
            else
                get(&ops[i]);
        }
    }
};

/* ---- the module ------------------------------------------------------------------------------ */

int cuckoo_open(const struct rival_setup *setup, bool inlined, void **made)
{
    store *s = nullptr;
    try {
        s = inlined ? new_inline(setup) : new string_store;
    } catch (const std::bad_alloc &) {
        return setup->fail(FAR_NO_MEMORY, "no memory for libcuckoo");
    }
    if (!s)
        return setup->fail(FAR_UNSUPPORTED,
                           "keys and values are inline if all have one size: 8, 16, 32 or 64 "
                           "bytes of a key, up to 1024 of a value");
    s->setup = setup;
    s->kind = inlined ? "keys and values inline" : "std::string";
    *made = s;
    return FAR_OK;
}

int cuckoo_open_inline(const struct rival_setup *setup, void **made)
{
    return cuckoo_open(setup, true, made);
}

int cuckoo_open_string(const struct rival_setup *setup, void **made)
{
    return cuckoo_open(setup, false, made);
}

void cuckoo_close(void *made)
{
    delete static_cast<store *>(made);
}

void cuckoo_describe(void *made, char text[RIVAL_TEXT_BYTES])
{
    snprintf(
        text, RIVAL_TEXT_BYTES,
        "libcuckoo's cuckoohash_map in this process, %s, XXH3, its default size at first; a get "
        "copies the value",
        static_cast<store *>(made)->kind);
}

/* The map itself is safe to use from all threads. */
int cuckoo_client_open(void *made, void **client)
{
    *client = made;
    return FAR_OK;
}

void cuckoo_client_close(void *client)
{
    (void)client;
}

int cuckoo_run(void *client, struct rival_op *ops, unsigned count)
{
    store *s = static_cast<store *>(client);
    try {
        s->run(ops, count);
    } catch (const std::exception &e) { /* no memory; libcuckoo cannot grow */
        return s->setup->fail(FAR_NO_MEMORY, "libcuckoo: %s", e.what());
    }
    return FAR_OK;
}

const struct rival_ops inline_ops = {cuckoo_open_inline, cuckoo_close,        cuckoo_describe,
                                     cuckoo_client_open, cuckoo_client_close, cuckoo_run};
const struct rival_ops string_ops = {cuckoo_open_string, cuckoo_close,        cuckoo_describe,
                                     cuckoo_client_open, cuckoo_client_close, cuckoo_run};

} /* namespace */

extern "C" {
extern const struct rival_module farside_module __attribute__((visibility("default")));
const struct rival_module farside_module = {MODULE_BUILD, {&inline_ops, &string_ops}};
}
