"""The gromacs case: the fused histogram against the float64 loop, and the command around it."""

import json
from dataclasses import fields

import numpy as np
import pytest
from click.testing import CliRunner

from clhist.cases.gromacs import PairList, nonbonded_forces
from clhist.cases.gromacs_data import reference_forces, water_box
from clhist.cli import gromacs as command
from clhist.cli.main import main

EPS = float(np.finfo(np.float32).eps)


@pytest.fixture(scope="module")
def box():
    return water_box(num_molecules=500, cutoff=0.6)


@pytest.mark.parametrize("update", [None, "private", "cas", "lock"])
@pytest.mark.parametrize("memory", ["local", "global"])
def test_forces_are_those_of_the_loop(box, update, memory):
    forces = nonbonded_forces(box, update=update, memory=memory, race_factor=20.0)
    reference = reference_forces(box)
    assert forces.shape == (1500, 3)
    assert forces.dtype == np.float32
    assert (np.abs(forces - reference.forces) <= 256 * EPS * reference.magnitude).all()


def test_forces_are_added_to_what_was_there(box):
    data = water_box(num_molecules=500, cutoff=0.6)
    object.__setattr__(data, "faction", np.full((1500, 3), 7, np.float32))
    difference = nonbonded_forces(data) - nonbonded_forces(box)
    assert np.abs(difference - 7).max() <= 256 * EPS * reference_forces(data).magnitude.max()


def test_a_box_without_pairs_keeps_its_forces():
    alone = water_box(num_molecules=500, cutoff=1e-3)
    assert alone.num_pairs == 0
    assert (nonbonded_forces(alone) == alone.faction).all()


def test_only_the_forces_are_as_large_as_the_particles(box):
    plan = PairList.upload(box).plan()
    assert plan.num_bins == 3 * box.num_particles
    assert plan.num_elements == box.num_pairs


def save(path, data, **changes):
    arrays = {field.name: getattr(data, field.name) for field in fields(data)}
    np.savez(path, **{name: value for name, value in (arrays | changes).items() if value is not None})
    return str(path)


def run(*arguments):
    return CliRunner().invoke(main, ["gromacs", *arguments])


def test_command_reports_error_plan_and_times(tmp_path, box):
    expected = reference_forces(box).forces
    result = run("--data", save(tmp_path / "box.npz", box, expected_faction=expected), "--update", "cas", "--json")
    report = json.loads(result.output)
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
    assert result.output.count("ok") == 1


def test_an_error_above_tolerance_is_exit_status_1(tmp_path, box):
    result = run("--data", save(tmp_path / "box.npz", box, expected_faction=np.ones((1500, 3), np.float32)))
    assert result.exit_code == 1
    assert "TOO LARGE" in result.output


def test_nan_is_no_small_error(box):
    forces = np.full((1500, 3), np.nan, np.float32)
    assert command.compare(forces, box)["float64 reference"]["value"] == np.inf


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        (b"", "npz"),
        (b"PK\x03\x04 truncated", "npz"),
        (b"# a text file\n", "npz"),
    ],
)
def test_bad_files_are_named_without_a_traceback(tmp_path, content, says):
    path = tmp_path / "bad.npz"
    if content is not None:
        path.write_bytes(content)
    result = run("--data", str(path))
    assert result.exit_code == 1
    assert "bad.npz" in result.output
    assert says in result.output
    assert "Traceback" not in result.output


def test_inconsistent_data_is_named(tmp_path, box):
    result = run("--data", save(tmp_path / "bad.npz", box, jjnr=box.jjnr + 1500))
    assert result.exit_code == 1
    assert "bad.npz" in result.output
    assert "jjnr" in result.output
