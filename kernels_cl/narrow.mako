## Exact sums in few words of a long integer, those that the values lie in: `clhist_base` is the exponent of their last bit.
## A kernel before (narrow_look.mako) has looked at some values, and said so in `clhist_call`: the flag, whether it was
## raised before the sweep, and the exponent. Later a value that does not fit raises it.
<%!
    from clhist.planning.packed import RAISED
%>
<%def name="guard(feature)">
    // Nothing is to be done if the values that were looked at do not fit. The flag itself may be raised meanwhile.
    if (clhist_call[1] != 0)
        return;
    const uint clhist_base = clhist_call[2];
</%def>

## Of what comes before the sweep.
<%def name="leave(feature)">
    if (clhist_call[1] != 0)
        return;
</%def>

## The second stage: sums of each word over all copies, as a number of two's complement, which is then shifted to its
## place in an accumulator of signed digits.
<%def name="combine(feature)">
<% words, items, of = feature.form.parts[0].words, spec.rows * spec.columns, spec.operator.parts[0].words %>\
    if (clhist_call[0] == ${hex(RAISED)}u)
        return;
    __global const int *cells = (__global const int *)(clhist_scratch + clhist_place0);
    __local long totals[${words * items}];
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
    for (uint n = 0; n < ${words}; ++n)
        totals[n * ${items} + get_local_id(0)] = sums[n];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (row > 0 || k >= clhist_num_bins)
        return;
    uint digits[${words}];
    long carry = 0;
    for (uint n = 0; n < ${words}; ++n) {
        for (uint r = 0; r < ${spec.rows}; ++r)
            carry += totals[n * ${items} + r * ${spec.columns} + get_local_id(0)];
        digits[n] = (uint)carry;
        carry >>= 32;
    }
    // The sum modulo 2^${32 * words}, which is more than twice any: the highest bit is its sign.
    const uint sign = -(digits[${words - 1}] >> 31), bits = clhist_call[2] - 1, within = bits & 31;
    accumulator_t total = clhist_neutral();
    uint below = 0;
    carry = 0;
    for (int n = (int)(bits / 32), d = 0; n < ${of}; ++n, ++d) {
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
