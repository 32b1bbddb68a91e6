"""The version, in one place: the package, its metadata and the documentation read it here."""

__version__ = "1.0.0rc1"
