/* What an access to memory costs, counted from its addresses.

   Global: the distinct cache lines that the lanes of one instruction touch. Local: 32 banks of 4 bytes; 32 lanes at a
   time take as many cycles as the busiest bank has words, where loads and stores of one word by several lanes are one,
   and atomics on it are not. What is more than the words of all lanes spread over all banks are conflicts. Atomics: the
   lanes that take part, and those whose address another lane of the same instruction had before. */
#ifndef COUNTS_H
#define COUNTS_H
#include "types.h"

#define BANKS 32
#define MOST_LANES 64

/* Whether `value` is new among `found`, to which it is added then. */
static int is_new(u64 *found, int *count, u64 value) {
    for (int k = *count; k-- > 0;)
        if (found[k] == value) return 0;
    found[(*count)++] = value;
    return 1;
}

static void count_lines(Report *report, const u64 *addresses, int n, int bytes) {
    u64 found[2 * MOST_LANES];
    int count = 0;
    for (int k = 0; k < n; k++) {
        is_new(found, &count, addresses[k] / report->line_bytes);
        is_new(found, &count, (addresses[k] + bytes - 1) / report->line_bytes);
    }
    report->global_lines += count;
}

static void count_banks(Report *report, const u64 *addresses, const int *lanes, int n, int bytes, int is_atomic) {
    int words = bytes < 4 ? 1 : bytes / 4;
    for (int half = 0; half < MOST_LANES / BANKS; half++) {
        u64 seen[BANKS][MOST_LANES * 4];
        int used[BANKS] = {0}, busiest = 0, all = 0;
        for (int k = 0; k < n; k++) {
            if (lanes[k] / BANKS != half) continue;
            for (int w = 0; w < words; w++) {
                u64 word = addresses[k] / 4 + w;
                int bank = word % BANKS;
                if (is_atomic) seen[bank][used[bank]++] = word, all++;
                else all += is_new(seen[bank], used + bank, word);
                if (used[bank] > busiest) busiest = used[bank];
            }
        }
        report->local_cycles += busiest;
        report->conflicts += busiest - (all + BANKS - 1) / BANKS;
    }
}

static void count_atomics(Report *report, const u64 *addresses, int n) {
    u64 found[MOST_LANES];
    int count = 0;
    for (int k = 0; k < n; k++) is_new(found, &count, addresses[k]);
    report->atomics += n;
    report->repeated += n - count;
}

#endif
