"""Structures in .gro files, and what their atoms are: read, written, and refused with line and reason."""

import re
from dataclasses import replace

import numpy as np
import pytest

from clhist.cases.atom_types import BUILT_IN, AtomType, particles, read_atom_types
from clhist.cases.gro_file import Structure, read_gro, write_gro
from clhist.cases.water import water_structure

# Two molecules as the manual of GROMACS lays them out, and an ion without a blank between its columns.
SAMPLE = """MD of 2 waters, t= 0.0
    7
    1SOL     OW    1   0.126   1.624   1.679  0.1227 -0.0580  0.0434
    1SOL    HW1    2   0.190   1.661   1.747  0.8085  0.3191 -0.7791
    1SOL    HW2    3   0.177   1.568   1.613 -0.9045 -2.6469  1.3180
    2SOL     OW    4   1.275   0.053   0.622  0.2519  0.3140 -0.1734
    2SOL    HW1    5   1.337   0.002   0.680 -1.0641 -1.1349  0.0257
    2SOL    HW2    6   1.326   0.120   0.568  1.9427 -0.8216 -0.0244
99999NA      NA99999-100.001-200.0023000.003  0.0000  0.0000  0.0000
   1.82060   1.82060   2.00000
"""


@pytest.fixture
def sample(tmp_path):
    """Write the sample, or a changed one, and return its path."""

    def write(text=SAMPLE, **options):
        path = tmp_path / "conf.gro"
        path.write_bytes(text if isinstance(text, bytes) else text.encode(**options))
        return path

    return write


def test_the_sample_of_the_manual(sample):
    found = read_gro(sample())
    assert found.title == "MD of 2 waters, t= 0.0"
    assert found.residue_numbers.tolist() == [1, 1, 1, 2, 2, 2, 99999]
    assert found.residues.tolist() == ["SOL"] * 6 + ["NA"]
    assert found.atoms.tolist() == ["OW", "HW1", "HW2"] * 2 + ["NA"]
    assert found.positions.dtype == np.float64
    assert found.positions[1].tolist() == [0.190, 1.661, 1.747]
    assert found.positions[6].tolist() == [-100.001, -200.002, 3000.003]
    assert found.velocities[2].tolist() == [-0.9045, -2.6469, 1.3180]
    assert found.box.tolist() == [1.8206, 1.8206, 2.0]
    assert found.molecule.tolist() == [0, 0, 0, 1, 1, 1, 2]


def test_without_velocities_and_with_other_line_ends(sample):
    text = "\r\n".join(line[:44] for line in SAMPLE.splitlines()) + "\r\n\r\n"
    found = read_gro(sample(text))
    assert found.velocities is None
    np.testing.assert_array_equal(found.positions, read_gro(sample()).positions)


def test_a_box_of_nine_numbers_may_be_rectangular(sample):
    text = SAMPLE.replace("   2.00000\n", "   2.00000 0 0 0 0 0 -0.0\n")
    assert read_gro(sample(text)).box.tolist() == [1.8206, 1.8206, 2.0]


@pytest.mark.parametrize("decimals", [1, 3, 5, 9])
@pytest.mark.parametrize("moving", [False, True])
def test_what_is_written_is_read(tmp_path, decimals, moving, rng):
    water = water_structure(40, seed=3)
    if moving:
        water = replace(water, velocities=rng.normal(size=water.positions.shape))
    write_gro(tmp_path / "a.gro", water, decimals=decimals)
    found = read_gro(tmp_path / "a.gro")
    for name in ("residue_numbers", "residues", "atoms"):
        assert getattr(found, name).tolist() == getattr(water, name).tolist()
    # Half of the last decimal, and the rounding of float64 itself.
    assert np.abs(found.positions - water.positions).max() <= 0.5 * 10.0**-decimals + 1e-12
    assert np.abs(found.box - water.box).max() <= 0.5 * 10.0 ** -(decimals + 2) + 1e-12
    if moving:
        assert np.abs(found.velocities - water.velocities).max() <= 0.5 * 10.0 ** -(decimals + 1) + 1e-12
    write_gro(tmp_path / "b.gro", found, decimals=decimals)
    assert (tmp_path / "a.gro").read_text() == (tmp_path / "b.gro").read_text()


def test_numbers_begin_again_after_five_digits(tmp_path):
    n = 100_002
    atoms = Structure(
        np.arange(1, n + 1), np.full(n, "NA"), np.full(n, "NA"), np.zeros((n, 3)), np.ones(3), title="ions\nof salt"
    )
    write_gro(tmp_path / "ions.gro", atoms)
    found = read_gro(tmp_path / "ions.gro")
    assert found.title == "ions of salt"
    assert found.residue_numbers[-3:].tolist() == [0, 1, 2]
    assert found.molecule[-1] == n - 1, "each is a residue of its own, though the numbers are met again"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"positions": np.full((3, 3), 12345.0)}, "at most 8 characters, got '12345.000'"),
        ({"atoms": np.array(["OXYGEN", "H", "H"])}, "at most 5 characters, got 'OXYGEN'"),
    ],
)
def test_what_does_not_fit_is_not_written(tmp_path, changes, text):
    with pytest.raises(ValueError, match=text):
        write_gro(tmp_path / "a.gro", replace(water_structure(1), **changes))
    assert not (tmp_path / "a.gro").exists()


