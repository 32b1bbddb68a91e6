"""Device profiles: what is shipped, what is refused, and which of several a device gets."""

from __future__ import annotations

import pickle
from importlib import resources

import pytest

import clhist
from clhist import ProfileError
from clhist._core.devices.profile import Profile, Report, check_fits, merge, named_profile
from clhist._core.devices.profile_files import PARAMETERS, load_profiles, parse_profile, usable_profiles

NUMBERS = {"local_memory": 1000, "l2_cache": 2000, "l2_line": 32, "hardware_threads": 400, "work_group_size": 50}
SHIPPED = load_profiles()
MEASURED = ("nvidia-h100", "nvidia-h200")  # which have more local memory than their driver reports
REPORT = Report("ACME Turbo 3000", "ACME Corporation", "gpu", 10, 1024, 49152, 4_000_000, 128)


def toml(name="Turbo", kind="gpu", level="device", match=("Turbo",), scale=1, **changed):
    """Return a profile as TOML: NUMBERS times `scale`, or what is `changed` (None: left out)."""
    lines = [f'name = "{name}"', f'kind = "{kind}"', f'level = "{level}"', f"match = {list(match)}"]
    for key, value in ({key: scale * number for key, number in NUMBERS.items()} | changed).items():
        if value is not None:
            table = value if isinstance(value, dict) else {"value": value}
            lines += [f"[{key}]", *(f"{k} = {v}" for k, v in table.items()), f'source = "{name}, {key}"']
    return "\n".join(lines)


def profile_file(path="turbo.toml", **changed):
    return parse_profile(toml(**changed), path)


def only(**values):
    """Leave out all numbers but these."""
    return dict.fromkeys(NUMBERS) | values


@pytest.mark.parametrize("profile", SHIPPED, ids=lambda profile: profile.key)
def test_what_is_shipped(profile):
    assert profile.path == f"devices/{profile.key}.toml"
    assert all(len(source) > 10 for _, _, source in profile.values.values())
    spellings = (profile.key, profile.name, profile.name.upper(), profile.key.replace("-", " "), f" {profile.key}_")
    for spelling in spellings:
        found = named_profile(spelling, SHIPPED)
        assert found.name == profile.name
        assert all(getattr(found, key) > 0 for key in PARAMETERS)
        for key, (how, number, _) in profile.values.items():
            assert getattr(found, key) == number if how == "value" else getattr(found, key) % number == 0


def test_all_that_is_shipped_is_loaded():
    files = [item.name for item in resources.files("clhist.devices").iterdir() if item.name.endswith(".toml")]
    assert sorted(f"devices/{name}" for name in files) == [profile.path for profile in SHIPPED]
    defaults = [profile for profile in SHIPPED if profile.level == "default"]
    assert {profile.kind: profile.values.keys() for profile in defaults} == dict.fromkeys(
        ("cpu", "gpu"), PARAMETERS.keys()
    )


# What drivers call devices: name, aliases, and the profiles of device and architecture that it should get.


def test_devices_agree_with_their_architecture():
    compared = 0
    for device in SHIPPED:
        names = [device.name, device.name.replace("Intel Arc", "Intel(R) Arc(TM)") + " "]
        for architecture in SHIPPED:
            if device.level == "device" and architecture.level == "architecture" and architecture.matches(*names):
                compared += 1
                for key in ("local_memory", "l2_line", "work_group_size"):
                    assert device.key in MEASURED or device.values[key][1] == architecture.values[key][1]
                threads, each = (file.values["hardware_threads"][1] for file in (device, architecture))
                units, rest = divmod(threads, each)
                assert rest == 0
                how, cache, _ = architecture.values.get("l2_cache", ("value", 0, ""))
                assert device.values["l2_cache"][1] >= cache * (units if how == "per_compute_unit" else 1)
    assert compared > 25


