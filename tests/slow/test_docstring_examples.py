"""The examples of the API reference run as they stand, and print what they say."""

import pytest
from examples import modules_with_examples, run_examples


@pytest.mark.parametrize("name", [name for name in modules_with_examples() if ".torch" not in name])
def test_examples(name):
    assert run_examples(name)
