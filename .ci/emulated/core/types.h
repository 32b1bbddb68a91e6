/* What Python and C share; the tables of emulated/tables.py have the same fields in the same order. */
#ifndef TYPES_H
#define TYPES_H
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t i32;
typedef int64_t i64;

/* Kinds of instructions. */
enum { NONE, ALU, NOP, END, BARRIER, SIGNAL, WAIT, BRANCH, SMEM, MEM, MAD, INVALIDATE, DRAIN, GETPC, SETPC, SWAPPC };
/* Why `run` came back. */
enum { DONE, NEED, FAULT, LIMIT, DEADLOCK };
/* Accesses to memory, and its spaces. */
enum { LOAD, STORE, ATOMIC, LOAD2, STORE2 };
enum { GLOBAL, LDS, SCRATCH };
/* States of a wave. */
enum { READY, AT_BARRIER, ENDED };
/* What a fault was, where it was no access of lanes: that has space * 8 + access. */
enum { OUTSIDE_CODE = 98, SCALAR_LOAD = 99 };

/* Registers by their numbers in AMD's encoding, and two places that the emulator adds. */
enum { VCC_LO = 106, NULL_REGISTER = 124, EXEC_LO = 126, SCC = 253, PC_LO = 256 };

#define NO_REGISTER (-1)

/* One decoded instruction. */
typedef struct {
    void *function; /* of an instruction of the ALUs: machine code */
    i32 kind, size, num_arguments, arguments[6];
    i32 access, space, bytes, sign, half, atomic, swapped, returns, address, base, wide, offset, offset1;
    i32 data, data1, result, accumulators, condition, target, offset_register, bypass, of_all_lanes;
} Entry;

#define LINES 128
#define LINE_BYTES 128
/* A cache of a compute unit, which nothing but its own waves and the instructions made for it keep up to date. */
typedef struct {
    u64 tag[LINES];
    u8 data[LINES][LINE_BYTES];
} Cache;

#define MOST_PENDING 2048
/* Stores of a wave that others do not see yet. */
typedef struct {
    u32 count, padding;
    struct {
        u64 address;
        u32 value, bytes;
    } stores[MOST_PENDING];
} Pending;

typedef struct {
    u32 *sgpr, *vgpr, *agpr;
    u8 *local, *scratch;
    u32 local_size, scratch_size, group, state, barrier, padding;
    u64 steps;
    Cache *cache;
    Pending *pending;
} Wave;

typedef struct {
    u32 alive, arrived, phase, padding;
} Group;

typedef struct {
    u64 base, size;
    u32 writable, padding;
} Region;

/* What happened: where it stopped, and what was counted. If an instruction was missing, the same wave goes on for as
   long as it would have, so that what is random does not depend on what was decoded before. */
typedef struct {
    u64 pc, address;
    u32 wave, lane, bytes, kind;
    u64 steps, global_lines, local_cycles, conflicts, atomics, repeated;
    u32 line_bytes, counts, shares_units, resumes;
    i64 left;
} Report;

#endif
