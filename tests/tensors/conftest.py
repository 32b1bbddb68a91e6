"""Tests of CPU tensors run twice: by kernels, and by PyTorch's operators, whatever the number of elements."""

import pytest

from clhist._core.runtime import small

ONE_WAY = ("test_cuda_tensors", "test_jax", "test_docstring_examples", "test_sorting")  # other arrays and functions


def pytest_generate_tests(metafunc):
    ways = ("kernels",) if metafunc.module.__name__ in ONE_WAY else ("kernels", "host")
    metafunc.parametrize("computed_by", ways, indirect=True)


@pytest.fixture(autouse=True)
def computed_by(request, monkeypatch):
    pays_off = small.pays_off

    def decided(call, *args):
        return request.param == "kernels" if call == "tensors" else pays_off(call, *args)

    monkeypatch.setattr(small, "pays_off", decided)
    return request.param
