"""The nearest center of each point, in the manner of a matrix product of which only the least of each row is kept.

Scores are ``|c|^2 / 2 - x . c``, half of the squared distance but for what all centers of a point share: one
multiply-add a term, where differences take a subtraction more. Points are centred (their mean subtracted), so that it
does not cancel for data far from the origin. Centers are packed in tiles of COLUMNS, feature by feature.
"""

from __future__ import annotations

from typing import NamedTuple


class Tile(NamedTuple):
    """How `assign` divides its work on a GPU: 256 work-items for ``16 * block`` points and as many centers at a time.

    Each work-item has ``block * block`` of the products (4 or 8); `depth` features are in local memory at once, in one
    or two `buffers` (of float32 25 and 42 KB).
    """

    block: int = 8
    depth: int = 16
    buffers: int = 2


# A work-item of a CPU has so many points at a time, and so many vectors of centers.
ROWS, VECTORS = 6, 2

ON_CPU = """
kernel void assign(global const real *points, global const real *packed, global const real *half_norm,
                   global int *label, int n, int tiles, int chunk)
{
    const int begin = get_global_id(0) * chunk, end = min(n, begin + chunk);
    for (int row = begin; row < end; row += ROWS) {
        global const real *x[ROWS];
        lanes_t least[ROWS];
        index_t where[ROWS];
        for (int r = 0; r < ROWS; ++r) {
            x[r] = points + (size_t)min(row + r, n - 1) * FEATURES;
            least[r] = INFINITY;
            where[r] = 0;
        }
        for (int t = 0; t < tiles; ++t) {
            global const real *center = packed + (size_t)t * FEATURES * COLUMNS;
            lanes_t product[ROWS][VECTORS];
            UNROLL for (int r = 0; r < ROWS; ++r)
                UNROLL for (int v = 0; v < VECTORS; ++v)
                    product[r][v] = 0;
            for (int j = 0; j < FEATURES; ++j) {
                lanes_t y[VECTORS];
                UNROLL for (int v = 0; v < VECTORS; ++v)
                    y[v] = LOAD(center, j * VECTORS + v);
                UNROLL for (int r = 0; r < ROWS; ++r)
                    UNROLL for (int v = 0; v < VECTORS; ++v)
                        product[r][v] = fma((lanes_t)x[r][j], y[v], product[r][v]);
            }
            UNROLL for (int r = 0; r < ROWS; ++r)
                UNROLL for (int v = 0; v < VECTORS; ++v) {
                    const lanes_t score = LOAD(half_norm, t * VECTORS + v) - product[r][v];
                    where[r] = score < least[r] ? (index_t)(t * VECTORS + v) : where[r];
                    least[r] = fmin(score, least[r]);
                }
        }
        for (int r = 0; r < ROWS && row + r < end; ++r) {
            real score[LANES];
            int place[LANES], found = 0;
            STORE(least[r], score, 0);
            STORE(TO_LABELS(where[r]), place, 0);
            for (int l = 0; l < LANES; ++l)
                place[l] = place[l] * LANES + l;
            for (int l = 1; l < LANES; ++l)  // of equal distances the first center's
                if (score[l] < score[found] || (score[l] == score[found] && place[l] < place[found]))
                    found = l;
            label[row + r] = place[found];
        }
    }
}
"""

