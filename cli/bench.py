"""`clhist bench`: the benchmarks of a clone, which are not installed."""

from __future__ import annotations

from clhist.cli.clone import from_clone

bench = from_clone("benchmarks.command", "clhist bench").bench
