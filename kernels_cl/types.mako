## Types and functions of operators, which all programs share. `suffix` distinguishes the operators of one
## program.
##
##   value_t        what a map emits             clhist_lift: value_t -> accumulator_t
##   accumulator_t  what a bin holds             clhist_combine: two accumulators -> one
##   part<n>_t      a part of an accumulator     cell<n>_t: a part with the word of its atomic

<%! from clhist.operators.halves import declared, loaded %>\
## What all programs begin with: extensions, the types of values, bins and indices, and the C of operators that define no
## functions here. `declared_types` collects the structured types.
<%def name="prologue(sweep, preambles, declared_types, int64=False)">
% if any(output.operator.needs_fp64 for output in (*sweep.outputs, *sweep.ignored)):
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
% if int64:
#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif
#ifdef cl_khr_int64_extended_atomics
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable
#endif
% endif
% for argument in sweep.arguments:
% if declared(argument.dtype):
${declared(argument.dtype)}\
% endif
% endfor
% for output in (*sweep.outputs, *sweep.ignored):
${values(output.operator, output.suffix, declare, declared_types)}
% endfor
${bins(sweep.wide)}
${relaxed_access()}
% for output, preamble in preambles.items():
% if preamble:
% if output.suffix:
#define value_t value${output.suffix}_t
#define accumulator_t accumulator${output.suffix}_t
% endif
${preamble}
% if output.suffix:
#undef value_t
#undef accumulator_t
% endif
% endif
% endfor
</%def>

## An operator on whole accumulators, by its parts.
<%def name="whole(operator)">
accumulator_t clhist_combine(const accumulator_t a, const accumulator_t b)
{
    accumulator_t both;
% for n, part in enumerate(operator.parts):
    both${part.accessor} = clhist_combine${n}(a${part.accessor}, b${part.accessor});
% endfor
    return both;
}

accumulator_t clhist_neutral(void)
{
    accumulator_t neutral;
% for n, part in enumerate(operator.parts):
    neutral${part.accessor} = clhist_neutral${n}();
% endfor
    return neutral;
}
</%def>

## The types of an operator's values and accumulators. C treats two identical structs as different types, so a structured
## dtype is declared once, and its further names are typedefs of the first, kept in `declared_types`.
<%def name="values(operator, suffix, declare, declared_types)">
% for dtype, name in ((operator.dtype, f"value{suffix}_t"), (operator.accumulator, f"accumulator{suffix}_t")):
% if dtype in declared_types:
typedef ${declared_types[dtype]} ${name};
% else:
${declare(dtype, name)}
% endif
<%
    if dtype.names is not None:
        declared_types.setdefault(dtype, name)
%>\
% endfor
</%def>

## The types and functions of one operator, all that a program without its sweep needs of it. `declared_types` are those
## of a program that has other operators, too.
<%def name="of_operator(operator, preamble, declared_types)">
% if operator.needs_fp64:
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
${values(operator, "", declare, declared_types)}
<%local:functions operator="${operator}" suffix="" preamble="${preamble}">
% for n, part in enumerate(operator.parts):
${local.part(part, n, c_name)}
% endfor
</%local:functions>
</%def>

## Functions of an operator. User expressions use the short type names.
<%def name="functions(operator, suffix, preamble)">
% if suffix:
#define value_t value${suffix}_t
#define accumulator_t accumulator${suffix}_t
% endif
${preamble}

% if operator.lift:
accumulator_t clhist_lift${suffix}(const value_t v)
{
    return ${operator.lift};
}
% endif
<% caller.body() %>
% if suffix:
#undef value_t
#undef accumulator_t
% endif
</%def>

## A part of an accumulator, and its cell in memory: at least as wide as the word of an atomic.
<%def name="part(part, n, c_name, combine=None)">
<%
    kind = "accumulator_t" if part.dtype.names else c_name(part.dtype)
    word = {4: "uint", 8: "ulong"}.get(part.cell_bytes)
%>
typedef ${kind} part${n}_t;
% if word is None:
typedef union { part${n}_t value; } cell${n}_t;
% else:
typedef ${word} word${n}_t;
typedef union { part${n}_t value; word${n}_t word; } cell${n}_t;
% endif

part${n}_t clhist_neutral${n}(void)
{
    return ${part.neutral_literal};
}

