## Exact sums in few words: the words of a long integer (decision 0011) that most values lie in. `clhist_base`
## is the exponent of their last bit.
##
##   all digits      | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 |     10 words for float32
##   narrow          |       | b | b | b |                         2 to 4 words from `clhist_base` on
##   clhist_call     | flag now | flag before the sweep | base | most: exponents that fit above it |
##
## narrow_look.mako samples the values before and writes `clhist_call`. A value that does not fit raises the
## flag; the full sum behind then computes again (fallback.mako). Narrow sums never change a result.
##
## Feature: NarrowSums (clhist/_core/model/narrow.py). Decision 0012.
<%!
    from clhist.operators.fixed_point import FORMATS
    from clhist.operators.narrow import has_quanta, quantum_of, taken_by
    from clhist._core.model.feature import RAISED

    def shift_of(feature):
        """Where the exponent of a value lies."""
        return FORMATS[feature.form.dtype].shift
%>
<%def name="guard(feature)">
    // Nothing is to be done if the values that were looked at do not fit. The flag itself may be raised meanwhile.
    if (clhist_call[1] != 0)
        return;
    const uint clhist_base = clhist_call[2];
<%
    part = feature.form.parts[0]
    exponent = quantum_of(feature.form) + 32 * part.words + FORMATS[feature.form.dtype].least if has_quanta(part) else 0
%>\
% if has_quanta(part) and part.is_split and part.words > 1:
    // Options that let a compiler change sums of floats do so here, too: then nothing is left for the second digit.
    const ulong clhist_second_bits = (ulong)${1022 + exponent} << 52 | (ulong)clhist_base << 1 | 1;
    if (clhist_term_${feature.form.dtype.name}_narrow(as_double(clhist_second_bits), clhist_base, clhist_most).parts[1] == 0) {
        clhist_call[0] = ${hex(RAISED)}u;
        return;
    }
% elif part.is_split and not has_quanta(part):
<% float_type = "float" if feature.form.dtype.itemsize == 4 else "double"; unsigned = "uint" if float_type == "float" else "ulong" %>\
    // Options that let a compiler change sums of floats do so here, too: then nothing is left of the last bit.
    const ${unsigned} clhist_least_bits = (${unsigned})clhist_base << ${shift_of(feature)} | 1;
    if (clhist_term_${feature.form.dtype.name}_narrow(as_${float_type}(clhist_least_bits), clhist_base, clhist_most).parts[0] == 0) {
        clhist_call[0] = ${hex(RAISED)}u;
        return;
    }
% endif
</%def>

## Of what comes before the sweep.
<%def name="leave(feature)">
    if (clhist_call[1] != 0)
        return;
</%def>

## The second stage: the sum of all copies, as a number of two's complement, which is then shifted to its place in an
## accumulator of signed digits.
<%def name="combine(feature)">
    if (clhist_call[0] == ${hex(RAISED)}u)
        return;
% if spec.order == "blocked":
${of_blocks(feature)}
% else:
${of_rows(feature)}
% endif
</%def>

## The result where sums of doubles show that it is right, neither very large nor very small. The last but one is rounded to
## an odd last bit if it is not exact, so that rounding it once more is right (Boldo and Melquiond, "Emulation of a FMA and
## correctly rounded sums", IEEE Transactions on Computers 57, 2008: theorem 4 is of three terms).
<%def name="nearest(feature)">
<% parts = feature.form.parts[0].words %>\
        if (!has_dest) {
            double lost = 0;
% for n in range(parts):
            double sum_${n} = 0;
% endfor
            for (ulong copy = 0; copy < copies; ++copy) {
                __global const double *cell = cells + ${parts} * (${state.cell});
% for n in range(parts):
${two_sum(f"new_{n}", f"left_{n}", f"sum_{n}", f"cell[{n}]", 4)}
                sum_${n} = new_${n};
% endfor
                lost += ${" + ".join(f"fabs(left_{n})" for n in range(parts))};
            }
% if parts == 3:
${two_sum("middle", "low", "sum_1", "sum_0", 3)}
${two_sum("high", "below", "sum_2", "middle", 3)}
% endif
${two_sum("odd", "rest", *(("below", "low") if parts == 3 else ("sum_1", "sum_0")), 3)}
            // To the neighbour on the side of the rest, without a branch, which would be guessed wrong.
            const ulong is_even = (rest != 0) & ~as_ulong(odd) & 1;
            const double last = as_double(as_ulong(odd) + is_even * ((as_long(rest) ^ as_long(odd)) >> 63 | 1));
            const double result = ${"high + last" if parts == 3 else "last"};
            if (lost == 0 && (result == 0 || ${within("result", feature)})) {
                out[k] = result;
                continue;
            }
        }
