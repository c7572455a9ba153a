"""Records behave as frozen dataclasses."""

import pickle
from dataclasses import FrozenInstanceError, field, replace

import pytest

from kronfield._core.records import record


@record
class Range:
    low: float
    high: float = 1.0
    note: str = field(default="", compare=False, repr=False)


@record(eq=False)
class Holder:
    values: list


def test_a_record_is_compared_by_its_values():
    assert Range(0.5) == Range(0.5, 1.0, "other") != Range(0.5, 2.0)
    assert hash(Range(0.5)) == hash(Range(0.5, 1.0, "other"))
    assert repr(Range(0.5)) == "Range(low=0.5, high=1.0)"
    assert Range(0.5) != (0.5, 1.0)
    assert Holder([1]) != Holder([1])


def test_a_record_cannot_be_changed():
    one = Range(0.5)
    for name in ("low", "high", "other"):
        with pytest.raises(FrozenInstanceError, match=name):
            setattr(one, name, 2.0)
    with pytest.raises(FrozenInstanceError, match="low"):
        del one.low
    assert replace(one, low=0.25) == Range(0.25)
    assert pickle.loads(pickle.dumps(one)) == one


def test_a_record_refuses_wrong_arguments():
    with pytest.raises(TypeError, match="low"):
        Range()
    with pytest.raises(TypeError, match="wide"):
        Range(0.0, wide=1.0)
