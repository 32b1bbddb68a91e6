"""C of the kernels that sort particles into cells, and of the one that counts pairs of them by distance. Pure."""

from __future__ import annotations

from typing import Final

VECTOR_BYTES: Final = 32  # PoCL cannot compile fma of more

WRAPPED: Final = """
real3 at = vload3(i, given), part;
real3 image = 0;
for (int again = 0; again < 2; ++again) {  // what is moved by many edges has lost digits, and so its cell has
    const real x = at.x - frame[18], y = at.y - frame[19], z = at.z - frame[20];
    part.x = fma(frame[11], z, fma(frame[10], y, frame[9] * x));
    part.y = fma(frame[14], z, fma(frame[13], y, frame[12] * x));
    part.z = fma(frame[17], z, fma(frame[16], y, frame[15] * x));
    if (again) break;
    image.x = grid[3] ? floor(part.x) : 0;
    image.y = grid[4] ? floor(part.y) : 0;
    image.z = grid[5] ? floor(part.z) : 0;
    at.x -= fma(image.z, frame[2], fma(image.y, frame[1], image.x * frame[0]));
    at.y -= fma(image.z, frame[5], fma(image.y, frame[4], image.x * frame[3]));
    at.z -= fma(image.z, frame[8], fma(image.y, frame[7], image.x * frame[6]));
}
const int cx = clamp((int)(part.x * grid[0]), 0, grid[0] - 1), cy = clamp((int)(part.y * grid[1]), 0, grid[1] - 1);
const int cz = clamp((int)(part.z * grid[2]), 0, grid[2] - 1);
vstore3(at, i, inside);
cell[i] = (cz * grid[1] + cy) * grid[0] + cx
"""
"""Store the point of element `i`, moved into the box, and its cell."""

PLACED: Final = """
const uint slot = first[cell[i]] + atomic_inc(&filled[cell[i]]);
x[slot] = inside[3 * i]; y[slot] = inside[3 * i + 1]; z[slot] = inside[3 * i + 2];
cells[slot] = cell[i]; order[slot] = i
"""
"""Store the point of element `i` among those of its cell, in any order."""

_ARGUMENTS: Final = (
    "const real *qx, const real *qy, const real *qz, const uint *qcells, "
    "const real *px, const real *py, const real *pz, const uint *first, "
    "const real *frame, const int *grid, const real *squares, real lowest, real scale"
)
_TYPED: Final = ", const int *qtypes, const int *ptypes, const int *pairs, int types"
_EXCLUDED: Final = ", const int *qgroups, const int *pgroups"

PREAMBLE: Final = """
int clhist_image(const int cell, const int cells) { return cell < 0 ? (cell + 1) / cells - 1 : cell / cells; }

// The bin whose squared edges enclose a squared distance, from one beside it.
int clhist_exact_bin(__global const real *squares, const real squared, const int bin)
{
    int k = clamp(bin, 0, BINS - 1);
    while (k > 0 && squared < squares[k]) --k;
    while (k < BINS - 1 && squared >= squares[k + 1]) ++k;
    return k;
}
"""

HALVES: Final = """
// Whether a pair half a period apart, which is met in two images, is met in the second of them.
int clhist_is_second(
    __global const real *frame, __global const int *grid, const real x, const real y, const real z,
    const real beyond, const int is_reversed)
{
    const real a = grid[3] ? rint(2 * (frame[9] * x + frame[10] * y + frame[11] * z)) : 0;
    const real b = grid[4] ? rint(2 * (frame[12] * x + frame[13] * y + frame[14] * z)) : 0;
    const real c = grid[5] ? rint(2 * (frame[15] * x + frame[16] * y + frame[17] * z)) : 0;
    if (a == 0 && b == 0 && c == 0) return 0;
    const real ox = x - (a * frame[0] + b * frame[1] + c * frame[2]);
    const real oy = y - (a * frame[3] + b * frame[4] + c * frame[5]);
    const real oz = z - (a * frame[6] + b * frame[7] + c * frame[8]);
    if (!(fma(oz, oz, fma(oy, oy, ox * ox)) < beyond)) return 0;
    // Both images are opposite: on either side of a plane that no period of a box lies in.
    const real side = x + (real)0.7548776662 * y + (real)0.5698402910 * z;
    return is_reversed ? side > 0 : side < 0;
}
"""

_ROWS = """
const real lx = qx[i], ly = qy[i], lz = qz[i];
const int gx = grid[0], gy = grid[1], gz = grid[2], reach = grid[6], own = qcells[i];
const int cx = own % gx, cy = own / gx % gy, cz = own / gx / gy;
const real least = squares[0], beyond = squares[BINS];
for (int dz = SAME ? 0 : -reach; dz <= reach; ++dz)
for (int dy = SAME && dz == 0 ? 0 : -reach; dy <= reach; ++dy) {
    const int iy = clhist_image(cy + dy, gy), iz = clhist_image(cz + dz, gz);
    if ((iy != 0 && !grid[4]) || (iz != 0 && !grid[5])) continue;
    const int row = ((cz + dz - iz * gz) * gy + cy + dy - iy * gy) * gx, is_own = SAME && dz == 0 && dy == 0;
    for (int from = is_own ? cx : cx - reach, to; from <= cx + reach; from = to + 1) {
        const int ix = clhist_image(from, gx);
        to = min(cx + reach, (ix + 1) * gx - 1);
        if (ix != 0 && !grid[3]) continue;
        const uint end = first[row + to - ix * gx + 1];
        uint j = is_own && from == cx ? (uint)i + 1 : first[row + from - ix * gx];  // each pair once
        const real x = lx - fma((real)iz, frame[2], fma((real)iy, frame[1], ix * frame[0]));
        const real y = ly - fma((real)iz, frame[5], fma((real)iy, frame[4], ix * frame[3]));
        const real z = lz - fma((real)iz, frame[8], fma((real)iy, frame[7], ix * frame[6]));
BLOCK
    }
}
"""

