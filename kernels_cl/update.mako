## `clhist_update<n>` combines one value into one cell of part n. There is a def for each kind of update.
##
##   private         the work-item owns the cell: load, combine, store
##   native          one atomic of the hardware (decision 0010)
##   carry           digits of an exact sum, each by a native addition whose result shows the carry (decision 0011)
##   cas             compare-exchange until no other work-item interferes
##   lock            a spinlock around load, combine, store (decision 0009)
##
##   cell of part n  | value, at least as wide as the word of its atomic |      exact sums: | digit 0 | .. | flags |
##
## Part of sweep.mako. Paper: SC'20, section III-B. `clhist/_core/model/updates.py` chooses.
<%def name="of(part, space, fence, bins_are_computed)">
<%
    private_kind = private_parts if part.part.is_split else private_words if part.part.words else private
    carry_kind = carry_words if not state.takes_term(part) else carry_whole if part.part.whole else carry
    kinds = {"private": private_kind, "native": native, "carry": carry_kind, "cas": cas, "lock": lock}
    kinds[part.update](part, space, fence, bins_are_computed)
    if spec.hot_bin and state.is_local:
        (try_lock if part.update == "lock" else try_cas)(part, space, fence)
%>\
</%def>

<%!
    from clhist.operators.c_types import assigned
    from clhist._core.model.feature import RAISED

    def exchange_of(part):
        """The compare-exchange of a cell: of the core for 32 bits, of cl_khr_int64_base_atomics for 64."""
        return "atomic_cmpxchg" if part.part.cell_bytes == 4 else "atom_cmpxchg"
%>

## Intel's CPU compiler vectorises loops over computed bins, and loses updates when lanes hit the same bin (`i & 3` keeps
## one in four). Volatile cells prevent it, at no cost except when all updates hit one bin.
## Where `b` takes the place of `a` or does not, which is seldom, a CPU does not write: the next update need not wait.
<%def name="private(part, space, fence, bins_are_computed)">
<% n, condition = part.n, part.replaced_if %>\
<% volatile = "volatile " if bins_are_computed else "" %>\
% if condition:
// Whether `b` takes the place of `a`; it seldom does, and otherwise nothing is written.
bool clhist_replaces${n}(const part${n}_t a, const part${n}_t b)
{
    return ${condition};
}
% endif
// The work-item owns the cell: no atomic.${" Volatile, since vectors of updates would lose those of one bin." if volatile else ""}
void clhist_update${n}(${space} cell${n}_t *cell, const part${n}_t value)
{
    ${volatile}${space} cell${n}_t *bin = cell;
% if condition:
    if (clhist_replaces${n}(bin->value, value))
        bin->value = value;
% elif part.part.dtype.fields:
#ifdef CLHIST_STORE_FIELDS
    const part${n}_t both = clhist_combine${n}(bin->value, value);
% for statement in assigned(part.part.dtype, "bin->value", "both"):
    ${statement}
% endfor
#else  // whole, since field by field takes PoCL 3.0 a tenth longer
    bin->value = clhist_combine${n}(bin->value, value);
#endif
% else:
    bin->value = clhist_combine${n}(bin->value, value);
% endif
}
</%def>

<%def name="native(part, space, fence, bins_are_computed)">
<% n, atomic = part.n, part.atomic %>\
// By an atomic of the hardware.
void clhist_update${n}(${space} cell${n}_t *cell, const part${n}_t v)
{
    volatile ${space} ${atomic.word} *p = (volatile ${space} ${atomic.word} *)cell;
    ${atomic.code}
}
</%def>

## Exactness: digits in memory, each times its power of 2^32, and the carries that work-items have yet to pass on are
## together the sum of all terms so far. An addition to a digit x leaves x + d modulo 2^32; x, which that addition itself
## returned, says whether x + d left the range of a signed word. Then it is off by 2^32, and the work-item that saw this x,
## and no other, passes on 1. The highest digit wraps modulo 2^(32 words), which is more than twice any sum: what is lost
## on the way comes back. So the words are the sum when all have passed on their carries, in any order. Signs are no
## branch: `(d ^ minus) - minus` is d or -d.
<%def name="carry(part, space, fence, bins_are_computed)">
<% n = part.n %>\
// Adds a digit of a term by an atomic of the hardware, and returns the carry that the word it returned shows.
uint clhist_carry${n}(volatile ${space} uint *word, const uint digit, const uint minus)
{
    const uint old = atomic_add(word, (digit ^ minus) - minus) ^ 0x80000000u;  // digits are signed
    return minus ? old < digit : old + digit < digit;
}

