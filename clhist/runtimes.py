"""OpenCL runtimes that pip installed but could not register.

The loader inside PyOpenCL's wheels reads /etc/OpenCL/vendors and finds PoCL beside itself. Intel's CPU runtime from
PyPI (``intel-opencl-rt``) is found by neither: the path in its own .icd file is that of its build machine.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import platformdirs

SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")


def register_installed_runtimes() -> None:
    """Let the OpenCL loader see Intel's CPU runtime in this environment, beside all that it sees anyway.

    Works by ``OCL_ICD_VENDORS``, and so only before the first OpenCL call of the process. Does nothing if the caller
    has set that variable, or if the runtime is not installed, or if the user's cache directory cannot be written.
    """
    runtime = Path(sys.prefix) / "lib" / "libintelocl.so"
    if "OCL_ICD_VENDORS" in os.environ or not runtime.is_file():
        return
    environment = hashlib.sha256(sys.prefix.encode()).hexdigest()[:16]
    vendors = platformdirs.user_cache_path("clhist") / "vendors" / environment
    try:
        vendors.mkdir(parents=True, exist_ok=True)
        known = {entry.name: entry for entry in SYSTEM_VENDORS.glob("*.icd")}
        for entry in vendors.glob("*.icd"):
            if entry.name not in known:
                entry.unlink(missing_ok=True)
        for name, entry in known.items():
            shutil.copyfile(entry, vendors / name)
        (vendors / "zz-intel-cpu.icd").write_text(f"{runtime}\n", encoding="utf-8")
    except OSError:
        return
    os.environ["OCL_ICD_VENDORS"] = str(vendors)
