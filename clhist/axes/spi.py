"""The names of this package that adapters use; each is documented where it is defined."""
# isort: skip_file

from __future__ import annotations

from clhist.axes.axis import Axis as Axis
from clhist.axes.block_search import ABSENT as ABSENT, BLOCK as BLOCK, ahead_of as ahead_of
from clhist.axes.kinds import FixedKind as FixedKind, IntegerKind as IntegerKind, Kind as Kind, TurnKind as TurnKind
from clhist.axes.pieces import (
    Pieces as Pieces,
    flow_axis as flow_axis,
    pieces_by as pieces_by,
    wrapped_axis as wrapped_axis,
)
from clhist.axes.thresholds import first_keys as first_keys
