"""pyFAI's integrators with our engines: its own as the reference, and its own tests."""

from __future__ import annotations

import numpy as np
import pyFAI.detectors
import pyopencl.array as cl_array
import pytest
from peers import run_tests
from pyFAI.integrator.azimuthal import AzimuthalIntegrator

from clhist.pyfai import KeptArrays, histogram1d_engine, method

SHAPE = (300, 280)
THEIRS = ("no", "histogram", "cython")
PLUGIN = """
import pyFAI.ext.histogram as theirs
from pyFAI.integrator import load_engines
from pyFAI.method_registry import IntegrationMethod

import clhist.pyfai as ours

for dim, legacy in ((1, theirs.histogram), (2, theirs.histogram2d)):
    engine = getattr(ours, f"histogram{dim}d_engine")
    functions = {"class_funct_legacy": (None, legacy), "class_funct_ng": (None, engine)}
    IntegrationMethod(dim, "no", "histogram", "cython", old_method="cython", **functions)
"""


@pytest.fixture
def integrator():
    detector = pyFAI.detectors.Detector(75e-6, 75e-6, max_shape=SHAPE)
    return AzimuthalIntegrator(dist=0.05, poni1=0.009, poni2=0.012, rot1=0.1, detector=detector, wavelength=1e-10)


@pytest.fixture
def options(rng):
    frame = rng.poisson(100, SHAPE)
    return {
        "none": {},
        "poisson": {"error_model": "poisson"},
        "variance": {"variance": rng.uniform(1, 9, SHAPE)},
        "azimuthal": {"error_model": "azimuthal"},
        "mask": {"mask": (rng.random(SHAPE) < 0.1).astype(np.int8), "polarization_factor": 0.9},
        "corrections": {
            "dark": rng.uniform(0, 9, SHAPE), "flat": rng.uniform(0.9, 1.1, SHAPE), "absorption": np.full(SHAPE, 2.0),
            "normalization_factor": 3.0, "error_model": "poisson",
        },
        "dummy": {"dummy": 100, "delta_dummy": 1.5, "flat": np.where(frame % 17, 1.0, 100)},
        "no solid angle": {"correctSolidAngle": False},
    }  # fmt: skip


CASES = ["none", "poisson", "variance", "azimuthal", "mask", "corrections", "dummy", "no solid angle"]
DTYPES = [np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.float32, np.float64, bool]


def same(ours, theirs, names):
    for name in names:
        found, expected = getattr(ours, name), getattr(theirs, name)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-9, err_msg=name)
    np.testing.assert_array_equal(ours.count, theirs.count)


@pytest.mark.parametrize("case", CASES)
def test_one_dimension(case, integrator, options, rng):
    frame = rng.poisson(100, SHAPE).astype(np.uint16)
    for unit in ("q_nm^-1", "2th_deg", "r_mm"):
        given = {"npt": 200, "unit": unit, **options[case]}
        # Their histograms have an online formula for this model, and these two passes, as ours.
        peer = ("no", "csr", "python") if case == "azimuthal" else THEIRS
        ours, theirs = (integrator.integrate1d(frame, method=each, **given) for each in (method(1), peer))
        names = ["radial", "intensity", "sum_signal", "sum_normalization"]
        if theirs.sigma is not None:
            names += ["sum_normalization2", "sum_variance", "std", "sem"]
        same(ours, theirs, names)
    assert ours.method.target == "clhist"


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("azimuthal", "corrections")])
def test_two_dimensions(case, integrator, options, rng):
    frame = rng.poisson(100, SHAPE).astype(np.int32)
    given = {"npt_rad": 50, "npt_azim": 36, "unit": "q_nm^-1", **options[case]}
    ours, theirs = (integrator.integrate2d(frame, method=each, **given) for each in (method(2), THEIRS))
    same(ours, theirs, ["radial", "azimuthal", "intensity", "sum_signal", "sum_normalization"])


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.__name__)
def test_dtypes_of_frames(dtype, integrator, rng):
    frame = rng.poisson(20, SHAPE).astype(dtype)
    before = frame.copy()
    ours, theirs = (integrator.integrate1d(frame, 100, method=each) for each in (method(1), THEIRS))
    same(ours, theirs, ["radial", "intensity"])
    np.testing.assert_array_equal(frame, before)


