"""Draw the pictures of docs/gallery.md and of how-to pages: ``python docs/gallery/draw.py [PICTURE...]``."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
PAGE = (HERE.parent / "gallery.md").read_text(encoding="utf-8")
HOWTO = HERE.parent / "howto"
ENGINES = ("zones", "radial-distribution", "azimuthal-integration")  # pages whose code draws one, with other packages
WIDTH, QUALITY = 900, 85  # pixels of a picture on the page, and how exact WebP is: small files


def main(wanted: list[str]) -> None:
    """Run the page's Python and its commands where files may be made, and keep the pictures."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for code in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
            exec(code, {})
        for command in re.findall(r"^    clhist (.*)$", PAGE, re.MULTILINE):
            arguments = shlex.split(command)
            picture = Path(arguments[arguments.index("--plot") + 1])
            if wanted and picture.name not in wanted:
                continue
            print(f"clhist {command}", flush=True)
            subprocess.run([sys.executable, "-m", "clhist", *arguments], check=True)
            keep(picture, HERE)
        for name in ENGINES:
            if not wanted or f"{name}.png" in wanted:
                text = (HOWTO / f"{name}.md").read_text(encoding="utf-8")
                exec("\n".join(re.findall(r"^    (.*)$", text, re.MULTILINE)), {})
                keep(Path(f"{name}.png"), HOWTO)


def keep(picture: Path, folder: Path) -> None:
    """Copy a picture beside the page; one of pixels smaller."""
    target = folder / picture.name
    if picture.suffix == ".svg":
        target.write_bytes(picture.read_bytes())
        return
    with Image.open(picture) as image:
        flat = Image.new("RGB", image.size, "white")
        flat.paste(image, mask=image.getchannel("A") if image.mode == "RGBA" else None)
    if flat.width > WIDTH:
        flat = flat.resize((WIDTH, round(flat.height * WIDTH / flat.width)), Image.Resampling.LANCZOS)
    flat.save(target.with_suffix(".webp"), quality=QUALITY, method=6)


if __name__ == "__main__":
    main(sys.argv[1:])
