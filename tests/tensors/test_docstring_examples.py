"""The examples of clhist.torch and clhist.jax run as they stand."""

import pytest
from examples import OF_TENSORS, modules_with_examples, run_examples


@pytest.mark.parametrize("name", modules_with_examples(*OF_TENSORS))
def test_examples(name):
    assert run_examples(name)
