"""Measuring a device, what is believed of it, and the profile that comes out."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import platformdirs
import pytest
from click.testing import CliRunner
from commands import refused
from thresholds import threshold

import clhist
from clhist._core.devices.profile_files import PARAMETERS, parse_profile
from clhist._core.opencl import cpu_runtimes
from clhist._core.opencl.device import own_profile
from clhist._core.runtime import small
from clhist.calibration import calibrate, host_sizes, measure
from clhist.calibration.measure import MIB, Bench, Measurement
from clhist.cli.main import main
from clhist.errors import ProfileError

pytestmark = pytest.mark.usefixtures("without_optimizer")


@pytest.fixture(scope="module")
def bench():
    return Bench.of(clhist.default_queue().device, quick=True)


def sweep_with(knee, *, small_first=False):
    """Rates of a cache of `knee` bytes over a memory six times slower; small sets may not fill the device."""
    sizes = [int(MIB / 4 * 2 ** (k / 2)) for k in range(25)]
    fits = [min(1.0, knee / size) for size in sizes]
    rates = [1 / (fit / 100e9 + (1 - fit) / 16e9) for fit in fits]
    if small_first:
        rates[:3] = [20e9, 40e9, 70e9]
    return list(zip(sizes, rates, strict=True))


@pytest.mark.parametrize("small_first", [False, True])
@pytest.mark.parametrize("size", [2, 6, 40, 60, 96])
def test_the_knee_of_a_sweep(size, small_first):
    found = measure.knee(sweep_with(size * MIB, small_first=small_first))
    # Where half of the fall is done more than the cache is in use, less than half as much again.
    assert 1.0 <= found / (size * MIB) < 1.6


def test_the_knee_as_it_was_measured_on_an_h200():
    rates = [104.43, 104.47, 104.77, 104.83, 105.41, 96.35, 36.54, 21.63, 18.51, 17.11, 16.39]
    assert 45 * MIB < measure.knee([(MIB << k, rate) for k, rate in enumerate(rates)]) < 75 * MIB


def test_local_memory_that_is_found_by_trying(bench, monkeypatch):
    reported = bench.device.local_mem_size
    tried = []

    def works(bench, size):
        tried.append(size)
        return size <= 227 * 1024

    monkeypatch.setattr(measure, "_local_array_works", works)
    assert measure.local_memory(bench, 48 * 1024, MIB).value == 227 * 1024
    assert len(tried) < 15
    monkeypatch.setattr(measure, "_local_array_works", lambda bench, size: size <= 30 * 1024)
    assert measure.local_memory(bench, 48 * 1024, MIB).value == 30 * 1024, "less than is reported"
    monkeypatch.undo()
    assert measure._local_array_works(bench, min(reported, 32 * 1024))
    assert measure.local_argument(bench, min(reported, 32 * 1024)).value >= 16 * 1024


def test_what_is_measured_is_plausible(bench):
    memory = bench.device.global_mem_size
    assert measure.bandwidth(bench, min(memory, 256 * MIB)).value > 0
    assert measure.launch(bench).value >= 0, "a difference, which other work may hide"
    assert measure.line(bench, min(memory, 256 * MIB)).value in {4 << k for k in range(8)}
    assert measure.residents(bench).value >= 1
    (first, slow), (last, fast) = measure.cache_sweep(bench, [MIB // 4, MIB])
    assert (first, last) == (MIB // 4, MIB)
    assert slow > 0
    assert fast > 0


def test_rates_of_updates(bench):
    rates = measure.update_rates(bench, bins=64)
    assert {"native int32, local, low contention", "cas 32, global, high contention"} <= rates.keys()
    assert all(rate.value > 0 and rate.unit == "G/s" for rate in rates.values())


def implausible(key, value, known, source="reported by the driver"):
    return calibrate._implausible(key, value, known, source, clhist.default_queue().device)


def test_what_is_not_believed(queue):
    reported = queue.device.local_mem_size
    shipped = "devices/nvidia-h200.toml: measured"
    assert implausible("local_memory", 0.5 * reported, reported).startswith(f"less than the {reported} bytes")
    assert implausible("local_memory", 4 * reported, reported) == ""
    assert implausible("l2_cache", 0, 60 * MIB).startswith("no knee")
    assert implausible("l2_cache", 1000, 60 * MIB).startswith("expected 65536 to")
    assert implausible("l2_cache", 60 * MIB, 4 * MIB) == "", "the driver's number is not trusted"
    assert implausible("l2_cache", 200 * MIB, 60 * MIB, shipped).startswith("more than 2 times off the")
    assert implausible("l2_cache", 50 * MIB, 60 * MIB, shipped) == ""
    assert implausible("l2_line", 100, 128).startswith("expected one of 32, 64, 128, 256")
    assert implausible("l2_line", 256, 128).startswith("memory is fetched in other units")
    assert implausible("l2_line", 128, 128) == ""
    assert implausible("hardware_threads", 8, 100).startswith("fewer than 32 for each of")


@pytest.mark.parametrize(
    ("source", "is_bound"),
    [
        ("devices/nvidia-h200.toml: measured", True),
        ("devices/nvidia-hopper.toml: 2048 for each of 132 compute units: CUDA's guide", True),
        ("devices/vendor-arm.toml: 384 for each of 100 compute units: Arm's guide", False),
        ("devices/default-gpu.toml: 1024 for each of 100 compute units: the least", False),
        ("reported by the driver, which is below devices/", False),
        ("OWN: measured: knee", True),
        (
            "OWN: devices/default-gpu.toml: the least (measured 9 on 2026-11-01 was refused: more than 2 times off)",
            False,
        ),
    ],
)
def test_only_numbers_of_the_device_bound_a_measurement(source, is_bound, tmp_path, monkeypatch):
    monkeypatch.setenv("CLHIST_PROFILES", str(tmp_path / "devices"))
    _, found = calibration()
    own = found.write()
    reason = implausible("l2_cache", 200 * MIB, 60 * MIB, source.replace("OWN", str(own)))
    path = source.partition(":")[0].replace("OWN", str(own))
    assert reason == (f"more than 2 times off the {60 * MIB} of {path}" if is_bound else "")


def calibration(**measured):
    before = own_profile(clhist.default_queue().device)
    device = clhist.default_queue().device
    findings = tuple(calibrate._finding(key, measured.get(key), before, device, "driver 1.0") for key in PARAMETERS)
    rates = {'NumPy arrays, "quoted"\\, least': Measurement(1.5, "elements", 0.01, "by\nhand")}
    return before, calibrate.Calibration("Some (R) GPU [1]", "gpu", "driver 1.0", findings, rates)


def test_the_profile_says_what_was_measured_and_what_was_refused():
    before, found = calibration(
        l2_cache=Measurement(77 * MIB, "bytes", 0.0, "knee"), l2_line=Measurement(100, "bytes", 0.0, "stride")
    )
    parsed = parse_profile(found.toml(), "x.toml")
    assert parsed.matches("Some (R) GPU [1]")
    assert not parsed.matches("Some (R) GPU [1] Ti")
    how, number, source = parsed.values["l2_cache"]
    assert (how, number) == ("value", 77 * MIB)
    assert source.startswith("measured: knee, ")
    assert "driver 1.0" in source
    _, line, source = parsed.values["l2_line"]
    assert line == before.l2_line
    assert "(measured 100 on " in source
    assert "was refused: expected one of" in source
    assert parsed.values["work_group_size"][1:] == (before.work_group_size, before.sources["work_group_size"])
    (name, rate), *others = parsed.measured.items()
    assert (name, rate["value"], rate["method"], others) == ('NumPy arrays, "quoted"\\, least', 1.5, "by\nhand", [])
    assert found.file_name == "some-r-gpu-1.toml"


RATE = '[measured."{}"]\nvalue = 1\nunit = "{}"\nspread = {}\nmethod = ""\ndate = ""\ndriver = ""\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("measured = 1", "measured: expected a table for each measurement, got 1"),
        ("[measured.x]\nvalue = 'fast'", "measured.x.value: expected int or float, got 'fast'"),
        ("[measured.x]\nvalue = true", "measured.x.value: expected int or float, got True"),
        ("[measured.x]\nvalue = 1\nspread = 0", "measured.x.unit: expected str, got None"),
        (RATE.format("lunch", "us", "0"), 'measured.lunch: expected the name of a rate that .* such as "launch"'),
        (RATE.format("launch", "s", "0"), "measured.launch.unit: expected 'us', got 's'"),
        (RATE.format("bandwidth", "G/s", "0"), "measured.bandwidth.unit: expected 'GB/s', got 'G/s'"),
        (RATE.format("lock, partitioned", "us", "0"), "measured.lock, partitioned.unit: expected 'G/s', got 'us'"),
        (RATE.format("launch", "us", "nan"), "measured.launch.spread: expected a finite number that is not negative"),
        (RATE.format("launch", "us", "-1"), "measured.launch.spread: expected a finite number that is not negative"),
        (RATE.format("launch", "us", "0") + "of = 3", "measured.launch.of: expected one of value, spread, unit"),
        ("measured = {x = 3}", "measured.x.value: expected int or float, got None"),
    ],
)
def test_broken_measurements_in_a_profile(text, message):
    start = text if text.startswith("measured =") else ""  # before the tables
    numbers = "\n".join(f"[{key}]\nvalue = 64\nsource = 'x'" for key in PARAMETERS)
    body = f"name = 'x'\nkind = 'gpu'\nmatch = ['x']\n{start}\n{numbers}\n{'' if start else text}"
    with pytest.raises(ProfileError, match=f"^x.toml: {message}"):
        parse_profile(body, "x.toml")


def test_the_command(tmp_path, monkeypatch):
    names = []

    def quickly(device, *, quick, progress):
        for stage in calibrate.STAGES:
            progress(stage)
        names.append((device.name, quick))
        return calibration(l2_cache=Measurement(77 * MIB, "bytes", 0.0, "knee"))[1]

    monkeypatch.setattr(calibrate, "calibrate", quickly)
    monkeypatch.setenv("CLHIST_PROFILES", str(tmp_path / "own"))
    done = CliRunner().invoke(main, ["calibrate", "--quick"])
    assert done.exit_code == 0, done.output
    assert "80,740,352" in done.output
    assert (tmp_path / "own" / "some-r-gpu-1.toml").exists()
    done = CliRunner().invoke(main, ["calibrate", "--json", "--output", str(tmp_path / "new" / "mine.toml")])
    record = json.loads(done.stdout)
    assert record["numbers"]["l2_cache"]["value"] == 77 * MIB
    assert record["path"] == str(tmp_path / "new" / "mine.toml")
    assert parse_profile((tmp_path / "new" / "mine.toml").read_text(), "mine.toml").kind == "gpu"
    assert names == [(clhist.default_queue().device.name, True), (clhist.default_queue().device.name, False)]
    refused(CliRunner().invoke(main, ["calibrate", "--device", "no such device"]), "no OpenCL device matches")


def test_plans_are_measured_with_the_numbers_that_were_found(monkeypatch, queue):
    """Local memory beyond what the driver reports, too, as NVIDIA's devices have it; no file says that yet."""
    much = 4 * queue.device.local_mem_size
    stages = dict.fromkeys(calibrate.STAGES, dict) | {
        "local memory": lambda: {"local_memory": Measurement(much, "bytes", 0.0, "by hand")}
    }

    def rates(bench, profile):
        kernel = clhist.HistogramKernel(
            None, clhist.operators.count(), arguments="", map="EMIT(i % 3, 1)", profile=profile
        )
        assert profile.local_memory == much
        assert kernel(size=9, num_bins=3).tolist() == [3, 3, 3]
        return {"of plans": Measurement(1.0, "G/s", 0.0, "by hand")}

    monkeypatch.setattr(calibrate, "device_kind", lambda device: "gpu")
    monkeypatch.setattr(calibrate, "_stages", lambda bench: stages)
    monkeypatch.setattr(calibrate, "plan_rates", rates)
    monkeypatch.setattr(calibrate, "row_rates", lambda bench, profile: {"of rows": rates(bench, profile)["of plans"]})
    found = calibrate.calibrate(queue.device, quick=True, progress=lambda stage: None)
    assert list(found.rates) == ["of plans", "of rows"]
    assert {finding.key: finding.value for finding in found.findings}["local_memory"] == much