def test_there_are_profiles_for_many_devices():
    assert sum(file.level == "device" for file in SHIPPED) >= 40
    keys = [file.key for file in SHIPPED]
    assert len(set(keys)) == len(keys)
    for file in SHIPPED:
        assert file.level == "default" or file.values or file.measured, f"{file.key} knows nothing"


def test_a_profile_as_its_file_says_it():
    found = profile_file("some/where/turbo-3000.toml", l2_cache=77)
    assert (found.key, found.name, found.kind, found.level, found.match) == (
        "turbo-3000", "Turbo", "gpu", "device", ("Turbo",)
    )  # fmt: skip
    assert found.values["l2_cache"] == ("value", 77, "Turbo, l2_cache")
    assert found.matches("ACME TURBO 3000")
    assert not found.matches("ACME Tortoise")


BROKEN = {
    "not TOML": ("name = ", "not valid TOML: "),
    "an unknown key": ("speed = 3\n" + toml(), "speed: unknown key; known are name, kind, level"),
    "no name": (toml().replace("name =", "# "), "name: expected a text, got None"),
    "an empty name": (toml(name=""), "name: expected a text, got ''"),
    "a number as name": (toml().replace('name = "Turbo"', "name = 3"), "name: expected a text, got 3"),
    "another kind": (toml(kind="fpga"), "kind: expected one of gpu, cpu, got 'fpga'"),
    "no kind": (toml().replace("kind =", "# "), "kind: expected one of gpu, cpu, got None"),
    "another level": (
        toml(level="family"),
        "level: expected one of device, architecture, vendor, default, got 'family'",
    ),
    "a text as match": (toml().replace("['Turbo']", "'Turbo'"), "match: expected a list of patterns of names, got"),
    "a number in match": (toml(match=(3,)), "match: expected a list of patterns of names, got [3]"),
    "no match": (toml(match=()), "match: expected at least one pattern, got []"),
    "a broken match": (toml(match=("(",)), "match: expected patterns of names (expected some words"),
    "an empty match": (toml(match=("",)), "match: expected patterns of names (expected some words"),
    "a match of all": (toml(match=("Turbo", "*")), "match: expected patterns of names (expected some words"),
    "one byte of local memory": (toml(local_memory=1), "local_memory.value: expected at least 64 bytes, got 1"),
    "a line of a byte": (toml(l2_line=1), "l2_line.value: expected at least 4 bytes, got 1"),
    "a cache without a line": (toml(l2_cache=600, l2_line=601), "l2_cache.value: expected no less than the 601 of l2_"),
    "half a work-group": (
        toml(hardware_threads=49),
        "hardware_threads.value: expected no less than the 50 of work_gro",
    ),
    "a missing number": (toml(l2_line=None), "l2_line: missing (L2_line: bytes of one of its lines)"),
    "a bare number": ("l2_line = 64\n" + toml(l2_line=None), "l2_line: expected a table with value and source, got 64"),
    "zero": (toml(l2_line=0), "l2_line.value: expected a positive integer, got 0"),
    "a negative number": (toml(l2_cache=-1), "l2_cache.value: expected a positive integer, got -1"),
    "a fraction": (toml(l2_cache=1.5), "l2_cache.value: expected a positive integer, got 1.5"),
    "a truth value": (toml(l2_cache="true"), "l2_cache.value: expected a positive integer, got True"),
    "a text as number": (toml(l2_cache="'64 KiB'"), "l2_cache.value: expected a positive integer, got '64 KiB'"),
    "no source": (
        toml().replace('source = "Turbo, l2_line"', ""),
        "l2_line.source: expected where the number comes from",
    ),
    "an empty source": (
        toml().replace('"Turbo, l2_line"', '""'),
        "l2_line.source: expected where the number comes from",
    ),
    "an unknown inner key": (
        toml(l2_line={"value": 64, "unit": "'B'"}),
        "l2_line.unit: expected one of value, per_compute_unit, source, got 'unit'",
    ),
    "two numbers": (
        toml(l2_line={"value": 64, "per_compute_unit": 3}),
        "l2_line: expected either value or per_compute_unit, got 'value and per_compute_unit'",
    ),
    "no number": (toml(l2_line={}), "l2_line: expected either value or per_compute_unit, got None"),
    "a number that depends": (
        toml(hardware_threads={"per_compute_unit": 3}),
        "hardware_threads: expected value, since the profile is of one device, got 'per_compute_unit'",
    ),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_profiles(text, message):
    with pytest.raises(ProfileError) as caught:
        parse_profile(text, "mine/turbo.toml")
    assert str(caught.value).startswith(f"mine/turbo.toml: {message}")


def test_numbers_come_from_the_first_that_has_them():
    device = profile_file("a.toml", name="device", match=["turbo"])
    family = profile_file("f.toml", name="family", level="architecture", match=["Turbo"], scale=4)
    vendor = profile_file("b.toml", name="vendor", level="vendor", match=["ACME"], scale=2)
    default = profile_file("c.toml", name="default", level="default", match=[], scale=3)
    stranger = profile_file("d.toml", name="stranger", match=["Tortoise"], scale=5)
    processor = profile_file("e.toml", name="processor", kind="cpu", match=["Turbo"], scale=7)

    def numbers(*profiles):
        found = merge(REPORT, [stranger, processor, *profiles])
        assert (found.name, found.kind) == (REPORT.name, "gpu")
        return {key: (getattr(found, key), found.sources[key].split(":")[0]) for key in PARAMETERS}

    driver = "reported by the driver (CL_DEVICE_"
    assert numbers(default, vendor, family, device) == {key: (number, "a.toml") for key, number in NUMBERS.items()}
    assert numbers(default, vendor, family) == {key: (4 * number, "f.toml") for key, number in NUMBERS.items()}
    assert numbers(default, vendor) == {key: (2 * number, "b.toml") for key, number in NUMBERS.items()}
    assert numbers(default) == {
        "local_memory": (49152, f"{driver}LOCAL_MEM_SIZE)"),
        "l2_cache": (4_000_000, f"{driver}GLOBAL_MEM_CACHE_SIZE)"),
        "l2_line": (128, f"{driver}GLOBAL_MEM_CACHELINE_SIZE)"),
        "hardware_threads": (1200, "c.toml"),
        "work_group_size": (150, "c.toml"),
    }


def test_of_two_profiles_of_one_device_the_first_counts():
    first, second = profile_file("first.toml"), profile_file("second.toml", scale=2)
    assert merge(REPORT, [first, second]).l2_cache == 2000
    assert merge(REPORT, [second, first]).l2_cache == 4000


def test_a_vendor_may_know_only_some_numbers():
    vendor = profile_file(level="vendor", match=["ACME"], **only(hardware_threads={"per_compute_unit": 7}))
    default = profile_file("default.toml", level="default", match=[])
    found = merge(REPORT, [vendor, default])
    assert found.hardware_threads == 70
    assert found.sources["hardware_threads"] == "turbo.toml: 7 for each of 10 compute units: Turbo, hardware_threads"
    assert (found.l2_cache, found.work_group_size) == (4_000_000, 50)


def test_what_the_driver_does_not_report_comes_from_the_default():
    silent = Report("Silent", "ACME", "gpu", 10, 1024, 0, 0, 0)
    found = merge(silent, [profile_file("default.toml", level="default", match=[])])
    assert {key: getattr(found, key) for key in PARAMETERS} == NUMBERS
    assert all(source.startswith("default.toml: ") for source in found.sources.values())


@pytest.mark.parametrize(("largest", "expected"), [(0, 50), (49, 49), (50, 50), (1, 1)])
def test_work_groups_are_no_larger_than_the_device_allows(largest, expected):
    report = Report("Turbo", "ACME", "gpu", 10, largest, 49152, 0, 0)
    found = merge(report, [profile_file()])
    assert found.work_group_size == expected
    assert ("CL_DEVICE_MAX_WORK_GROUP_SIZE" in found.sources["work_group_size"]) == (expected < 50)


def test_only_a_profile_of_the_device_may_know_of_more_local_memory():
    """NVIDIA's driver reports 48 KiB, where an H200 has 222."""
    claims = {level: profile_file(level=level, local_memory=200_000) for level in ("device", "architecture", "vendor")}
    default = profile_file("default.toml", level="default", match=[])
    assert merge(REPORT, [claims["device"], default]).local_memory == 200_000
    for level in ("architecture", "vendor"):
        found = merge(REPORT, [claims[level], default])
        assert found.local_memory == 49152
        assert found.sources["local_memory"].startswith(
            "reported by the driver (CL_DEVICE_LOCAL_MEM_SIZE), which allows"
        )


def test_a_profile_that_claims_more_than_the_device_has():
    own = profile_file(local_memory=100_000)
    claiming = {key: Profile("Other", "gpu", **(NUMBERS | {key: 100_000}), sources={}) for key in NUMBERS}
    memory, group = claiming["local_memory"], claiming["work_group_size"]
    with pytest.raises(
        ProfileError,
        match=r"^profile 'Other': local_memory: expected at most the 49152 bytes of 'ACME Turbo 3000', got 100000$",
    ):
        check_fits(memory, REPORT, [])
    check_fits(memory, REPORT, [own])  # which is of this very device and says that there is as much
    for stranger in (profile_file(local_memory=100_000, match=["Tortoise"]), profile_file(level="architecture")):
        with pytest.raises(ProfileError, match="the 49152 bytes"):
            check_fits(memory, REPORT, [stranger])
    with pytest.raises(ProfileError, match=r"work_group_size: expected at most the 1024 work-items of .*, got 100000$"):
        check_fits(group, REPORT, [own])
    for key in ("l2_cache", "l2_line", "hardware_threads"):  # only speed depends on these
        check_fits(claiming[key], REPORT, [])
    check_fits(memory, Report("Silent", "ACME", "gpu", 10, 0, 0, 0, 0), [])


def test_a_number_that_is_nowhere():
    with pytest.raises(
        ProfileError, match=r"hardware_threads: neither a profile nor the driver of 'ACME Turbo 3000' has it"
    ):
        merge(REPORT, [])
    with pytest.raises(ProfileError, match=r"work_group_size: neither .* write a profile into"):
        merge(REPORT, [profile_file(level="default", match=[], work_group_size=None)])


def test_profiles_by_name():
    profiles = [profile_file("a/turbo-3000.toml"), profile_file("b.toml", level="vendor", name="Other")]
    found = named_profile("TURBO-3000", profiles)
    assert found == named_profile("turbo", profiles)
    assert {key: getattr(found, key) for key in PARAMETERS} == NUMBERS
    assert found.sources["l2_line"] == "a/turbo-3000.toml: Turbo, l2_line"
    for unknown, hint in (
        ("turbo-4000", r"did you mean turbo-3000\?"),
        ("tur", "did you mean turbo-3000[?]"),
        ("", "known are turbo-3000, b"),
    ):
        with pytest.raises(ProfileError, match=f"profile '{unknown}': there is none; {hint}$"):
            named_profile(unknown, profiles)


def test_shipped_profiles_by_name(tmp_path, monkeypatch):
    assert (
        clhist.named_profile("NVIDIA H200")
        == clhist.named_profile("nvidia-h200")
        == named_profile("nvidia-h200", SHIPPED)
    )
    monkeypatch.setenv("CLHIST_PROFILES", str(tmp_path))
    (tmp_path / "mine.toml").write_text(toml(name="My own"))
    assert clhist.named_profile("my OWN").l2_cache == 2000


def test_names_without_a_vendor():
    assert named_profile("h200", SHIPPED) == named_profile("nvidia-h200", SHIPPED)
    assert named_profile("RTX 2080 Ti", SHIPPED).name == "NVIDIA GeForce RTX 2080 Ti"
    profiles = [profile_file("a/one-turbo.toml", name="One"), profile_file("b/two-turbo.toml", name="Two")]
    with pytest.raises(
        ProfileError, match="profile 'turbo': expected the name of one profile, got one of one-turbo, two-turbo"
    ):
        named_profile("turbo", profiles)


def test_numbers_of_a_family():
    family = profile_file("family.toml", level="architecture", **only(hardware_threads={"per_compute_unit": 100}))
    default = profile_file("default.toml", level="default", match=[], name="Any", local_memory=777)
    device = profile_file("device.toml", name="Turbo 7", hardware_threads=700)
    assert named_profile("family", [device, family, default]).hardware_threads == 700
    found = named_profile("family", [device, family, default], compute_units=3)
    assert (found.hardware_threads, found.local_memory) == (300, 777)
    assert found.sources["local_memory"] == "default.toml: Any, local_memory"


def test_a_broken_profile_is_ignored_but_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("CLHIST_PROFILES", str(tmp_path))
    (tmp_path / "mine.toml").write_text(toml(l2_cache=0))
    (tmp_path / "good.toml").write_text("\ufeff" + toml(name="My own"), encoding="utf-8")
    with pytest.warns(RuntimeWarning, match=r"mine.toml: l2_cache.value: .*; this profile is ignored$"):
        assert clhist.named_profile("good").name == "My own"
    assert clhist.named_profile("good").name == "My own"  # without another warning
    assert [file.key for file in usable_profiles() if not file.is_shipped] == ["good"]
    for named in ("mine", "MINE"):
        with pytest.raises(ProfileError, match=r"mine.toml: l2_cache.value: expected a positive integer, got 0"):
            clhist.named_profile(named)


def test_the_users_own_profiles_come_first(tmp_path, monkeypatch):
    monkeypatch.setenv("CLHIST_PROFILES", str(tmp_path))
    (tmp_path / "mine.toml").write_text(toml(name="My H200", match=["H200"]))
    (tmp_path / "notes.txt").write_text("not a profile")
    profiles = load_profiles()
    assert profiles[0].path == str(tmp_path / "mine.toml")
    report = Report("NVIDIA H200", "NVIDIA Corporation", "gpu", 132, 1024, 49152, 4_300_000, 128)
    assert merge(report, profiles).l2_cache == 2000
    assert merge(report, profiles[1:]).l2_cache == 62_914_560
    assert named_profile("mine", profiles).name == "My H200"
    (tmp_path / "mine.toml").rename(tmp_path / "nvidia-h200.toml").write_text(toml(name="My NVIDIA H200"))
    for name in ("nvidia-h200", "H200"):
        assert named_profile(name, load_profiles()).l2_cache == 2000


def test_a_broken_profile_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("CLHIST_PROFILES", str(tmp_path))
    (tmp_path / "mine.toml").write_text(toml(l2_cache=0))
    with pytest.raises(
        ProfileError, match=rf"^{tmp_path}/mine.toml: l2_cache.value: expected a positive integer, got 0"
    ):
        load_profiles()
    (tmp_path / "mine.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(ProfileError, match=rf"^{tmp_path}/mine.toml: cannot be read: "):
        load_profiles()


def test_a_directory_of_the_user_that_does_not_exist(tmp_path, monkeypatch):
    monkeypatch.setenv("CLHIST_PROFILES", str(tmp_path / "nowhere"))
    assert all(profile.path.startswith("devices/") for profile in load_profiles())


def test_profiles_are_values():
    first, second = (Profile("x", "gpu", 1, 2, 3, 4, 5, {"l2_line": "a guess"}) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    with pytest.raises(AttributeError):
        first.l2_cache = 7


def test_a_profile_goes_to_other_processes():
    profile = named_profile("nvidia-h200")
    assert pickle.loads(pickle.dumps(profile)) == profile


@pytest.mark.parametrize("key", [3, None, b"nvidia-h200"])
def test_names_of_profiles_are_texts(key):
    with pytest.raises(TypeError, match=r"^key: expected the name of a profile, got"):
        named_profile(key)
