"""The examples of the API reference run as they stand, and print what they say."""

import pytest
from examples import modules_with_examples, run_examples


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples(name):
    assert run_examples(name)
