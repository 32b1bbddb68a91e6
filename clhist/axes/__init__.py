"""Axes of bins: from edges to keys, to a search in C. Nothing here knows a device; all of it is arithmetic and text.

`thresholds` turns edges into ordered integer keys (`keys`) by the comparison of a reference library; `guess` makes the
tables of a search; `edges`, `kinds` and `block_search` have its C; `axis` and `pieces` make an axis ready for a kernel.
"""
