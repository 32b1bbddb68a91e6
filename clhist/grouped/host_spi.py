"""The part of `clhist.grouped.spi` that imports neither PyOpenCL nor the engine: few elements need no more."""
# isort: skip_file

from __future__ import annotations

# Numbers of groups, and their order.
from clhist.grouped.columns import integers as integers
from clhist.grouped.groups import groups_of as groups_of, labels_of as labels_of

# Tables of other libraries, and results as tables.
from clhist.grouped.frames import (
    ComputedKey as ComputedKey,
    Frame as Frame,
    key_columns as key_columns,
    key_values as key_values,
    picked_or_missing as picked_or_missing,
    read_frame as read_frame,
    used_categories as used_categories,
)
from clhist.grouped.frame_groups import COUNTS as COUNTS, OPTIONS as OPTIONS, FrameGroupBy as FrameGroupBy
from clhist.grouped.table import Table as Table

# Keys that are computed from a column.
from clhist.grouped.computed_keys import (
    PARTS as PARTS,
    as_date as as_date,
    bin_of_dates as bin_of_dates,
    interval_key as interval_key,
    numbers_of as numbers_of,
    part_of_dates as part_of_dates,
    probabilities as probabilities,
    width_of as width_of,
)
from clhist.grouped.date_intervals import (
    DateEdges as DateEdges,
    Ticks as Ticks,
    date_edges as date_edges,
    even_edges as even_edges,
    quantile_edges as quantile_edges,
    ticks_of as ticks_of,
)
