"""Measures of the house as a table: its size, its floors, how far a call goes, how long its tests are.

``python .ci/house.py`` from the root of the repository prints the table, and fails if a measure of the structure
(floors, import cycles, upward imports, branches) exceeds its limit. Repeated calls need a device: ``--text`` leaves
them out.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

PACKAGE = Path("clhist")
BESIDE = {"cases", "strategies"}  # folders of a checkout that are installed as packages of it
CORE = "_core"
OUTSIDE = {"selftest", "calibration", *BESIDE}  # of the core
N = 70_000  # elements of a repeated call


def modules(*, core: bool = False) -> Iterator[tuple[str, Path]]:
    """Yield the modules of the package, those of its core alone if asked for."""
    files = {path: path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py"))}
    files |= {path: path for folder in sorted(BESIDE) for path in sorted(Path(folder).rglob("*.py"))}
    for path, name in files.items():
        parts = name.with_suffix("").parts
        if not (core and parts[0] in OUTSIDE):
            yield ".".join(("clhist", *(part for part in parts if part != "__init__"))), path


# Limits of the structure. Lines and frames are reported, not judged: an honest addition must not fail the lint stage.
LIMITS = {
    "floors": 11,
    "modules in circles": 0,
    "imports that run up": 0,
    "most branches of a function": 20,
}


def number_of_lines(paths: Iterator[Path]) -> int:
    """Return the lines of all files together."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def room_of(module: str) -> str:
    """Return the part of the package that a module is in."""
    parts = module.split(".")[1:] or [module]
    return ".".join(parts[: 2 if parts[0] == CORE else 1])


def imports() -> dict[str, set[str]]:
    """Return for each module those that it depends on, whatever the way.

    That is by an import, at once or later; by ``import_module``; by a name of the package, as ``clhist.histogram`` is;
    and by a global of its own that another module sets.
    """
    files = dict(modules())
    public = public_names()
    found: dict[str, set[str]] = {module: set() for module in files}
    for module, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes = list(ast.walk(tree))
        skipped = {id(each) for node in nodes if is_for_types(node) for each in ast.walk(node)}
        nodes = [node for node in nodes if id(node) not in skipped]
        local: dict[str, str] = {}  # modules by the names that they have here
        for node in nodes:
            for name, other in named(node, files):
                found[module].add(other)
                local[name] = other
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                other = local.get(node.value.id, "")
                if other == "clhist" and node.attr in public:
                    found[module].add(public[node.attr])
                elif other in files and isinstance(node.ctx, ast.Store):
                    found[other].add(module)
    return {module: others & files.keys() - {module, "clhist"} for module, others in found.items()}


def public_names() -> dict[str, str]:
    """Return the modules in which the names of the package itself are."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (homes,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and "_HOMES" in ast.unparse(node.targets[0])
    )
    return {name: f"clhist.{home}" for name, home in ast.literal_eval(homes).items()}


def is_for_types(node: ast.AST) -> bool:
    """Whether a block is for type checkers alone."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def named(node: ast.AST, files: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the names that a node binds to modules, or to what is in them, and these modules."""
    if isinstance(node, ast.ImportFrom) and node.module:
        for each in node.names:
            inner = f"{node.module}.{each.name}"
            yield each.asname or each.name, inner if inner in files else node.module
    elif isinstance(node, ast.Import):
        yield from ((each.asname or each.name, each.name) for each in node.names)
    elif isinstance(node, ast.Call) and node.args and called(node).endswith("import_module"):
        (name, *_) = node.args
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield "", name.value


def called(node: ast.Call) -> str:
    """Return the last name of what is called."""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def layers() -> list[list[str]]:
    """Return the rooms of each floor as the import contract has them, the top one first."""
    import tomllib

    contracts = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    outer, core = ([floor.split("|") for floor in each["layers"]] for each in contracts if each["type"] == "layers")
    above = [[room.strip() for room in floor] for floor in outer]
    place = above.index([CORE])
    return [*above[:place], *([f"{CORE}.{room.strip()}" for room in floor] for floor in core), *above[place + 1 :]]


