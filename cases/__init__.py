"""Case studies: what the paper measured its construct by (SC'20, Table III), on the public API; see docs/cases.md.

- `nonbonded_forces`: forces between pairs of particles; `find_neighbours` finds the pairs within a cut-off
- `kmeans`: Lloyd's clustering, the update of the centers one histogram
- `histo`: points counted in two dimensions, each count up to a ceiling
- `image_histogram`: intensities of 8-bit images, all channels in one sweep
- `joint_histogram`: intensities of two images, spread by B-splines; `mutual_information` of it
- `angular_correlation`: of points on the sky, from the histograms of angles that `pair_counts` gives

Modules of the names of the commands (gromacs, kmeans, histo, image, joint, tpacf) have more: data, checks, steps. Here
`histo` and `kmeans` are the functions; ``from clhist.cases.kmeans import blobs`` reaches the module.
"""

from clhist.cases.gromacs import nonbonded_forces
from clhist.cases.gromacs_data import NonbondedInput
from clhist.cases.histo import histo
from clhist.cases.image import image_histogram
from clhist.cases.joint import joint_histogram, mutual_information
from clhist.cases.kmeans import KMeansResult, kmeans
from clhist.cases.neighbours import Neighbours, find_neighbours
from clhist.cases.tpacf import AngularCorrelation, angular_correlation
from clhist.cases.tpacf_pairs import pair_counts

__all__ = [
    "AngularCorrelation",
    "KMeansResult",
    "Neighbours",
    "NonbondedInput",
    "angular_correlation",
    "find_neighbours",
    "histo",
    "image_histogram",
    "joint_histogram",
    "kmeans",
    "mutual_information",
    "nonbonded_forces",
    "pair_counts",
]
