"""The names of this package that adapters use beside the public interface; each is documented where it is defined."""
# isort: skip_file

from __future__ import annotations

from clhist.grouped.host_spi import *  # noqa: F403
from clhist.grouped.in_order import MOST_ELEMENTS as MOST_ELEMENTS, counting_sort as counting_sort
from clhist.grouped.distributed import GroupSpec as GroupSpec
