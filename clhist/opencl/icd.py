"""OpenCL runtimes that pip installed but could not register.

The loader inside PyOpenCL's wheels reads /etc/OpenCL/vendors and finds PoCL beside itself. Intel's CPU runtime from
PyPI (``intel-opencl-rt``) is found by neither: the path in its own .icd file is that of its build machine.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
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
    entries = {entry.name: entry.read_text(encoding="utf-8") for entry in sorted(SYSTEM_VENDORS.glob("*.icd"))}
    entries["zz-intel-cpu.icd"] = f"{runtime}\n"
    # A folder for each content: what another process reads is never written again.
    content = hashlib.sha256(repr(entries).encode()).hexdigest()[:16]
    vendors = platformdirs.user_cache_path("clhist") / "vendors" / content
    try:
        if not vendors.is_dir():
            vendors.parent.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(dir=vendors.parent))
            for name, text in entries.items():
                (made / name).write_text(text, encoding="utf-8")
            try:
                made.rename(vendors)
            except OSError:  # another process was faster
                shutil.rmtree(made, ignore_errors=True)
        if vendors.is_dir():
            os.environ["OCL_ICD_VENDORS"] = str(vendors)
    except OSError:
        return
