"""Objects that belong to a device of this process, and cannot be pickled."""

from __future__ import annotations

from typing import Any, Self


class OnDevice:
    """Its subclasses hold queues or kernels: to pickle one raises TypeError, which says what goes `instead`."""

    _instead = ""

    def __init_subclass__(cls, instead: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._instead = instead or cls._instead

    def __reduce__(self) -> Any:
        name = type(self).__name__
        raise TypeError(f"{name}: cannot be pickled, since it belongs to a device of this process; {self._instead}")

    def __copy__(self) -> Self:
        # Without this method, `copy.copy` would use `__reduce__`, which refuses.
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        return copy


class HoldsBins(OnDevice):
    """Its subclasses hold bins besides, which two objects must not share: to copy one raises TypeError, too."""

    def __copy__(self) -> Self:
        name = type(self).__name__
        raise TypeError(f"{name}: cannot be copied, since both would fill the same bins; {self._instead}")

    def __deepcopy__(self, memo: Any) -> Self:
        return self.__copy__()
