// The limit that `clhist bench --suite peers` compares with on CPUs: for each sum a loop of every thread on histograms
// of its own, which are combined at the end. A thread may own several copies and use them in turn, so that an update
// does not wait for the one before it of the same bin.
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { float value; int32_t index; } found_t;
typedef struct { double sum; int64_t count; } moments_t;
typedef struct { int64_t time; double value; } record_t;
typedef struct { const double *edges; double first, scale; int32_t bins; } axis_t;

enum { UNROLL = 8, APART = 2048, AHEAD = 1024 };

// Cells of a copy: a multiple of a cache line, and with a gap of two pages, so that no thread writes into a line that
// another one writes into or prefetches.
static int64_t stride(int64_t bins) { return (bins + 63) / 64 * 64 + APART; }

// The hardware prefetches by pages; later ones are asked for here.
#define ASK(array, i) if (array) __builtin_prefetch((const char *)(array) + ((i) + AHEAD) * (int64_t)sizeof *(array))

// As numpy.histogram finds the bin of a value: by arithmetic, then the edges decide.
static inline int32_t place(const axis_t *axis, float x)
{
    int32_t k = (int32_t)((x - axis->first) * axis->scale);
    k = k < 0 ? 0 : k >= axis->bins ? axis->bins - 1 : k;
    k -= x < axis->edges[k] && k > 0;
    k += k < axis->bins - 1 && x >= axis->edges[k + 1];
    return k;
}

// NAME(x, y, v, n, bins, axes, out, scratch, copies, threads): element i updates cell BIN(i) by UPDATE(cell, i);
// copies are combined by MERGE(cell, other). `scratch` has room for threads * copies * stride(bins) cells.
#define HISTOGRAM(NAME, INDEX, VALUE, CELL, EMPTY, BIN, UPDATE, MERGE)                                               \
    static inline __attribute__((always_inline)) void NAME##_part(                                                   \
        const INDEX *x, const INDEX *y, const VALUE *v, int64_t begin, int64_t end, const axis_t *axes, CELL *cells, \
        int64_t size, const int copies)                                                                              \
    {                                                                                                                \
        int64_t i = begin;                                                                                           \
        for (; i + UNROLL <= end; i += UNROLL) {                                                                     \
            ASK(x, i); ASK(y, i); ASK(v, i);                                                                         \
            _Pragma("GCC unroll 8") for (int k = 0; k < UNROLL; k++)                                                 \
            {                                                                                                        \
                CELL *cell = cells + (k % copies) * size + (BIN(i + k));                                             \
                UPDATE((*cell), (i + k));                                                                            \
            }                                                                                                        \
        }                                                                                                            \
        for (; i < end; i++) {                                                                                       \
            CELL *cell = cells + (BIN(i));                                                                           \
            UPDATE((*cell), i);                                                                                      \
        }                                                                                                            \
    }                                                                                                                \
    void NAME(const INDEX *x, const INDEX *y, const VALUE *v, int64_t n, int64_t bins, const axis_t *axes,           \
              CELL *out, CELL *scratch, int copies, int threads)                                                     \
    {                                                                                                                \
        const int64_t size = stride(bins);                                                                           \
        _Pragma("omp parallel num_threads(threads)")                                                                 \
        {                                                                                                            \
            const int t = omp_get_thread_num();                                                                      \
            const int64_t begin = n * t / threads, end = n * (t + 1) / threads;                                      \
            CELL *cells = scratch + (int64_t)t * copies * size;                                                      \
            const CELL empty = EMPTY;                                                                                \
            for (int64_t k = 0; k < copies * size; k++) cells[k] = empty;                                            \
            if (copies == 1) NAME##_part(x, y, v, begin, end, axes, cells, size, 1);                                 \
            else if (copies == 2) NAME##_part(x, y, v, begin, end, axes, cells, size, 2);                            \
            else if (copies == 4) NAME##_part(x, y, v, begin, end, axes, cells, size, 4);                            \
            else NAME##_part(x, y, v, begin, end, axes, cells, size, 8);                                             \
            _Pragma("omp barrier")                                                                                   \
            for (int64_t b = bins * t / threads; b < bins * (t + 1) / threads; b++) {                                \
                CELL sum = empty;                                                                                    \
                for (int k = 0; k < threads * copies; k++) MERGE(sum, scratch[k * size + b]);                        \
                out[b] = sum;                                                                                        \
            }                                                                                                        \
        }                                                                                                            \
    }

