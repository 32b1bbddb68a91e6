"""Faults that compilers must not make in a spinlock on an AMD GPU, read from the instructions of a program.

A wave's lanes share one program counter. Lanes that lose the race for a lock go around once more, while those that won
it are masked; so the lock has to be released inside the loop in which it is taken. clang 16 and 19 move a release that
is apart from the loop's condition behind the loop (`atomic_xchg(lock, 0); done = 1;`), and then it hangs. And a lock in
global memory keeps what it guards only if the loads behind it go around the compute unit's cache, or empty it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

_EXCHANGE = re.compile(r"ds_(wrxchg|storexchg)_rtn_b32|(global|flat|buffer)_atomic_swap(_b32)?\b")
_GLOBAL_EXCHANGE = re.compile(r"(global|flat|buffer)_atomic_swap")
_INVALIDATE = re.compile(r"buffer_(wbinvl1|gl0_inv|inv)|global_inv")
_GLOBAL_LOAD = re.compile(r"(global|flat)_load")
_AROUND = re.compile(r"\b(glc|sc0|sc1|scope:\w+)")
_BRANCH = re.compile(r"s_c?branch\w*\s")
_ENDS = re.compile(r"s_(branch|endpgm|setpc|trap)")
_LABEL, _LABELLED = re.compile(r"^(\.?\w+):"), re.compile(r"s_c?branch\w*\s+(\.\w+)")
_LISTED = re.compile(r"^\s+(\S.*?)\s*// ([0-9A-F]{12}):(?:.*<(\w+)\+0x([0-9a-f]+)>)?")
_NAMED = re.compile(r"^([0-9a-f]{16}) <(\w+)>:")


class Instruction(NamedTuple):
    """One instruction: where it is, what it is, and where it branches to, if so."""

    address: int
    text: str
    target: int | None = None


def of_assembly(text: str) -> list[Instruction]:
    """Return the instructions of what ``clang -S`` writes; addresses are numbers of lines."""
    lines = text.splitlines()
    labels = {found[1]: k for k, line in enumerate(lines) if (found := _LABEL.match(line))}
    listed = []
    for k, line in enumerate(lines):
        if re.match(r"\s+[a-z]\w*_", line):
            branch = _LABELLED.search(line)
            listed.append(Instruction(k, line.strip(), labels.get(branch[1]) if branch else None))
    return listed


def of_disassembly(text: str) -> list[Instruction]:
    """Return the instructions of what ``llvm-objdump -d`` writes."""
    starts, listed = {}, []
    for line in text.splitlines():
        if named := _NAMED.match(line):
            starts[named[2]] = int(named[1], 16)
    for line in text.splitlines():
        if found := _LISTED.match(line):
            is_branch = _BRANCH.match(found[1]) and found[3] in starts
            listed.append(
                Instruction(int(found[2], 16), found[1], starts[found[3]] + int(found[4], 16) if is_branch else None)
            )
    return listed


def lock_faults(program: Sequence[Instruction]) -> list[str]:
    """Return what is wrong with the spinlocks of a program: nothing, if it has none.

    Parameters
    ----------
    program : sequence of Instruction
        Of one or more kernels, in order.
    """
    graph, wrong = _Graph(program), []
    exchanges = [k for k, each in enumerate(program) if _EXCHANGE.search(each.text)]
    for k in exchanges:
        loop = graph.innermost_loop(k)
        if not loop:  # tried once, or a release: what is wrong about that shows where the lock is taken
            continue
        where = f"{program[k].text.split('//')[0].strip()} at {program[k].address:#x}"
        inside = [program[each].text for each in loop]
        if sum(each in loop for each in exchanges) < 2:
            wrong.append(f"{where}: the lock is taken in a loop that does not release it, so it hangs")
        elif _GLOBAL_EXCHANGE.search(program[k].text):
            loads = [text for text in inside if _GLOBAL_LOAD.search(text)]
            if loads and not any(map(_INVALIDATE.search, inside)) and not any(map(_AROUND.search, loads)):
                wrong.append(f"{where}: what the lock guards is loaded from a cache that may be old")
    return wrong


class _Graph:
    """Which instruction may follow which."""

    def __init__(self, program: Sequence[Instruction]) -> None:
        at = {each.address: k for k, each in enumerate(program)}
        where = sorted(at)
        self.next: list[set[int]] = [set() for _ in program]
        self.before: list[set[int]] = [set() for _ in program]
        for k, each in enumerate(program):
            if k + 1 < len(program) and not _ENDS.match(each.text):
                self.next[k].add(k + 1)
            if each.target is not None and (place := bisect_left(where, each.target)) < len(where):
                self.next[k].add(at[where[place]])  # in assembly a label is before its instruction
            for follower in self.next[k]:
                self.before[follower].add(k)

    def innermost_loop(self, k: int) -> set[int]:
        """Return the instructions of the smallest loop around one; none if there is no loop."""
        loop: set[int] = set()
        nodes = set(range(len(self.next)))
        while True:
            found = self._reached(k, self.next, nodes) & self._reached(k, self.before, nodes)
            if k not in found:  # in no cycle
                return loop
            loop = found
            entries = {node for node in loop if not self.before[node] <= loop}
            if not entries or k in entries:
                return loop
            nodes = loop - entries

    @staticmethod
    def _reached(k: int, edges: Sequence[set[int]], nodes: set[int]) -> set[int]:
        """Return what can be reached by at least one edge without leaving `nodes`."""
        found: set[int] = set()
        waiting = list(edges[k] & nodes)
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += edges[node] & nodes
        return found
