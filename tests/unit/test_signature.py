"""`Remembered`, the bounded cache of calls."""

from __future__ import annotations

import threading

from clhist._core.runtime.signature import Remembered


class Resource:
    """A value whose destructor uses the cache that held it."""

    def __init__(self, cache: Remembered) -> None:
        self.cache = cache

    def __del__(self) -> None:
        self.cache.put("from a destructor", 1)


def test_destructors_of_dropped_values_may_use_the_cache():
    def run():
        cache = Remembered(2)
        cache.put("a", Resource(cache))
        cache.put("a", 1)  # replaced
        assert cache.get("from a destructor") == 1
        cache.put("b", Resource(cache))
        cache.put("c", 2)
        cache.put("d", 3)  # dropped, since the cache is full
        cache.put("e", Resource(cache))
        cache.take("e")
        cache.put("f", Resource(cache))
        cache.clear()
        assert cache.get("f") is None
        ended.append(True)

    ended = []
    thread = threading.Thread(target=run, daemon=True)  # which a deadlock does not let end
    thread.start()
    thread.join(60)
    assert ended == [True]