def test_ranges(integrator, rng):
    """Pixels below the range are in no bin; pyFAI has those nearer to it than the width of a bin in the first."""
    frame = rng.poisson(100, SHAPE)
    given = {"npt": 90, "unit": "q_nm^-1", "radial_range": (5, 20), "azimuth_range": (-90, 60)}
    ours, theirs = (integrator.integrate1d(frame, method=each, **given) for each in (method(1), THEIRS))
    np.testing.assert_allclose(ours.radial, theirs.radial)
    np.testing.assert_allclose(ours.intensity[1:], theirs.intensity[1:], rtol=1e-5)
    q, chi = integrator.center_array(SHAPE, "q_nm^-1"), integrator.center_array(SHAPE, "chi_deg")
    inside = (q >= 5) & (q <= 20) & (chi >= -90) & (chi <= 60)
    assert abs(ours.count.sum() - inside.sum()) <= 2  # rounding at the ends
    assert theirs.count.sum() > ours.count.sum()


def test_a_geometry_that_changes(integrator, rng):
    frame = rng.poisson(100, SHAPE)
    for dist in (0.05, 0.06, 0.07):
        integrator.dist = dist
        ours, theirs = (integrator.integrate1d(frame, 150, method=each) for each in (method(1), THEIRS))
        same(ours, theirs, ["radial", "intensity"])


