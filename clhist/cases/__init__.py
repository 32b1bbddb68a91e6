"""Case studies on the public API."""

from clhist.cases.image import image_histogram
from clhist.cases.joint import joint_histogram, mutual_information
from clhist.cases.kmeans import KMeansResult, kmeans
from clhist.cases.saturating import histo

__all__ = ["KMeansResult", "histo", "image_histogram", "joint_histogram", "kmeans", "mutual_information"]
