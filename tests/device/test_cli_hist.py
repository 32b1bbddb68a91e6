"""`clhist hist`: columns of files against NumPy and pandas on the whole files."""

from __future__ import annotations

import gzip
import json
import re

import numpy as np
import pandas
import pytest
from click.testing import CliRunner
from commands import run_hist as run

from clhist.cli.hist import compute, rows, tables
from clhist.cli.main import main
from clhist.files import text

pytestmark = pytest.mark.usefixtures("without_optimizer")

SIZE = 2503
KINDS = ("csv", "npy", "npz", "parquet")


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(5)
    columns = {
        "pt": rng.exponential(40, SIZE).astype(np.float32),
        "eta": rng.normal(size=SIZE),
        "charge": rng.choice([-1, 1, 12], SIZE),
        "weight": rng.random(SIZE),
    }
    columns["eta"][::50] = np.nan
    columns["eta"][7], columns["eta"][8] = np.inf, -np.inf
    return pandas.DataFrame(columns)


@pytest.fixture(scope="module")
def files(frame, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    found = {kind: folder / f"table.{kind}" for kind in KINDS}
    frame.to_csv(found["csv"], index=False)
    frame.to_parquet(found["parquet"], row_group_size=600)
    np.savez_compressed(found["npz"], **{name: frame[name].to_numpy() for name in frame})
    np.save(found["npy"], np.rec.fromarrays([frame[name] for name in frame], names=list(frame)))
    return found


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(tables, "CHUNK_ROWS", 1000)
    monkeypatch.setattr(text, "_BLOCK", 30_000)


def found(*args):
    return json.loads(run(*args, "--json").stdout)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("kept", [0, 1 << 28])
@pytest.mark.parametrize("kind", KINDS)
def test_counts_are_numpys(kind, kept, files, frame, monkeypatch):
    monkeypatch.setattr(rows, "_KEPT_BYTES", kept)
    result = found(files[kind], "--column", "pt", "--bins", 37)
    pt = frame["pt"].to_numpy()
    if kind == "csv":
        pt = np.array([float(line.split(",")[0]) for line in files["csv"].read_text().splitlines()[1:]])
    counts, edges = np.histogram(pt, 37)
    assert result["counts"] == counts.tolist()
    assert result["edges"] == [edges.tolist()]
    assert (result["rows"], result["missing"], result["outside"], result["inside"]) == (SIZE, 0, 0, SIZE)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_finite(kind, files, frame):
    result = found(files[kind], "--column", "eta", "--bins", 9)
    eta = frame["eta"][np.isfinite(frame["eta"])]
    counts, edges = np.histogram(eta, 9)
    assert result["counts"] == counts.tolist()
    assert result["edges"] == [edges.tolist()]
    assert (result["missing"], result["outside"]) == (int(frame["eta"].isna().sum()), 2)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("kind", KINDS)
def test_several_files_of_groups_with_ranges_and_weights(kind, files, frame):
    given = ["--column", "pt", "--bins", 20, "--range", 0, 90, "--by", "charge", "--weights", "weight"]
    result = found(files[kind], files[kind], *given)
    assert result["groups"] == [-1, 1, 12]
    for label, sums in zip(result["groups"], result["counts"], strict=True):
        chosen = frame[frame["charge"] == label]
        expected = np.histogram(chosen["pt"].astype("f8"), 20, (0, 90), weights=2 * chosen["weight"])[0]
        np.testing.assert_allclose(sums, expected, rtol=1e-12)
    assert result["outside"] == 2 * int((frame["pt"] > 90).sum())


@pytest.mark.usefixtures("small_chunks")
def test_two_columns_and_a_condition(files, frame):
    where = "pt > 20 and not (abs(eta) >= 2 or charge == 12)"
    result = found(files["npz"], "-c", "pt", "-c", "eta", "-b", 7, "-b", "-2,-1,0,0.5,2", "--where", where)
    kept = frame[(frame["pt"] > 20) & (frame["eta"].abs() < 2) & (frame["charge"] != 12)]
    counts, *edges = np.histogram2d(kept["pt"], kept["eta"], [7, np.array([-2, -1, 0, 0.5, 2])])
    assert result["counts"] == counts.tolist()
    np.testing.assert_allclose(result["edges"][0], edges[0], rtol=1e-6)
    assert result["cut"] == SIZE - result["missing"] - len(kept)


def test_logarithmic_bins_and_rules(files, frame):
    pt = frame["pt"].to_numpy()
    edges = np.geomspace(float(pt.min()), float(pt.max()), 13)
    assert found(files["parquet"], "-c", "pt", "--log", "-b", 12)["counts"] == np.histogram(pt, edges)[0].tolist()
    assert found(files["parquet"], "-c", "pt", "-b", "auto")["counts"] == np.histogram(pt, "auto")[0].tolist()
    densities = found(files["parquet"], "-c", "pt", "-b", 5, "--density")["density"]
    np.testing.assert_allclose(densities, np.histogram(pt, 5, density=True)[0], rtol=1e-12)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_statistics_of_groups(kind, files, frame):
    names = list(compute.STATISTICS)
    result = found(
        files[kind], "-c", "eta", "--by", "charge", *(f"--stat={name}" for name in names), "--where", "eta<9"
    )
    kept = frame[frame["eta"] < 9]
    kept = kept.assign(eta=kept["eta"].replace(-np.inf, np.nan))
    result = found(files[kind], "-c", "eta", "--by", "charge", *(f"--stat={n}" for n in names), "--where", "abs(eta)<9")
    expected = kept.groupby("charge")["eta"]
    for name in names:
        of = expected.std(ddof=0) if name == "std" else getattr(expected, name)()
        np.testing.assert_allclose(result["statistics"][name], of, rtol=1e-10, err_msg=name)
    assert "counts" not in result


def test_statistics_by_bins(files, frame):
    edges = np.array([0.0, 10, 20, 50, 1e4, 1e5])
    given = [
        "-c",
        "pt",
        "-b",
        ",".join(map(str, edges)),
        "--values",
        "weight",
        "-s",
        "mean",
        "-s",
        "std",
        "-s",
        "count",
    ]
    result = found(files["npy"], *given)["statistics"]
    places = np.digitize(frame["pt"].astype("f8"), edges) - 1
    for k in range(5):
        inside = frame["weight"][places == k]
        assert result["count"][k] == len(inside)
        expected = [None, None] if k == 4 else [inside.mean(), inside.std(ddof=0)]
        assert [result["mean"][k], result["std"][k]] == (expected if k == 4 else pytest.approx(expected, rel=1e-12))


def test_numbers_far_from_zero_do_not_cancel(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "CHUNK_ROWS", 11)
    values = 1e9 + np.random.default_rng(0).random(101)
    np.save(tmp_path / "far.npy", values)
    result = found(tmp_path / "far.npy", "--stat", "std", "--stat", "mean")["statistics"]
    assert result["std"] == pytest.approx(values.std(), rel=1e-6)
    assert result["mean"] == pytest.approx(values.mean(), rel=1e-15)


def test_missing_values_and_text(tmp_path):
    csv = tmp_path / "people.csv"
    csv.write_text('\ufeffname;age;town\n"Ann; B";31;x\nCy;;y\nDi;nan;x\n\nEd;40;\nFi;50;x\n', encoding="utf-8")
    result = found(csv, "--column", "age", "--bins", "0,35,60", "--by", "town")
    assert result["groups"] == ["x"]
    assert result["counts"] == [[1, 1]]
    assert (result["rows"], result["missing"]) == (5, 3)
    nulls = tmp_path / "nulls.parquet"
    columns = {"n": pandas.array([1, None, 3, 2**60], "Int64"), "s": pandas.Categorical(["b", "a", None, "b"])}
    pandas.DataFrame(columns).to_parquet(nulls)
    result = found(nulls, "--column", "n", "--bins", "1,2,4", "--by", "s")
    assert result["groups"] == ["b"]
    assert result["counts"] == [[1, 0]]
    assert (result["missing"], result["outside"]) == (2, 1)


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", ">i4", "u8", "f2", ">f4", "f8"])
def test_dtypes(dtype, tmp_path):
    data = np.arange(100).astype(dtype)
    np.save(tmp_path / "data.npy", data)
    with np.errstate(all="ignore"):
        counts, edges = np.histogram(data.astype("u1") if dtype == "?" else data, 7)
    result = found(tmp_path / "data.npy", "--bins", 7)
    assert result["counts"] == counts.tolist()
    assert result["edges"][0] == edges.tolist()


def test_text_for_a_terminal(files, frame, tmp_path):
    lines = run(files["csv"], "-c", "pt", "-b", 4, "-r", 0, 80).stdout.splitlines()
    counts = np.histogram(frame["pt"], 4, (0, 80))[0]
    assert lines[0].endswith(f"{SIZE:,} rows, {int((frame['pt'] > 80).sum())} out of range")
    assert [line.split()[3] for line in lines[3:]] == [f"{count:,}" for count in counts]
    bars = [len(line.split()[-1]) for line in lines[3:]]
    assert bars == sorted(bars, reverse=True)
    assert max(map(len, lines[2:])) <= 80
    many = run(files["csv"], "-c", "pt", "-b", 1000).stdout.splitlines()
    assert len(many) <= 55
    assert "each line has 20 of 1,000 bins" in many[-1]
    assert "charge  mean of pt" in run(files["csv"], "-c", "pt", "--by", "charge", "-s", "mean").stdout
    assert "|" in run(files["csv"], "-c", "pt", "-c", "weight").stdout
    output = tmp_path / "out.json"
    assert "count of pt" in run(files["csv"], "-c", "pt", "-b", 4, "--json", output).stdout
    assert sum(json.loads(output.read_text())["counts"]) == SIZE


def test_progress_is_for_terminals_only(files):
    assert run(files["csv"], "-c", "pt").stderr == ""


@pytest.mark.parametrize(
    "given",
    [
        ["-c", "pt", "--by", "charge"],
        ["-c", "pt", "-c", "weight"],
        ["-c", "pt", "--by", "charge", "-s", "mean", "-s", "std"],
        ["-c", "pt", "--values", "weight", "-s", "mean"],
    ],
)
def test_plots(given, files, tmp_path):
    run(files["npz"], *given, "--plot", tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["-c", "mass"], "expected a column among pt, eta, charge, weight; got 'mass'"),
        ([], "expected --column, one of pt, eta, charge, weight"),
        (["-c", "pt", "--where", "pt >"], "--where: expected a condition such as"),
        (["-c", "pt", "--where", "pt + 1"], "--where: expected a comparison such as"),
        (["-c", "pt", "--where", "open(1) > 1"], "--where: expected a function among abs"),
        (["-c", "pt", "--where", "mass > 1"], "got 'mass'"),
        (["-c", "pt", "--where", "pt.real > 1"], "got 'pt.real'"),
        (["-c", "pt", "-b", "0"], "expected a number, edges such as"),
        (["-c", "pt", "-b", "1,0"], "expected edges that rise"),
        (["-c", "pt", "-r", 3, 1], "the lower one first"),
        (["-c", "pt", "-r", "nan", 1], "expected finite numbers"),
        (["-c", "eta", "--log", "-r", -1, 1], "expected a range above 0"),
        (["-c", "pt", "--values", "eta"], "expected --stat as well"),
        (["-c", "pt", "-s", "mean", "--weights", "eta"], "expected no --weights"),
        (["-c", "pt", "-c", "eta", "-s", "mean"], "expected one --column, or --values"),
        (["-c", "pt", "-c", "eta", "-c", "pt"], "expected one or two, got 3"),
        (["-c", "pt", "--by", "weight"], "--by: expected at most 1,000 different values with fractions, got more"),
        (["-c", "pt", "-b", 3, "-b", 4], "at most one for each column"),
        (["-c", "pt", "-s", "mode"], "'median', or a quantile such as 'q90'."),
    ],
)
def test_wrong_usage(given, says, files):
    assert says in " ".join(run(files["parquet"], *given, code=2).stderr.split())