def test_a_calibrated_profile_is_used(tmp_path, monkeypatch, queue):
    found = calibrate.Calibration(
        queue.device.name.strip(),
        "cpu" if own_profile(queue.device).kind == "cpu" else "gpu",
        "driver",
        tuple(
            calibrate.Finding(key, getattr(own_profile(queue.device), key), "measured: so", None) for key in PARAMETERS
        ),
        {},
    )
    monkeypatch.setenv("CLHIST_PROFILES", str(tmp_path))
    path = found.write()
    assert path == tmp_path / found.file_name
    own_profile.cache_clear()
    try:
        sources = own_profile(queue.device).sources
        assert all(str(path) in sources[key] for key in PARAMETERS)
        np.testing.assert_array_equal(clhist.bincount(np.array([2, 0, 2])), [1, 0, 2])
    finally:
        own_profile.cache_clear()


_LIBRARIES = {
    "factorize": "pandas",
    "factorize, of a device": "pandas",
    "ndimage": "scipy",
    "binned_statistic": "scipy",
    "tensors": "torch",
    "boost-histogram": "boost_histogram",
    "boost-histogram, means": "boost_histogram",
}
_BY_GROUP = ("running", "rank")  # which are not measured
MEASURED = [
    call for call in small.COSTS if call not in _BY_GROUP and (call not in _LIBRARIES or find_spec(_LIBRARIES[call]))
]