# Work-item (tx, ty) has the rows ty * 4 + {0, 1, 2, 3} of every 64 of a tile, and such columns: reads of four that
# meet in no bank. What the next step needs is on its way into registers while this one computes.
ON_GPU = """
#define SIDE (16 * BLOCK)
#define PITCH (SIDE + 4)
#define QUADS (SIDE * DEPTH / 4 / 256)
#define OWN(lane, q) ((q) / 4 * 64 + (lane) * 4 + (q) % 4)

real4_t four(global const real *row, const int j)
{
#if FEATURES % 4 == 0
    return j < FEATURES ? *(global const real4_t *)(row + j) : (real4_t)0;
#else
    return (real4_t)(j < FEATURES ? row[j] : 0, j + 1 < FEATURES ? row[j + 1] : 0,
                     j + 2 < FEATURES ? row[j + 2] : 0, j + 3 < FEATURES ? row[j + 3] : 0);
#endif
}

void fetch(real4_t *of_points, real4_t *of_centers, global const real *points, global const real *packed,
                  const int row, const int n, const int step)
{
    global const real4_t *tile = (global const real4_t *)packed + (size_t)step * (DEPTH * SIDE / 4);
    UNROLL for (int q = 0; q < QUADS; ++q) {
        const int at = q * 256 + get_local_id(0), r = at / (DEPTH / 4), j = at % (DEPTH / 4) * 4;
        const size_t p = min(row + r, n - 1);
        of_points[q] = four(points + p * FEATURES, step % (DEPTHS / DEPTH) * DEPTH + j);
        of_centers[q] = tile[at];
    }
}

kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void assign(global const real *points, global const real *packed, global const real *half_norm,
            global int *label, int n, int tiles, int chunk)
{
    local real pool[BUFFERS * DEPTH * (PITCH + SIDE)] __attribute__((aligned(32)));
    local int place[SIDE * 16];
    const int l = get_local_id(0), tx = l % 16, ty = l / 16, row = get_group_id(0) * SIDE;
    real least[BLOCK], product[BLOCK][BLOCK];
    int nearest[BLOCK];
    UNROLL for (int r = 0; r < BLOCK; ++r) {
        least[r] = INFINITY;
        nearest[r] = 0;
        UNROLL for (int c = 0; c < BLOCK; ++c)
            product[r][c] = 0;
    }
    real4_t of_points[QUADS], of_centers[QUADS];
    const int per_tile = DEPTHS / DEPTH, steps = tiles * per_tile;
    fetch(of_points, of_centers, points, packed, row, n, 0);
    for (int step = 0; step < steps; ++step) {
        local real *x = pool + step % BUFFERS * (DEPTH * (PITCH + SIDE)), *y = x + DEPTH * PITCH;
        UNROLL for (int q = 0; q < QUADS; ++q) {
            const int at = q * 256 + l, r = at / (DEPTH / 4), j = at % (DEPTH / 4) * 4;
            x[j * PITCH + r] = of_points[q].s0;
            x[(j + 1) * PITCH + r] = of_points[q].s1;
            x[(j + 2) * PITCH + r] = of_points[q].s2;
            x[(j + 3) * PITCH + r] = of_points[q].s3;
            *(local real4_t *)(y + 4 * at) = of_centers[q];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (step + 1 < steps)
            fetch(of_points, of_centers, points, packed, row, n, step + 1);
        UNROLL for (int j = 0; j < DEPTH; ++j) {
            real a[BLOCK], b[BLOCK];
            UNROLL for (int q = 0; q < BLOCK; q += 4) {
                vstore4(*(local const real4_t *)(x + j * PITCH + OWN(ty, q)), 0, a + q);
                vstore4(*(local const real4_t *)(y + j * SIDE + OWN(tx, q)), 0, b + q);
            }
            UNROLL for (int r = 0; r < BLOCK; ++r)
                UNROLL for (int c = 0; c < BLOCK; ++c)
                    product[r][c] = fma(a[r], b[c], product[r][c]);
        }
        if ((step + 1) % per_tile == 0)
            UNROLL for (int c = 0; c < BLOCK; ++c) {
                const int center = step / per_tile * SIDE + OWN(tx, c);
                UNROLL for (int r = 0; r < BLOCK; ++r) {
                    const real score = half_norm[center] - product[r][c];
                    nearest[r] = score < least[r] ? center : nearest[r];
                    least[r] = fmin(score, least[r]);
                    product[r][c] = 0;
                }
            }
        if (BUFFERS == 1)
            barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (BUFFERS == 2)
        barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int r = 0; r < BLOCK; ++r) {
        pool[OWN(ty, r) * 16 + tx] = least[r];
        place[OWN(ty, r) * 16 + tx] = nearest[r];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l < SIDE && row + l < n) {
        int found = 16 * l;
        for (int at = 16 * l + 1; at < 16 * l + 16; ++at)
            if (pool[at] < pool[found] || (pool[at] == pool[found] && place[at] < place[found]))
                found = at;
        label[row + l] = place[found];
    }
}
"""
