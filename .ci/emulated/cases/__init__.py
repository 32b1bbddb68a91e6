"""Cases that are executed on emulated GPUs, and the parts of the library that they cover."""

from emulated.cases.case import Case
from emulated.cases.listed import listed

__all__ = ["Case", "listed"]
