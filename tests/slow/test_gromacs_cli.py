"""`clhist gromacs`: its report, table, files and errors."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest
from commands import refused, runner

from clhist.cases.gro_file import read_gro, write_gro
from clhist.cases.gromacs import PairList, nonbonded_forces, structure_pairs
from clhist.cases.gromacs_data import load_nonbonded, reference_forces
from clhist.cases.water import water_box, water_structure
from clhist.cli.cases import gromacs_table
from clhist.cli.cases.gromacs_table import missing_atomics


@pytest.fixture(scope="module")
def box():
    return water_box(num_molecules=500, cutoff=0.6)


def save(path, data, **changes):
    arrays = {field.name: getattr(data, field.name) for field in fields(data)}
    np.savez(path, **{name: value for name, value in (arrays | changes).items() if value is not None})
    return str(path)


run = runner("gromacs")


def test_command_reports_error_plan_and_times(tmp_path, box):
    expected = reference_forces(box).forces
    result = run("--data", save(tmp_path / "box.npz", box, expected_faction=expected), "--update", "cas", "--json")
    report = json.loads(result.stdout)
    # Small forces cancel: relative to themselves they may be off by more than the tolerance against `expected`.
    within = all(error["value"] <= error["tolerance"] for error in report["errors"].values())
    assert report["passed"] == within
    assert result.exit_code == (0 if within else 1)
    assert report["plan"]["update"] in ("cas", "private")
    assert report["num_pairs"] == box.num_pairs
    assert report["errors"]["float64 reference"]["value"] <= report["errors"]["float64 reference"]["tolerance"]
    assert set(report["errors"]) == {"float64 reference", "expected_faction"}
    assert report["seconds"]["call"] > 0
    assert report["seconds"]["sweep"] > 0


def test_command_in_words(tmp_path, box):
    result = run("--data", save(tmp_path / "box.npz", box))
    assert result.exit_code == 0, result.output
    assert "1,500 particles" in result.output
    assert "updates in" in result.output
    assert "forces in kJ/(mol nm)" in result.output
    assert result.stdout.count("ok") == 2
    assert "with the same bits on every device: SHA-256" in result.output
    assert "the paper 2.65 x and 1.6 x" in result.output
    here = "global" not in missing_atomics(PairList.upload(box))
    assert ("native  not here" in result.output) != here
    assert ("the paper 0.91 x" in result.output) == here


def test_the_table_has_what_the_paper_measured(box):
    result = run("--quick", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    rows = report["table"]
    native = [] if "global" in report["native_missing_in"] else ["native"] * 3
    assert [row["update"] for row in rows] == ["auto", *native, "cas", "cas", "cas", "auto"]
    kinds = ["flat", "RF = 1", "with RF"]
    assert [row["version"] for row in rows] == ["with RF", *kinds * (len(rows) // 3), "exact"]
    assert all(row["passed"] and row["seconds"]["kernels"] > 0 for row in rows)
    for row in rows:
        if row["version"] == "flat":
            plan = row["plan"]
            assert (plan["update"], plan["memory"], plan["copies"], plan["passes"]) == (row["update"], "global", 1, 1)
    assert rows.pop()["errors"]["exact sums"]["value"] <= 0.5
    assert [row["paper_seconds"] for row in rows[-3:]] == pytest.approx([2432e-6, 1470e-6, 919e-6], rel=1e-3)
    assert {row["plan"]["race_factor"] for row in rows if row["version"] == "with RF"} == {
        report["race_factor"]["value"]
    }
    ratio = rows[-3]["seconds"]["kernels"] / rows[-1]["seconds"]["kernels"]
    assert report["speedups"]["cas"]["over_flat"] == pytest.approx(ratio)
    assert report["units"]["force"] == "kJ/(mol nm)"


def test_native_alone_is_refused_where_there_is_none(tmp_path, box):
    result = run("--data", save(tmp_path / "box.npz", box), "--update", "native", "--race-factor", "5", "--json")
    if "global" in missing_atomics(PairList.upload(box)):
        assert result.exit_code == 2
        assert "'native' is not available for add on float32" in result.output
        assert "Traceback" not in result.output
    else:
        report = json.loads(result.stdout)
        assert [row["update"] for row in report["table"]] == ["native"] * 3 + ["auto"]
        assert report["plan"]["race_factor"] == 5


@pytest.fixture(scope="module")
def water(tmp_path_factory):
    """A .gro file of 300 molecules."""
    path = tmp_path_factory.mktemp("gromacs") / "water.gro"
    write_gro(path, water_structure(300))
    return path


def test_a_structure_and_what_is_written(tmp_path, water):
    forces, picture = tmp_path / "forces.npz", tmp_path / "forces.png"
    options = ("--cutoff", "0.7", "--update", "cas", "--output", str(forces), "--plot", str(picture), "--json")
    result = run("--structure", str(water), *options)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["num_particles"] == 900
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000
    data = load_nonbonded(forces)  # --data reads it as well
    assert data.num_pairs == report["num_pairs"] > 10_000
    with np.load(forces) as arrays:
        found = arrays["forces"]
    reference = reference_forces(data)
    assert (np.abs(found - reference.forces) <= 256 * 2.0**-23 * reference.magnitude).all()
    np.testing.assert_allclose(found, nonbonded_forces(data), atol=512 * 2.0**-23 * reference.magnitude.max())


def test_a_structure_far_from_its_box_has_the_same_forces(tmp_path, water):
    """Rounded before they are moved into the box, positions would have lost four digits."""
    atoms, found = read_gro(water), {}
    for name, steps in (("near", 0), ("far", 500)):
        write_gro(tmp_path / f"{name}.gro", replace(atoms, positions=atoms.positions + steps * atoms.box), decimals=6)
        given = ("--cutoff", "0.7", "--update", "cas", "--output", str(tmp_path / f"{name}.npz"), "--json")
        result = run("--structure", str(tmp_path / f"{name}.gro"), *given)
        assert result.exit_code == 0, result.output
        errors = json.loads(result.stdout)["errors"]
        assert errors["float64 positions"]["value"] < 1e-4
        with np.load(tmp_path / f"{name}.npz") as arrays:
            found[name] = arrays["forces"]
    np.testing.assert_allclose(found["far"], found["near"], atol=1e-4 * np.abs(found["near"]).max())


def test_positions_rounded_too_early_fail(tmp_path, water):
    atoms = read_gro(water)
    far = replace(atoms, positions=atoms.positions + 500 * atoms.box)
    rounded = replace(far, positions=far.positions.astype(np.float32).astype(np.float64))
    data = structure_pairs(rounded, 0.7)
    unrounded = reference_forces(data, positions=far.positions, box=far.box)
    errors = gromacs_table.compare(nonbonded_forces(data), data, reference_forces(data), unrounded)
    assert errors["float64 reference"]["value"] <= errors["float64 reference"]["tolerance"]
    assert errors["float64 positions"]["value"] > errors["float64 positions"]["tolerance"]


def test_one_residue_is_why_there_are_no_pairs(tmp_path):
    one = water_structure(1)
    write_gro(tmp_path / "one.gro", replace(one, box=np.full(3, 3.0)))
    error = run("--structure", str(tmp_path / "one.gro"), "--cutoff", "0.9")
    refused(error, "expected pairs of different residues", "all 3 pairs within it are of one residue")


def test_the_generated_box_can_be_written(tmp_path):
    path = tmp_path / "box.gro"
    assert run("--quick", "--update", "cas", "--output", str(path)).exit_code == 0
    found = read_gro(path)
    assert found.positions.shape == (1500, 3)
    assert np.abs(found.positions - water_structure(500).positions).max() <= 0.0005 + 1e-12


def test_atoms_of_ones_own(tmp_path, water):
    atoms = read_gro(water)
    names = atoms.residues.copy()
    names[:3] = "LIG"
    write_gro(tmp_path / "ligand.gro", replace(atoms, residues=names))
    given = ("--structure", str(tmp_path / "ligand.gro"), "--cutoff", "0.5", "--update", "cas", "--json")
    refused(run(*given), "ligand.gro: types: expected charge, c6 and c12 of atom OW of residue LIG (number 1")
    (tmp_path / "types.csv").write_text("LIG,OW,0,0,0\nLIG,HW1,0,0,0\nLIG,HW2,0,0,0\n")
    result = run(*given, "--types", str(tmp_path / "types.csv"), "--output", str(tmp_path / "out.npz"))
    assert result.exit_code == 0, result.output
    with np.load(tmp_path / "out.npz") as arrays:
        assert not arrays["forces"][:3].any(), "neither charge nor Lennard-Jones parameters"
    (tmp_path / "types.csv").write_text("LIG,OW,0,0\n")
    refused(run(*given, "--types", str(tmp_path / "types.csv")), "types.csv: line 1: expected residue, atom")


def test_atoms_in_one_place_are_no_traceback(tmp_path, water):
    atoms = read_gro(water)
    at = atoms.positions.copy()
    at[3] = at[0]
    write_gro(tmp_path / "clash.gro", replace(atoms, positions=at))
    refused(run("--structure", str(tmp_path / "clash.gro"), "--cutoff", "0.5"), "clash.gro: pair", "at the same place")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--structure", "{water}", "--cutoff", "2"], 2, "water.gro: cutoff: expected more than 0 and at most half"),
        (["--structure", "{water}", "--cutoff", "1e-3"], 2, "no two atoms are within it"),
        (["--structure", "{water}", "--data", "{water}"], 2, "got both"),
        (["--structure", "{water}", "--scale", "2"], 2, "a file cannot be scaled"),
        (["--structure", "{folder}/absent.gro"], 2, "absent.gro: No such file"),
        (["--cutoff", "0.5"], 2, "--cutoff: expected only with --structure"),
        (["--types", "{water}"], 2, "--types: expected only with --structure"),
        (["--quick", "--scale", "2"], 2, "--quick: expected only"),
        (["--scale", "0"], 2, "--scale"),
        (["--race-factor", "0.5"], 2, "--race-factor"),
        (["--race-factor", "guess"], 2, "--race-factor"),
        (["--output", "{folder}/forces.txt"], 2, "expected a file .npz or .gro, got"),
        (["--output", "{folder}/absent/forces.npz"], 2, "in a folder that exists"),
        (["--data", "{water}", "--output", "{folder}/a.gro"], 2, "no names of atoms"),
        (["--plot", "{folder}/forces.txt"], 2, "expected a file .png"),
    ],
)
def test_wrong_options_are_refused(tmp_path, water, arguments, code, text):
    result = run(*(argument.format(water=water, folder=tmp_path) for argument in arguments))
    assert result.exit_code == code
    assert text in result.output
    assert "Traceback" not in result.output


def test_a_malformed_structure_is_refused_by_line(tmp_path, water):
    path = tmp_path / "bad.gro"
    path.write_text(water.read_text().replace("  10SOL", "  1xSOL"))
    refused(run("--structure", str(path)), "bad.gro: line 30: expected a residue number in columns 1 to 5")


@pytest.mark.parametrize(
    ("missing", "expected"), [(set(), None), ({"local"}, "global"), ({"global"}, "none"), ({"local", "global"}, "none")]
)
def test_native_is_offered_where_the_device_has_it(box, monkeypatch, missing, expected):
    monkeypatch.setattr(gromacs_table, "missing_atomics", lambda pairs: missing)
    native = [v for v in gromacs_table.versions(PairList.upload(box), "auto", 7.0) if v.update == "native"]
    assert [v.kind for v in native] == ([] if expected == "none" else ["flat", "RF = 1", "with RF"])
    if native:
        assert native[2].options.get("memory") == expected


def test_an_error_above_tolerance_is_exit_status_1(tmp_path, box):
    result = run("--data", save(tmp_path / "box.npz", box, expected_faction=np.ones((1500, 3), np.float32)))
    assert result.exit_code == 1
    assert "TOO LARGE" in result.output


def test_a_unit_in_the_last_place_is_no_exact_force(box):
    forces = nonbonded_forces(box, reproducible=True)
    assert gromacs_table.exact_error(forces, box) <= 0.5
    assert gromacs_table.exact_error(np.nextafter(forces, np.float32(np.inf)), box) > 0.5


def test_nan_is_no_small_error(box):
    forces = np.full((1500, 3), np.nan, np.float32)
    assert gromacs_table.compare(forces, box, reference_forces(box))["float64 reference"]["value"] == np.inf


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "No such file"), (b"", "npz"), (b"PK\x03\x04 truncated", "npz"), (b"# a text file\n", "npz")],
)
def test_bad_files_are_named_without_a_traceback(tmp_path, content, says):
    path = tmp_path / "bad.npz"
    if content is not None:
        path.write_bytes(content)
    result = refused(run("--data", str(path)), "bad.npz", says)
    assert "Traceback" not in result.output


def test_inconsistent_data_is_named(tmp_path, box):
    refused(run("--data", save(tmp_path / "bad.npz", box, jjnr=box.jjnr + 1500)), "bad.npz", "jjnr")
