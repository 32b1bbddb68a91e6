// === median: gpu, float32 in groups of int32
// digits_arguments
const int *keys, const float *values, const uint *found, const long groups, const uint shift, const uint bits, const int whole

// digits
const int g = keys[i]; const float v = values[i]; if (g >= 0 && g < groups && v == v) { const uint k = (v != v ? (uint)-1 : (as_uint(v) ^ ((uint)(as_int(v) >> 31) | 0x80000000u))); if (whole || k >> shift >> bits == found[g]) EMIT(((long)g << bits) + (long)(k >> shift & ((((uint)1) << bits) - 1)), 1); }

// following_arguments
const int *keys, const float *values, const uint *found, const long groups

// following
const int g = keys[i]; const float v = values[i]; if (g >= 0 && g < groups && v == v) { const uint k = (v != v ? (uint)-1 : (as_uint(v) ^ ((uint)(as_int(v) >> 31) | 0x80000000u))); if (k > found[g]) EMIT0(g, k); }

// choose_arguments
const uint *counts, uint *found, long *rank, long *size, uint *equal, uint bits, int whole

// choose

            const long first = (long)i << bits, last = (1l << bits) - 1;
            if (whole) {
                for (long d = 0; d <= last; ++d) size[i] += counts[first + d];
                rank[i] = (size[i] - 1) / 2;
            }
            long left = rank[i], d = 0;
            for (; d < last && left >= counts[first + d]; ++d) left -= counts[first + d];
            rank[i] = left;
            equal[i] = counts[first + d];
            found[i] = (whole ? 0 : found[i] << bits) | d;
            

// finish_arguments
const uint *found, const uint *above, const uint *top, const long *rank, const long *size, const uint *equal, float *medians

// finish

            const uint higher = rank[i] + 1 < equal[i] ? found[i] : above[i];
            uint k = found[i];
            const float low = as_float(k ^ (~(uint)((int)(k) >> 31) | 0x80000000u));
            k = size[i] % 2 ? k : higher;
            const float high = as_float(k ^ (~(uint)((int)(k) >> 31) | 0x80000000u));
            const int missing = size[i] == 0;
            medians[i] = missing ? NAN : low == high ? low : (low + high) / 2;
            