#define AT(i) x[i]
#define IN_AXIS(i) place(axes, x[i])
#define IN_AXES(i) (int64_t)place(axes, x[i]) * axes[1].bins + place(axes + 1, y[i])

#define ONE_MORE(cell, i) cell++
#define ADD_VALUE(cell, i) cell += v[i]
#define PLUS(cell, other) cell += other

#define LARGER(cell, i) cell = v[i] > cell ? v[i] : cell
#define MAX(cell, other) cell = other > cell ? other : cell

#define LARGEST_AT(cell, i) if (v[i] > cell.value) cell = (found_t){v[i], (int32_t)(i)}
#define LARGEST(cell, other)                                                                     \
    if (other.value > cell.value || (other.value == cell.value && other.index < cell.index)) cell = other

#define SUM_AND_ONE(cell, i) cell.sum += v[i], cell.count++
#define SUMS(cell, other) cell.sum += other.sum, cell.count += other.count

#define LATER(cell, i) if (v[i].time > cell.time) cell = v[i]
#define LATEST(cell, other) if (other.time > cell.time) cell = other

HISTOGRAM(count, int32_t, void, int32_t, 0, AT, ONE_MORE, PLUS)
HISTOGRAM(count8, uint8_t, void, int32_t, 0, AT, ONE_MORE, PLUS)
HISTOGRAM(count16, uint16_t, void, int32_t, 0, AT, ONE_MORE, PLUS)
HISTOGRAM(add, int32_t, float, float, 0.0f, AT, ADD_VALUE, PLUS)
HISTOGRAM(add_double, int32_t, double, double, 0.0, AT, ADD_VALUE, PLUS)
HISTOGRAM(maximum, int32_t, float, float, -__builtin_inff(), AT, LARGER, MAX)
HISTOGRAM(argmax, int32_t, float, found_t, ((found_t){-__builtin_inff(), INT32_MAX}), AT, LARGEST_AT, LARGEST)
HISTOGRAM(moments, int32_t, float, moments_t, ((moments_t){0.0, 0}), AT, SUM_AND_ONE, SUMS)
HISTOGRAM(latest, int32_t, record_t, record_t, ((record_t){INT64_MIN, 0.0}), AT, LATER, LATEST)
HISTOGRAM(histogram, float, void, int32_t, 0, IN_AXIS, ONE_MORE, PLUS)
HISTOGRAM(histogram2d, float, void, int32_t, 0, IN_AXES, ONE_MORE, PLUS)

// Two bytes at a time: a table of 65 536 pairs for each thread.
void count8_pairs(const uint8_t *x, const uint8_t *y, const void *v, int64_t n, int64_t bins, const axis_t *axes,
                  int32_t *out, int32_t *scratch, int copies, int threads)
{
    #pragma omp parallel num_threads(threads)
    {
        const int t = omp_get_thread_num();
        const int64_t begin = n / 8 * t / threads * 8, end = n / 8 * (t + 1) / threads * 8;
        int32_t *pairs = scratch + (int64_t)t * 65536;
        memset(pairs, 0, 65536 * sizeof(int32_t));
        for (int64_t i = begin; i < end; i += 8) {
            uint64_t word;
            memcpy(&word, x + i, 8);
            pairs[word & 0xffff]++;
            pairs[word >> 16 & 0xffff]++;
            pairs[word >> 32 & 0xffff]++;
            pairs[word >> 48]++;
        }
        if (t == threads - 1)  // the rest, paired with zeros that are taken back below
            for (int64_t i = end; i < n; i++) pairs[x[i]]++;
        #pragma omp barrier
        for (int64_t b = bins * t / threads; b < bins * (t + 1) / threads; b++) {
            int32_t sum = 0;
            for (int k = 0; k < threads; k++)
                for (int64_t other = 0; other < 256; other++)
                    sum += scratch[k * 65536 + b * 256 + other] + scratch[k * 65536 + other * 256 + b];
            out[b] = sum - (b ? 0 : (int32_t)(n % 8));
        }
    }
}
