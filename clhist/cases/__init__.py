"""Case studies on the public API."""

from clhist.cases.kmeans import KMeansResult, kmeans

__all__ = ["KMeansResult", "kmeans"]
