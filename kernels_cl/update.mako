## One bin of part n is updated with one value: a def for each primitive, with the memory space as its parameter.

## Where bins are computed, not read, Intel's compiler for CPUs makes vectors of bins that meet: of `i & 3` all but one in
## four are lost. It cannot where cells are volatile, which is no slower but for bins that never change.
<%def name="private(n, space, bins_are_computed)">
<% volatile = "volatile " if bins_are_computed else "" %>\
void clhist_update${n}(${space} cell${n}_t *cell, const part${n}_t value)
{
    ${volatile}${space} cell${n}_t *bin = cell;
    bin->value = clhist_combine${n}(bin->value, value);
}
</%def>

<%def name="native(n, space, atomic)">
void clhist_update${n}(${space} cell${n}_t *cell, const part${n}_t v)
{
    volatile ${space} ${atomic.word} *p = (volatile ${space} ${atomic.word} *)cell;
    ${atomic.code}
}
</%def>

## Words are compared, not values: a NaN never equals itself. A value that changes nothing needs no exchange.
<%def name="cas(n, space, exchange)">
void clhist_update${n}(${space} cell${n}_t *cell, const part${n}_t value)
{
    volatile ${space} word${n}_t *word = (volatile ${space} word${n}_t *)cell;
    word${n}_t found = CLHIST_LOOK(${exchange}, word);
    cell${n}_t seen, next;
    do {
        seen.word = found;
        next.word = 0;
        next.value = clhist_combine${n}(seen.value, value);
        if (next.word == seen.word)
            break;
        found = ${exchange}(word, seen.word, next.word);
    } while (found != seen.word);
}
</%def>

## What a lock guards, word by word: clang copies a volatile struct to the memory of a work-item, and reads it there.
<%def name="guarded(n, space, part)">
<%
    kind, prefix = ("ulong", "atom") if part.alignment % 8 == 0 else ("uint", "atomic")
    words = range(part.cell_bytes // (8 if kind == "ulong" else 4))
%>\
void clhist_guarded${n}(volatile ${space} cell${n}_t *bin, const part${n}_t value)
{
% if part.alignment < 4:
    bin->value = clhist_combine${n}(bin->value, value);
% else:
    volatile ${space} ${kind} *words = (volatile ${space} ${kind} *)bin;
    union { part${n}_t value; ${kind} words[${len(words)}]; } held;
% for k in words:
    held.words[${k}] = CLHIST_LOOK(${prefix}_cmpxchg, words + ${k});
% endfor
    held.value = clhist_combine${n}(held.value, value);
% for k in words:
    CLHIST_PUT(${prefix}_xchg, words + ${k}, held.words[${k}]);
% endfor
% endif
}
</%def>

## The release yields the flag that ends the loop. With a plain flag compilers move the release behind the loop, where
## the lanes of a wave that hold a lock wait for the others for ever.
<%def name="lock(n, space, fence)">
void clhist_update${n}(${space} cell${n}_t *cell, volatile ${space} int *lock, const part${n}_t value)
{
    volatile ${space} cell${n}_t *bin = cell;
    int done = 0;
    while (!done) {
        if (atomic_xchg(lock, 1) == 0) {
            ${fence};
            clhist_guarded${n}(bin, value);
            ${fence};
            done = atomic_xchg(lock, 0);
        }
    }
}
</%def>

## The same, tried once: whether it succeeded.
<%def name="try_cas(n, space, exchange)">
bool clhist_try${n}(${space} cell${n}_t *cell, const part${n}_t value)
{
    volatile ${space} word${n}_t *word = (volatile ${space} word${n}_t *)cell;
    cell${n}_t seen, next;
    seen.word = CLHIST_LOOK(${exchange}, word);
    next.word = 0;
    next.value = clhist_combine${n}(seen.value, value);
    return next.word == seen.word || ${exchange}(word, seen.word, next.word) == seen.word;
}
</%def>

<%def name="try_lock(n, space, fence)">
bool clhist_try${n}(${space} cell${n}_t *cell, volatile ${space} int *lock, const part${n}_t value)
{
    volatile ${space} cell${n}_t *bin = cell;
    int done = 0;
    if (atomic_xchg(lock, 1) == 0) {
        ${fence};
        clhist_guarded${n}(bin, value);
        ${fence};
        done = atomic_xchg(lock, 0);
    }
    return done;
}
</%def>
