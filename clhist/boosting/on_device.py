"""Rows of binned features on a device, where trees are grown: sums of bins, best splits, and the rows of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.spi import OutOfMemoryError, memory_budget
from clhist.boosting.binned_rows import FLOAT, BinnedRows, Node
from clhist.boosting.kernels import CHILD, FOUND, SPLIT

_NO_SET = (0,) * 8
# Slots for the sums of nodes: their limits, and the part of the memory budget (a quarter) that they may use.
_MOST_SLOTS, _FEWEST_SLOTS, _PART_OF_MEMORY = 1024, 8, 4


@dataclass(frozen=True)
class NodeSplit:
    """The split of a node's rows.

    Attributes
    ----------
    node, left, right : Node
        The node and what becomes of it.
    feature, bin : int
        Rows up to this bin of the feature are on the left.
    missing_left : bool
        Whether those in the last bin are, too.
    categories : array of uint32 of shape (8,), optional
        The set of the bins whose rows are on the left, in the place of these.
    """

    node: Node
    left: Node
    right: Node
    feature: int
    bin: int
    missing_left: bool
    categories: np.ndarray | None = None

    def row(self) -> tuple[Any, ...]:
        """Return it as the kernel takes it."""
        if self.categories is None:
            return self.left.rows, self.feature, self.bin, int(self.missing_left), _NO_SET
        return self.left.rows, self.feature, 256, 0, self.categories


class DeviceRows(BinnedRows):
    """Rows of binned features on a device, where trees are grown one after the other.

    Parameters
    ----------
    queue, binned, n_bins : object
        As of `BinnedRows`; `binned` is of NumPy.
    hessians : bool
        Whether rows have hessians, or all have 1.
    most_slots : int
        Of nodes whose sums are needed at once.

    Raises
    ------
    MemoryError
        If the device has no room.
    """

    def __init__(
        self, queue: cl.CommandQueue, binned: np.ndarray, n_bins: int, hessians: bool, most_slots: int = _MOST_SLOTS
    ) -> None:
        super().__init__(queue, binned, n_bins, [FLOAT] * (1 + hessians))
        most_bytes = memory_budget(queue.device) // _PART_OF_MEMORY
        self.slots = max(_FEWEST_SLOTS, min(most_slots, most_bytes // (8 * self.size)))
        self._sums = self._slots_on_device()
        self.partition = np.zeros(self.rows, np.uint32)  # of the tree that grew last, if it was asked for
        # Rows of nodes of even and of odd depth: a split reads one list and writes the other.
        self._lists = [self.chain.new(self.rows, np.uint32) for _ in range(2)]
        self._free = list(range(self.slots))

    def _slots_on_device(self) -> Any:
        while True:
            try:
                return self.chain.new(self.slots * self.size, np.int64)
            except OutOfMemoryError:
                # The budget is an estimate: halve the slots until the allocation succeeds.
                if self.slots == _FEWEST_SLOTS:
                    raise
                self.slots = max(_FEWEST_SLOTS, self.slots // 2)

    def begin(self, gradients: np.ndarray | None, hessians: np.ndarray | None) -> Node:
        """Take the gradients of another tree, float32 of as many rows, and return its root, with its sums.

        Without them, those that a loss has written are taken.

        Raises
        ------
        ValueError
            If one is not finite.
        """
        self._free = list(range(self.slots))
        self.take(gradients, hessians)
        self.run("number", self._lists[0], self.rows)
        root = Node(0, self.rows, 0, self._free.pop(), 0, self.rows, 0.0)
        self.sweep([root], self._sums, [None, None])
        self.find_units()
        # Each row is in one bin of every feature, so the sums over the bins of the first one are those of all rows.
        counts = self._first_feature(root)
        root.gradients = int(counts[1].sum())
        root.hessians = int(counts[2].sum()) if self.has_hessians else self.rows
        return root

    def _first_feature(self, node: Node) -> np.ndarray:
        """Return the sums of the first feature, as integers of shape (sums, n_bins)."""
        shape, step = (self.spec.sums, self.n_bins), 8 * self.features * self.n_bins
        assert node.slot is not None
        return self.chain.fetched_rows(self._sums, shape, np.int64, 8 * node.slot * self.size, step)

    def sums(self, node: Node) -> np.ndarray:
        """Return the sums of a node as int64 of shape (sums, features, n_bins): rows, gradients, hessians."""
        assert node.slot is not None
        sums = self.fetched(self._sums, self.size, np.int64, 8 * node.slot * self.size)
        return sums.reshape(self.spec.sums, self.features, self.n_bins)

    def release(self, node: Node) -> None:
        """Let others have the memory of a node's sums."""
        if node.slot is not None:
            self._free.append(node.slot)
            node.slot = None

    @property
    def free(self) -> int:
        """The number of nodes that memory is left for."""
        return len(self._free)

    def split(self, splits: Sequence[NodeSplit], *, sums: Sequence[bool]) -> None:
        """Move the rows of nodes to their children and, where asked for, give both children their sums.

        The larger child takes the memory of the node's sums. Without these, both need memory.
        """
        table = np.array([split.row() for split in splits], SPLIT)
        # Counters of the rows that each node has moved to its left and right child.
        filled = self.chain.filled(2 * len(splits), np.uint32, 0)
        arguments = [self.sent(table), *self._lists, filled, self.n_bins - 1]
        self._of_nodes("split", [split.node for split in splits], [self._by_feature, self.rows], *arguments)
        swept, subtracted = [], []
        for split, is_wanted in zip(splits, sums, strict=True):
            if not is_wanted:
                continue
            # Sum only the smaller child; the larger one is the sums of the node less these, in place.
            small, large = sorted((split.left, split.right), key=lambda node: node.rows)
            small.slot = self._free.pop()
            swept.append(small)
            if split.node.slot is None:
                large.slot = self._free.pop()
                swept.append(large)
            else:
                large.slot, split.node.slot = split.node.slot, None
                subtracted.append((large.slot, small.slot))
        self.sweep(swept, self._sums, self._lists)
        if subtracted:
            self._of_slots("subtract", np.array(subtracted, np.uint64), self._sums)

    def best(
        self, nodes: Sequence[Node], bins_of: Any, has_missing: Any, limits: tuple[int, float, float, float]
    ) -> np.ndarray:
        """Return the best split of each feature of each node, of `FOUND` and of shape (nodes, features).

        Parameters
        ----------
        nodes : sequence of Node
            With their sums.
        bins_of, has_missing : memory
            Of each feature, uint32 and uint8: how many bins it uses, and whether the last of all has rows.
        limits : tuple
            The fewest rows, the least sum of hessians, the least gain, and the L2 regularization.
        """
        table = np.array([(node.slot, node.rows, node.gradients, node.hessians, node.value) for node in nodes], CHILD)
        number = len(nodes) * self.features
        best = self.chain.new(number, FOUND)
        arguments = [self._sums, self.sent(table), bins_of, has_missing, self._largest, self.bits, self.features]
        self.chain.run(self._kernels["find"], number, self.spec.seekers, [*arguments, *limits, best])
        return self.fetched(best, number, FOUND).reshape(len(nodes), self.features)

    def leaf_of_rows(self, nodes: Sequence[Node], leaves: np.ndarray, most: int) -> np.ndarray:
        """Return the number of the leaf of each row; `nodes` have all rows, of these leaves, each less than `most`."""
        # The narrowest type: fewer bytes are copied to the host.
        dtype = np.min_scalar_type(most - 1)
        numbers = self.chain.new(self.rows, dtype)
        self._of_nodes("leaves", nodes, [], *self._lists, dtype.itemsize, numbers, slots=leaves)
        return self.fetched(numbers, self.rows, dtype)

    def add_values(self, nodes: Sequence[Node], leaves: np.ndarray, values: np.ndarray, predictions: Any) -> None:
        """Add to the predictions of rows, float64 on the device, the values of their leaves; see `leaf_of_rows`."""
        self._of_nodes("predict", nodes, [], *self._lists, self.sent(values), predictions, slots=leaves)

    def fetch(self, memory: Any, to: np.ndarray) -> None:
        """Copy memory to an array of the host."""
        cl.enqueue_copy(self.chain.queue, to, memory, wait_for=self.chain.events, is_blocking=True)
