/* Memory that is not coherent: each compute unit has a cache that only some instructions go around or empty, and stores
   of a wave stay unseen until it waits for them, or for a random time. */
#ifndef CACHES_H
#define CACHES_H
#include "atomics.h"

/* All waves of the launch. GFX9 without TgSplit keeps a work-group on one compute unit, whose memory operations stay in
   order, so that compilers do not wait for stores at a barrier of global memory (LLVM's memory model of AMDGPU): the
   group sees them, others may not. */
static __thread Wave *all_waves;
static __thread int num_waves, groups_share_units;

static int line_of(u64 address) { return address / LINE_BYTES % LINES; }
static int fits_line(u64 address, int bytes) { return address % LINE_BYTES + bytes <= LINE_BYTES; }

static void forget(Cache *cache) { memset(cache->tag, 0, sizeof cache->tag); }

static void store_now(Wave *wave, u64 address, u64 value, int bytes) {
    Cache *cache = wave->cache;
    put((u8 *)address, value, bytes);
    if (!cache) return;
    int line = line_of(address);
    if (cache->tag[line] == address / LINE_BYTES && fits_line(address, bytes))
        put(cache->data[line] + address % LINE_BYTES, value, bytes);
    else
        cache->tag[line] = cache->tag[line_of(address + bytes)] = 0;
}

/* Let everyone see a wave's stores. */
static void drain(Wave *wave) {
    Pending *pending = wave->pending;
    if (!pending) return;
    for (u32 i = 0; i < pending->count; i++)
        store_now(wave, pending->stores[i].address, pending->stores[i].value, pending->stores[i].bytes);
    pending->count = 0;
}

static void drain_if_in(Wave *wave, u64 address, int bytes) {
    Pending *pending = wave->pending;
    if (!pending) return;
    for (u32 i = 0; i < pending->count; i++) {
        u64 at = pending->stores[i].address;
        if (at < address + bytes && address < at + pending->stores[i].bytes) {
            drain(wave);
            return;
        }
    }
}

/* A wave sees its own stores, and on GFX9 those of its group. */
static void see_own(Wave *wave, u64 address, int bytes) {
    if (!groups_share_units) {
        drain_if_in(wave, address, bytes);
        return;
    }
    for (int k = 0; k < num_waves; k++)
        if (all_waves[k].group == wave->group) drain_if_in(all_waves + k, address, bytes);
}

static void store(Wave *wave, u64 address, u64 value, int bytes) {
    Pending *pending = wave->pending;
    if (!pending) {
        store_now(wave, address, value, bytes);
        return;
    }
    if (pending->count == MOST_PENDING) drain(wave);
    u32 k = pending->count++;
    pending->stores[k].address = address;
    pending->stores[k].value = (u32)value;
    pending->stores[k].bytes = bytes;
}

static u64 load(Wave *wave, u64 address, int bytes, int bypass) {
    Cache *cache = wave->cache;
    if (!cache || !fits_line(address, bytes)) return get((u8 *)address, bytes);
    int line = line_of(address);
    if (bypass) {
        cache->tag[line] = 0;
        return get((u8 *)address, bytes);
    }
    if (cache->tag[line] != address / LINE_BYTES) {
        memcpy(cache->data[line], (u8 *)(address / LINE_BYTES * LINE_BYTES), LINE_BYTES);
        cache->tag[line] = address / LINE_BYTES;
    }
    return get(cache->data[line] + address % LINE_BYTES, bytes);
}

#endif
