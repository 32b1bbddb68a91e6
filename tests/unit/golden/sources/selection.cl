// === selection: gpu, float32 in groups of int32
// functions
#pragma OPENCL FP_CONTRACT OFF
long clhist_rank(const long n, const double q) { return (n - 1) / 2; }
double clhist_share(const long n, const double q) { return n % 2 ? 0 : 0.5f; }
float clhist_between(const uint low, const uint high, const double share)
{
    const float a = as_float(low ^ (~(uint)((int)(low) >> 31) | 0x80000000u)), b = as_float(high ^ (~(uint)((int)(high) >> 31) | 0x80000000u)); return a == b ? a : (a + b) / 2;
}


// digits_arguments
const int *keys, const float *values, const uint *found, const long groups, const uint shift, const uint bits, const int whole

// digits
const int g = keys[i]; const float v = values[i]; if (g >= 0 && g < groups && v == v) { const uint k = (v != v ? (uint)-1 : (as_uint(v) ^ ((uint)(as_int(v) >> 31) | 0x80000000u))); if (whole || k >> shift >> bits == found[g]) EMIT(((long)g << bits) + (long)(k >> shift & ((((uint)1) << bits) - 1)), 1); }

// following_arguments
const int *keys, const float *values, const uint *found, const long groups

// following
const int g = keys[i]; const float v = values[i]; if (g >= 0 && g < groups && v == v) { const uint k = (v != v ? (uint)-1 : (as_uint(v) ^ ((uint)(as_int(v) >> 31) | 0x80000000u))); if (k > found[g]) EMIT0(g, k);  }

// blocks_arguments
const uint *counts, long *blocks, const uint low

// blocks

            long sum = 0;
            for (long at = (long)i << low; at < (long)(i + 1) << low; ++at) sum += counts[at];
            blocks[i] = sum;
            

// choose_arguments
const uint *counts, uint *found, long *rank, long *members, uint *equal, const double q, const uint bits, const int whole, const long *blocks, const uint low

// choose

            const long first = (long)i << bits, begin = first >> low, end = begin + (1l << (bits - low)) - 1;
            if (whole) {
                long all = 0;
                for (long block = begin; block <= end; ++block) all += blocks[block];
                members[i] = all;
                rank[i] = all ? clhist_rank(all, q) : 0;
            }
            long left = rank[i], block = begin;
            for (; block < end && left >= blocks[block]; ++block) left -= blocks[block];
            long d = (block - begin) << low;
            for (const long last = d + (1l << low) - 1; d < last && left >= counts[first + d]; ++d) left -= counts[first + d];
            rank[i] = left;
            equal[i] = counts[first + d];
            found[i] = (whole ? 0 : found[i] << bits) | d;
            

// finish_arguments
const uint *found, const uint *above, const uint *top, const long *rank, const long *members, const uint *equal, const double q, float *out

// finish

            const double fraction = members[i] ? clhist_share(members[i], q) : 0;
            const uint low = found[i];
            const uint high = !(fraction > 0) ? low : rank[i] + 1 < equal[i] ? low : above[i];
            const int missing = members[i] == 0;
            out[i] = missing ? NAN : clhist_between(low, high, fraction);
            