part${n}_t clhist_combine${n}(const part${n}_t a, const part${n}_t b)
{
    return ${combine or part.combine};
}
</%def>

## The types of bins and indices. A negative bin becomes larger than every histogram. `| 0` makes the compiler reject
## bins that are not integers: C would convert -0.5 to bin 0.
<%def name="bins(wide)">
// Bins are unsigned: a negative one is larger than every histogram. The "| 0" refuses bins that are not integers.
% if wide:
typedef long clhist_index_t;
typedef ulong clhist_bin_t;
#define CLHIST_BIN(bin) ((clhist_bin_t)(long)((bin) | 0))
% else:
typedef int clhist_index_t;
typedef uint clhist_bin_t;
clhist_bin_t clhist_narrow(const long bin)
{
    return (ulong)bin < 0xfffffffful ? (clhist_bin_t)bin : 0xffffffffu;
}
#define CLHIST_BIN(bin) (sizeof((bin) | 0) > 4 ? clhist_narrow((long)((bin) | 0)) : (clhist_bin_t)(int)((bin) | 0))
% endif
</%def>

## Non-atomic accesses beside atomic updates. The load is a benign race: a stale value only costs one more CAS iteration
## or a redundant max; the store is of data behind a lock. Oclgrind reports both as races, so programs built with
## CLHIST_CHECKED make them atomic.
<%def name="relaxed_access()">
// Accesses beside atomic updates, which may be stale or are under a lock; atomic where programs are checked for races.
#ifdef CLHIST_CHECKED
#define CLHIST_RELAXED_LOAD(exchange, word) exchange(word, 0, 0)
#define CLHIST_RELAXED_STORE(exchange, word, value) exchange(word, value)
#else
#define CLHIST_RELAXED_LOAD(exchange, word) (*(word))
#define CLHIST_RELAXED_STORE(exchange, word, value) (*(word) = (value))
#endif
</%def>

## What asks a CPU's caches for memory that is read later. The builtin takes a pointer without an address space; NVIDIA's
## compiler, for which tests render a CPU's kernels, has none for it.
<%def name="ahead()">
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed"  // where a loop is not made of vectors
#endif
#if defined(CLHIST_NO_PREFETCH) || defined(CLHIST_CHECKED) || defined(__NV_CL_C_VERSION)  // Oclgrind has none
#elif defined(__has_builtin)
#if __has_builtin(__builtin_prefetch)
#define CLHIST_AHEAD(p) __builtin_prefetch((const void *)(size_t)(p))
#endif
#endif
#ifndef CLHIST_AHEAD
#define CLHIST_AHEAD(p) ((void)0)
#endif
</%def>

## What takes a value of `dest` with numbers of one byte. Vendors' records replace it where a compiler fails at the branch;
## a loop in all kernels took PoCL 3.0 twice as long for 10 million bins.
<%def name="choice()">
#ifndef CLHIST_CHOICE
#define CLHIST_CHOICE(condition, value) ((condition) ? (value) : clhist_neutral())
#endif
</%def>

## The structured types that the map may name, the caller's preamble, and an empty EMIT for each ignored output.
<%def name="caller_code(spec, declare, declared_types)">
% if spec.order == "blocked" or "CLHIST_AHEAD" in spec.map:
${ahead()}
% endif
% for name, dtype in spec.structs:
% if dtype in declared_types:
typedef ${declared_types[dtype]} ${name};
% else:
${declare(dtype, name)}
% endif
% endfor
${spec.preamble}

% if "CLHIST_IN_PASS" in spec.map:
#define CLHIST_IN_PASS(bin, num_bins) (${spec.in_pass})
% endif
% for output in spec.ignored:
#define EMIT${output.suffix}(bin, value) ((void)(bin), (void)(value))
% endfor
</%def>

## The arrays of the map's arguments: a buffer and a byte offset each, since OpenCL 1.1 passes buffers only.
<%def name="arrays(spec)">\
% for argument in spec.arguments:
% if argument.is_array:
<%
    begin, place = f"    {argument.parameter}", f"({argument.pointer})({argument.name}__base + {argument.name}__offset)"
    place = f"{loaded(f'*{place}', argument.dtype) if argument.is_first else place};"
    is_short = len(begin) + len(place) < 112
%>\
${f"{begin} = {place}" if is_short else f"{begin}{chr(10)}        = {place}"}
% endif
% endfor
</%def>