@pytest.fixture
def cheap(monkeypatch):
    """Let a call of 1000 elements cost as much on any device, without commands."""
    monkeypatch.setattr(small, "COSTS", dict.fromkeys(small.COSTS, threshold(1000)))


def test_which_arrays_are_small_is_measured(cheap, monkeypatch, queue):
    """The sizes that `clhist calibrate` measures are those of the profile; the smallest arrays ask no device."""
    monkeypatch.setattr(host_sizes, "_SIZES", (2048, 4096, 8192))
    monkeypatch.setattr(host_sizes, "_seconds", lambda bench, call: next(seconds))
    # Faster at 8192 alone, half as much as slower at 4096; never.
    seconds = iter([1, 2, 4, 1] + [2, 1] * (len(MEASURED) - 1))
    found = host_sizes.host_sizes(Bench.of(queue.device, quick=True))
    assert sorted(found) == sorted(small.rate_name(call) for call in MEASURED)
    least = [round(8192 * 2 ** (-1 / 3)), *[8192] * (len(MEASURED) - 1)]
    steps = [7 if name == small.rate_name("digitize") else 1 for name in found]
    assert [(each.value, each.unit) for each in found.values()] == [
        (elements * factor, "elements") for elements, factor in zip(least, steps, strict=True)
    ]
    profile = replace(own_profile(queue.device), rates={small.rate_name(c): 2000.0 + n for n, c in enumerate(MEASURED)})
    monkeypatch.setattr(small, "own_rates", lambda device: profile.rates)
    for n, call in enumerate(MEASURED):
        assert [small.pays_off(call, 2000 + n + k) for k in (-1990, -1, 0)] == [False, False, True]
        assert small.is_small(call, 1999 + n, None)
        assert small.is_small(call, 1999 + n, None, out=None, reproducible=False)
        assert not small.is_small(call, 1999 + n, None, reproducible=True)
        assert not small.is_small(call, 10, None, axis=0)
        assert not small.is_small(call, 10, queue)
    monkeypatch.setattr(small, "default_queue", lambda: pytest.fail("looked for a device"))
    assert small.is_small("1 dimension", 999, None)