def test_the_data_is_not_written_over(files):
    before = files["csv"].read_bytes()
    assert "expected a file .json, got" in run("--json", files["csv"], "-c", "pt", code=2).stderr
    assert files["csv"].read_bytes() == before


def broken_files(folder):
    """Yield the name of a file that is no table, what it holds, and what is said of it."""
    yield "empty.csv", b"", "expected a table, got an empty file"
    yield "names.csv", b"a,b\n", "expected rows, got none"
    yield "blank.csv", b"\n\n", "expected names of columns"
    yield "twice.csv", b"a,a\n1,2\n", "expected different names of columns, got 'a' twice"
    yield "short.csv", b"a,b\n1,2\n3\n", "line 3: expected 2 fields, got 1"
    yield "text.csv", b"a,b\n1,2\n3,x\n", "line 3: expected a number in column 'b', got 'x'"
    yield "bytes.csv", b"a,b\n1,\xff\xfe\n", "codec can't decode"
    yield "none.csv", b"a,b\n1,\n2,nan\n", "expected a finite number in some row, got none; give --range"
    yield "no.parquet", b"PAR1 and more", "expected a whole .parquet file"
    yield "no.npz", b"PK and more", "expected a whole .npz file"
    yield "no.npy", b"\x93NUMPY\x01\x00v\x00{", "expected a whole .npy file"
    yield "table.xls", b"x", "expected a file .csv, .tsv"
    np.save(folder / "long.npy", np.zeros(1000))
    yield "long.npy", (folder / "long.npy").read_bytes()[:-8], "expected a whole .npy file"
    np.save(folder / "objects.npy", np.array([None, "b"], object), allow_pickle=True)
    yield "objects.npy", (folder / "objects.npy").read_bytes(), "expected a whole .npy file"
    np.save(folder / "cube.npy", np.zeros((2, 2, 2)))
    yield "cube.npy", (folder / "cube.npy").read_bytes(), "expected shape (rows,) or (rows, columns), got (2, 2, 2)"
    np.save(folder / "complex.npy", np.zeros((3, 2), complex))
    yield "complex.npy", (folder / "complex.npy").read_bytes(), "expected numbers in column '1', got complex128"
    np.savez(folder / "unequal.npz", a=np.zeros(3), b=np.zeros(4))
    yield "unequal.npz", (folder / "unequal.npz").read_bytes(), "expected columns of one length, got a (3,), b (4,)"