def test_frames_on_a_device(integrator, queue, rng):
    frame = rng.poisson(100, SHAPE).astype(np.uint16)
    radial = integrator.center_array(SHAPE, "q_nm^-1")
    given = {"mask": rng.random(SHAPE) < 0.1, "error_model": "poisson"}
    expected = histogram1d_engine(radial, 100, frame, **given)
    found = histogram1d_engine(radial, 100, cl_array.to_device(queue, frame), **given)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_no_pixels_and_wrong_arguments(integrator):
    radial, frame = np.linspace(0, 1, 12), np.ones(12)
    found = histogram1d_engine(radial, 3, frame, mask=np.ones(12), empty=-7.0)
    assert found.intensity.tolist() == [-7.0] * 3
    assert found.count.tolist() == [0] * 3
    with pytest.raises(ValueError, match=r"^flat: expected 12 elements as of raw, got 5"):
        histogram1d_engine(radial, 3, frame, flat=np.ones(5))
    with pytest.raises(ValueError, match=r"^npt: expected at least 1"):
        histogram1d_engine(radial, 0, frame)
    with pytest.raises(TypeError, match=r"^dark: expected an array of real numbers, got complex128"):
        histogram1d_engine(radial, 3, frame, dark=frame * 1j)
    with pytest.raises(ValueError, match=r"^radial: expected finite positions"):
        histogram1d_engine(radial * np.nan, 3, frame)
    with pytest.raises(ValueError, match=r"^variance: expected an array"):
        histogram1d_engine(radial, 3, frame, error_model="variance")
    with pytest.raises(ValueError, match=r"^dim: expected 1 or 2, got 3"):
        method(3)


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_kept_geometry(name, dim, integrator, options, rng, monkeypatch):
    sent = []
    send = cl_array.to_device
    monkeypatch.setattr(cl_array, "to_device", lambda queue, array: sent.append(array.size) or send(queue, array))
    points, given = ((100,) if dim == 1 else (30, 20)), options[name]
    if dim == 2:
        given.pop("absorption", None)  # which pyFAI has in one dimension alone
    integrate = integrator.integrate1d if dim == 1 else integrator.integrate2d
    for frame in (rng.poisson(100, SHAPE), rng.poisson(9, SHAPE), rng.poisson(9, SHAPE).astype(np.float32)):
        sent.clear()
        kept = integrate(frame, *points, method=method(dim, keep=True), **given)
        number = len(sent)
        plain = integrate(frame, *points, method=method(dim), **given)
        for one, other in zip(kept, plain, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    assert number == 0  # of the third call


def test_what_is_kept(rng):
    kept, frame = KeptArrays(), rng.random(500)
    radial, mask = np.r_[0, rng.uniform(0, 2, 498), 2], rng.random(500) < 0.3
    mask[[0, -1]] = False
    for _ in range(2):
        found = histogram1d_engine(radial, 20, frame, mask=mask, kept=kept)
        np.testing.assert_array_equal(found.count, np.histogram(radial[~mask], 20)[0])
    mask = ~mask  # another object
    found = histogram1d_engine(radial, 20, frame, mask=mask, kept=kept)
    np.testing.assert_array_equal(found.count, np.histogram(radial[~mask], 20, (0, 2))[0])
    radial = radial / 2
    assert histogram1d_engine(radial, 20, frame, kept=kept).position[-1] < 1
    assert len(kept) == 2  # those that are still there
    with pytest.raises(ValueError, match=r"^mask: expected 500 elements"):
        histogram1d_engine(radial, 20, frame, mask=np.zeros(3), kept=kept)
    with pytest.raises(TypeError, match=r"^flat: expected an array of real numbers"):
        histogram1d_engine(radial, 20, frame, flat=np.array(["a"] * 500), kept=kept)


def test_its_own_tests():
    modules = [f"pyFAI.test.test_{name}" for name in ("uncertainties", "flat", "error_model", "polarization", "dummy")]
    different = ["test_azimuthal_model"]  # whose other engines have the online formula
    assert run_tests(PLUGIN, "--pyargs", *modules, different=different)["passed"] >= 10


MASKS = ["bool", "int8", "negative", "list", "Fortran's order", "view", "all", "border"]


@pytest.mark.parametrize("dim", [1, 2])
def test_kinds_of_masks(dim, integrator, rng):
    """Without a range, two dimensions begin and end with the pixels that are not masked."""
    frame, mask = rng.poisson(100, SHAPE), rng.random(SHAPE) < 0.2
    border = mask.copy()
    border[:20] = border[-20:] = border[:, :9] = True
    masks = {
        "bool": mask,
        "int8": mask.astype(np.int8),
        "negative": -mask.astype(np.int8),
        "list": mask.tolist(),
        "Fortran's order": np.asfortranarray(mask),
        "view": np.repeat(mask, 2, 1)[:, ::2],
        "all": np.ones(SHAPE, bool),
        "border": border,
    }
    for name in MASKS:
        ours, theirs = integrated(integrator, dim, frame, mask=masks[name])
        if name != "all":
            same(ours, theirs, ["radial", "azimuthal", "intensity"][: 3 if dim == 2 else 1])
        np.testing.assert_array_equal(ours.count, theirs.count, err_msg=name)
    kept = method(dim, keep=True)
    for each in (mask, border, None, border, mask):
        ours, theirs = integrated(integrator, dim, frame, kept, mask=each)
        np.testing.assert_allclose(ours.radial, theirs.radial, rtol=1e-6)
        np.testing.assert_array_equal(ours.count, theirs.count)


@pytest.mark.parametrize("dim", [1, 2])
def test_dummies_and_missing_pixels(dim, integrator, rng):
    frame, mask = rng.poisson(100, SHAPE), rng.random(SHAPE) < 0.2
    few, nan = np.where(mask, -5, frame).astype(np.int32), np.where(mask, np.nan, frame).astype(np.float32)
    large = np.where(mask, 2**32 - 1, frame).astype(np.uint32)
    for given, options in (
        (few, {"dummy": -5}),
        (few, {"dummy": -4, "delta_dummy": 2}),
        (few, {"dummy": -5, "mask": np.roll(mask, 3)}),
        (large, {"dummy": 2**32 - 1}),
        (nan, {}),
        (nan, {"dummy": np.nan}),
        (frame, {"flat": nan}),
        (frame, {"dark": nan}),
    ):
        ours, theirs = integrated(integrator, dim, given, **options)
        np.testing.assert_array_equal(ours.count, theirs.count)
        np.testing.assert_allclose(ours.intensity, theirs.intensity, rtol=2e-5)
    masked = integrator.integrate1d(np.ma.array(frame, mask=mask), 90, method=method(1))
    np.testing.assert_array_equal(masked.count, integrator.integrate1d(frame, 90, mask=mask, method=method(1)).count)


def integrated(integrator, dim, frame, ours=None, **options):
    """Return what ours and pyFAI's engine make of a frame."""
    function, number = (integrator.integrate1d, (90,)) if dim == 1 else (integrator.integrate2d, (40, 30))
    given = {"unit": "q_nm^-1", **options}
    return [function(frame, *number, method=each, **given) for each in (ours or method(dim), THEIRS)]