def test_few_elements_need_no_device(cheap, monkeypatch):
    def none():
        raise clhist.NoDeviceError("none")

    monkeypatch.setattr(small, "default_queue", none)
    assert [small.is_small("bincount", size, None) for size in (2**16 - 1, 2**16)] == [True, False]


def test_host_sizes_run(monkeypatch, queue):
    monkeypatch.setattr(host_sizes, "_SIZES", (1024, 2048))
    found = host_sizes.host_sizes(Bench.of(queue.device, quick=True))
    assert set(found) == set(map(small.rate_name, MEASURED))
    assert all(1024 <= each.value <= 2048 * 7 for each in found.values())


def test_the_threshold_is_predicted(monkeypatch, queue):
    """From a launch, compute units and transfers; what was measured on the device counts more."""
    profile = replace(own_profile(queue.device), rates={})
    monkeypatch.setattr(small, "own_rates", lambda device: profile.rates)
    monkeypatch.setattr(small, "COSTS", {"bincount": small.Cost(8, 2, 4, 4, 2)})
    predictions = [
        ((0, 8, 0), 2286),  # 8 us, by 4 - 4 / 8 ns of an element
        ((4, 2, 0), 8000),
        ((4, 8, 0), 4572),
        ((4, 8, 0.5), 6400),
        ((4, 1, 0), 2**19),  # never
        ((4, 8, 2), 2**19),
    ]
    for overheads, least in predictions:
        monkeypatch.setattr(small, "overheads", lambda device, overheads=overheads: overheads)
        assert [small.pays_off("bincount", size) for size in (least - 1, least)] == [False, True]
    profile = replace(profile, rates={small.rate_name("bincount"): 3000.0})
    assert [small.pays_off("bincount", size) for size in (2999, 3000)] == [False, True]


