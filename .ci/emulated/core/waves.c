/* Waves of work-groups, interleaved at random, one instruction after the other. */
#include "memory.h"

/* v_mad_f32 of GFX9 before 940 rounds twice. data, data1 and offset_register are the operands' codes; bits of `sign` say
   which are absolute, bits of `half` which are negated. */
static void mad(const Entry *e, Wave *wave, int lanes) {
    u64 active = active_lanes(wave, lanes);
    int codes[3] = {e->data, e->data1, e->offset_register};
    for (int lane = 0; lane < lanes; lane++) {
        if (!(active >> lane & 1)) continue;
        float x[3];
        for (int k = 0; k < 3; k++) {
            x[k] = as_float(codes[k] >= 256 ? VGPR(codes[k] - 256) : wave->sgpr[codes[k]]);
            if (e->sign >> k & 1) x[k] = __builtin_fabsf(x[k]);
            if (e->half >> k & 1) x[k] = -x[k];
        }
        volatile float product = x[0] * x[1];
        VGPR(e->result) = bits_of_float(product + x[2]);
    }
}

static u64 next_random(u64 *state) {
    u64 x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

/* Release the barrier of a group at which all waves that have not ended have arrived. */
static void release(Wave *waves, int n, u32 g, Group *groups) {
    Group *group = groups + g;
    if (group->arrived < group->alive || !group->arrived) return;
    group->arrived = 0;
    group->phase++;
    for (int i = 0; i < n; i++)
        if (waves[i].group == g && waves[i].state == AT_BARRIER) waves[i].state = READY;
}

static void call_alu(const Entry *e, Wave *wave, u64 memory_base) {
    u64 places[6] = {(u64)wave->sgpr, (u64)wave->vgpr, memory_base, (u64)wave->local, (u64)wave->scratch,
                     (u64)wave->agpr};
    u64 given[6] = {0};
    for (int i = 0; i < e->num_arguments; i++) given[i] = places[e->arguments[i]];
    ((void (*)(u64, u64, u64, u64, u64, u64))e->function)(given[0], given[1], given[2], given[3], given[4], given[5]);
}

static int is_taken(const Entry *e, const Wave *wave, int lanes) {
    u64 vcc = lanes == 64 ? pair_of(wave->sgpr, VCC_LO) : wave->sgpr[VCC_LO], exec = active_lanes(wave, lanes);
    switch (e->condition) {
    case 1: return !wave->sgpr[SCC];
    case 2: return !!wave->sgpr[SCC];
    case 3: return !vcc;
    case 4: return !!vcc;
    case 5: return !exec;
    case 6: return !!exec;
    }
    return 1;
}

/* A wave that is ready, at random; NULL if none is. `live` is how many have not ended. */
static Wave *pick(Wave *waves, int n, u64 random, int *live) {
    int ready = 0;
    *live = 0;
    for (int i = 0; i < n; i++) {
        *live += waves[i].state != ENDED;
        ready += waves[i].state == READY;
    }
    if (!ready) return 0;
    int which = random % ready;
    for (int i = 0; i < n; i++)
        if (waves[i].state == READY && which-- == 0) return waves + i;
    return 0;
}

/* Run until all waves have ended, or something has to be said.

   `table` has an entry for each 4 bytes of the code from `base` on. A wave runs 1 to `quantum` instructions at a time,
   and all together `budget`. `memory_base` is what addresses of global memory are relative to for the ALUs' code. */
int run(Entry *table, u64 base, u64 entries, Wave *waves, int n, Group *groups, int lanes, const Region *regions,
        int num_regions, u64 memory_base, u64 *seed, i64 quantum, i64 *budget, Report *report) {
    all_waves = waves;
    num_waves = n;
    groups_share_units = report->shares_units;
    for (;;) {
        int live;
        Wave *wave = waves + report->wave;
        i64 left = report->left;
        if (!report->resumes) {
            u64 random = next_random(seed);
            wave = pick(waves, n, random, &live);
            if (!live) return DONE;
            if (!wave) return DEADLOCK;
            left = 1 + (i64)(next_random(seed) % ((random >> 33) % 3 ? quantum : 4));
            if (wave->pending && wave->pending->count && next_random(seed) % 16 == 0) drain(wave);
        }
        report->resumes = 0;
        u32 *sgpr = wave->sgpr;
        while (left-- > 0) {
            u64 pc = pair_of(sgpr, PC_LO), index = (pc - base) / 4;
            report->pc = pc;
            report->wave = wave - waves;
            if (pc < base || index >= entries) {
                report->kind = OUTSIDE_CODE;
                return FAULT;
            }
            Entry *e = table + index;
            if (e->kind == NONE) {
                report->resumes = 1;
                report->left = left + 1;
                return NEED;
            }
            if (--*budget < 0) return LIMIT;
            report->steps++;
            wave->steps++;
            if (e->kind == ALU) { /* moves the program counter itself */
                call_alu(e, wave, memory_base);
                if (!report->shares_units) sgpr[NULL_REGISTER] = 0; /* tinygrad writes it with waves of 64 lanes */
                continue;
            }
            u64 next = pc + e->size;
            switch (e->kind) {
            case MEM:
                if (memory(e, wave, lanes, regions, num_regions, report)) return FAULT;
                break;
            case SMEM:
                if (scalar_load(e, wave, regions, num_regions, report)) return FAULT;
                break;
            case MAD: mad(e, wave, lanes); break;
            case INVALIDATE:
                if (wave->cache) forget(wave->cache);
                break;
            case DRAIN: drain(wave); break;
            case BRANCH:
                if (is_taken(e, wave, lanes)) next += (i64)e->target * 4;
                break;
            case GETPC:
            case SETPC:
            case SWAPPC: {
                u64 to = e->kind == GETPC ? next : pair_of(sgpr, e->data);
                if (e->kind != SETPC) {
                    sgpr[e->result] = (u32)next;
                    sgpr[e->result + 1] = (u32)(next >> 32);
                }
                next = to;
            }
            }
            sgpr[PC_LO] = (u32)next;
            sgpr[PC_LO + 1] = (u32)(next >> 32);
            Group *group = groups + wave->group;
            if (e->kind == END) {
                drain(wave);
                wave->state = ENDED;
                group->alive--;
                release(waves, n, wave->group, groups);
                break;
            }
            if (e->kind == BARRIER || e->kind == SIGNAL) {
                wave->barrier = group->phase + 1;
                group->arrived++;
                if (e->kind == BARRIER) wave->state = AT_BARRIER;
                release(waves, n, wave->group, groups);
                if (e->kind == BARRIER) break;
            }
            if (e->kind == WAIT) {
                if (group->phase < wave->barrier) wave->state = AT_BARRIER;
                break;
            }
        }
    }
}