${term_of_value(part, space, part.part.term, " + term.at")}\
    uint digit = (uint)term.low, left = term.high;
    const uint carry = digit ? clhist_carry${n}(word, digit, term.minus) : 0;
    digit = (uint)(term.low >> 32) + carry;
    left += digit < carry;
    if (digit)
        left += clhist_carry${n}(word + 1, digit, term.minus);
    volatile ${space} uint *const end = (volatile ${space} uint *)cell + ${part.part.words};
    for (word += 2; left && word < end; ++word)
        left = clhist_carry${n}(word, left, term.minus);
}
</%def>

## A whole number d of 64 bits and a digit x leave x + d modulo 2^32 as a digit, and all else of x + d, which is
## (x + d + 2^31) / 2^32 rounded down, to the next word: 32 bits more, and then a carry. Four terms, each less than 2^60,
## are such a number, too.
<%def name="carry_whole(part, space, fence, bins_are_computed)">
<% n, words = part.n, part.part.words %>\
// Adds a whole number by atomics of the hardware; the word that each returns shows what it leaves to the next.
void clhist_add${n}(volatile ${space} uint *word, const long value)
{
    const int first = (int)atomic_add(word, (uint)value);
    const int digit = (int)(((long)first + value + 0x80000000l) >> 32);
% if words == 2:
    if (digit)
        atomic_add(word + 1, (uint)digit);
% else:
    int left = 0;
    if (digit)
        left = (int)(((long)(int)atomic_add(word + 1, (uint)digit) + digit + 0x80000000l) >> 32);
% for k in range(2, words - 1):
    if (left)
        left = (int)(((long)(int)atomic_add(word + ${k}, (uint)left) + left + 0x80000000l) >> 32);
% endfor
    if (left)
        atomic_add(word + ${words - 1}, (uint)left);
% endif
}

${term_of_value(part, space, part.part.whole, "")}\
    clhist_add${n}(word, term.value);
}
% if spec.joined > 1:

// Adds ${spec.joined} values by one update, unless one has flags.
void clhist_update_joined${n}(
    ${space} cell${n}_t *cell, const value${part.output.suffix}_t *values${narrow_parameters(part)})
{
    long sum = 0;
    uint flags = 0;
    for (int k = 0; k < ${spec.joined}; ++k) {
        const ${state.term_type(part, part.part.whole)} term = ${part.part.whole.replace("(v", "(values[k]")};
        sum += term.value;
        flags |= term.flags;
    }
    if (flags) {
        for (int k = 0; k < ${spec.joined}; ++k)
            clhist_update${n}(cell, values[k]${", clhist_base, clhist_most, clhist_call" * part.part.is_narrow});
    } else {
        clhist_add${n}((volatile ${space} uint *)cell, sum);
    }
}
% endif
</%def>

## What an update of narrow sums is given besides.
<%def name="narrow_parameters(part)">\
% if part.part.is_narrow:
,
    const uint clhist_base, const uint clhist_most, volatile __global uint *clhist_call\
% endif
</%def>

