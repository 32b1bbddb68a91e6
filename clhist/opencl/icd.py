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
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from clhist.opencl.caches import temporary_directory

SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")


def register_installed_runtimes() -> None:
    """Let the OpenCL loader see Intel's CPU runtime in this environment, beside all that it sees anyway.

    Works by ``OCL_ICD_VENDORS``, and so only before the first OpenCL call of the process. Does nothing if the caller
    has set that variable, or if the runtime is not installed. What the loader reads is in the user's cache directory,
    or in a temporary one if that cannot be written.
    """
    runtime = Path(sys.prefix) / "lib" / "libintelocl.so"
    if "OCL_ICD_VENDORS" in os.environ or not runtime.is_file():
        return
    entries = {entry.name: entry.read_text(encoding="utf-8") for entry in sorted(SYSTEM_VENDORS.glob("*.icd"))}
    entries["zz-intel-cpu.icd"] = f"{runtime}\n"
    # A folder for each content: what another process reads is never written again.
    content = hashlib.sha256(repr(entries).encode()).hexdigest()[:16]
    try:
        try:
            vendors = _written(platformdirs.user_cache_path("clhist") / "vendors" / content, entries)
        except OSError:
            vendors = _written(temporary_directory() / "vendors" / content, entries)
    except OSError:
        return
    os.environ["OCL_ICD_VENDORS"] = str(vendors)


def _written(vendors: Path, entries: Mapping[str, str]) -> Path:
    """Return the folder `vendors`, which has these `entries`; raises OSError if it cannot be written."""
    if not vendors.is_dir():
        vendors.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=vendors.parent))
        try:
            for name, text in entries.items():
                (made / name).write_text(text, encoding="utf-8")
            made.rename(vendors)
        except OSError:
            shutil.rmtree(made, ignore_errors=True)
            if not vendors.is_dir():  # or another process was faster
                raise
    return vendors
