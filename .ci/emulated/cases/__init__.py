"""What is executed on emulated GPUs, and what of the library that covers."""

from emulated.cases.case import Case
from emulated.cases.listed import listed

__all__ = ["Case", "listed"]