</%def>
## A sum of doubles, and what rounding it has left (Knuth's 2Sum).
<%def name="two_sum(sum, left, a, b, depth)">\
<% indent = "    " * depth %>\
${indent}const double ${sum} = ${a} + ${b}, of_${sum} = ${sum} - ${a};
${indent}const double ${left} = (${a} - (${sum} - of_${sum})) + (${b} - of_${sum});\
</%def>

<%def name="of_blocks(feature)">
<% parts, is_quanta = feature.form.parts[0].words, has_quanta(feature.form.parts[0]); kind = "long" if is_quanta else "double" %>\
    __global const ${kind} *cells = (__global const ${kind} *)(clhist_scratch + clhist_place0);
    const ulong end = clhist_num_bins * (get_global_id(0) + 1) / get_global_size(0);
% if not is_quanta:
    const uint apart = 54 - (${taken_by(feature.form)} - clhist_call[3]) / ${parts};  // bits from part to part
    const uint least_unit = clhist_call[2] + (${FORMATS[feature.form.dtype].least + 1022});  // that of the first, biased
% endif
    for (ulong k = clhist_num_bins * get_global_id(0) / get_global_size(0); k < end; ++k) {
        ${state.place}
% if not is_quanta and not spec.out_is_partial:
${nearest(feature)}
% endif
        // Of each copy whole numbers of units, which are exact; their sum is a number of two's complement of 128 bits.
        ulong low = 0, high = 0;
        for (ulong copy = 0; copy < copies; ++copy) {
            __global const ${kind} *cell = cells + ${parts} * (${state.cell});
            for (uint n = 0; n < ${parts}; ++n) {
% if is_quanta:
                const uint place = 32 * (${parts - 1} - n);
                const long units = cell[n];
% else:
                const uint place = n * apart, unit = least_unit + place;
                const long units = (long)(cell[n] * as_double((ulong)(2046 - unit) << 52));
% endif
                const ulong more = (ulong)units << place;
                low += more;
                high += (ulong)(units >> 1 >> (63 - place)) + (low < more);
            }
        }
% if is_quanta and not spec.out_is_partial:
${nearest_multiple(feature)}
% endif
        const uint digits[4] = {(uint)low, (uint)(low >> 32), (uint)high, (uint)(high >> 32)};
${total(feature, "continue;")}
    }
</%def>
## The same of a whole number of quanta, of at most 128 bits: the highest 63 of them, the last of which says that others
## behind it are not 0.
<%def name="nearest_multiple(feature)">
<%
    float_type = "float" if feature.form.dtype.itemsize == 4 else "double"
    unit = quantum_of(feature.form) + FORMATS[feature.form.dtype].least
    is_taken = -900 <= unit <= 900
%>\
% if is_taken:
        const ulong sign_bits = -(high >> 63);
        const bool is_short = high == sign_bits && (low ^ sign_bits) >> 63 == 0;
        const uint left_out = is_short ? 0 : 65 - (uint)clz(high ^ sign_bits);
        if (!has_dest && left_out < 64) {
            const ulong last = left_out ? low << (64 - left_out) : 0;
            const ulong first = left_out ? low >> left_out | high << (64 - left_out) | (last != 0) : low;
            const double result = (double)(${float_type})(long)first * as_double((ulong)(${1023 + unit} + (int)left_out) << 52);
            if (result == 0 || ${within("result", feature)}) {
                out[k] = result;
                continue;
            }
        }