## How an update of a long integer begins: it gets the term of a value, and leaves if that has flags.
<%def name="term_of_value(part, space, term, at)">
<% n = part.n %>\
void clhist_update${n}(
    ${space} cell${n}_t *cell, const value${part.output.suffix}_t v${narrow_parameters(part)})
{
    const ${state.term_type(part, term)} term = ${term};
    volatile ${space} uint *word = (volatile ${space} uint *)cell${at};
    if (term.flags) {
% if part.part.is_narrow:
<% from clhist.operators.narrow import NOT_ADDED %>\
        if (term.flags == ${NOT_ADDED})
            CLHIST_RELAXED_STORE(atomic_xchg, clhist_call, ${hex(RAISED)}u);
% else:
        atomic_or((volatile ${space} uint *)cell + ${part.part.words}, term.flags);
% endif
        return;
    }
</%def>

## The same of a whole accumulator, which a work-item held in registers: most of its digits are 0.
<%def name="carry_words(part, space, fence, bins_are_computed)">
<% n = part.n %>\
// Adds digits by atomics of the hardware; the word that each returns shows the carry.
void clhist_update${n}(${space} cell${n}_t *cell, const part${n}_t value)
{
    volatile ${space} uint *words = (volatile ${space} uint *)cell;
    int carry = 0;
    for (int k = 0; k < ${part.part.words}; ++k) {
        const long digit = (long)value.words[k] + carry;
        carry = 0;
        if (digit) {
            const long sum = (long)(int)atomic_add(words + k, (uint)digit) + digit;
            carry = (int)((sum - (int)sum) >> 32);
        }
    }
    if (value.flags)
        atomic_or(words + ${part.part.words}, value.flags);
}
</%def>

## The same without atomics, by two digits at a time. Where a compiler might make vectors of updates, and so lose those of
## one bin, its accesses are volatile. No function of OpenCL, such as vload2: PoCL calls those, for as long as all the rest.
<%def name="private_words(part, space, fence, bins_are_computed)">
<% n, volatile = part.n, "volatile " if bins_are_computed else "" %>\
// Passes a carry on, which is seldom needed.
void __attribute__((noinline)) clhist_pass_on${n}(
    ${volatile}${space} uint *word, ${volatile}${space} uint *const end, uint left, const uint flip)
{
    for (; left && word < end; ++word) {
        const uint seen = *word ^ flip, next = seen + left;
        *word = next ^ flip;
        left = next < left;
    }
}

// The work-item owns the words, and adds two digits of a term at a time.
${state.inlined}void clhist_update${n}(${space} cell${n}_t *cell, const value${part.output.suffix}_t v)
{
    const ${state.term_type(part)} term = ${part.part.term};
    ${volatile}${space} uint *word = (${space} uint *)cell + term.at;
    if (term.flags) {
        ((volatile ${space} uint *)cell)[${part.part.words}] |= term.flags;
        return;
    }
    // x - d is ~(~x + d): a borrow is a carry of complements. And digits are signed.
    const ulong minus = (ulong)(long)(int)term.minus, flip = minus ^ 0x8000000080000000ul;
    const ulong old = ((ulong)word[1] << 32 | word[0]) ^ flip, next = old + term.low;
    word[0] = (uint)(next ^ flip);
    word[1] = (uint)((next ^ flip) >> 32);
    uint left = term.high + (next < old);
    ${volatile}${space} uint *further = (${space} uint *)cell + term.at + 2;
% if part.part.words > 64:
    // Most values have digits in a third word: a branch would be predicted badly.
    const uint third = *further ^ (uint)flip, sum = third + left;
    *further = sum ^ (uint)flip;
    left = sum < left;
    ++further;
% endif
    if (left == 0)
        return;
    clhist_pass_on${n}(further, (${space} uint *)cell + ${part.part.words}, left, (uint)flip);
}
</%def>

## Narrow sums of a CPU, in parts of 64 bits, which one load, one addition and one store update each.
<%def name="private_parts(part, space, fence, bins_are_computed)">
<% n, volatile = part.n, "volatile " if bins_are_computed else "" %>\
// The work-item owns the parts.
${state.inlined}void clhist_update${n}(
    ${space} cell${n}_t *cell, const value${part.output.suffix}_t v,
    const uint clhist_base, const uint clhist_most, volatile __global uint *clhist_call)
{
    const ${state.term_type(part)} term = ${part.part.term};
    if (term.flags)  // all is summed again: it does not matter what is added here
        CLHIST_RELAXED_STORE(atomic_xchg, clhist_call, ${hex(RAISED)}u);
    ${volatile}${space} ${state.word_of_terms} *sums = (${space} ${state.word_of_terms} *)cell;
% for k in range(part.part.words):
    sums[${k}] += term.parts[${k}];
% endfor
}
% if spec.makes_terms:

// The same in two steps, of which compilers make vectors of the first: the parts of a value, and whether it fits.
${state.inlined}void clhist_make_term(
    ${state.word_of_terms} *parts, uint *flags, const value${part.output.suffix}_t v, const uint clhist_base, const uint clhist_most)
{
    const ${state.term_type(part)} term = ${part.part.term};
    *flags |= term.flags;
    for (int k = 0; k < ${part.part.words}; ++k)
        parts[k * ${state.terms_apart}] = term.parts[k];
}

${state.inlined}void clhist_add_term(${space} cell${n}_t *cell, const ${state.word_of_terms} *parts)
{
% if part.part.words == 2:
    *(${space} ${state.word_of_terms}2 *)cell += *(const ${state.word_of_terms}2 *)parts;
% else:
    ${space} ${state.word_of_terms} *sums = (${space} ${state.word_of_terms} *)cell;
% for k in range(part.part.words):
    sums[${k}] += parts[${k} * ${state.terms_apart}];
% endfor
% endif
}
% endif
</%def>

## Compares words, not values: a NaN never equals itself. Skips the exchange if the value changes nothing.
<%def name="cas(part, space, fence, bins_are_computed)">
<% n, exchange = part.n, exchange_of(part) %>\
// By compare and exchange. Words are compared, not values: a NaN never equals itself.
void clhist_update${n}(${space} cell${n}_t *cell, const part${n}_t value)
{
    volatile ${space} word${n}_t *word = (volatile ${space} word${n}_t *)cell;
    word${n}_t found = CLHIST_RELAXED_LOAD(${exchange}, word);
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

## The critical section of a lock, word by word: clang would copy a volatile struct to private memory and read it there.
## Notes [Locks need volatile cells] and [Guarded structs go word by word], docs/decisions/0009.
<%def name="guarded(n, space, part)">
<%
    kind, prefix = ("ulong", "atom") if part.alignment % 8 == 0 else ("uint", "atomic")
    words = range(part.cell_bytes // (8 if kind == "ulong" else 4))
%>\
// What is done under a lock${"" if part.alignment < 4 else ", word by word"}.
void clhist_guarded${n}(volatile ${space} cell${n}_t *bin, const part${n}_t value)
{
% if part.alignment < 4:
    bin->value = clhist_combine${n}(bin->value, value);
% else:
    volatile ${space} ${kind} *words = (volatile ${space} ${kind} *)bin;
    union { part${n}_t value; ${kind} words[${len(words)}]; } held;
% for k in words:
    held.words[${k}] = CLHIST_RELAXED_LOAD(${prefix}_cmpxchg, words + ${k});
% endfor
    held.value = clhist_combine${n}(held.value, value);
% for k in words:
    CLHIST_RELAXED_STORE(${prefix}_xchg, words + ${k}, held.words[${k}]);
% endfor
% endif
}
</%def>

## The result of the release ends the loop. With a separate flag, compilers move the release behind the loop: lanes that
## hold a lock then wait forever for the other lanes of their wave.
## Note [The release of a lock ends its loop], docs/decisions/0009.
<%def name="lock(part, space, fence, bins_are_computed)">
${guarded(part.n, space, part.part)}
<% n = part.n %>\
// Under a spinlock. The result of its release ends the loop: a flag of its own would let lanes wait forever.
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

## `clhist_try<n>` attempts an update once and returns whether it succeeded, for hot_bin.mako. Of an addition that is a
## loop, by exchange.
<%def name="try_cas(part, space, fence)">
<% n, exchange = part.n, exchange_of(part) %>\
// The same, tried once.
bool clhist_try${n}(${space} cell${n}_t *cell, const part${n}_t value)
{
    volatile ${space} word${n}_t *word = (volatile ${space} word${n}_t *)cell;
    cell${n}_t seen, next;
    seen.word = CLHIST_RELAXED_LOAD(${exchange}, word);
    next.word = 0;
    next.value = clhist_combine${n}(seen.value, value);
    return next.word == seen.word || ${exchange}(word, seen.word, next.word) == seen.word;
}
</%def>

<%def name="try_lock(part, space, fence)">
<% n = part.n %>\
// The same, tried once.
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
