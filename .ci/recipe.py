"""Check that the conda recipe says of the package what pyproject.toml says: ``python .ci/recipe.py conda/recipe.yaml``.

rattler-build renders it, but does not build: that needs conda's own packages.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig

ROOT = Path(__file__).parents[1]


def requirements(lines: list[str]) -> dict[str, str]:
    """Return the version specifier of each package, without spaces."""
    found = (re.fullmatch(r"([\w-]+)\s*(.*)", line.strip()) for line in lines)
    return {match[1].lower(): match[2].replace(" ", "") for match in found if match}


# Of each system: the loader of drivers, what shows it the system's own, and what conda calls the system.
LOADERS = {
    "linux-64": {"__linux", "ocl-icd", "ocl-icd-system"},
    "osx-arm64": {"__osx", "khronos-opencl-icd-loader", "ocl_icd_wrapper_apple"},
    "win-64": {"__win", "khronos-opencl-icd-loader"},
}


def problems(recipe: dict, project: dict, version: str, loaders: set[str]) -> list[str]:
    """Return what differs, on a system with these loaders."""
    run, host = (requirements(recipe["requirements"][part]) for part in ("run", "host"))
    wanted = requirements(project["project"]["dependencies"]) | {"python": project["project"]["requires-python"]}
    build = requirements(project["build-system"]["requires"])
    (script,) = project["project"]["scripts"].items()
    pairs = {
        "name": (recipe["package"]["name"], project["project"]["name"]),
        "version": (recipe["package"]["version"], version),
        "run": ({name: run.get(name) for name in wanted}, wanted),
        "host": ({name: host.get(name) for name in build}, build),
        "entry_points": (recipe["build"]["python"]["entry_points"], [" = ".join(script)]),
        "summary": (recipe["about"]["summary"], project["project"]["description"]),
        "license": (recipe["about"]["license"], project["project"]["license"]),
    }
    found = [f"{key}: expected {wanted!r}, got {given!r}" for key, (given, wanted) in pairs.items() if given != wanted]
    more = run.keys() - wanted.keys()
    if more != loaders:
        found.append(f"run: expected besides pyproject.toml's {sorted(loaders)}, got {sorted(more)}")
    if not any("pocl" in test.get("requirements", {}).get("run", []) for test in recipe["tests"]):
        found.append("tests: expected pocl among what one of them runs with, which has no device otherwise")
    found += [f"license_file: no {name}" for name in recipe["about"]["license_file"] if not (ROOT / name).exists()]
    return found


def main() -> int:
    """Print what differs; 1 if anything does."""
    recipe = Stage0Recipe.from_file(str(ROOT / sys.argv[1]))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    scope: dict[str, str] = {}
    exec((ROOT / "clhist" / "_version.py").read_text(encoding="utf-8"), scope)
    found = []
    for system, loaders in LOADERS.items():
        (rendered,) = recipe.render(VariantConfig(), RenderConfig(platform=PlatformConfig(target_platform=system)))
        different = problems(rendered.recipe.to_dict(), project, scope["__version__"], loaders)
        found += [f"{system}: {words}" for words in different]
    print("\n".join(found) or f"{sys.argv[1]} agrees with pyproject.toml")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