def test_files_that_are_no_tables(tmp_path):
    for name, content, says in list(broken_files(tmp_path)):
        path = tmp_path / name
        path.write_bytes(content)
        given = (
            ["-c", "a", "-c", "b"]
            if name in ("unequal.npz", "twice.csv")
            else ["-c", "1" if name == "complex.npy" else "b"]
        )
        given = [] if name in ("long.npy", "objects.npy", "cube.npy", "no.npy", "no.npz", "no.parquet") else given
        error = " ".join(run(path, *given, code=2).stderr.split())
        assert says in error, (name, error)
        assert str(path) in error or name == "none.csv"
    assert "No such file" in run(tmp_path / "there.csv", "-c", "x", code=2).stderr


def test_pyarrow_need_not_be_installed(files, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    assert 'pip install "clhist[parquet]"' in run(files["parquet"], "-c", "pt", code=2).stderr


def test_groups_are_numbered_once():
    groups = rows.RowGroups()
    assert groups.numbers(np.array([5, -3, 5], np.int8)).tolist() == [1, 0, 1]
    assert groups.numbers(np.array([2**62, 5, -3])).tolist() == [2, 1, 0]
    assert groups.numbers(np.array([], np.int64)).tolist() == []
    assert groups.sorted()[0] == [-3, 5, 2**62]
    assert groups.sorted()[1].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="at most 65,536 different values"):
        groups.numbers(np.arange(70_000))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.int64, np.uint64])
