"""The examples of adapters to other packages run as they stand."""

import pytest
from examples import OF_ENGINES, modules_with_examples, run_examples


@pytest.mark.parametrize("name", modules_with_examples(*OF_ENGINES))
def test_examples(name):
    assert run_examples(name)