_LANES = """
        for (; j < end; j += LANES) {
            const realn dx = vloadn(0, px + j) - x, dy = vloadn(0, py + j) - y, dz = vloadn(0, pz + j) - z;
            const realn squared = fma(dz, dz, fma(dy, dy, dx * dx));
            const realn place = (sqrt(squared) - lowest) * scale;
            const intn bins = convert_intn(place);
            const realn part = place - convert_realn(bins);  // near 0 and 1 rounding decides, and so the edges must
            const maskn is_in = squared >= least && squared < beyond && STEPS < (mask)(end - j);
            int k[LANES];
            vstoren(select(NOWHERE + convert_intn(STEPS), clamp(bins, 0, BINS - 1), convert_intn(is_in)), 0, k);
            if (any((part < SLACK || part > 1 - SLACK) && is_in)) {
                real of[LANES];
                vstoren(squared, 0, of);
                for (int n = 0; n < LANES; ++n)
                    if (k[n] < BINS) k[n] = clhist_exact_bin(squares, of[n], k[n]);
            }
            #pragma unroll
            for (int n = 0; n < LANES; ++n) {  // those that do not count have bins of their own, which takes no branch
                CHOSEN(k[n], j + n)
                EMIT(k[n], 1);
            }
        }
"""

_ONE_BY_ONE = """
        for (; j < end; ++j) {
            const real dx = px[j] - x, dy = py[j] - y, dz = pz[j] - z;
            const real squared = fma(dz, dz, fma(dy, dy, dx * dx));
            if (!(squared >= least && squared < beyond)) continue;  // NaN is not
            SECOND(j)
            const real place = (sqrt(squared) - lowest) * scale;
            int k = (int)place;
            if (place - k < SLACK || place - k > 1 - SLACK) k = clhist_exact_bin(squares, squared, k);
            CHOSEN(k, j)
            EMIT(k, 1);
        }
"""


def preamble(
    real: str, bins: int, pairs: int, lanes: int, same: bool, typed: bool, excluded: bool, halves: bool
) -> str:
    """Return the C in front of the map: types, sizes, and which pairs count as which.

    Parameters
    ----------
    real : {"float", "double"}
        In what distances are computed.
    bins, pairs : int
        Bins of distance, and how many pairs of types have them.
    lanes : int
        Particles that a work-item looks at at once.
    same : bool
        Whether the particles are paired with each other, each pair once.
    typed, excluded : bool
        Whether particles have types, and groups of which none are paired.
    halves : bool
        Whether pairs may be met in two images, half a period apart, of which one counts. Then `lanes` is 1.
    """
    # SLACK is 16 times the rounding of the largest position in bins: nearer to an edge, its square decides.
    epsilon = 2.0**-23 if real == "float" else 2.0**-52
    chosen = "if (k < NOWHERE && qgroups[i] == pgroups[j]) k = NOWHERE;" if excluded else ""
    if typed:
        chosen += " if (k < NOWHERE) k += pairs[qtypes[i] * types + ptypes[j]] * BINS;"
    lines = [
        f"typedef {real} real;",
        *(f"#define {name} {int(value)}" for name, value in (("BINS", bins), ("PAIRS", pairs), ("SAME", same))),
        f"#define NOWHERE {bins * pairs}",
        f"#define SLACK ((real){16 * epsilon * (bins + 1)!r})",
        f"#define CHOSEN(k, j) {chosen}",
    ]
    if lanes > 1:
        # Comparisons of vectors give integers as wide as their operands.
        mask = "int" if real == "float" else "long"
        lines += [f"#define {name} {value}" for name, value in (("LANES", lanes), ("mask", mask))]
        lines += [f"#define {name}n {name}{lanes}" for name in ("vload", "vstore", "convert_int")]
        lines += [
            f"typedef {c_type}{lanes} {name}n;" for c_type, name in ((real, "real"), ("int", "int"), (mask, "mask"))
        ]
        lines += [f"#define convert_realn convert_{real}{lanes}"]
        lines += [f"#define STEPS (({mask}{lanes})({', '.join(map(str, range(lanes)))}))"]
    # One of two images half a period apart is left out, or the pair would count twice.
    second = "if (clhist_is_second(frame, grid, dx, dy, dz, beyond, SAME && i > j)) continue;" if halves else ""
    lines += [f"#define SECOND(j) {second}"]
    return "\n".join(lines) + PREAMBLE + (HALVES if halves else "")


def body(lanes: int) -> str:
    """Return the map: of element `i`, a particle, the bins of its distances from others."""
    return _ROWS.replace("BLOCK", _LANES if lanes > 1 else _ONE_BY_ONE)


def arguments(real: str, typed: bool, excluded: bool) -> str:
    """Return the declarations of the map's arguments."""
    return (_ARGUMENTS + _TYPED * typed + _EXCLUDED * excluded).replace("real", real)
