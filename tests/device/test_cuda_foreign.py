"""Arrays of CUDA of other libraries, in whatever structure: where they are, and what may be written."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

import clhist
from clhist._core import kinds
from clhist._core.cuda import recognised
from clhist._core.cuda.driver import CaptureError

pytestmark = pytest.mark.usefixtures("without_optimizer")

BINS = np.random.default_rng(1).integers(0, 77, 5000, np.int32)
EXPECTED = np.bincount(BINS, minlength=77)


class Foreign:
    """An array of another library, with what CUDA's libraries tell one another of it."""

    def __init__(self, array, *, is_read_only=False, **more):
        self.array = array
        self.told = {"data": (array.data.ptr, is_read_only), "shape": array.shape, "typestr": array.dtype.str, **more}

    @property
    def __cuda_array_interface__(self):
        return self.told


class ByDlpack:
    """One that has DLPack alone, on a device of this number."""

    def __init__(self, array, device=0):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        return self.array

    def __dlpack_device__(self):
        return 2, self.device


@pytest.fixture
def cupy(fake, monkeypatch):
    """Let the fake CuPy see those two."""
    _, found = fake
    own = found.asarray
    monkeypatch.setattr(found, "asarray", lambda value: value.array if isinstance(value, Foreign) else own(value))
    monkeypatch.setattr(found, "from_dlpack", lambda value: value.__dlpack__(), raising=False)
    return found


@pytest.mark.parametrize("kind", [Foreign, ByDlpack])
def test_an_array_of_another_library_is_seen_by_cupy(kind, cupy):
    for bins in (BINS, BINS[:0]):
        got = clhist.bincount(kind(cupy.asarray(bins)), minlength=77)
        np.testing.assert_array_equal(got.get(), np.bincount(bins, minlength=77))


@pytest.mark.parametrize("kind", [Foreign, ByDlpack])
def test_a_copy_is_not_taken_for_the_array(kind, fake, cupy):
    """Neither of what lies on the same device nor of what lies on another."""
    cuda, _ = fake
    given = Foreign(cupy.asarray(BINS)) if kind is Foreign else ByDlpack(cupy.asarray(BINS), device=1)
    if kind is Foreign:
        given.array = cupy.asarray(BINS)
    with pytest.raises(
        TypeError, match=f"x: expected an array that CuPy or PyTorch can take without a copy, got {kind.__name__}"
    ):
        clhist.bincount(given)
    assert not cuda.launched


class FakeTorch(ModuleType):
    """PyTorch as far as it sees arrays of others; `asked` are the devices that it was asked for."""

    Tensor = type("Tensor", (), {})
    uint8 = "uint8"

    def __init__(self, stream):
        super().__init__("torch")
        self.asked, self.cuda = [], SimpleNamespace(current_stream=lambda device: SimpleNamespace(cuda_stream=stream))

    def device(self, kind, number):
        """Return a device."""
        return kind, number

    def as_tensor(self, value, device):
        """Return what stands for a tensor of the same memory."""
        self.asked.append(device)
        address = value.array.data.ptr
        return SimpleNamespace(data_ptr=lambda: address, device=SimpleNamespace(index=device[1]))


@pytest.mark.parametrize(
    ("own", "given", "ordered"),
    [
        (0, None, []),
        (0, 1, []),  # the default stream, by two numbers
        (0x70, 0x70, []),
        (0x70, 1, [("record", 1), ("wait", 0x70)]),
        (0, 0x90, [("record", 0x90), ("wait", 0)]),
    ],
)
def test_torch_sees_an_array_on_its_device_and_waits_for_its_stream(fake, monkeypatch, own, given, ordered):
    cuda, cupy = fake
    torch = FakeTorch(own)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "cupy", None)
    x = Foreign(cupy.asarray(BINS), stream=given)
    found = recognised.recognised("x", x)
    assert found.library.name == "torch"
    assert (torch.asked, cuda.ordered) == ([("cuda", 0)], ordered)
    if ordered:
        cuda.is_captured = True
        with pytest.raises(CaptureError):
            recognised.recognised("x", x)


def test_what_is_read_only_is_read_and_not_written(fake, cupy):
    """As out, whatever was so before, and where a map writes to it."""
    cuda, _ = fake
    x, out = Foreign(cupy.asarray(BINS), is_read_only=True), cupy.asarray(np.zeros(77, np.int64))
    clhist.reduce_by_index(77, "sum", x, 1, out=out)
    np.testing.assert_array_equal(out.get(), EXPECTED)
    refused = Foreign(out, is_read_only=True)
    launched = len(cuda.launched)
    with pytest.raises(TypeError, match=r"out: expected an array that can be written, got a read-only Foreign of "):
        clhist.reduce_by_index(77, "sum", x, 1, out=refused)
    kernel = clhist.HistogramKernel(
        None, clhist.operators.count(np.int32), arguments="const int *x, int *y", map="y[i] = 7; EMIT(x[i], 1)"
    )
    with pytest.raises(TypeError, match=r"out.*'n'.*: expected an array that can be written"):
        clhist.HistogramKernel(
            None, {"n": clhist.operators.count(np.int32)}, arguments="const int *x", map="EMIT_n(x[i], 1)"
        )(x, num_bins=77, out={"n": refused})
    y = cupy.asarray(BINS)
    assert len(cuda.launched) == launched
    kernel(x, y, num_bins=77)
    assert (y.get() == 7).all()
    with pytest.raises(ValueError, match="y: expected an array that can be written, got a read-only one"):
        kernel(x, Foreign(cupy.asarray(BINS), is_read_only=True), num_bins=77)


def test_jax_arrays_are_read_only(cupy, monkeypatch):
    """Its arrays never change, whatever DLPack says of them."""
    monkeypatch.setattr(ByDlpack, "__module__", "jaxlib.fake")
    with pytest.raises(TypeError, match="out: expected an array that can be written, got a read-only ByDlpack"):
        clhist.reduce_by_index(77, "sum", cupy.asarray(BINS), 1, out=ByDlpack(cupy.asarray(np.zeros(77, np.int64))))


class Named(NamedTuple):
    """A tuple of arrays."""

    x: object
    y: object


def test_arrays_are_found_in_structures(fake, cupy):
    """In named tuples, and in lists that are long; lists of numbers are looked through soon."""
    values = np.random.default_rng(2).random((2, 5000))
    expected = clhist.histogramdd(tuple(values), 5)[0]
    np.testing.assert_array_equal(clhist.histogramdd(Named(*map(cupy.asarray, values)), 5)[0].get(), expected)
    pair = Named(cupy.asarray(BINS), cupy.asarray(BINS))
    assert kinds.may_be_cuda([0.0] * 100 + [pair])
    assert kinds.may_be_cuda([pair.x] * 100)
    assert not kinds.may_be_cuda([[1.0, 2], ["a", None]] * 1000)


def test_pinned_memory_is_read_before_a_call_goes_on(fake, cupy):
    """What is uploaded is waited for: the caller may change it then, and nobody need keep it."""
    cuda, _ = fake
    x = cupy.asarray(BINS)
    cuda.calls.clear()
    sums = clhist.Accumulator("sum", 77, dtype=np.int64, dest=np.arange(77))
    got = sums.add(x, x).result()
    np.testing.assert_array_equal(got.get(), np.bincount(BINS, BINS, 77) + np.arange(77))
    uploads = [n for n, call in enumerate(cuda.calls) if call == "cuMemcpyHtoDAsync_v2"]
    assert all(cuda.calls[n + 1] == "cuStreamSynchronize" for n in uploads)
