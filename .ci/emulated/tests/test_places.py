"""Where tools are looked for, and what is said where there are none."""

import pytest
from emulated.places import VARIABLE, NotPreparedError, places


def test_what_is_missing_and_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    places.cache_clear()
    try:
        with pytest.raises(NotPreparedError, match=r"nowhere: no tools .*\.ci/emulated/prepare \.emulated"):
            places()
    finally:
        places.cache_clear()
