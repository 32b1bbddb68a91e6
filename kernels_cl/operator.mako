## What every kernel of an operator starts with: the types of its values and accumulators, and the functions that turn
## one into the other and combine them. `suffix` tells the operators of one program apart.
## A structured type that has a C name already, in `known`, gets another name, since C takes two structs for different.
<%def name="types(operator, suffix, declare, known)">
% for dtype, name in ((operator.dtype, f"value{suffix}_t"), (operator.accumulator, f"accumulator{suffix}_t")):
% if dtype in known:
typedef ${known[dtype]} ${name};
% else:
${declare(dtype, name)}
% endif
<%
    if dtype.names is not None:
        known.setdefault(dtype, name)
%>\
% endfor
</%def>

## The user's expressions know the types by their short names.
<%def name="functions(operator, suffix, preamble)">
% if suffix:
#define value_t value${suffix}_t
#define accumulator_t accumulator${suffix}_t
% endif
${preamble}

accumulator_t clhist_lift${suffix}(const value_t v)
{
    return ${operator.lift};
}
<% caller.body() %>
% if suffix:
#undef value_t
#undef accumulator_t
% endif
</%def>

## A part of an accumulator, and as it lies in memory: never less than the word that an atomic needs.
<%def name="part(part, n, c_name)">
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
    return ${part.combine};
}
</%def>

## A negative bin becomes one that is larger than every histogram. A bin must be an integer, which `| 0` makes sure of:
## C would round -0.5 to bin 0.
<%def name="bins(wide)">
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

## A plain read beside atomic updates is none that harms: an old value makes a compare-exchange repeat, or a maximum be tried
## in vain. Oclgrind takes it for a race, and what a lock guards too: in programs built with CLHIST_CHECKED they are atomic.
<%def name="look()">
#ifdef CLHIST_CHECKED
#define CLHIST_LOOK(exchange, word) exchange(word, 0, 0)
#define CLHIST_PUT(exchange, word, value) exchange(word, value)
#else
#define CLHIST_LOOK(exchange, word) (*(word))
#define CLHIST_PUT(exchange, word, value) (*(word) = (value))
#endif
</%def>

## The structured types that the map may name, and what the caller wrote before it.
<%def name="before_the_map(spec, declare, known)">
% for name, dtype in spec.structs:
% if dtype in known:
typedef ${known[dtype]} ${name};
% else:
${declare(dtype, name)}
% endif
% endfor
${spec.preamble}

% for output in spec.ignored:
#define EMIT${output.suffix}(bin, value) ((void)(bin), (void)(value))
% endfor
</%def>
