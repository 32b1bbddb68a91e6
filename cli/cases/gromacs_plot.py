"""The picture of `clhist gromacs --plot`: how strong the forces are, and how often a particle's is updated."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clhist.cli.cases.options import figure


def draw(path: Path, forces: np.ndarray, partners: np.ndarray, title: str) -> None:
    """Draw both distributions.

    Parameters
    ----------
    path : Path
        The file; its ending says the format.
    forces : float32 array of shape (n, 3)
        kJ/(mol nm).
    partners : int32 array of shape (n,)
        How many pairs each particle is in.
    title : str
        What was computed, and where.
    """
    with figure(path, figsize=(11, 4.5)) as drawing:
        drawing.suptitle(title)
        left, right = drawing.subplots(1, 2)
        strength = np.linalg.norm(forces.astype(np.float64), axis=1)
        # A logarithmic axis cannot show the zeros of particles without pairs.
        strength = strength[strength > 0]
        if len(strength):
            # Forces that are all equal need a range of some width.
            low, high = strength.min(), max(strength.max(), strength.min() * 1.01)
            left.hist(strength, bins=np.geomspace(low, high, 61), color="tab:blue")
            middle = float(np.median(strength))
            left.axvline(middle, color="black", linewidth=1, linestyle="--", label=f"median {middle:,.3g}")
            left.legend()
        left.set(title="Forces", xlabel="|force|, kJ/(mol nm)", ylabel="particles", xscale="log")
        number, particles = np.unique(partners, return_counts=True)
        right.bar(number, particles, width=1.0, color="tab:orange")
        mean = float(partners.mean())
        right.axvline(mean, color="black", linewidth=1, linestyle="--", label=f"mean {mean:,.1f}")
        right.legend()
        right.set(title="Updates of a particle", xlabel="updates of each component of its force", ylabel="particles")
