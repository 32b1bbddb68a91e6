"""The self-test's check of more elements than 32 bits count, which takes 24 s of a processor without optimization."""

import pytest
from device_checks import LONG, each_check, holds

pytestmark = pytest.mark.usefixtures("with_optimizer")


@each_check(LONG)
def test_check(check):
    holds(check)
