"""scikit-learn's grower of trees with the work on rows done on a device: its rules, and its tree."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import heappush
from itertools import repeat
from math import inf, ldexp
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble._hist_gradient_boosting.common import HISTOGRAM_DTYPE
from sklearn.ensemble._hist_gradient_boosting.grower import TreeGrower, TreeNode
from sklearn.ensemble._hist_gradient_boosting.splitting import SplitInfo

from clhist.boosting.binned_rows import Node, check_finite, unit_of
from clhist.boosting.on_device import DeviceRows, NodeSplit


def in_units(values: np.ndarray, name: str = "gradients") -> np.ndarray:
    """Return float32 values rounded to units of which float64 has all their sums exactly, as a device rounds them.

    Raises
    ------
    ValueError
        If one is not finite.
    """
    largest = np.abs(values).max(initial=0)
    check_finite(name, largest)
    unit = unit_of(float(largest), len(values))
    return np.ldexp(np.rint(np.ldexp(values.astype(np.float64), -unit)), unit).astype(np.float32)


class _Splitter:
    """The splitter of a grower: returns both parts of a node's rows, at the places where the device will put them."""

    def __init__(self, splitter: Any, partition: np.ndarray) -> None:
        self.find_node_split = splitter.find_node_split
        self.min_hessian_to_split = splitter.min_hessian_to_split
        self.partition = partition

    def split_indices(self, split_info: Any, sample_indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        left = split_info.n_samples_left
        return sample_indices[:left], sample_indices[left:], left


class _NoHistograms:
    """The builder of histograms that a grower calls; the histograms themselves are on the device."""

    def compute_histograms_brute(self, *_: Any) -> None: ...

    def compute_histograms_subtraction(self, *_: Any) -> None: ...


# Slots reserved for the next node: those of nodes that were split ahead of their turn cannot be taken back.
_SPARE = 2
_Key = tuple[int, int]  # of a node: where its rows are


class _SplitCandidate(NamedTuple):
    """A node that could be split on the device, how, and the least gain of it and those above it."""

    node: Node
    info: SplitInfo
    least: float


class _Planned(NamedTuple):
    """A node that is split on the device, and whether its children get sums."""

    candidate: _SplitCandidate
    split: NodeSplit
    has_sums: bool


class DeviceTreeGrower(TreeGrower):
    """Grows one tree; scikit-learn's ``TreeGrower``, whose arguments, rules and results it has.

    Rows are split and histograms made on the device, of many nodes at once: of those that are likely to be split, and
    of those below them. The best splits are found there too, or by scikit-learn's own splitter where features are
    categorical, constrained or drawn at random. Both get the same sums, and do the same operations on them.

    Parameters
    ----------
    X_binned : uint8 array of shape (n_samples, n_features)
        Column after column.
    gradients, hessians : float32 array of shape (n_samples,)
        Hessians may be one number for all.
    device_rows : DeviceRows
        The same features on the device.
    has_gradients : bool
        Whether it has the gradients already, in the place of these.
    **options : object
        As of ``TreeGrower``.

    Raises
    ------
    ValueError
        If a gradient is not finite.
    """

    def __init__(
        self,
        X_binned: np.ndarray,
        gradients: np.ndarray,
        hessians: np.ndarray,
        *,
        device_rows: DeviceRows,
        has_gradients: bool = False,
        **options: Any,
    ) -> None:
        limits = (options.get(f"min_{name}_to_split", 0) for name in ("gain", "hessian"))
        self._validate_parameters(X_binned, *limits)
        self._on_device, self._start = device_rows, perf_counter()
        self.splitter: Any
        self._given = () if has_gradients else (gradients, hessians)[: 1 + device_rows.has_hessians]
        self._nodes: dict[_Key, Node] = {}  # of which rows are apart on the device
        # The best splits of nodes that are not in the tree yet.
        self._infos: dict[_Key, SplitInfo] = {}
        self._candidates: dict[_Key, _SplitCandidate] = {}
        # Nodes that the device has split ahead of their turn, with the least gain of each and of the nodes above it.
        self._ahead: dict[_Key, float] = {}
        self.seconds = 0.0
        # What the base class makes for all rows is not used, but it asks whether hessians are constant.
        few = hessians[: 2 if device_rows.has_hessians else 1]
        super().__init__(np.asfortranarray(X_binned[:1]), gradients[: len(few)], few, **options)
        self.X_binned = X_binned

    def _initialize_root(self) -> None:
        device = self._on_device
        splitter: Any = self.splitter  # scikit-learn's
        self._least_gain = splitter.min_gain_to_split
        is_plain = self.interaction_cst is None and not self.with_monotonic_cst and not self.is_categorical.any()
        self._is_found_there = is_plain and device.spec.doubles and splitter.feature_fraction_per_split == 1
        self.splitter, self.histogram_builder = _Splitter(splitter, device.partition), _NoHistograms()
        # Facts about features that the device reads for every node, sent once a tree.
        if self._is_found_there:
            self._of_features = device.sent(self.n_bins_non_missing), device.sent(self.has_missing_values)
        root = device.begin(*self._given, *[None] * (2 - len(self._given)))
        self._nodes[0, device.rows] = root
        self._units = *device.units, *[0] * (not device.has_hessians)  # exponents; a row without hessian has 1
        sums = self._float_of(0, root.gradients), self._float_of(1, root.hessians)
        self.root = TreeNode(
            depth=0, sample_indices=self.splitter.partition, partition_start=0, partition_stop=device.rows,
            sum_gradients=sums[0], sum_hessians=sums[1], value=0,
        )  # fmt: skip
        # The root cannot be split, so it is the only leaf.
        if root.rows < 2 * self.min_samples_leaf or sums[1] < self.splitter.min_hessian_to_split:
            self._finalize_leaf(self.root)
            return
        if self.interaction_cst is not None:
            self.root.interaction_cst_indices = range(len(self.interaction_cst))
            self.root.allowed_features = np.array(list(set().union(*self.interaction_cst)), np.uint32)
        if self._is_found_there:
            self._find({(0, device.rows): root}, [inf])
        self._compute_best_split_and_push(self.root)

    def _float_of(self, which: int, units: Any) -> Any:
        """Return float64 of gradients, or hessians, in units."""
        return np.ldexp(units, self._units[which])

    def _units_of(self, which: int, value: float) -> int:
        # Exact: the sum is an integer number of units, below 2**53.
        return int(ldexp(value, -self._units[which]))

    def grow(self) -> None:
        """Grow the tree."""
        super().grow()
        # Nodes that the device split ahead of their turn may lie below a leaf of the tree, and belong to it.
        self.finalized_leaves.sort(key=lambda leaf: leaf.partition_start)
        begins = [leaf.partition_start for leaf in self.finalized_leaves]
        self._leaves = np.searchsorted(begins, [begin for begin, _ in self._nodes], side="right") - 1
        self.seconds = perf_counter() - self._start

    def find_partition(self) -> None:
        """Let leaves have their rows, in ascending order."""
        nodes, leaves = [*self._nodes.values()], len(self.finalized_leaves)
        leaf_of_rows = self._on_device.leaf_of_rows(nodes, self._leaves, leaves)
        # A stable sort keeps the rows of each leaf in ascending order.
        self._on_device.partition[:] = leaf_of_rows.argsort(kind="stable")

    def add_values(self, predictions: Any) -> None:
        """Add to the prediction of each row the value of its leaf; they are float64 on the device."""
        values = np.array([leaf.value for leaf in self.finalized_leaves], np.float64)
        self._on_device.add_values([*self._nodes.values()], self._leaves, values, predictions)

    def split_next(self) -> tuple[TreeNode, TreeNode]:
        """Split the node with the highest gain; see ``TreeGrower``."""
        key = self._key(self.splittable_nodes[0])
        if key not in self._ahead:
            start = perf_counter()
            self._split_likely(key)
            self.total_compute_hist_time += perf_counter() - start
        del self._ahead[key]
        return super().split_next()

    def _compute_best_split_and_push(self, node: TreeNode) -> None:
        key = self._key(node)
        if self._is_found_there:
            node.split_info = self._infos.pop(key)
            if node.split_info.gain <= 0:
                self._finalize_leaf(node)
            else:
                heappush(self.splittable_nodes, node)
            return
        on_device = self._nodes[key]
        node.histograms = self._histograms(on_device)
        super()._compute_best_split_and_push(node)
        if node.is_leaf:
            self._on_device.release(on_device)
        else:
            self._candidates[key] = _SplitCandidate(on_device, node.split_info, node.split_info.gain)

    @staticmethod
    def _key(node: TreeNode) -> _Key:
        return node.partition_start, node.partition_stop

    def _histograms(self, node: Node) -> np.ndarray:
        """Return the sums of a node as scikit-learn's splitter takes them."""
        sums = self._on_device.sums(node)
        histograms = np.zeros(sums.shape[1:], HISTOGRAM_DTYPE)
        histograms["count"] = sums[0]
        for which, (name, of) in enumerate(zip(("sum_gradients", "sum_hessians"), sums[1:], strict=False)):
            histograms[name] = self._float_of(which, of)
        return histograms

    def _split_likely(self, first: _Key) -> None:
        """Split the node that is next on the device, and with it those that may be split after it."""
        device = self._on_device
        likely = self._likely(first)
        self._make_room(first)
        splits: list[_Planned] = []
        spare = device.free - _SPARE
        for candidate in likely:
            node = candidate.node
            left, right = self._children(node, candidate.info)
            # Children that cannot be split need no sums.
            has_sums = left.depth != self.max_depth and max(left.rows, right.rows) >= 2 * self.min_samples_leaf
            # The larger child takes over the slot of the node; without one, both children need a slot.
            spare -= has_sums * (1 if node.slot is not None else 2)
            # The first node is split in any case: `_make_room` has freed slots for it.
            if splits and spare < 0:
                break
            splits.append(_Planned(candidate, NodeSplit(node, left, right, *self._rule(candidate.info)), has_sums))
        device.split([plan.split for plan in splits], sums=[plan.has_sums for plan in splits])
        wanted: dict[_Key, Node] = {}  # whose best splits are needed
        least: list[float] = []
        for candidate, split, has_sums in splits:
            # The children replace the node among the nodes on the device.
            key = split.node.begin, split.node.end
            self._ahead[key] = candidate.least
            del self._nodes[key], self._candidates[key]
            device.release(split.node)
            for child in (split.left, split.right):
                key = child.begin, child.end
                self._nodes[key] = child
                if has_sums and child.rows >= 2 * self.min_samples_leaf:
                    wanted[key] = child
                    least.append(candidate.least)
                else:
                    device.release(child)
        if wanted and self._is_found_there:
            self._find(wanted, least)

    def _likely(self, first: _Key) -> list[_SplitCandidate]:
        """Return nodes to split on the device: the first, and others as long as they are likely to be split at all.

        If a node and those below it gain as much at each split as the least of the tree, g, they are gain / g splits.
        So if a node is to be split, then so are all that gain more, with so many below each; those that are split
        already, whose children are known, are one. A node is likely if the splits that are left are enough for that.
        Nodes below one that gains less are split after it, and count as that one.
        """
        likely = [self._candidates[first]]
        others = sorted(
            (candidate for key, candidate in self._candidates.items() if key != first),
            key=lambda candidate: -candidate.least,
        )
        if self.max_leaf_nodes is None:
            return likely + others
        # Splits that the tree can still make; each one adds a leaf.
        left = self.max_leaf_nodes - len(self.finalized_leaves) - len(self.splittable_nodes)
        bounds = sorted(self._ahead.values())
        sums = likely[0].info.gain
        for candidate in others:
            # Splits expected before this one: nodes already split that gain as much, then gains over the least gain.
            sums += candidate.info.gain
            splits = len(bounds) - bisect_left(bounds, candidate.least) + sums / candidate.least
            if splits > left:
                break
            likely.append(candidate)
        return likely

    def _make_room(self, first: _Key) -> None:
        """Let the node that is split first have memory for its children's sums, if another loses its own."""
        device = self._on_device
        if device.free >= 2:
            return
        # Candidates of the least gain lose their sums first, as they are the least likely to be split.
        for key, candidate in sorted(self._candidates.items(), key=lambda pair: pair[1].least):
            if device.free >= 2:
                return
            if key != first:
                device.release(candidate.node)

    def _children(self, node: Node, info: Any) -> tuple[Node, Node]:
        middle, depth = node.begin + info.n_samples_left, node.depth + 1
        left = self._units_of(0, info.sum_gradient_left), self._units_of(1, info.sum_hessian_left)
        right = node.gradients - left[0], node.hessians - left[1]
        return (
            Node(node.begin, middle, depth, None, *left, info.value_left),
            Node(middle, node.end, depth, None, *right, info.value_right),
        )

    @staticmethod
    def _rule(info: Any) -> tuple[int, int, bool, np.ndarray | None]:
        categories = info.left_cat_bitset if info.is_categorical else None
        return info.feature_idx, info.bin_idx, bool(info.missing_go_to_left), categories

    def _find(self, nodes: dict[_Key, Node], least: Sequence[float]) -> None:
        """Find the best splits of nodes on the device; `least` are the least gains above them."""
        limits = self.min_samples_leaf, self.splitter.min_hessian_to_split, self._least_gain, self.l2_regularization
        table = self._on_device.best(list(nodes.values()), *self._of_features, limits)
        # The first of equal gains wins, as in scikit-learn.
        features = table["gain"].argmax(axis=1)
        infos = self._infos_of(list(nodes.values()), features, table[range(len(nodes)), features])
        for (key, node), above, info in zip(nodes.items(), least, infos, strict=True):
            self._infos[key] = info
            if info.gain > 0:
                self._candidates[key] = _SplitCandidate(node, info, min(above, info.gain))
            else:
                self._on_device.release(node)

    def _infos_of(self, nodes: Sequence[Node], features: np.ndarray, best: np.ndarray) -> Iterator[SplitInfo]:
        """Yield the best splits of nodes as scikit-learn's `SplitInfo`."""
        sums = np.array([(node.rows, node.gradients, node.hessians) for node in nodes])
        # Without hessians each row counts as 1, so the number of rows is their sum.
        left = np.stack([best["rows"], best["gradients"], best["hessians" if self._on_device.has_hessians else "rows"]])
        columns: list[np.ndarray] = []
        values: list[np.ndarray] = []
        for units in (left, sums.T - left):
            floats = [self._float_of(which, of) for which, of in enumerate(units[1:])]
            columns += floats
            # The value of a node by scikit-learn's formula, whose 1e-15 prevents a division by zero.
            values.append(-floats[0] / (floats[1] + self.l2_regularization + 1e-15))
        rows = left[0], sums.T[0] - left[0]
        fields = best["gain"], features, best["bin"] % 256, best["bin"] >= 256, *columns, *rows, *values
        no = repeat(False), repeat(None)  # categories
        return map(SplitInfo, *(column.tolist() for column in fields), *no)
