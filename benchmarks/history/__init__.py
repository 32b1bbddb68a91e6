"""Whole calls of the public functions, timed by asv (docs/bench.md)."""
