"""The pair lists of the GROMACS case and their reference, without a device."""

from __future__ import annotations

import dataclasses
import io
import math
import re
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clhist.cases.gromacs_data import NonbondedInput, load_nonbonded, reference_forces
from clhist.cases.water import water_box

SPEC_FILE = Path(__file__).resolve().parents[3] / "shared" / "data" / "gromacs_inl1100_largest.npz"
EPS = 2.0**-23


def as_arrays(data: NonbondedInput) -> dict[str, Any]:
    """The fields that would be saved."""
    found = {field.name: getattr(data, field.name) for field in dataclasses.fields(data)}
    return {name: value for name, value in found.items() if value is not None}


def loop_inl1100(data: NonbondedInput) -> np.ndarray:
    """The forces by the loop as it is printed in the paper, one pair at a time."""
    pos, shiftvec, charge, nbfp = (a.tolist() for a in (data.pos, data.shiftvec, data.charge, data.nbfp))
    faction = data.faction.astype(float)
    for n in range(len(data.iinr)):
        i = data.iinr[n]
        moved = [p + s for p, s in zip(pos[i], shiftvec[data.shift[n]], strict=True)]
        for k in range(data.jindex[n], data.jindex[n + 1]):
            j = data.jjnr[k]
            d = [a - b for a, b in zip(moved, pos[j], strict=True)]
            r = math.hypot(*d)
            kind = 2 * (data.ntype * int(data.types[i]) + int(data.types[j]))
            vnb6, vnb12 = nbfp[kind] / r**6, nbfp[kind + 1] / r**12
            vcoul = float(data.facel) * charge[i] * charge[j] / r
            t = np.array(d) * (12 * vnb12 - 6 * vnb6 + vcoul) / r**2
            faction[i] += t
            faction[j] -= t
    return faction


def float32_forces(data: NonbondedInput, rng: np.random.Generator) -> np.ndarray:
    """The forces as a device computes them: all in float32, added up in any order."""
    row = data.owner
    i, j = data.iinr[row], data.jjnr
    d = data.pos[i] + data.shiftvec[data.shift[row]] - data.pos[j]
    rinv = 1 / np.sqrt((d * d).sum(axis=1))
    rinvsq = rinv * rinv
    rinvsix = rinvsq * rinvsq * rinvsq
    c6, c12 = data.nbfp.reshape(-1, 2)[data.ntype * data.types[i] + data.types[j]].T
    vcoul = data.facel * data.charge[i] * data.charge[j] * rinv
    t = d * ((12 * (c12 * rinvsix * rinvsix) - 6 * (c6 * rinvsix) + vcoul) * rinvsq)[:, None]
    order = rng.permutation(2 * len(j))
    faction = data.faction.copy()
    np.add.at(faction, np.concatenate([i, j])[order], np.concatenate([t, -t])[order])
    return faction


def shuffled(data: NonbondedInput, rng: np.random.Generator) -> NonbondedInput:
    """The same box with forces to add to, several types and no two particles alike."""
    n, ntype = data.num_particles, 3
    return dataclasses.replace(
        data,
        ntype=ntype,
        types=rng.integers(0, ntype, n),
        nbfp=rng.uniform(0, 1e-6, 2 * ntype * ntype),
        charge=rng.uniform(-1, 1, n),
        faction=rng.uniform(-1e3, 1e3, (n, 3)),
    )


@pytest.fixture(scope="module")
def small() -> NonbondedInput:
    return water_box(70, cutoff=0.6)


@pytest.fixture(scope="module")
def paper_sized() -> NonbondedInput:
    return water_box()


