"""Random calls, compared with the host, for as long as one likes: what `clhist selftest --soak` runs in a clone.

`calls` and `operators` draw them, `program` writes them as programs, and `processes` runs these.
"""
