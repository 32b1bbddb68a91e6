/* Vector and scalar memory instructions, with checks of bounds and alignment. */
#ifndef MEMORY_H
#define MEMORY_H
#include "caches.h"
#include "counts.h"

static int is_inside(const Region *regions, int n, u64 address, u32 bytes, int write) {
    for (int i = 0; i < n; i++)
        if (address >= regions[i].base && address + bytes <= regions[i].base + regions[i].size)
            return !write || regions[i].writable;
    return 0;
}

static u64 pair_of(const u32 *registers, int low) { return registers[low] | (u64)registers[low + 1] << 32; }
static u64 active_lanes(const Wave *wave, int lanes) {
    return lanes == 64 ? pair_of(wave->sgpr, EXEC_LO) : wave->sgpr[EXEC_LO];
}

static u32 extended(u32 value, int bytes, int sign) {
    return !sign ? value : bytes == 1 ? (u32)(i32)(int8_t)value : (u32)(i32)(int16_t)value;
}

/* Register `number` of lane `lane`. */
#define VGPR(number) wave->vgpr[(number) * lanes + lane]
#define DATA(number) file[(number) * lanes + lane]

static void load_lane(const Entry *e, Wave *wave, u32 *file, int lanes, int lane, u64 at, const u8 *p, int result) {
    int cached = e->space == GLOBAL && wave->cache, bytes = e->bytes;
    if (cached) see_own(wave, at, bytes);
    if (bytes >= 4) {
        for (int i = 0; i < bytes / 4; i++)
            DATA(result + i) = (u32)(cached ? load(wave, at + 4 * i, 4, e->bypass) : get(p + 4 * i, 4));
        return;
    }
    u32 value = extended((u32)(cached ? load(wave, at, bytes, e->bypass) : get(p, bytes)), bytes, e->sign);
    if (e->half == 1) value = (DATA(result) & 0xffff0000u) | (value & 0xffff);
    if (e->half == 2) value = (DATA(result) & 0xffffu) | value << 16;
    DATA(result) = value;
}

static void store_lane(const Entry *e, Wave *wave, const u32 *file, int lanes, int lane, u64 at, u8 *p, int source) {
    int cached = e->space == GLOBAL && wave->cache, bytes = e->bytes;
    for (int i = 0; i < (bytes + 3) / 4; i++) {
        u32 value = e->half == 2 ? DATA(source) >> 16 : DATA(source + i);
        int size = bytes < 4 ? bytes : 4;
        if (cached) store(wave, at + 4 * i, value, size);
        else put(p + 4 * i, value, size);
    }
}

static void atomic_lane(const Entry *e, Wave *wave, u32 *file, int lanes, int lane, u64 at, u8 *p) {
    int words = e->bytes / 4;
    u64 given = DATA(e->data) | (words == 2 ? (u64)DATA(e->data + 1) << 32 : 0), compared = 0;
    if (e->atomic == CMPSWAP) {
        int other = e->space == LDS ? e->data1 : e->data + words;
        compared = DATA(other) | (words == 2 ? (u64)DATA(other + 1) << 32 : 0);
        if (e->swapped) {
            u64 first = given;
            given = compared;
            compared = first;
        }
    }
    if (e->space == GLOBAL && wave->cache) {
        see_own(wave, at, e->bytes);
        wave->cache->tag[line_of(at)] = 0;
    }
    u64 old = get(p, e->bytes);
    u64 new = words == 2 ? atomic64(e->atomic, old, given, compared)
                         : atomic32(e->atomic, (u32)old, (u32)given, (u32)compared);
    put(p, new, e->bytes);
    if (e->returns) {
        DATA(e->result) = (u32)old;
        if (words == 2) DATA(e->result + 1) = (u32)(old >> 32);
    }
}

/* Carry out a memory instruction for all active lanes; nonzero after a bad access. */
static int memory(const Entry *e, Wave *wave, int lanes, const Region *regions, int n, Report *report) {
    u64 active = active_lanes(wave, lanes), base = 0, addresses[2][MOST_LANES];
    u32 *file = e->accumulators ? wave->agpr : wave->vgpr;
    int lane_of[MOST_LANES], count = 0, bytes = e->bytes;
    int write = e->access != LOAD && e->access != LOAD2, accesses = 1 + (e->access == LOAD2 || e->access == STORE2);
    int alignment = e->access == ATOMIC ? bytes : 1; /* HSA lets loads and stores be unaligned */
    if (e->base != NO_REGISTER) base = e->space == GLOBAL ? pair_of(wave->sgpr, e->base) : wave->sgpr[e->base];
    if (e->of_all_lanes) base /= lanes;
    for (int lane = 0; lane < lanes; lane++) {
        if (!(active >> lane & 1)) continue;
        u64 address = base;
        if (e->address != NO_REGISTER)
            address += e->wide ? VGPR(e->address) | (u64)VGPR(e->address + 1) << 32 : VGPR(e->address);
        lane_of[count] = lane;
        for (int k = 0; k < accesses; k++) {
            u64 at = address + (i64)(k ? e->offset1 : e->offset);
            u8 *p = 0;
            if (e->space != GLOBAL) at = (u32)at;
            if (e->space == LDS && at + bytes <= wave->local_size) p = wave->local + at;
            if (e->space == SCRATCH && at + bytes <= wave->scratch_size)
                p = wave->scratch + (u64)lane * wave->scratch_size + at;
            if (e->space == GLOBAL && is_inside(regions, n, at, bytes, write)) p = (u8 *)at;
            if (!p || (e->space != SCRATCH && at % alignment)) {
                report->address = at;
                report->lane = lane;
                report->bytes = bytes;
                report->kind = e->space * 8 + e->access;
                return 1;
            }
            addresses[k][count] = at;
            if (e->access == ATOMIC) atomic_lane(e, wave, file, lanes, lane, at, p);
            else if (write) store_lane(e, wave, file, lanes, lane, at, p, k ? e->data1 : e->data);
            else load_lane(e, wave, file, lanes, lane, at, p, e->result + k * bytes / 4);
        }
        count++;
    }
    if (report->counts) {
        for (int k = 0; k < accesses; k++) {
            if (e->space == GLOBAL) count_lines(report, addresses[k], count, bytes);
            if (e->space == LDS) count_banks(report, addresses[k], lane_of, count, bytes, e->access == ATOMIC);
        }
        if (e->access == ATOMIC) count_atomics(report, addresses[0], count);
    }
    return 0;
}

static int scalar_load(const Entry *e, Wave *wave, const Region *regions, int n, Report *report) {
    u64 address = pair_of(wave->sgpr, e->base) + (i64)e->offset;
    if (e->offset_register != NO_REGISTER) address += wave->sgpr[e->offset_register];
    if (e->bytes >= 4) address &= ~3ull;
    if (!is_inside(regions, n, address, e->bytes, 0)) {
        report->address = address;
        report->bytes = e->bytes;
        report->kind = SCALAR_LOAD;
        report->lane = 0;
        return 1;
    }
    if (e->bytes < 4) wave->sgpr[e->result] = extended((u32)get((u8 *)address, e->bytes), e->bytes, e->sign);
    else memcpy(wave->sgpr + e->result, (u8 *)address, e->bytes);
    return 0;
}

#endif
