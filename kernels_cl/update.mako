## One bin is updated with one value: a def for each primitive, with the memory space as its parameter.

<%def name="private(space)">
void clhist_update(${space} cell_t *cell, const accumulator_t value)
{
    cell->value = clhist_combine(cell->value, value);
}
</%def>

<%def name="native(space, atomic)">
void clhist_update(${space} cell_t *cell, const accumulator_t v)
{
    volatile ${space} ${atomic.word} *p = (volatile ${space} ${atomic.word} *)cell;
    ${atomic.code}
}
</%def>

## Words are compared, not values: a NaN never equals itself. A value that changes nothing needs no exchange.
<%def name="cas(space, exchange)">
void clhist_update(${space} cell_t *cell, const accumulator_t value)
{
    volatile ${space} word_t *word = (volatile ${space} word_t *)cell;
    word_t found = *word;
    cell_t seen, next;
    do {
        seen.word = found;
        next.word = 0;
        next.value = clhist_combine(seen.value, value);
        if (next.word == seen.word)
            break;
        found = ${exchange}(word, seen.word, next.word);
    } while (found != seen.word);
}
</%def>

## The release yields the flag that ends the loop. With a plain flag compilers move the release behind the loop, where
## the lanes of a wave that hold a lock wait for the others for ever.
<%def name="lock(space, fence)">
void clhist_update(${space} cell_t *cell, volatile ${space} int *lock, const accumulator_t value)
{
    volatile ${space} cell_t *bin = cell;
    int done = 0;
    while (!done) {
        if (atomic_xchg(lock, 1) == 0) {
            ${fence};
            bin->value = clhist_combine(bin->value, value);
            ${fence};
            done = atomic_xchg(lock, 0);
        }
    }
}
</%def>