def test_groups_at_the_ends_of_a_type(dtype):
    ends = [False, True] if dtype is np.bool_ else [np.iinfo(dtype).min, np.iinfo(dtype).max]
    for near in ([ends[0]] * 2, [ends[1]] * 2, [ends[1], ends[1] - (dtype is not np.bool_)], ends):
        groups = rows.RowGroups()
        keys = np.array([*near, near[0]], dtype)
        numbers = groups.numbers(keys)
        assert [groups.labels[n] for n in numbers] == keys.tolist()
        assert [type(label) for label in groups.labels] == [type(keys[0].item())] * len(groups)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_groups_of_several_columns(kind, tmp_path):
    rng = np.random.default_rng(3)
    columns = {"town": rng.choice(["Oslo", "Rome", "Graz, AT"], SIZE), "charge": rng.choice([-1, 1, 10], SIZE)}
    frame = pandas.DataFrame(columns | {"even": rng.choice(["no", "yes"], SIZE), "pt": rng.random(SIZE)})
    frame.loc[::97, "town"] = None
    path = tmp_path / f"t.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path, row_group_size=600)
    by = ["town", "charge", "even"]
    given = [path, "-c", "pt", "-s", "mean", "-s", "count", "-b", 4, "-r", 0, 1, *(f"--by={name}" for name in by)]
    result = found(*given)
    expected = frame.groupby(by)["pt"]
    assert result["by"] == by
    assert [tuple(group) for group in result["groups"]] == list(expected.mean().index)
    np.testing.assert_allclose(result["statistics"]["mean"], expected.mean(), rtol=1e-12)
    assert result["statistics"]["count"] == expected.count().tolist()
    assert result["counts"] == [np.histogram(part, 4, (0, 1))[0].tolist() for _, part in expected]
    shown = run(*given).stdout
    assert "count of pt, town = Graz, AT, charge = -1, even = no\n" in shown
    heads, first = (re.split(r"  +", line.strip()) for line in shown.splitlines()[-19:-17])
    assert heads == [*by, "mean of pt", "count of pt"]
    assert first[:3] == ["Graz, AT", "-1", "no"]
    run(*given, "--plot", tmp_path / "plot.png")


