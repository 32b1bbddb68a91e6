"""The registry: every strategy with its name, its source, what it needs, and its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from types import MappingProxyType

from clhist.strategies import blog, futhark, handbook, later, sc20, shams_kennedy, thesis
from clhist.strategies.problem import Chosen, StrategyProblem, StrategyRecipe

_BLOG = "Histogram in CUDA (blog)"
_HANDBOOK = "CUDA Handbook, histogram chapter"
_SHAMS = "Shams & Kennedy 2007"
_THESIS = "MSc thesis, Generalised Reductions in Futhark"
_SC20 = "SC'20, Compiling Generalized Histograms for GPU"
_FUTHARK = "Futhark, CodeGen/ImpGen/GPU/SegHist.hs"
_CUB = "CUB, agent_histogram.cuh"
_RAFT = "RAFT, stats/detail/histogram.cuh"


OURS = "clhist"


@dataclass(frozen=True)
class Strategy:
    """One published strategy.

    Attributes
    ----------
    name : str
        Family and variant, with slashes: "handbook/thread/row/check".
    source : str
        Where it is published, with the section.
    make : callable
        Returns a `StrategyRecipe` or `Chosen` for a `StrategyProblem`, or raises `NotApplicable`; keyword arguments are
        `parameters`.
    needs : str
        Of bins and device.
    operators : str
        What the source combines: "counts" or "any".
    parameters : mapping of str to object
        Of `make`, with the authors' defaults.
    """

    name: str
    source: str
    make: Callable[..., StrategyRecipe | Chosen]
    needs: str
    operators: str = "counts"
    parameters: Mapping[str, object] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """A summary in one sentence."""
        make = self.make.func if isinstance(self.make, partial) else self.make
        return (inspect.getdoc(make) or "").split("\n\n")[0].replace("\n", " ")

    def plan(self, problem: StrategyProblem, **parameters: object) -> StrategyRecipe | Chosen:
        """Return the recipe for a problem, or the choices of clhist's own kernels.

        Raises
        ------
        NotApplicable
            If it cannot; the message says why.
        TypeError, ValueError
            If a parameter is wrong.
        """
        unknown = parameters.keys() - self.parameters.keys()
        if unknown:
            names = ", ".join(self.parameters) or "none"
            raise TypeError(f"parameters: expected some of {names}, got {', '.join(sorted(unknown))}")
        return self.make(problem, **parameters)


def _strategy(
    name: str,
    source: str,
    make: Callable[..., StrategyRecipe | Chosen],
    needs: str,
    *fixed: object,
    operators: str = "counts",
) -> Strategy:
    keywords = {
        parameter.name: parameter.default
        for parameter in inspect.signature(make).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    bound = _after_problem(make, fixed) if fixed else make
    return Strategy(name, source, bound, needs, operators, MappingProxyType(keywords))


def _after_problem(
    make: Callable[..., StrategyRecipe | Chosen], fixed: tuple[object, ...]
) -> Callable[..., StrategyRecipe | Chosen]:
    """Return `make` with the arguments after the problem fixed."""
    names = list(inspect.signature(make).parameters)[1 : 1 + len(fixed)]
    return partial(make, **dict(zip(names, fixed, strict=True)))


def _plan(problem: StrategyProblem) -> Chosen:
    """Our own plan."""
    return Chosen({"race_factor": problem.race_factor}, is_count=True)


def _all() -> Iterable[Strategy]:
    any_bins, local = "any number of bins", "bins that fit local memory"
    few = f"at most {blog.MOST_REGISTERS} bins"
    for name, make, needs in (
        ("naive", blog.naive, any_bins),
        ("interleaved", blog.interleaved, any_bins),
        ("local", blog.local, local),
        ("registers", blog.registers, few),
        ("runs", blog.runs, local),
    ):
        yield _strategy(f"blog/{name}", _BLOG, make, needs)
    yield _strategy("handbook/grid", _HANDBOOK, handbook.shared, any_bins, "grid")
    yield _strategy("handbook/block", _HANDBOOK, handbook.shared, local, "block")
    packed = "64 bytes of local memory for each bin"
    for layout, figure in zip(handbook.LAYOUTS, (4, 5, 6), strict=True):
        for overflow in handbook.OVERFLOWS:
            source = f"{_HANDBOOK}, Figure {figure} and Managing Overflow"
            yield _strategy(f"handbook/thread/{layout}/{overflow}", source, handbook.thread, packed, layout, overflow)
    yield _strategy("shams-kennedy/1", f"{_SHAMS}, III-A", shams_kennedy.tagged, f"{any_bins}, in passes")
    copies = "global memory for a copy for each work-item"
    yield _strategy("shams-kennedy/2", f"{_SHAMS}, III-B", shams_kennedy.collision_free, copies)
    for memory, levels in (("global", thesis.LEVELS), ("local", thesis.LOCAL_LEVELS)):
        for atomic in thesis.ATOMICS:
            for level in levels:
                name, source = f"thesis/{memory}/{atomic}/{level}", f"{_THESIS}, 4.2 and 4.3"
                fixed = memory, atomic, level
                needs = "copies that fit " + memory + " memory"
                yield _strategy(name, source, thesis.cooperation, needs, *fixed, operators="any")
    for atomic in sc20.ATOMICS:
        for place in ("local", "global", None):
            name = f"sc20/{atomic}/{place or 'auto'}"
            yield _strategy(name, f"{_SC20}, III and V-A", sc20.copies, any_bins, atomic, place, operators="any")
    yield _strategy("sc20/sort", f"{_SC20}, Listing 4; {_THESIS}, 3.1", sc20.sort, any_bins, operators="any")
    for atomic in futhark.UPDATES:
        name = f"futhark/{atomic}"
        yield _strategy(name, _FUTHARK, futhark.segmented_histogram, any_bins, atomic, operators="any")
    yield _strategy("cub", _CUB, later.cub, local)
    for bits in later.BITS:
        yield _strategy(f"raft/bits/{bits}", _RAFT, later.raft_bits, f"{bits} bits of local memory for each bin", bits)
    yield _strategy("raft/hash", _RAFT, later.raft_hash, any_bins)
    yield _strategy("raft/match/grid", _RAFT, later.aggregated, "sub-groups", "grid")
    yield _strategy("raft/match/block", _RAFT, later.aggregated, f"sub-groups; {local}", "block")
    yield _strategy(OURS, "this library", _plan, any_bins, operators="any")


STRATEGIES: Mapping[str, Strategy] = MappingProxyType({strategy.name: strategy for strategy in _all()})


def select(patterns: Iterable[str]) -> list[Strategy]:
    """Return the strategies that the `patterns` name: a name, the beginning of one up to a slash, or with ``*``.

    Raises
    ------
    ValueError
        If a pattern names none.
    """
    chosen: dict[str, Strategy] = {}
    for pattern in patterns:
        matching = {
            name: strategy
            for name, strategy in STRATEGIES.items()
            if name == pattern or name.startswith(f"{pattern}/") or fnmatchcase(name, pattern)
        }
        if not matching:
            families = ", ".join(dict.fromkeys(name.split("/")[0] for name in STRATEGIES))
            raise ValueError(f"strategy: expected a name, a beginning or a pattern of {families}, got {pattern!r}")
        chosen |= matching
    return list(chosen.values())
