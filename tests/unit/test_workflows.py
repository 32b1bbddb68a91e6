"""What GitHub runs is what `.ci/run` has."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_ci_runs_every_stage():
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    first, beside = (set(re.search(rf'^{name}="(.+)"$', run, re.MULTILINE)[1].split()) for name in ("first", "beside"))
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    listed = set(re.search(r"stages: \[(.+)\]", workflow)[1].replace('"', "").replace(",", " ").split())
    assert listed == (first | beside) - {"unit", "smoke"}  # parts of tests


def test_a_release_builds_checks_and_publishes():
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    jobs = re.findall(r"^  (\w+):$", workflow, re.MULTILINE)
    assert jobs == ["build", "try", "publish"]
    for word in (".ci/release.py", "twine check --strict", "attest-build-provenance", "sbom-action", "id-token: write"):
        assert word in workflow
    assert "password" not in workflow  # trusted publishing


def test_kernels_are_built_with_optimization_by_a_stage():
    """README's command builds them without (tests/conftest.py)."""
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"\$\{intel\?\}.*VECTORIZER_MODE=1 .*\n +pytest .* -m kernels tests/device\)", run)


def test_no_module_is_built_both_ways():
    for path in (ROOT / "tests" / "device").glob("test_*.py"):
        assert not {'"with_optimizer"', '"without_optimizer"'} <= set(re.findall(r'"\w+"', path.read_text("utf-8"))), (
            path
        )