def test_groups_of_fractions_keep_them(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.arange(4.0), k=np.array([1.5, 2.0, 1.5, -0.5]))
    assert found(tmp_path / "t.npz", "-c", "x", "--by", "k", "-b", 1)["groups"] == [-0.5, 1.5, 2]


@pytest.mark.parametrize("kind", [*KINDS, "gz"])
def test_the_standard_input(kind, files, frame):
    content = gzip.compress(files["csv"].read_bytes()) if kind == "gz" else files[kind].read_bytes()
    outcome = CliRunner().invoke(main, ["hist", "-", "-c", "weight", "-b", "9", "--json"], input=content)
    result = json.loads(outcome.stdout)
    assert result["counts"] == np.histogram(frame["weight"], 9)[0].tolist()
    assert result["files"] == ["-"]
    outcome = CliRunner().invoke(main, ["hist", "-", "-c", "weight"], input=content)
    assert outcome.stdout.startswith(f"standard input: {SIZE:,} rows\n")


@pytest.mark.parametrize(("content", "says"), [(b"", "got an empty file"), (b"a\nx\n", "line 2: expected a number")])
def test_a_standard_input_that_is_no_table(content, says):
    outcome = CliRunner().invoke(main, ["hist", "-", "-c", "a"], input=content)
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("Error: standard input")
    assert says in outcome.stderr
    refused = CliRunner().invoke(main, ["hist", "-", "-c", "a", "--scheduler", "tcp://h:1"], input=content)
    assert "expected files that the workers can open" in refused.stderr


def test_a_column_without_a_name_is_called_so(tmp_path):
    np.save(tmp_path / "t.npy", np.arange(4.0))
    assert "\ncount of column 0\n" in run(tmp_path / "t.npy", "-b", 2).stdout


def test_integers_do_not_wrap(tmp_path):
    np.savez(tmp_path / "w.npz", x=np.array([1.0, 2, 3, 4]), q=np.array([100, 100, 200, 200], np.uint8))
    for where, count in (("x < 2**63", 4), ("q + 100 > 250", 2), ("q - 150 < 0", 2), ("-q < 0", 4), ("x > 2**-1", 4)):
        given = ["-c", "x", "-b", 1, "-r", 0, 9, "--where", where]
        assert found(tmp_path / "w.npz", *given)["counts"] == [count], where


@pytest.mark.parametrize(("dtype", "name"), [("c8", "complex64"), ("M8[s]", "dates")])
def test_files_without_a_column_of_numbers(dtype, name, tmp_path):
    path = tmp_path / "c.npy"
    np.save(path, np.zeros(3, dtype))
    outcome = CliRunner().invoke(main, ["hist", str(path)])
    assert outcome.exit_code != 0
    assert f"expected a column of real numbers, got 0 ({name})" in " ".join(outcome.output.split())
