"""What is to go says so, at the line of the call, for two minor releases."""

import warnings
from pathlib import Path

import pytest

from clhist import deprecation
from clhist.deprecation import deprecated, renamed_parameter

MESSAGE = "since 1.2, gone in 1.4: write new(x) instead"


def test_a_call_warns_at_its_line():
    @deprecated(MESSAGE)
    def old(x, *, y=1):
        """Words."""
        return x + y

    with pytest.warns(DeprecationWarning, match="old is deprecated since 1.2, gone in 1.4: write new") as caught:
        assert old(2, y=3) == 5
    assert Path(caught[0].filename) == Path(__file__)
    assert (old.__name__, old.__doc__, old.__deprecated__) == ("old", "Words.", MESSAGE)


def test_an_old_keyword_is_taken_for_the_new_one():
    @renamed_parameter("bins", "num_bins", MESSAGE)
    def count(x, *, num_bins=1):
        return x, num_bins

    with pytest.warns(DeprecationWarning, match="bins of .*count is deprecated since 1.2") as caught:
        assert count(1, bins=7) == (1, 7)
    assert Path(caught[0].filename) == Path(__file__)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert count(1, num_bins=7) == (1, 7)
    with pytest.raises(TypeError, match="bins: expected num_bins alone"):
        count(1, bins=7, num_bins=7)


@pytest.mark.parametrize(
    "message", ["", "soon", "since 1.2, gone in 1.3: write x instead", "since 1.2, gone in 1.2: write x instead"]
)
@pytest.mark.parametrize("mark", [deprecated, lambda text: renamed_parameter("a", "b", text)])
def test_the_policy_is_kept(mark, message):
    with pytest.raises(ValueError, match="message: expected"):
        mark(message)


def test_another_major_release_may_follow_at_once():
    assert deprecated("since 1.9, gone in 2.0: write x instead")
    assert deprecation.__doc__
