## Passes that have every S-th bin rather than a range of neighbours: see clhist/_core/model/passes.py.

<%def name="range_of_bins(feature, s)">
    const clhist_bin_t clhist_first${s} = get_group_id(1);  // every bin of which this is the rest
    const clhist_bin_t clhist_count${s} = clhist_first${s} < clhist_num_bins${s}
        ? (clhist_num_bins${s} - clhist_first${s} - 1) / clhist_passes + 1 : 0;
</%def>

## The number of a bin within its pass, if it is one of these.
<%def name="bin_of(feature, s)">
    const clhist_bin_t bin = mul_hi(target, clhist_magic) >> clhist_shift;  // target / clhist_passes
    if (bin * clhist_passes + clhist_first${s} != target)
        return;
</%def>

## Where the bins of this pass lie in a copy: those of a pass are neighbours.
<%def name="first_result(feature, n, s)">
        __global cell${n}_t *clhist_result
            = clhist_all${n} + (clhist_slot * clhist_passes + clhist_first${s}) * clhist_bins_per_pass${s};
</%def>
