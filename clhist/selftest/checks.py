"""One check of a device: what it is called, how it is run, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import perf_counter

from clhist.errors import BuildError, UnsupportedError

HOLDS, WRONG, UNAVAILABLE = "holds", "wrong", "not available"
# Of the text of an outcome.
_MOST_CHARACTERS = 300


class NotAvailableError(Exception):
    """The device cannot have what a check asks for, and said so when it was planned."""


@dataclass(frozen=True)
class Check:
    """One thing that a device must get right.

    Attributes
    ----------
    row, column : str
        Where its outcome stands in a table: an update and a memory, or a form; a type, or a profile.
    name : str
        What it is.
    action : callable
        Does it. Raises AssertionError with the difference, NotAvailableError, or whatever goes wrong.
    needs : frozenset of str
        The features of the device, of `clhist._core.devices.atomics.ALL_FEATURES`, that a wrong result puts in doubt.
    """

    row: str
    column: str
    name: str
    action: Callable[[], None] = field(repr=False)
    needs: frozenset[str] = frozenset()

    @property
    def label(self) -> str:
        """The label of the check, unique among all."""
        return f"{self.row}: {self.name}" + (f" ({self.column})" if self.column not in self.name else "")

    def run(self) -> CheckOutcome:
        """Run it; nothing is raised but what ends the program."""
        start, status, words, doubtful = perf_counter(), HOLDS, "", False
        try:
            self.action()
        except (NotAvailableError, UnsupportedError) as error:
            status, words = UNAVAILABLE, str(error)
        except AssertionError as error:
            # Wrong results and failed builds put features in doubt; other errors may have any cause.
            status, words, doubtful = WRONG, str(error), True
        except BuildError as error:
            status, words, doubtful = WRONG, f"BuildError: {error}", True
        except Exception as error:  # of a driver, anything may come
            status, words = WRONG, f"{type(error).__name__}: {error}"
        doubts = self.needs if doubtful else frozenset()
        return CheckOutcome(self, status, " ".join(words.split())[:_MOST_CHARACTERS], perf_counter() - start, doubts)


@dataclass(frozen=True)
class CheckOutcome:
    """The outcome of a check.

    Attributes
    ----------
    check : Check
        What was run.
    status : str
        `HOLDS`, `WRONG` or `UNAVAILABLE`.
    words : str
        What is wrong, or why it is not available.
    seconds : float
        How long it took.
    doubts : frozenset of str
        The features that it puts in doubt.
    """

    check: Check
    status: str
    words: str
    seconds: float
    doubts: frozenset[str] = frozenset()


def advice(outcomes: Iterable[CheckOutcome], features: Iterable[str]) -> list[str] | None:
    """Return the features for the device's profile that leave out those in doubt; None if that would not help."""
    doubtful = {feature for outcome in outcomes for feature in outcome.doubts}
    return sorted(set(features) - doubtful) if doubtful else None
