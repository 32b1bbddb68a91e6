"""OpenCL runtimes that pip installed but could not register.

The loader inside PyOpenCL's wheels reads /etc/OpenCL/vendors and finds PoCL beside itself. Intel's CPU runtime from
PyPI (``intel-opencl-rt``) is found by neither: the path in its own .icd file is that of its build machine.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")


def register_installed_runtimes() -> None:
    """Let the OpenCL loader see Intel's CPU runtime in this environment, beside all that it sees anyway.

    Works by ``OCL_ICD_VENDORS``, and so only before the first OpenCL call of the process. Does nothing if the caller
    has set that variable, or if the runtime is not installed.
    """
    runtime = Path(sys.prefix) / "lib" / "libintelocl.so"
    if "OCL_ICD_VENDORS" in os.environ or not runtime.is_file():
        return
    vendors = Path(tempfile.mkdtemp(prefix="clhist-vendors-"))
    atexit.register(shutil.rmtree, vendors, ignore_errors=True)
    for entry in sorted(SYSTEM_VENDORS.glob("*.icd")):
        shutil.copy(entry, vendors)
    (vendors / "zz-intel-cpu.icd").write_text(f"{runtime}\n", encoding="utf-8")
    os.environ["OCL_ICD_VENDORS"] = str(vendors)
