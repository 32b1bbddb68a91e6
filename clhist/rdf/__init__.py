"""Radial distribution functions and counts of pairs of particles by distance, in periodic boxes of any shape.

`RDF` has the interface of `freud.density.RDF`, and `InterRDF` is `MDAnalysis.analysis.rdf.InterRDF` with its frames
counted on a device; MDAnalysis must be installed for it: ``pip install "clhist[rdf]"``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from clhist.rdf.distribution import RDF

if TYPE_CHECKING:
    from clhist.rdf.trajectories import InterRDF

__all__ = ["RDF", "InterRDF"]


def __getattr__(name: str) -> Any:
    if name != "InterRDF":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        # Import on demand: MDAnalysis takes a second.
        return import_module("clhist.rdf.trajectories").InterRDF
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "MDAnalysis":
            raise
        raise ImportError('clhist.rdf.InterRDF needs MDAnalysis: pip install "clhist[rdf]"') from error