def test_bins_raise_the_threshold(monkeypatch, queue):
    """Predicted or measured, in proportion to the extra cost; never above that of arrays in the host's caches."""
    rates = {}
    monkeypatch.setattr(small, "own_rates", lambda device: rates)
    monkeypatch.setattr(small, "overheads", lambda device: (0, 8, 0))
    monkeypatch.setattr(small, "COSTS", {"bincount": small.Cost(8, 2, 4, 4, 2, bins=2.0)})
    for bins, least in ((0, 2286), (4000, 4572), (10**9, 2**19)):
        assert [small.pays_off("bincount", size, bins) for size in (least - 1, least)] == [False, True]
    for measured in (3000.0, 2.0**20):
        rates[small.rate_name("bincount")] = measured
        for bins, least in ((0, measured), (4000, max(measured, 6000)), (10**9, max(measured, 2**19))):
            assert [small.pays_off("bincount", size, bins) for size in (least - 1, least)] == [False, True]


def test_when_a_device_is_looked_for(cheap, monkeypatch):
    """Many calls without a device in use look for one, of elements that it might gain from."""

    def looked():
        raise clhist.NoDeviceError("none")

    looks = []
    monkeypatch.setattr(small, "default_queue", lambda: looks.append(1) or looked())
    monkeypatch.setattr(small, "is_in_use", lambda: False)
    monkeypatch.setattr(small, "_START", 5e6)
    monkeypatch.setattr(small, "_spent", 0)
    assert not any(small.pays_off("bincount", size) for size in (*[999] * 100, 1000, 2000))
    assert not looks
    assert not small.pays_off("bincount", 2000)
    assert len(looks) == 1
    monkeypatch.setattr(small, "_spent", 0)
    assert small.pays_off("bincount", 2**16)
    assert len(looks) == 2


def test_a_launch_is_the_least_of_all_processes(monkeypatch, tmp_path, queue):
    monkeypatch.setattr(cpu_runtimes, "_figures", {})
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *names: tmp_path)
    monkeypatch.setattr(cpu_runtimes, "_in_turn", lambda runs: [{"launch": next(seconds)}])
    seconds = iter([4e-5, 1e-5, 3e-5, 2e-5])
    launches = []
    for _ in range(4):
        launches.append(cpu_runtimes.launch_seconds(queue.device, queue.context))
        cpu_runtimes._figures.clear()
    assert launches == [4e-5, 1e-5, 1e-5, 1e-5]
