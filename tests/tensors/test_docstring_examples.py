"""The examples of clhist.torch run as they stand."""

import pytest
from examples import modules_with_examples, run_examples


@pytest.mark.parametrize("name", [name for name in modules_with_examples() if ".torch" in name])
def test_examples(name):
    assert run_examples(name)
