## All published strategies share this: the type of an element, its bin, and a kernel that clears counters.
## Numbers of at least `num_bins` are in no bin.
typedef ${element} element_t;

uint bin_of(const element_t x)
{
    return (uint)(${bin});
}

__kernel void clhist_clear(__global uint *cells, const ulong words)
{
    for (size_t k = get_global_id(0); k < words; k += get_global_size(0))
        cells[k] = 0;
}
