/* Atomic operations on 32 and 64 bits, and loads and stores of 1 to 8 bytes. */
#ifndef ATOMICS_H
#define ATOMICS_H
#include "types.h"

enum { SWAP, CMPSWAP, ADD, SUB, RSUB, SMIN, UMIN, SMAX, UMAX, AND, OR, XOR, INC, DEC, FADD, FMIN, FMAX, FMINNUM, FMAXNUM };

static float as_float(u32 bits) { float x; memcpy(&x, &bits, 4); return x; }
static u32 bits_of_float(float x) { u32 bits; memcpy(&bits, &x, 4); return bits; }
static double as_double(u64 bits) { double x; memcpy(&x, &bits, 8); return x; }
static u64 bits_of_double(double x) { u64 bits; memcpy(&bits, &x, 8); return bits; }

/* What an atomic leaves in memory that holds `old`: `given` is the operand, `compared` that of a comparison. */
#define ATOMIC_OF(NAME, UNSIGNED, SIGNED, FLOAT, READ, WRITE)                                                  \
    static UNSIGNED NAME(int operation, UNSIGNED old, UNSIGNED given, UNSIGNED compared) {                     \
        SIGNED so = (SIGNED)old, sg = (SIGNED)given;                                                           \
        FLOAT fo = READ(old), fg = READ(given);                                                                \
        switch (operation) {                                                                                   \
        case SWAP: return given;                                                                               \
        case CMPSWAP: return old == compared ? given : old;                                                    \
        case ADD: return old + given;                                                                          \
        case SUB: return old - given;                                                                          \
        case RSUB: return given - old;                                                                         \
        case SMIN: return sg < so ? given : old;                                                               \
        case SMAX: return sg > so ? given : old;                                                               \
        case UMIN: return given < old ? given : old;                                                           \
        case UMAX: return given > old ? given : old;                                                           \
        case AND: return old & given;                                                                          \
        case OR: return old | given;                                                                           \
        case XOR: return old ^ given;                                                                          \
        case INC: return old >= given ? 0 : old + 1;                                                           \
        case DEC: return old == 0 || old > given ? given : old - 1;                                            \
        case FADD: return WRITE(fo + fg);                                                                      \
        case FMIN: return fg < fo ? given : old;                                                               \
        case FMAX: return fg > fo ? given : old;                                                               \
        case FMINNUM: return fg != fg ? old : fo != fo || fg < fo ? given : old;                               \
        case FMAXNUM: return fg != fg ? old : fo != fo || fg > fo ? given : old;                               \
        }                                                                                                      \
        return old;                                                                                            \
    }
ATOMIC_OF(atomic32, u32, i32, float, as_float, bits_of_float)
ATOMIC_OF(atomic64, u64, i64, double, as_double, bits_of_double)

static u64 get(const u8 *p, int bytes) {
    u64 value = 0;
    memcpy(&value, p, bytes);
    return value;
}
static void put(u8 *p, u64 value, int bytes) { memcpy(p, &value, bytes); }

#endif
