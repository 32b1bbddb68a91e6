"""The checks of `clhist selftest`, which the tests run, too: operators, inputs and references.

`reference` says by brute force what a histogram should be, `cases` has operators with values for them, `inputs` has
bins, `updates` and `forms` yield checks of all that a device can be asked for.
"""

import warnings

# Checks and random calls force more copies than there are work-items, on purpose.
warnings.filterwarnings("ignore", r"(copies|work_group_size|passes): \d+ requested", UserWarning)