def changed(line, old, new):
    lines = SAMPLE.splitlines()
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1: expected a title, .* got the end of the file"),
        ("title only\n", "line 2: expected a title"),
        (changed(2, "7", "seven"), "line 2: expected the number of atoms, got '    seven'"),
        (changed(2, "7", "0"), "line 2: expected the number of atoms"),
        (changed(2, "7", "-7"), "line 2: expected the number of atoms"),
        (changed(2, "7", "8"), "line 11: expected 8 lines of atoms and the box, got the end of the file"),
        (changed(2, "7", str(10**18)), "line 11: expected 1000000000000000000 lines"),
        (changed(2, "7", "6"), "line 10: expected the end of the file after the box"),
        (SAMPLE + SAMPLE, r"line 11: expected the end of the file after the box \(one frame\), got 'MD of 2 waters"),
        (changed(3, "0.126   1.624   1.679", "0.126  1.624   1.679"), "line 3: expected x, y and z in columns of one"),
        (changed(3, "   0.126   1.624   1.679", "  126 1624 1679"), "line 3: expected x, y and z"),
        (
            changed(3, "0.126   1.624   1.679", "0.126" + 30 * " " + "1.624" + 30 * " " + "1.679"),
            "line 3: expected x, y",
        ),
        (changed(5, "0.177   1.568", "0.177  1.568"), "line 5: expected decimal points in columns 25, 33, 41"),
        (changed(6, "0.053", "0.x53"), "line 6: expected a position in nm in columns 29 to 36, got '   0.x53'"),
        (changed(6, "0.053", "n.ana"), "line 6: expected a position in nm"),
        (changed(6, "0.053", ".0530"), "line 6: expected decimal points in columns 25, 33, 41, as in line 3"),
        (changed(4, " 0.3191", "    inf"), "line 4: expected a velocity in nm/ps in columns 53 to 60, got '     inf'"),
        (changed(8, "  1.9427 -0.8216 -0.0244", ""), "line 8: expected a velocity in nm/ps"),
        (changed(7, "    2SOL", "    xSOL"), "line 7: expected a residue number in columns 1 to 5, got '    x'"),
        (changed(10, "1.82060", "nan"), "line 10: expected three positive edges"),
        (changed(10, "1.82060", "0"), "line 10: expected three positive edges"),
        (changed(10, "2.00000", ""), "line 10: expected three positive edges"),
        (changed(10, "2.00000", "2.00000 0 0 0.5 0 0 0"), "line 10: expected a rectangular box, got a triclinic one"),
        (b"\x00\xff" * 500, "line 2: expected a title"),
    ],
)
def test_malformed_files_are_refused_by_line(sample, text, says):
    path = sample(text)
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: {says}"):
        read_gro(path)


def test_a_missing_file_is_an_oserror(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_gro(tmp_path / "absent.gro")


# --- what the atoms are


def test_particles_of_the_sample(sample):
    found = particles(read_gro(sample()))
    np.testing.assert_array_equal(found.charge, np.float32([-0.82, 0.41, 0.41, -0.82, 0.41, 0.41, 1]))
    assert found.ntype == 3
    assert found.charge.dtype == found.nbfp.dtype == np.float32
    assert found.types.dtype == np.int32
    names = [("SOL", "OW"), ("SOL", "HW1"), ("SOL", "HW2")] * 2 + [("NA", "NA")]
    pairs = found.nbfp.reshape(3, 3, 2)
    for i, one in enumerate(names):
        for j, other in enumerate(names):
            a, b = BUILT_IN[one], BUILT_IN[other]
            expected = [np.sqrt(a.c6 * b.c6), np.sqrt(a.c12 * b.c12)]
            np.testing.assert_allclose(pairs[found.types[i], found.types[j]], expected, rtol=1e-6)


def test_ions_have_both_of_their_names():
    assert BUILT_IN["NA", "NA"] == BUILT_IN["NA+", "NA+"]
    assert [BUILT_IN[name, name].charge for name in ("NA", "K", "CL", "MG", "CA", "ZN")] == [1, 1, -1, 2, 2, 2]


def test_an_unknown_atom_is_named(sample):
    structure = read_gro(sample(changed(5, "HW2", " MW")))
    with pytest.raises(ValueError, match=r"types: .* atom MW of residue SOL \(number 3 of the structure\), got none"):
        particles(structure)
    found = particles(structure, {**BUILT_IN, ("SOL", "MW"): AtomType(-1.04, 0, 0)})
    assert found.charge[2] == np.float32(-1.04)


def test_a_table_of_atoms(tmp_path):
    path = tmp_path / "types.csv"
    path.write_text(
        "residue, atom, charge, c6, c12\n# methane\nCH4, C, 0, 0.01317904, 3.4363e-5 # united\n\nLI,LI,1,0,0\n"
    )
    assert read_atom_types(path) == {("CH4", "C"): (0, 0.01317904, 3.4363e-5), ("LI", "LI"): (1, 0, 0)}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "expected rows of residue, atom, charge, c6 and c12, got none"),
        (b"residue,atom,charge,c6,c12\n", "expected rows"),
        (b"LI,LI,1,0\n", "line 1: expected residue, atom, charge, c6 and c12 .*, got 'LI,LI,1,0'"),
        (b"LI,LI,1,0,0\nLI\n", "line 2: expected residue"),
        (b"LI,,1,0,0\n", "line 1: expected residue"),
        (b"LI,LI,one,0,0\n", "line 1: expected residue"),
        (b"LI,LI,1,nan,0\n", "line 1: expected residue"),
        (b"LI,LI,1,-1,0\n", r"line 1: expected .* \(not negative\)"),
        (b"\xff\xfe\x00", "expected text with commas"),
    ],
)
def test_bad_tables_are_refused_by_line(tmp_path, text, says):
    path = tmp_path / "types.csv"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: {says}"):
        read_atom_types(path)
