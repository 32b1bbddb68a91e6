"""Gradient boosting of scikit-learn with trees that grow on any OpenCL device, the same on each of them.

`HistGradientBoostingRegressor` and `HistGradientBoostingClassifier` take the place of those of ``sklearn.ensemble``;
`BinnedFeatures` makes the histograms that other growers of trees need.

scikit-learn must be installed: ``pip install "clhist[boosting]"``.
"""

from clhist.boosting.estimators import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from clhist.boosting.histograms import BinnedFeatures, FeatureHistograms

__all__ = ["BinnedFeatures", "FeatureHistograms", "HistGradientBoostingClassifier", "HistGradientBoostingRegressor"]
