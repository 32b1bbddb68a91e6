"""The names of this package that adapters use; each is documented where it is defined."""
# isort: skip_file

from __future__ import annotations

from clhist.statistics.outputs import Column as Column, SPREADS as SPREADS
from clhist.statistics.table import (
    STATISTICS as STATISTICS,
    TABLE as TABLE,
    column_of as column_of,
    named_statistics as named_statistics,
)
from clhist.statistics.variance import deviation_terms as deviation_terms, sum_of_deviations as sum_of_deviations