% endif
</%def>
<%def name="within(result, feature)">\
<% least, most = ("0x1p-125", "0x1p126") if feature.form.dtype.itemsize == 4 else ("0x1p-1000", "0x1p1000") %>\
(fabs(${result}) > ${least} && fabs(${result}) < ${most})\
</%def>

<%def name="of_rows(feature)">
<% words, items = feature.form.parts[0].words, spec.rows * spec.columns %>\
    __global const int *cells = (__global const int *)(clhist_scratch + clhist_place0);
% if spec.rows > 1:
    __local long totals[${words * items}];
% endif
    const uint row = get_local_id(0) / ${spec.columns};
    const ulong k = get_group_id(0) * ${spec.columns} + get_local_id(0) % ${spec.columns};
    long sums[${words}] = {0};
    if (k < clhist_num_bins) {
        ${state.place}
        for (ulong copy = row; copy < copies; copy += ${spec.rows}) {
            __global const int *cell = cells + ${words} * (${state.cell});
            for (uint n = 0; n < ${words}; ++n)
                sums[n] += cell[n];
        }
    }
% if spec.rows > 1:
    for (uint n = 0; n < ${words}; ++n)
        totals[n * ${items} + get_local_id(0)] = sums[n];
    // Barrier: all rows have stored their sums.
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint n = 0; n < ${words}; ++n)
        for (uint r = 1; row == 0 && r < ${spec.rows}; ++r)
            sums[n] += totals[n * ${items} + r * ${spec.columns} + get_local_id(0)];
% endif
    if (row > 0 || k >= clhist_num_bins)
        return;
    uint digits[${words}];
    long left = 0;
    for (uint n = 0; n < ${words}; ++n) {
        left += sums[n];
        digits[n] = (uint)left;
        left >>= 32;
    }
    {
${total(feature, "return;")}
    }
</%def>

<%def name="total(feature, leave)">
<%
    part, whole = feature.form.parts[0], spec.operator.parts[0]
    words = 4 if part.is_split else part.words
    first_bit = "0" if has_quanta(part) else "clhist_call[2] - 1"  # of the digits, in the words of all values
%>\
        // The sum modulo 2^${32 * words}, which is more than twice any: the highest bit is its sign.
        const uint sign = -(digits[${words - 1}] >> 31), bits = ${first_bit}, within = bits & 31;
<%
    name = whole.term.partition("(")[0].removeprefix("clhist_term_")
    offset = quantum_of(feature.form) if has_quanta(part) else "(int)bits"
%>\
% if not spec.out_is_partial:
        if (!has_dest) {  // no other digits take part
            clhist_digits_${name}_t held = {0, 0, 0, 0, 0, 0, 0, 0};
            ulong one = sign & 1;  // -x is ~x + 1
            for (int d = 0; d < ${words}; ++d) {
                one += digits[d] ^ sign;
                clhist_take_${name}(&held, (uint)one, d);
                one >>= 32;
            }
            out[k] = clhist_nearest_${name}(&held, ${offset}, sign);
            ${leave}
        }
% endif
        accumulator_t total = clhist_neutral();
        uint below = 0;
        long carry = 0;
        for (int n = (int)(bits / 32), d = 0; n < ${spec.operator.parts[0].words}; ++n, ++d) {
            const uint digit = d < ${words} ? digits[d] : sign;
            carry += digit << within | (uint)((ulong)below << within >> 32);
            below = digit;
            total.words[n] = (int)carry;
            carry = (carry - (int)carry) >> 32;
        }
        if (has_dest)
            total = clhist_combine(${state.dest("k")}, total);
        ${state.store("k")}
</%def>
