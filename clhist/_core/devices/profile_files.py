"""Device profiles as TOML files: their format, and where they are.

Those in ``devices/`` are shipped; those in the user's directory come before them.

A pattern has words of a device's name, in a row. A word is letters and digits, in any case; signs between words do not
matter. In a pattern ``#`` is a digit, ``*`` behind a word is any rest of it, and a ``*`` alone is any words. ``^`` and
``$`` are the ends of the name. The name must not have the words behind ``!``: ``"A100 !MIG"``.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

import platformdirs

from clhist._core.devices.vendors import ALL_FEATURES
from clhist.errors import ProfileError
from clhist.files.regular import read_text

# The model's parameters, with the paper's letters.
PARAMETERS = {
    "local_memory": "L: bytes of local memory that one work-group may use",
    "l2_cache": "L2: bytes of the last-level cache that all compute units share",
    "l2_line": "L2_line: bytes of one of its lines",
    "hardware_threads": "Thw: work-items resident on the device at full occupancy",
    "work_group_size": "B: work-items of a work-group",
}
LEVELS = ("device", "architecture", "vendor", "default")
KINDS = ("gpu", "cpu")
# The least that a device can have, in bytes: room for the largest accumulators, and a line of a cache has words.
_LEAST = {"local_memory": 64, "l2_line": 4}
# Names of what `clhist calibrate` measures, and their units. Other names would be read by nobody.
_KINDS_OF_RATES = r"(count|native (int|float)(32|64)|cas \d+|carry \d+|lock|\d+ bytes)"
_UNITS = (
    (r"bandwidth|partitioned values of \d+ bytes|rows (gathered|added)", "GB/s"),
    (r"launch|shortest kernel|wait for a lock", "us"),
    (r"copies of native updates", "copies of a work-group"),
    (r"work-items of private copies", "work-items"),
    (r"NumPy arrays, .+, least", "elements"),
    (r"filling and combining cells|rows (placed by bin|found|added by atomics of several numbers)", "G/s"),
    (r"components of rows updated", "G/s"),
    (rf"{_KINDS_OF_RATES}, (one pass|further pass|in global memory|partitioned|\d+-bit counters|private, ).*", "G/s"),
)
# Of a device, from its vendor: what rates of a device that was not measured are scaled by, and its memory.
DATA_SHEET = {
    "compute_units": "compute units",
    "clock": "their highest clock in MHz",
    "bandwidth": "bandwidth of global memory in GB/s",
    "global_memory": "bytes of global memory",
}
_KEYS = ("name", "kind", "level", "match", *PARAMETERS, "data_sheet", "features", "measured")
_MEASURED_KEYS = {
    "value": (int, float),
    "spread": (int, float),
    "unit": (str,),
    "method": (str,),
    "date": (str,),
    "driver": (str,),
}
_SHIPPED = "devices/"
_MOST_BYTES = 1 << 20  # of a profile's file; ours have a few thousand
_MOST_PATTERNS = 64  # of names, in one file
_SHOWN = 80  # characters of a pattern in an error
_PARAMETER_KEYS = ("value", "per_compute_unit", "source")


@dataclass(frozen=True)
class ProfileFile:
    """One profile as written in its file; it may have only some of the numbers."""

    path: str
    name: str
    kind: str
    level: str
    match: tuple[str, ...]
    values: Mapping[str, tuple[str, int, str]]  # parameter: ("value" or "per_compute_unit", number, source)
    measured: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # what `clhist calibrate` found besides
    features: frozenset[str] | None = None
    data_sheet: Mapping[str, Any] = field(default_factory=dict)  # of `DATA_SHEET`, and its source

    @property
    def key(self) -> str:
        """Its name on a command line: the file name without the ending."""
        return Path(self.path).stem

    @property
    def rates(self) -> dict[str, float]:
        """The measured values by their names."""
        return {name: float(measurement["value"]) for name, measurement in self.measured.items()}

    @property
    def is_shipped(self) -> bool:
        """Whether it came with the package."""
        return self.path.startswith(_SHIPPED)

    def matches(self, *names: str) -> bool:
        """Whether the profile is for a device that has one of these `names`."""
        return any(occurs(pattern, name) for pattern in self.match for name in names)


@lru_cache(maxsize=256)  # all shipped files, which each call that names a profile reads: 60 ms
def parse_profile(text: str, path: str) -> ProfileFile:
    """Return the profile that `text` spells out.

    Parameters
    ----------
    text : str
        TOML: ``name``, ``kind`` ("gpu" or "cpu"), ``level`` ("device", "architecture", "vendor" or "default"; "device"
        if missing), ``match`` (words looked for in the device's name, as `devices.patterns` has them), and a
        table for each number with ``value`` or ``per_compute_unit``, and ``source``. Only at the level "device" must
        all five be there. The table ``data_sheet`` has some of `DATA_SHEET`, and their ``source``.
        ``features``, a list, is what updates may use; without it that is all that the
        device has.
    path : str
        Of the file, for errors.

    Raises
    ------
    ProfileError
        If it is not TOML, or a key is unknown, missing, of the wrong type or not positive; file and key are named.
    """
    import tomllib  # here, with the first device: 10 ms of `import clhist`

    try:
        # Some editors begin a file with a byte-order mark, which tomllib refuses.
        document = tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:  # besides TOMLDecodeError, of numbers and brackets without end
        raise ProfileError(f"{path}: not valid TOML: {error}") from error

    def fail(key: str, expected: str, got: object) -> ProfileError:
        return ProfileError(f"{path}: {key}: expected {expected}, got {got!r}")

    for key in document:
        if key not in _KEYS:
            raise ProfileError(f"{path}: {key}: unknown key; known are {', '.join(_KEYS)}")
    name, kind, level = document.get("name"), document.get("kind"), document.get("level", "device")
    if not isinstance(name, str) or not name:
        raise fail("name", "a text", name)
    if kind not in KINDS:
        raise fail("kind", f"one of {', '.join(KINDS)}", kind)
    if level not in LEVELS:
        raise fail("level", f"one of {', '.join(LEVELS)}", level)
    # From here on each part of the file has a parser of its own, with `fail` for errors that name the key.
    match = _parse_match(document.get("match", []), level, fail)
    values = _parse_values(document, level, path, fail)
    measured = _parse_measured(document.get("measured", {}), fail)
    features = document.get("features")
    if features is not None and not (isinstance(features, list) and all(f in ALL_FEATURES for f in features)):
        raise fail("features", f"a list of some of {', '.join(sorted(ALL_FEATURES))}", features)
    usable = None if features is None else frozenset(features)
    sheet = _parse_data_sheet(document.get("data_sheet", {}), fail)
    return ProfileFile(path, name, kind, level, tuple(match), MappingProxyType(values), measured, usable, sheet)


def _parse_match(match: object, level: str, fail: Callable[[str, str, object], ProfileError]) -> list[str]:
    if not isinstance(match, list) or not all(isinstance(pattern, str) for pattern in match):
        raise fail("match", "a list of patterns of names", match)
    if len(match) > _MOST_PATTERNS:
        raise fail("match", f"at most {_MOST_PATTERNS} patterns", len(match))
    if level != "default" and not match:
        raise fail("match", "at least one pattern", match)
    for pattern in match:
        try:
            parsed(pattern)
        except ValueError as error:
            raise fail("match", f"patterns of names ({error})", pattern[:_SHOWN]) from error
    return match


def _parse_values(
    document: Mapping[str, Any], level: str, path: str, fail: Callable[[str, str, object], ProfileError]
) -> dict[str, tuple[str, int, str]]:
    values = {}
    for key in PARAMETERS:
        if key not in document:
            if level == "device":
                raise ProfileError(f"{path}: {key}: missing ({PARAMETERS[key]})")
            continue
        values[key] = _parse_parameter(document[key], key, fail)
        if level == "device" and values[key][0] != "value":
            raise fail(key, "value, since the profile is of one device", values[key][0])
    if level == "device":
        # A cache has at least one line, and a device has room for at least one work-group.
        for key, least in (("l2_cache", "l2_line"), ("hardware_threads", "work_group_size")):
            if values[key][1] < values[least][1]:
                raise fail(f"{key}.value", f"no less than the {values[least][1]} of {least}", values[key][1])
    return values


def _parse_measured(
    tables: object, fail: Callable[[str, str, object], ProfileError]
) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(tables, dict):
        raise fail("measured", "a table for each measurement", tables)
    for name, measurement in tables.items():
        for key, types in _MEASURED_KEYS.items():
            value = measurement.get(key) if isinstance(measurement, dict) else None
            # A bool is an int in Python.
            if not isinstance(value, types) or isinstance(value, bool):
                raise fail(f"measured.{name}.{key}", " or ".join(t.__name__ for t in types), value)
        for key in ("value", "spread"):
            if not 0 <= measurement[key] < inf:
                raise fail(f"measured.{name}.{key}", "a finite number that is not negative", measurement[key])
        for key in measurement:
            if key not in _MEASURED_KEYS:
                raise fail(f"measured.{name}.{key}", f"one of {', '.join(_MEASURED_KEYS)}", key)
        unit = _unit_of(name)
        if unit is None:
            raise fail(f"measured.{name}", 'the name of a rate that `clhist calibrate` writes, such as "launch"', name)
        if measurement["unit"] != unit:
            raise fail(f"measured.{name}.unit", repr(unit), measurement["unit"])
    return MappingProxyType(tables)


def _unit_of(name: str) -> str | None:
    """Return the unit of a measurement; None if no measurement has such a name."""
    for names, unit in _UNITS:
        if re.fullmatch(names, name, re.DOTALL):
            return unit
    return None


def _parse_data_sheet(table: object, fail: Callable[[str, str, object], ProfileError]) -> Mapping[str, Any]:
    if not isinstance(table, dict):
        raise fail("data_sheet", "a table with a source", table)
    for key, number in table.items():
        if key != "source" and key not in DATA_SHEET:
            raise fail(f"data_sheet.{key}", f"one of {', '.join((*DATA_SHEET, 'source'))}", number)
        if key != "source" and (isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 2**63):
            raise fail(f"data_sheet.{key}", "a positive integer below 2^63", number)
    if table and not (isinstance(table.get("source"), str) and table["source"]):
        raise fail("data_sheet.source", "where the numbers come from", table.get("source"))
    return MappingProxyType(table)


def _parse_parameter(table: object, key: str, fail: Callable[[str, str, object], ProfileError]) -> tuple[str, int, str]:
    if not isinstance(table, dict):
        raise fail(key, "a table with value and source", table)
    for inner in table:
        if inner not in _PARAMETER_KEYS:
            raise fail(f"{key}.{inner}", f"one of {', '.join(_PARAMETER_KEYS)}", inner)
    how = [inner for inner in ("value", "per_compute_unit") if inner in table]
    if len(how) != 1:
        raise fail(key, "either value or per_compute_unit", " and ".join(how) or None)
    number, source = table[how[0]], table.get("source")
    if isinstance(number, bool) or not isinstance(number, int) or number <= 0:
        raise fail(f"{key}.{how[0]}", "a positive integer", number)
    if number < _LEAST.get(key, 1):
        raise fail(f"{key}.{how[0]}", f"at least {_LEAST[key]} bytes", number)
    if number >= 2**63:
        raise fail(f"{key}.{how[0]}", "less than 2^63", number)
    if not isinstance(source, str) or not source:
        raise fail(f"{key}.source", "where the number comes from", source)
    return how[0], number, source


def user_directory() -> Path:
    """Return the directory of the user's own profiles (``CLHIST_PROFILES`` names another)."""
    named = os.environ.get("CLHIST_PROFILES")
    return Path(named) if named else platformdirs.user_config_path("clhist") / "profiles"


def usable_profiles(kind: str | None = None, named: str | None = None) -> tuple[ProfileFile, ...]:
    """Return `load_profiles` without the user's own that are broken, of which a warning names each once.

    Raises
    ------
    ProfileError
        If the file called `named` is broken.
    """

    def warn(file: Path, error: ProfileError) -> None:
        if named is not None and file.stem.lower() == named.lower():
            raise error
        if str(error) not in _warned:
            _warned.add(str(error))
            warnings.warn(f"{error}; this profile is ignored", RuntimeWarning, stacklevel=2)

    return load_profiles(kind, broken=warn)


_warned: set[str] = set()


def load_profiles(
    kind: str | None = None, *, broken: Callable[[Path, ProfileError], None] | None = None
) -> tuple[ProfileFile, ...]:
    """Return all profiles, the user's own before the shipped ones.

    Parameters
    ----------
    kind : {"gpu", "cpu"}, optional
        Leaves out the shipped profiles of the other kind: parsing nearly a hundred takes 60 ms.
    broken : callable, optional
        Gets the path of a broken profile and its error, which is raised otherwise.

    Raises
    ------
    ProfileError
        If one is broken or cannot be read; its file is named.
    """
    try:
        own = sorted(user_directory().glob("*.toml")) if user_directory().is_dir() else []
    except OSError:  # a home that may not be searched
        own = []
    files = {item.name: item for item in resources.files("clhist.devices").iterdir()}
    shipped = [files[name] for name in sorted(files) if name.endswith(".toml")]
    profiles = []
    for n, item in enumerate((*own, *shipped)):
        path = str(item) if n < len(own) else f"{_SHIPPED}{item.name}"
        try:
            # Only the user's own files have a limit of bytes: the shipped ones come with the package.
            if n < len(own) and isinstance(item, Path):
                profiles.append(parse_profile(read_text(item, _MOST_BYTES), path))
                continue
            content = item.read_bytes()  # a hundred files, of which text would take three times as long
            # The kind is looked for in the bytes, since parsing takes most of the time.
            if kind is None or f'\nkind = "{kind}"'.encode() in content:
                profiles.append(parse_profile(content.decode("utf-8"), path))
        except (OSError, ValueError) as error:
            unread = isinstance(error, OSError | UnicodeDecodeError)
            told = ProfileError(f"{path}: {'cannot be read: ' * unread}{error}")
            # A ProfileError names the file already.
            told = error if isinstance(error, ProfileError) else told
            if broken is None:
                raise told from error
            broken(Path(path), told)
    return tuple(profiles)


MOST_CHARACTERS = 500  # of a pattern, and of a name
_WORD = re.compile(r"\w+")
_PART = re.compile(r"[\w#]+\*?|\*")
# Syntax of regular expressions: taken for words, such a pattern would match other names than it says.
_REGULAR_EXPRESSION = re.compile(r"\||\(\?|\.[*+]|\\[bBdDwWsS]|\[[^]]*\w-\w[^]]*\]|[])][*+?]")

Words = tuple[str, ...]


def occurs(pattern: str, name: str) -> bool:
    """Whether a pattern occurs in a name.

    Raises
    ------
    ValueError
        If it is not what `parsed` takes.
    """
    words = _words(name)
    wanted, unwanted = parsed(pattern)
    return _is_in(wanted, words) and not any(_is_in(parts, words) for parts in unwanted)


def exactly(name: str) -> str:
    """Return the pattern of all words of a name."""
    return f"^{' '.join(_WORD.findall(name[:MOST_CHARACTERS]))}$"


@lru_cache(maxsize=1024)
def parsed(pattern: str) -> tuple[Words, tuple[Words, ...]]:
    """Return the words of a pattern, and those that must be missing; raise ValueError if it has none."""
    if len(pattern) > MOST_CHARACTERS:
        raise ValueError(f"expected at most {MOST_CHARACTERS} characters, got {len(pattern)}")
    if _REGULAR_EXPRESSION.search(pattern):
        raise ValueError("expected words of a name, in which # is a digit and * any rest, not a regular expression")
    wanted, *unwanted = map(_parts, pattern.split("!"))
    if not _has_words(wanted) or not all(map(_has_words, unwanted)):
        raise ValueError("expected some words of a name, since others match every device")
    return wanted, tuple(unwanted)


def _parts(text: str) -> Words:
    """Return words, with ``*`` before the first and behind the last unless ``^`` and ``$`` are there."""
    text = text.strip()
    begin, end = ("" if text.startswith("^") else "*"), ("" if text.endswith("$") else "*")
    return tuple(_PART.findall(f"{begin} {text.lower()} {end}"))


def _has_words(parts: Words) -> bool:
    return bool("".join(parts).strip("#*"))


@lru_cache(maxsize=64)
def _words(name: str) -> Words:
    return tuple(_WORD.findall(name[:MOST_CHARACTERS].lower()))


def _is_in(parts: Words, words: Words) -> bool:
    """Whether the parts are these words, as in a shell's pattern; at a failure the last ``*`` takes one word more."""
    part = word = 0
    star, end = -1, 0
    while word < len(words):
        if part < len(parts) and parts[part] == "*":
            star, end, part = part, word, part + 1
        elif part < len(parts) and _fits(parts[part], words[word]):
            part, word = part + 1, word + 1
        elif star >= 0:
            # Only the last star is tried again: an earlier one with more words finds no match that this one misses.
            end += 1
            part, word = star + 1, end
        else:
            return False
    # Stars need no word.
    return {"*"}.issuperset(parts[part:])


def _fits(part: str, word: str) -> bool:
    if part.endswith("*"):
        part, word = part[:-1], word[: len(part) - 1]
    return part == word or (
        "#" in part
        and len(part) == len(word)
        and all(c.isdecimal() if p == "#" else p == c for p, c in zip(part, word, strict=True))
    )
