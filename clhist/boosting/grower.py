"""scikit-learn's grower of trees with the work on rows done on a device: its rules, and its tree."""

from __future__ import annotations

from heapq import heappush
from itertools import accumulate, takewhile
from math import ldexp, log2
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble._hist_gradient_boosting.common import HISTOGRAM_DTYPE
from sklearn.ensemble._hist_gradient_boosting.grower import TreeGrower, TreeNode
from sklearn.ensemble._hist_gradient_boosting.splitting import SplitInfo

from clhist.boosting.binned_rows import Node, check_finite, unit_of
from clhist.boosting.on_device import DeviceRows, Split


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
    """What a grower asks a splitter for: both parts of a node's rows, which are where the device will put them."""

    def __init__(self, splitter: Any, partition: np.ndarray) -> None:
        self.find_node_split = splitter.find_node_split
        self.min_hessian_to_split = splitter.min_hessian_to_split
        self.partition = partition

    def split_indices(self, split_info: Any, sample_indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        left = split_info.n_samples_left
        return sample_indices[:left], sample_indices[left:], left


class _NoHistograms:
    """What a grower asks for histograms, which are on the device."""

    def compute_histograms_brute(self, *_: Any) -> None: ...

    def compute_histograms_subtraction(self, *_: Any) -> None: ...


_SPARE = 2  # slots that are left for the next node, for those of nodes ahead of their turn cannot be taken away


class _Planned(NamedTuple):
    """A node that is split on the device, and whether its children get sums."""

    node: TreeNode
    split: Split
    has_sums: bool


class DeviceTreeGrower(TreeGrower):
    """Grows one tree; scikit-learn's ``TreeGrower``, whose arguments, rules and results it has.

    Rows are split and histograms made on the device, of many nodes at once: of those that are likely to be split next.
    The best splits are found there too, or by scikit-learn's own splitter where features are categorical, constrained
    or drawn at random. Both get the same sums, and do the same operations on them.

    Parameters
    ----------
    X_binned : uint8 array of shape (n_samples, n_features)
        Column after column.
    gradients, hessians : float32 array of shape (n_samples,)
        Hessians may be one number for all.
    device_rows : DeviceRows
        The same features on the device.
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
        **options: Any,
    ) -> None:
        limits = (options.get(f"min_{name}_to_split", 0) for name in ("gain", "hessian"))
        self._validate_parameters(X_binned, *limits)
        self._on_device, self._start = device_rows, perf_counter()
        self.splitter: Any
        self._gradients = np.ascontiguousarray(gradients)
        self._hessians = np.ascontiguousarray(hessians) if device_rows.has_hessians else None
        self._nodes: dict[tuple[int, int], Node] = {}  # by where their rows are
        self._found: dict[tuple[int, int], tuple[int, tuple[float, int, int, int, int]]] = {}  # the best splits
        self._split: set[tuple[int, int]] = set()
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
        if self._is_found_there:
            self._of_features = device.sent(self.n_bins_non_missing), device.sent(self.has_missing_values)
        root = device.begin(self._gradients, self._hessians)
        self._nodes[0, device.rows] = root
        sums = self._in_floats(root)
        self.root = TreeNode(
            depth=0, sample_indices=self.splitter.partition, partition_start=0, partition_stop=device.rows,
            sum_gradients=sums[0], sum_hessians=sums[1], value=0,
        )  # fmt: skip
        if root.rows < 2 * self.min_samples_leaf or sums[1] < self.splitter.min_hessian_to_split:
            self._finalize_leaf(self.root)
            return
        if self.interaction_cst is not None:
            self.root.interaction_cst_indices = range(len(self.interaction_cst))
            self.root.allowed_features = np.array(list(set().union(*self.interaction_cst)), np.uint32)
        if self._is_found_there:
            self._find([root])
        self._compute_best_split_and_push(self.root)

    def _in_floats(self, node: Node) -> tuple[float, float]:
        """Return what gradients and hessians of a node add up to."""
        return self._float_of(0, node.gradients), self._float_of(1, node.hessians)

    def _float_of(self, which: int, units: int) -> float:
        return ldexp(units, self._on_device.units[which]) if which < len(self._on_device.units) else float(units)

    def _units_of(self, which: int, value: float) -> int:
        return int(ldexp(value, -self._on_device.units[which]) if which < len(self._on_device.units) else value)

    def grow(self) -> None:
        """Grow the tree."""
        super().grow()
        self._on_device.fetch_partition([self._node_of(leaf) for leaf in self.finalized_leaves])
        self.seconds = perf_counter() - self._start

    def split_next(self) -> tuple[TreeNode, TreeNode]:
        """Split the node with the highest gain; see ``TreeGrower``."""
        if self._key(self.splittable_nodes[0]) not in self._split:
            start = perf_counter()
            self._split_likely()
            self.total_compute_hist_time += perf_counter() - start
        return super().split_next()

    def _compute_best_split_and_push(self, node: TreeNode) -> None:
        on_device = self._node_of(node)
        if self._is_found_there:
            node.split_info = self._info(on_device, *self._found.pop(self._key(node)))
            if node.split_info.gain <= 0:
                self._finalize_leaf(node)
            else:
                heappush(self.splittable_nodes, node)
            return
        node.histograms = self._histograms(on_device)
        super()._compute_best_split_and_push(node)
        if node.is_leaf:
            self._on_device.release(on_device)

    @staticmethod
    def _key(node: TreeNode | Node) -> tuple[int, int]:
        if isinstance(node, Node):
            return node.begin, node.end
        return node.partition_start, node.partition_stop

    def _node_of(self, node: TreeNode) -> Node:
        return self._nodes[self._key(node)]

    def _histograms(self, node: Node) -> np.ndarray:
        """Return the sums of a node as scikit-learn's splitter takes them."""
        sums = self._on_device.sums(node)
        found = np.zeros(sums.shape[1:], HISTOGRAM_DTYPE)
        found["count"] = sums[0]
        for name, of, unit in zip(("sum_gradients", "sum_hessians"), sums[1:], self._on_device.units, strict=False):
            found[name] = np.ldexp(of.astype(np.float64), unit)
        return found

    def _split_likely(self) -> None:
        """Split the node that is next on the device, and with it those that may be split after it."""
        device = self._on_device
        likely = self._likely()
        self._make_room(likely)
        splits: list[_Planned] = []
        wanted: dict[tuple[int, int], Node] = {}  # whose best splits are needed
        spare = device.free - _SPARE
        for node in likely:
            of = self._node_of(node)
            left, right = self._children(of, node.split_info)
            searched = [child for child in (left, right) if child.rows >= 2 * self.min_samples_leaf]
            has_sums = bool(searched) and left.depth != self.max_depth
            needed = has_sums * (1 if of.slot is not None else 2)
            spare -= needed
            if splits and spare < 0:
                break
            splits.append(_Planned(node, Split(of, left, right, *self._rule(node.split_info)), has_sums))
            wanted |= {self._key(child): child for child in searched if has_sums}
        device.split([each.split for each in splits], sums=[each.has_sums for each in splits])
        for each in splits:
            self._split.add(self._key(each.node))
            for child in (each.split.left, each.split.right):
                self._nodes[child.begin, child.end] = child
                if self._key(child) not in wanted:
                    device.release(child)
            device.release(each.split.node)
        if wanted and self._is_found_there:
            self._find(list(wanted.values()))

    def _likely(self) -> list[TreeNode]:
        """Return nodes to split on the device: the next, and others as long as they are likely to be split at all.

        If a node and those below it gain as much at each split as the least of the tree, g, they are gain / g splits.
        So a node is likely if its gain is that of it and all better ones, divided by the splits that are left. It must
        be some times that, since a split that is not used in the end has cost time: more in larger trees.
        """
        nodes = [node for node in self.splittable_nodes if self._key(node) not in self._split]
        nodes.sort(key=lambda node: -node.split_info.gain)
        if self.max_leaf_nodes is None:
            return nodes
        caution = log2(self.max_leaf_nodes) / 2
        left = self.max_leaf_nodes - len(self.finalized_leaves) - len(self.splittable_nodes)
        sums = accumulate(node.split_info.gain for node in nodes)
        likely = takewhile(
            lambda pair: pair[0].split_info.gain * left >= pair[1] * caution, zip(nodes, sums, strict=True)
        )
        return [node for node, _ in likely] or nodes[:1]

    def _make_room(self, likely: list[TreeNode]) -> None:
        """Let the node that is split first have memory for its children's sums, if another loses its own."""
        device, kept = self._on_device, {self._key(node) for node in likely[:1]}
        if device.free >= 2:
            return
        for node in sorted(self.splittable_nodes, key=lambda node: node.split_info.gain):
            if device.free >= 2:
                return
            if self._key(node) not in kept and self._key(node) not in self._split:
                device.release(self._node_of(node))

    def _children(self, node: Node, info: Any) -> tuple[Node, Node]:
        middle, depth = node.begin + info.n_samples_left, node.depth + 1
        left = self._units_of(0, info.sum_gradient_left), self._hessians_of(info.sum_hessian_left, info.n_samples_left)
        right = node.gradients - left[0], node.hessians - left[1]
        return (
            Node(node.begin, middle, depth, None, *left, info.value_left),
            Node(middle, node.end, depth, None, *right, info.value_right),
        )

    def _hessians_of(self, hessians: float, rows: int) -> int:
        return self._units_of(1, hessians) if self._on_device.has_hessians else rows

    @staticmethod
    def _rule(info: Any) -> tuple[int, int, bool, np.ndarray | None]:
        categories = info.left_cat_bitset if info.is_categorical else None
        return info.feature_idx, info.bin_idx, bool(info.missing_go_to_left), categories

    def _find(self, nodes: list[Node]) -> None:
        """Find the best splits of nodes on the device."""
        limits = self.min_samples_leaf, self.splitter.min_hessian_to_split, self._least_gain, self.l2_regularization
        table = self._on_device.best(nodes, *self._of_features, limits)
        features = table["gain"].argmax(axis=1)
        best = table[range(len(nodes)), features].tolist()
        for node, feature, found in zip(nodes, features.tolist(), best, strict=True):
            self._found[self._key(node)] = feature, found
            if found[0] <= 0:
                self._on_device.release(node)

    def _info(self, node: Node, feature: int, best: tuple[float, int, int, int, int]) -> SplitInfo:
        gain, bin, rows, *sums = best
        left = Node(0, rows, 0, None, sums[0], sums[1] if self._on_device.has_hessians else rows, 0)
        right = Node(0, node.rows - rows, 0, None, node.gradients - left.gradients, node.hessians - left.hessians, 0)
        (gradient, hessian), (other_gradient, other_hessian) = self._in_floats(left), self._in_floats(right)
        l2 = self.l2_regularization
        return SplitInfo(
            gain, feature, bin % 256, bin >= 256, gradient, hessian, other_gradient, other_hessian,
            left.rows, right.rows,
            -gradient / (hessian + l2 + 1e-15), -other_gradient / (other_hessian + l2 + 1e-15), False, None,
        )  # fmt: skip
