"""`clhist bench --suite peers`: clhist beside what else is installed for the same sums, in one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from clhist.cli.bench import peer_functions as peers
from clhist.cli.bench import suite as bench_suite
from clhist.cli.bench.inputs import Input
from clhist.cli.bench.lab import Lab, Row, difference
from clhist.cli.bench.operators import Benched
from clhist.cli.bench.suite import Column, Panels, Request, Suite, microseconds, times, weighted
from clhist.cli.bench.timing import pipelined

_ON_DEVICE, _ON_HOST = "clhist, device arrays", "clhist, NumPy arrays"


def run(lab: Lab, request: Request) -> Iterator[tuple[str, list[Row]]]:
    """Yield for each operator on each input clhist's rows and those of the peers that have the operator."""
    competitors = peers.peers()
    for spec, found in request.problems():
        given = lab.input(spec, weighted=weighted(found))
        for benched in found:
            yield f"{benched.name}, H = {spec.num_bins:,}", _rows(lab, given, benched, competitors)


def _rows(lab: Lab, given: Input, benched: Benched, competitors: list[peers.Peer]) -> list[Row]:
    ours = lab.measure(given, benched, race_factor=float(given.spec.race_factor), update=benched.update)
    rows = [ours | {"implementation": _ON_DEVICE, "per_clhist": 1.0}]
    if "floor" not in ours:
        return rows
    floor = ours["floor"]
    common = {key: ours[key] for key in ("op", "num_elements", "num_bins", "race_factor", "distribution", "bytes")}
    host = given.host
    arrays = [host.bins, host.weights][: len(benched.arrays)]
    numpy_call = partial(
        lab.kernel(benched), *arrays, num_bins=host.num_bins, queue=lab.queue, race_factor=float(given.spec.race_factor)
    )
    every = [(_ON_HOST, False, peers.Peer(_ON_HOST, (benched.name,), lambda *_: numpy_call))]
    every += [(peer.name, peer.on_gpu, peer) for peer in competitors if benched.name in peer.operations]
    for name, on_gpu, peer in every:
        try:
            prepared = peer.prepare(benched.name, host.bins, host.weights, host.num_bins)
            found = _timed(peer, prepared, benched.reference(host), floor)
        except Exception as error:  # of somebody else's code: out of memory, a kernel that does not compile
            found = {"note": f"failed: {type(error).__name__}: {str(error)[:80]}"}
        like = rows[0] if on_gpu or name == _ON_HOST else rows[1]
        if "call" in found and "call" in like:
            found["per_clhist"] = found["call"]["median"] / like["call"]["median"]
        rows.append(common | {"implementation": name, "floor": floor} | found)
    return rows


def _timed(peer: peers.Peer, call: Callable[[], Any], expected: np.ndarray, floor: Row) -> Row:
    wrong = difference(peer.fetch(call()), expected)
    if wrong:
        return {"failed": True, "note": f"WRONG: {wrong}"}
    found = pipelined(call, peer.finish)
    return {
        "call": found.whole.record(),
        "host": found.host.record(),
        "call_per_floor": found.whole.median / floor["median"],
    }


def panels(rows: list[Row]) -> Panels:
    """Return a panel for each operator and race factor, a line for each implementation."""
    drawn: Panels = {}
    for row in rows:
        if "call" in row:
            panel = drawn.setdefault(f"{row['op']}, RF {row['race_factor']}", {})
            point = row["num_bins"], row["call"]["median"] * 1e6
            panel.setdefault(row["implementation"], []).append(point)
    return drawn


_COLUMNS: tuple[Column, ...] = (
    bench_suite.OP,
    bench_suite.BINS,
    bench_suite.RACE_FACTOR,
    ("implementation", lambda row: row["implementation"]),
    *bench_suite.CALL,
    bench_suite.CALL_FLOOR,
    ("x clhist", lambda row: times(row, "per_clhist")),
    ("kernel µs", lambda row: microseconds(row, "kernel")),
)

SUITE = Suite(
    operations=peers.OPERATIONS,
    default_operations=("count", "add"),
    bins=(31, 2041, 196607, 1572863),
    race_factors=(1,),
    steps=bench_suite.steps,
    run=run,
    columns=_COLUMNS,
    panels=panels,
)