@pytest.fixture(scope="module")
def spec_file(small: NonbondedInput, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The input taken from SPEC, or where it is not beside the checkout, a stand-in with the same keys."""
    if SPEC_FILE.exists():
        return SPEC_FILE
    rng = np.random.default_rng(1)
    data = shuffled(small, rng)
    path = tmp_path_factory.mktemp("gromacs") / "stand_in.npz"
    np.savez_compressed(path, **as_arrays(data), expected_faction=float32_forces(data, rng))
    return path


# --- the reference


def test_reference_is_the_loop_of_the_paper(small: NonbondedInput) -> None:
    data = shuffled(small, np.random.default_rng(2))
    forces, magnitude = reference_forces(data)
    assert np.all(np.abs(forces - loop_inl1100(data)) <= 1e-12 * magnitude)


def test_forces_are_minus_the_gradient_of_the_energy(small: NonbondedInput) -> None:
    def energy(pos: np.ndarray) -> float:
        row = small.owner
        i, j = small.iinr[row], small.jjnr
        r = np.linalg.norm(pos[i] + small.shiftvec[small.shift[row]] - pos[j], axis=1)
        c6, c12 = small.nbfp.astype(float).reshape(-1, 2)[small.ntype * small.types[i] + small.types[j]].T
        charges = small.charge.astype(float)
        return float(np.sum(small.facel * charges[i] * charges[j] / r + c12 / r**12 - c6 / r**6))

    forces, magnitude = reference_forces(small)
    for particle, axis in [(0, 0), (1, 1), (100, 2), (209, 0)]:
        step = np.zeros((small.num_particles, 3))
        step[particle, axis] = 1e-5
        slope = (energy(small.pos + step) - energy(small.pos - step)) / 2e-5
        assert abs(slope + forces[particle, axis]) < 1e-5 * magnitude[particle, axis]


@pytest.mark.parametrize("chunk", [7, 997, 10**9])
def test_reference_does_not_depend_on_the_chunk(small: NonbondedInput, chunk: int) -> None:
    whole, parts = reference_forces(small), reference_forces(small, chunk)
    assert np.all(np.abs(parts.forces - whole.forces) <= 1e-12 * whole.magnitude)
    np.testing.assert_allclose(parts.magnitude, whole.magnitude, rtol=1e-12)


def shortened(data: NonbondedInput, rows: int) -> NonbondedInput:
    """The first rows of a pair list."""
    end = data.jindex[rows]
    first = {"iinr": data.iinr[:rows], "shift": data.shift[:rows], "jindex": data.jindex[: rows + 1]}
    return dataclasses.replace(data, jjnr=data.jjnr[:end], **first)


def test_no_pairs_leave_the_initial_forces(small: NonbondedInput) -> None:
    data = shortened(shuffled(small, np.random.default_rng(3)), 0)
    assert data.num_pairs == len(data.owner) == 0
    forces, magnitude = reference_forces(data)
    np.testing.assert_array_equal(forces, data.faction)
    np.testing.assert_array_equal(magnitude, np.abs(data.faction))


def test_particles_at_the_same_place_are_refused(small: NonbondedInput) -> None:
    pos = small.pos.copy()
    central = np.flatnonzero(small.shift == 13)[0]
    pair = small.jindex[central]
    pos[small.jjnr[pair]] = pos[small.iinr[central]]
    with pytest.raises(ValueError, match=rf"^pair {pair}: particles .* same place"):
        reference_forces(dataclasses.replace(small, pos=pos))


# --- the input of SPEC


def test_reference_gives_the_expected_forces(spec_file: Path) -> None:
    data = load_nonbonded(spec_file)
    assert data.expected_faction is not None
    forces, magnitude = reference_forces(data)
    expected = data.expected_faction.astype(float)
    assert np.max(np.abs(forces - expected) / np.maximum(1, np.abs(expected))) < 1e-3
    assert np.all(np.abs(forces - expected) <= 256 * EPS * magnitude)


@pytest.mark.parametrize("source", ["spec_file", pytest.param("paper_sized", marks=pytest.mark.slow)])
def test_float32_is_within_the_tolerance_and_a_lost_update_is_not(source: str, request: Any) -> None:
    found = request.getfixturevalue(source)
    data = found if isinstance(found, NonbondedInput) else load_nonbonded(found)
    forces, magnitude = reference_forces(data)
    result = float32_forces(data, np.random.default_rng(4))
    assert np.all(np.abs(result - forces) <= 256 * EPS * magnitude)
    lost = dataclasses.replace(data, jjnr=data.jjnr[:-1], jindex=np.minimum(data.jindex, data.num_pairs - 1))
    assert np.any(np.abs(reference_forces(lost).forces - forces) > 256 * EPS * magnitude)


# --- the water box


def test_default_box_is_of_the_papers_size(paper_sized: NonbondedInput) -> None:
    assert paper_sized.num_particles == 23178
    assert paper_sized.num_pairs == pytest.approx(1_380_160, rel=0.01)
    assert len(paper_sized.iinr) == pytest.approx(30657, rel=0.1)
    assert paper_sized.owner.dtype == np.int32
    np.testing.assert_array_equal(np.bincount(paper_sized.owner), np.diff(paper_sized.jindex))


def test_forces_of_the_default_box_are_moderate(paper_sized: NonbondedInput) -> None:
    forces, magnitude = reference_forces(paper_sized)
    assert 10 < np.sqrt(np.mean(forces**2)) < 2000
    assert magnitude.max() < 1e5
    np.testing.assert_allclose(forces.sum(axis=0), 0, atol=1e-6)  # action and reaction


@pytest.mark.parametrize(
    ("molecules", "cutoff"), [(70, 0.639), (70, 0.6), (71, 0.35), (300, 0.5), (301, 1e-3), (1, 0.1), (2, 0.19)]
)
def test_list_has_each_pair_of_molecules_within_the_cutoff_once(molecules: int, cutoff: float) -> None:
    data = water_box(molecules, cutoff, seed=5)
    edge = float(data.shiftvec[14, 0])
    assert molecules / edge**3 == pytest.approx(33.43, rel=1e-5)
    pos = data.pos.astype(float)
    centre = pos.reshape(-1, 3, 3).mean(axis=1)
    images = centre[:, None, None] + data.shiftvec - centre[:, None]  # i, j, shift
    near = np.linalg.norm(images, axis=-1) < cutoff
    near[np.arange(molecules), np.arange(molecules)] = False
    # From either side a pair is seen once, under opposite shifts (s and 26 - s).
    expected = {min((i, j, s), (j, i, 26 - s)) for i, j, s in np.argwhere(near).tolist()}

    i, j, shift = data.iinr[data.owner], data.jjnr, data.shift[data.owner]
    atoms = Counter(zip(i.tolist(), j.tolist(), shift.tolist(), strict=True))
    molecule_pairs = Counter((a // 3, b // 3, s) for a, b, s in atoms.elements())
    assert set(atoms.values()) <= {1}
    assert set(molecule_pairs.values()) <= {9}
    assert {min((i, j, s), (j, i, 26 - s)) for i, j, s in molecule_pairs} == expected
    assert len(molecule_pairs) == len(expected)


def test_list_is_laid_out_as_by_gromacs(small: NonbondedInput) -> None:
    # By molecule, then shift, then atom; no empty row; neighbours are whole molecules; none is shifted by itself.
    key = np.stack([small.iinr // 3, small.shift, small.iinr % 3], axis=1)
    np.testing.assert_array_equal(key, np.unique(key, axis=0))
    assert np.all(np.diff(small.jindex) > 0)
    np.testing.assert_array_equal(small.jjnr.reshape(-1, 3) % 3, np.tile([0, 1, 2], (small.num_pairs // 3, 1)))
    assert small.shiftvec.shape == (27, 3)
    np.testing.assert_array_equal(small.shiftvec[13], 0)


def test_molecules_are_rigid_neutral_spc_water(small: NonbondedInput) -> None:
    oxygen, first, second = np.moveaxis(small.pos.reshape(-1, 3, 3).astype(float), 1, 0)
    for hydrogen in (first, second):
        np.testing.assert_allclose(np.linalg.norm(hydrogen - oxygen, axis=1), 0.1, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(first - second, axis=1), 0.1633, atol=1e-5)
    np.testing.assert_allclose(small.charge.reshape(-1, 3).sum(axis=1), 0, atol=1e-7)


def test_box_is_determined_by_its_arguments(small: NonbondedInput) -> None:
    again, other = as_arrays(water_box(70, cutoff=0.6)), as_arrays(water_box(70, cutoff=0.6, seed=1))
    assert all(np.array_equal(value, again[name]) for name, value in as_arrays(small).items())
    assert not np.array_equal(small.pos, other["pos"])


@pytest.mark.parametrize(("molecules", "cutoff"), [(0, 0.5), (-3, 0.5), (70, 0.0), (70, 0.7), (70, math.nan)])
def test_impossible_boxes_are_refused(molecules: int, cutoff: float) -> None:
    with pytest.raises(ValueError, match=f"half the box of {molecules} molecules.* got {cutoff}"):
        water_box(molecules, cutoff)


# --- loading


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_saved_arrays_are_loaded_whatever_their_width(small: NonbondedInput, tmp_path: Path, save: Any) -> None:
    wide = {"i": np.int64, "f": np.float64}
    arrays = {name: np.asarray(a).astype(wide[np.asarray(a).dtype.kind]) for name, a in as_arrays(small).items()}
    arrays["pos"] = np.asfortranarray(arrays["pos"])
    arrays["types"] = arrays["types"].astype(">u2")
    save(tmp_path / "box.npz", **arrays)
    loaded = load_nonbonded(str(tmp_path / "box.npz"))
    for name, value in as_arrays(small).items():
        got = getattr(loaded, name)
        np.testing.assert_array_equal(got, value, err_msg=name)
        if name != "ntype":
            assert got.dtype == value.dtype
            assert got.flags.c_contiguous
    assert loaded.expected_faction is None
    assert type(loaded.ntype) is int


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.npz"):
        load_nonbonded(tmp_path / "absent.npz")


def with_value(a: np.ndarray, index: Any, value: Any) -> np.ndarray:
    a = np.array(a)
    a[index] = value
    return a


@pytest.mark.parametrize(
    ("key", "change", "text"),
    [
        ("charge", lambda a: None, "a key of this name, got only jindex, iinr"),
        ("pos", np.ravel, "2 dimensions, got 1, shape"),
        ("ntype", lambda a: np.array([a]), "0 dimensions, got 1"),
        ("ntype", lambda a: 0, "at least 1, got 0"),
        ("nbfp", lambda a: np.tile(a, 2), r"shape .8,. for .* 2 types .ntype., got shape .16,."),
        ("jjnr", np.float32, "integers, got float32"),
        ("charge", np.int32, "floats, got int32"),
        ("types", lambda a: a.astype(bool), "integers or floats, got bool"),
        ("types", lambda a: a.astype(object), "Object arrays|integers or floats, got object"),
        ("facel", lambda a: np.complex64(a), "integers or floats, got complex64"),
        ("shift", lambda a: with_value(a.astype(np.int64), 1, 2**31), "fit int32, got .* to 2147483648"),
        ("charge", lambda a: a[:-1], "shape .210,. for .* 210 particles .* got shape .209,."),
        ("faction", lambda a: a[:, :2], "shape .210, 3. .* got shape .210, 2."),
        ("expected_faction", lambda a: np.zeros((5, 3)), "shape .210, 3. .* got shape .5, 3."),
        ("shiftvec", lambda a: a[:, :2], "shape .27, 3. .* got shape .27, 2."),
        ("jindex", lambda a: a[:-1], "shape .* rows .iinr.*got shape"),
        ("jindex", lambda a: with_value(a, 0, 1), "0 to .* .the length of jjnr.*, got 1 to"),
        ("jindex", lambda a: with_value(a, -1, a[-1] + 9), "0 to .* .the length of jjnr.*, got 0 to"),
        ("jindex", lambda a: with_value(a, 3, 10**9), "never falling, got 0 to .* falling after index 3"),
        ("iinr", lambda a: with_value(a, 2, 210), "indices from 0 to 209, got 210 at index 2"),
        ("jjnr", lambda a: with_value(a, 7, -1), "indices from 0 to 209, got -1 at index 7"),
        ("shift", lambda a: with_value(a, 0, 27), "indices from 0 to 26, got 27 at index 0"),
        ("types", lambda a: with_value(a, 1, 2), "indices from 0 to 1, got 2 at index 1"),
        ("pos", lambda a: with_value(a, (4, 1), np.nan), r"finite float32 values, got nan at \(4, 1\)"),
        ("charge", lambda a: with_value(a, 4, -np.inf), r"finite float32 values, got -inf at \(4,\)"),
        ("nbfp", lambda a: with_value(a.astype(float), 2, 1e60), r"finite float32 values, got 1e\+60 at \(2,\)"),
        ("facel", lambda a: np.float32(np.nan), r"finite float32 values, got nan at \(\)"),
    ],
)
def test_bad_input_is_named(small: NonbondedInput, tmp_path: Path, key: str, change: Any, text: str) -> None:
    arrays = as_arrays(small)
    changed = change(arrays.get(key))
    arrays = {name: a for name, a in {**arrays, key: changed}.items() if a is not None}
    path = tmp_path / "bad.npz"
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}: .*\b{key}: expected .*({text})"):
        load_nonbonded(path)


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.999])
def test_truncated_files_are_refused(small: NonbondedInput, tmp_path: Path, part: float) -> None:
    np.savez_compressed(tmp_path / "whole.npz", **as_arrays(small))
    whole = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: int(part * len(whole))])
    with pytest.raises(ValueError, match=r"cut\.npz: expected an \.npz file"):
        load_nonbonded(tmp_path / "cut.npz")


def test_damaged_members_are_refused(small: NonbondedInput, tmp_path: Path) -> None:
    path = tmp_path / "damaged.npz"
    np.savez(path, **as_arrays(small))
    content = bytearray(path.read_bytes())
    content[content.index(small.pos.tobytes()) + 100] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged\.npz: .*pos: expected a whole \.npy array, got BadZipFile: Bad CRC"):
        load_nonbonded(path)


@pytest.mark.parametrize(
    ("shape", "content", "text"),
    [
        ((1 << 40, 3), b"\0" * 1000, "shape: expected one of .* bytes, the size of the member, got"),
        ((-1, 3), b"\0" * 12, "shape: expected one of"),
        ((1, 3), b"\0" * 13, "shape: expected one of"),
    ],
)
def test_sizes_that_the_file_cannot_hold_are_refused(
    small: NonbondedInput, tmp_path: Path, shape: tuple[int, ...], content: bytes, text: str
) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    path = tmp_path / "huge.npz"
    np.savez(path, **{name: a for name, a in as_arrays(small).items() if name != "pos"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("pos.npy", header.getvalue() + content)
    with pytest.raises(ValueError, match=rf"huge\.npz: .*pos: expected .*{text}"):
        load_nonbonded(path)


def test_a_false_size_in_the_directory_is_refused(small: NonbondedInput, tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    np.savez(path, **as_arrays(small))
    content = path.read_bytes()
    entry = content.rindex(b"PK\x01\x02", 0, content.rindex(b"pos.npy"))  # both its sizes are at byte 20
    path.write_bytes(content[: entry + 20] + 2 * (3 << 30).to_bytes(4, "little") + content[entry + 28 :])
    with pytest.raises(ValueError, match=r"bomb\.npz: .*pos: expected at most \d+ bytes in \d+, got 3221225472"):
        load_nonbonded(path)
