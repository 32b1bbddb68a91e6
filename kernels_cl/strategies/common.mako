## What all strategies share: the type of an element, and its bin. Numbers of at least `num_bins` are in no bin.
typedef ${element} element_t;

uint bin_of(const element_t x)
{
    return (uint)(${bin});
}
