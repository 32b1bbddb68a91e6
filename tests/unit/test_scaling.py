"""The simulation of many workers: what must hold of it whatever the rates are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.scaling import Job, Rates, depth, merged_bytes, predicted, worth_shards

RATES = Rates(elements=1e9, merged=2e9, sent=1e9, task=2e-4)
JOB = Job(elements=10**9, bins=1000, workers=4, block=10**7)


def test_the_tree():
    assert depth(JOB) == 3  # 100 blocks, 13, 2, 1
    assert merged_bytes(JOB) == (100 + 13 + 2) * 8000
    assert depth(replace(JOB, elements=10**7)) == 0
    assert merged_bytes(replace(JOB, elements=10**7)) == 0


def test_work_is_shared_until_the_scheduler_is_the_limit():
    seconds = [predicted(replace(JOB, workers=workers), RATES) for workers in (1, 2, 4, 8, 64, 4096)]
    assert seconds[:5] == sorted(seconds[:5], reverse=True)
    assert seconds[0] == pytest.approx(1.0, rel=0.05)
    assert seconds[1] == pytest.approx(0.5, rel=0.05)
    assert seconds[-1] > 100 * RATES.task


def test_more_bins_cost_more_until_shards_are_worth_it():
    seconds = [predicted(replace(JOB, bins=bins), RATES) for bins in (10, 10**4, 10**6, 10**8)]
    assert seconds == sorted(seconds)
    assert not worth_shards(JOB, RATES, 4)
    assert worth_shards(replace(JOB, bins=10**9), RATES, 64)
