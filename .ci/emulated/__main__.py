"""Execute clhist's kernels on AMD GPUs that are not here.

    python .ci/emulated [TARGET ...] [--part PART ...] [--case REGEX] [--seed N] [--full]
    python .ci/emulated gfx942 --pytest "tests/device/test_partition.py -k sizes"

Without targets these are gfx942, gfx1100 and gfx1200, two of which run at a time; `--full` takes the others, and the
whole self-test, besides. `.ci/emulated/prepare` says what is needed. The exit status is 1 if anything is wrong, hangs,
accesses what it must not, or needs an instruction that the emulator lacks.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# At the end: what is in .ci must not hide packages.
sys.path[:] = [*(each for each in sys.path if Path(each).resolve() != HERE), str(HERE.parent), str(HERE.parents[1])]

from emulated.run import main  # noqa: E402

sys.exit(main())
