"""`clhist info`."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import runner
from thresholds import threshold

from clhist._core.devices.profile_files import load_profiles
from clhist._core.devices.vendors import ALL_FEATURES, FEATURES
from clhist._core.opencl.device import devices
from clhist._core.runtime import small
from clhist._core.runtime.small import least_size, pays_off, rate_name
from clhist.cli.info import describe, native_atomics, show, summary, updates

KEYS = {
    "name",
    "vendor",
    "platform",
    "platform_version",
    "library",
    "registered_by",
    "cuda_arrays",
    "version",
    "driver_version",
    "kind",
    "default",
    "default_reason",
    "pyopencl_ctx",
    "problem",
    "compute_units",
    "global_memory",
    "memory_budget",
    "profiles",
    "named_profile",
    "profile_problem",
    "parameters",
    "rates",
    "features",
    "native_atomics",
    "updates",
    "host_sizes",
}
PREDICTED = "predicted from a launch of 10.0 µs"
PARAMETERS = ["local_memory", "l2_cache", "l2_line", "hardware_threads", "work_group_size"]


SMALL = """
name = "Small"
kind = "gpu"
match = ["no device"]
""" + "".join(
    f"[{key}]\nvalue = {value}\nsource = 'invented for a test'\n"
    for key, value in {
        "local_memory": 1024, "l2_cache": 2**21, "l2_line": 64, "hardware_threads": 512, "work_group_size": 256
    }.items()
)  # fmt: skip


run = runner("info")


@pytest.fixture(scope="module")
def device():
    return devices()[0]


@pytest.fixture
def record(device):
    return describe(device, is_default=True)


def test_json_has_all_of_every_device(device):
    result = run("--json")
    assert result.exit_code == 0
    found = json.loads(result.output)
    assert set(found) == {"clhist", "pyopencl", "devices", "default_problem"}
    assert len(found["devices"]) == len(devices())
    for each in found["devices"]:
        assert set(each) == KEYS
        assert list(each["parameters"]) == PARAMETERS
        assert Path(each["library"]).is_file()  # found by the pointers of its platform
        assert re.match("found by clhist|named by |bundled with PyOpenCL", each["registered_by"])
        assert all(number["value"] > 0 and number["source"] for number in each["parameters"].values())
        assert set(each["features"]) == set(FEATURES)
        assert each["updates"]["add"]["int32"] == {memory: ["native", "cas", "lock"] for memory in ("local", "global")}
    assert sum(each["default"] for each in found["devices"]) == (found["default_problem"] is None)


def test_text_names_units_letters_sources_and_the_default(device, record, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text = run("--device", device.name, "-v").output
    everything = run("-v").output  # the default device may be another, by PYOPENCL_CTX
    assert f"{device.name.strip()}\n" in text or f"{device.name.strip()}  [default]\n" in text
    assert "  [default]\n" in everything or "no default device: " in everything
    for label in ("local memory (L)", "L2 cache (L2)", "L2 line (L2_line)", "hardware threads (Thw)"):
        assert label in text
    assert f"({device.local_mem_size:,} B)" in text or "devices/" in text
    assert max(map(len, show(record).splitlines())) <= 100


def test_the_short_text_has_a_line_for_each_subject(device, record, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = summary(record).splitlines()
    assert max(map(len, lines)) <= 60
    subjects = [line.split()[0] for line in lines[2:] if not line.startswith(" " * 4)]
    of_cuda = ["arrays"] if record["cuda_arrays"] else []
    assert subjects == ["default", "platform", "kind", *of_cuda, "profiles", "rates", "model", "atomics"]
    assert len(run("--device", device.name).output) < len(run("--device", device.name, "-v").output) / 4
    text = summary(record | {"problem": "its compiler is too old"})
    assert re.search("does not work +its compiler is too old", text)
    assert "atomics" not in text


def test_thresholds_of_the_host(device, monkeypatch):
    costs = {"bincount": small.Cost(80, 2, 2, 1), "group_by": threshold(5000), "unique": small.Cost(80, 2, 2, 10)}
    monkeypatch.setattr(small, "COSTS", costs)
    monkeypatch.setattr(small, "own_rates", lambda device: {rate_name("group_by"): 7000.0})
    monkeypatch.setattr(small, "overheads", lambda device: (10.0, 2, 0.0))
    calls = {call: least_size(call, device) for call in costs}
    assert [source for _, source in calls.values()] == [PREDICTED, "measured", PREDICTED]
    assert [round(least) for least, _ in calls.values()] == [66_667, 7000, 2**19]
    for call, (least, _) in calls.items():
        assert (pays_off(call, int(least) - 1), pays_off(call, int(least) + 1)) == (False, True)


def test_thresholds_are_shown(record):
    sizes = {"1 dimension": {"least": 65536, "source": "default"}, "bincount": {"least": 7000.5, "source": "measured"}}
    text = show(record | {"host_sizes": sizes})
    assert re.search("histogram +65,536  default\n +bincount +7,001  measured\n", text)


def test_one_profile_is_shown_with_its_sources(monkeypatch):
    monkeypatch.setenv("OCL_ICD_VENDORS", "none")  # no OpenCL is needed
    found = json.loads(run("--profile", "nvidia-h200", "--json").output)
    assert found["name"] == "NVIDIA H200"
    assert list(found["parameters"]) == PARAMETERS
    text = run("--profile", "nvidia-h200").output
    assert text.startswith("NVIDIA H200 (GPU)\n  local memory (L) ")
    assert "devices/nvidia-h200.toml" in text
    assert run("--profile", "no such").exit_code == 2


def test_the_profiles_that_match_are_shown(device, record):
    matched = record["profiles"]
    assert matched[-1] == {
        "name": f"default-{record['kind']}",
        "level": "default",
        "path": f"devices/default-{record['kind']}.toml",
    }
    assert f"default-{record['kind']} (default)" in " ".join(show(record).split())  # it is folded
    assert record["named_profile"] is None
    assert "CLHIST_PROFILE" not in show(record)


def test_a_profile_named_by_the_environment(device, tmp_path, monkeypatch):
    monkeypatch.setenv("CLHIST_PROFILES", str(tmp_path))
    own = describe(device, is_default=False)
    for name, memory in (("small", 1024), ("large", 2**40)):
        (tmp_path / f"{name}.toml").write_text(SMALL.replace("1024", str(memory)).replace("Small", name))
    monkeypatch.setenv("CLHIST_PROFILE", "small")
    found = describe(device, is_default=False)
    assert (found["named_profile"], found["profile_problem"]) == ("small", None)
    assert found["parameters"]["local_memory"] == {
        "value": 1024,
        "source": f"{tmp_path}/small.toml: invented for a test",
    }
    assert (found["name"], found["kind"]) == (own["name"], own["kind"])
    assert ["CLHIST_PROFILE", "small,", "used", "instead"] in [line.split() for line in show(found).splitlines()]
    monkeypatch.setenv("CLHIST_PROFILE", "large")
    found = describe(device, is_default=False)
    assert found["profile_problem"].startswith("profile 'large': local_memory: expected at most the ")
    assert found["profile_problem"].endswith(f", got {2**40}")
    assert found["parameters"] == own["parameters"]
    monkeypatch.setenv("CLHIST_PROFILE", "no such")
    assert describe(device, is_default=False)["profile_problem"].startswith(
        "profile 'no such': there is none; known are"
    )


def test_profiles_are_listed(tmp_path, monkeypatch):
    monkeypatch.setenv("CLHIST_PROFILES", str(tmp_path))
    (tmp_path / "mine.toml").write_text(SMALL)
    monkeypatch.setenv("OCL_ICD_VENDORS", "none")  # no OpenCL is needed
    found = json.loads(run("--profiles", "--json").output)
    assert [each["name"] for each in found] == [file.key for file in load_profiles()]
    mine = found[0]
    assert {key: value for key, value in mine.items() if key != "parameters"} == {
        "features": None,
        "name": "mine", "title": "Small", "path": f"{tmp_path}/mine.toml", "kind": "gpu", "level": "device",
        "match": ["no device"],
    }  # fmt: skip
    assert mine["parameters"]["l2_line"] == {"value": 64, "source": "invented for a test"}
    lines = [line.split() for line in run("--profiles").output.splitlines()]
    assert ["mine", "*", "1K", "2M", "64", "512", "256", "no", "device"] in lines
    assert ["nvidia-geforce-rtx-3090", "48K", "6M", "128", "125,952", "1,024", "GeForce", "RTX", "3090$"] in lines
    assert ["GPUs,", "level", "architecture"] in lines
    assert ["default-cpu", "32K", "1M", "64", "1/CU", "1", "-"] in lines
    assert str(tmp_path) in run("--profiles").output


def test_filters(device):
    found = json.loads(run("--json", "--platform", device.platform.name[:4].upper()).output)["devices"]
    assert all(device.platform.name[:4].lower() in each["platform"].lower() for each in found)
    result = run("--device", "no such device")
    assert result.exit_code == 2
    assert result.output.startswith("Error: no OpenCL device matches device 'no such device'; there are: ")


def test_device_that_does_not_work_is_shown_with_the_reason(record):
    text = show(record | {"default": False, "problem": "its compiler is too old"})
    assert re.search("does not work +its compiler is too old", text)
    assert "[default]" not in text
    assert "Hardware atomics" not in text


def test_native_atomics_follow_the_features():
    plain = native_atomics([])
    assert {"operation": "add", "dtype": "int32", "memory": "local", "way": "core"} in plain
    assert {each["dtype"] for each in plain} == {"int32", "uint32"}
    wide = native_atomics(["int64_base_atomics"])
    assert {each["operation"] for each in wide if each["dtype"] == "uint64"} == {"add"}
    promised, proven = native_atomics(["nvidia_ptx"]), native_atomics(["nvidia_ptx:add_float64_global"])
    assert promised == plain
    assert {"operation": "add", "dtype": "float64", "memory": "global", "way": "nvidia_ptx"} in proven


def test_updates_follow_the_features():
    plain, full = updates([]), updates(ALL_FEATURES)
    assert plain["add"]["int64"]["global"] == ["lock"]
    assert full["add"]["int64"]["global"] == ["native", "cas", "lock"]
    assert plain["add"]["float64"]["local"] == []  # no double precision
    assert full["saturating_add"]["int32"]["local"] == ["cas", "lock"]
    assert full["add"]["complex128"]["local"] == ["native", "cas", "lock"]
    assert "float32" not in full["bitwise_or"]


def test_text_tells_memories_and_missing_types_apart(record):
    mixed = {"int32": {"local": ["native", "lock"], "global": ["cas", "lock"]}, "float64": {"local": [], "global": []}}
    ways = [("int32", "local", "core"), ("int64", "global", "int64_base_atomics"), ("float32", "local", "nvidia_ptx")]
    ways += [("float32", "global", "nvidia_ptx")]
    atomics = [{"operation": "add", "dtype": dtype, "memory": memory, "way": way} for dtype, memory, way in ways]
    lines = show(record | {"updates": {"add": mixed}, "native_atomics": atomics}).splitlines()
    assert ["add", "yes", "local", "yes", "global", "ptx", "no"] in [line.split() for line in lines]
    assert ["add", "native/cas", "-", "-", "no", "-", "-"] in [line.split() for line in lines]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_without_opencl_says_how_to_get_it(options, tmp_path):
    environment = os.environ | {"OCL_ICD_VENDORS": str(tmp_path / "none")}
    command = [sys.executable, "-m", "clhist", "info", *options]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Error: no OpenCL platform was found; ")
    assert 'pip install "clhist[cpu]"' in done.stderr
    assert done.stderr.count("\n") == 1