def floors() -> tuple[int, list[str], list[str]]:
    """Return the floors that the rooms need, the modules in circles, and the imports that run up."""
    contract = {room: n for n, floor in enumerate(layers()) for room in floor}
    graph = imports()
    rooms: dict[str, set[str]] = defaultdict(set)
    up = set()
    for module, others in graph.items():
        for other in others:
            one, two = room_of(module), room_of(other)
            if contract.get(two, -1) < contract.get(one, len(contract)) and one in contract and two in contract:
                up.add(f"{module} -> {other}")
            elif one != two:
                rooms[one].add(two)
    in_circles = [module for module in graph if module in reached(graph, module)]

    def height(room: str) -> int:
        return 1 + max((height(other) for other in rooms[room]), default=0)

    return max(height(room) for room in contract), sorted(in_circles), sorted(up)


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    """Return the modules that imports lead to from `start`."""
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += graph.get(module, ())
    return found


BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.comprehension, ast.Assert, ast.match_case)


def branches(function: ast.AST) -> int:
    """Return the branches of a function, those of nested ones included."""
    found = 1
    for node in ast.walk(function):
        found += isinstance(node, BRANCHES) + (len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0)
    return found


def worst_function() -> tuple[int, str]:
    """Return the most branches that a function has, and which."""
    return max(
        (branches(node), f"{module}.{node.name}")
        for module, path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    )


def frames(call: Callable[[], Any]) -> tuple[int, int]:
    """Return how many of our own Python frames a repeated call has, and of how many modules."""
    for _ in range(6):
        call()
    seen: Counter[str] = Counter()
    own = f"{PACKAGE.resolve()}/"

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(own):
            seen[frame.f_code.co_filename] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return sum(seen.values()), len(seen)


def repeated_calls() -> dict[str, tuple[int, int]]:
    """Return the frames and modules of calls that are made again and again."""
    import numpy as np
    import pyopencl.array as cl_array

    import clhist

    rng = np.random.default_rng(0)
    x, bins = rng.random(N), rng.integers(0, 1000, N)
    kernel = clhist.HistogramKernel(
        None, clhist.operators.add(np.int32), arguments="const long *x", map="EMIT(x[i], 1)"
    )
    on_device = cl_array.to_device(clhist.default_queue(), bins)
    bound = kernel.bind(on_device, num_bins=1000)
    x_on_device, statistics = cl_array.to_device(clhist.default_queue(), x), ("sum", "mean", "var", "min", "max")
    return {
        "bincount, NumPy": frames(lambda: clhist.bincount(bins)),
        "histogram(x, bins=100), NumPy": frames(lambda: clhist.histogram(x, bins=100)),
        "HistogramKernel, NumPy": frames(lambda: kernel(bins, num_bins=1000)),
        "HistogramKernel, device": frames(lambda: kernel(on_device, num_bins=1000)),
        "Bound, device": frames(bound),
        "group_by.agg, NumPy": frames(lambda: clhist.group_by(bins, 1000).agg(x=(x, *statistics))),
        "group_by.agg, device": frames(lambda: clhist.group_by(on_device, 1000).agg(x=(x_on_device, *statistics))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", action="store_true", help="nothing that needs a device")
    asked = parser.parse_args()
    number, circles, arrows = floors()
    most, name = worst_function()
    tests = Path("tests")
    golden = [path for path in (tests / "unit" / "golden").rglob("*") if path.is_file()]
    rows = {
        "lines of the core": (number_of_lines(path for _, path in modules(core=True)), ""),
        "floors": (number, ""),
        "modules in circles": (len(circles), ", ".join(circles)),
        "imports that run up": (len(arrows), ", ".join(arrows)),
        "most branches of a function": (most, name),
        "lines of golden text": (number_of_lines(iter(golden)), ""),
        "lines of tests": (number_of_lines(tests.rglob("*.py")), ""),
    }
    if not asked.text:
        for call, (count, files) in repeated_calls().items():
            rows |= {f"frames: {call}": (count, ""), f"modules: {call}": (files, "")}
    width = max(map(len, rows))
    print(f"{'':{width}}  {'now':>6}  {'limit':>6}")
    for what, (value, words) in rows.items():
        limit = f"{LIMITS[what]:,}" if what in LIMITS else ""
        print(f"{what:{width}}  {value:>6,}  {limit:>6}  {words}".rstrip())
    if over := [what for what, limit in LIMITS.items() if what in rows and rows[what][0] > limit]:
        sys.exit(f"over the limit: {', '.join(over)}")


if __name__ == "__main__":
    main()
