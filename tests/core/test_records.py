"""Records behave as frozen dataclasses."""

import dataclasses
import inspect
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


def test_a_record_refuses_what_a_dataclass_refuses_when_it_is_made():
    with pytest.raises(TypeError, match=r"'high'.*'low'"):

        @record
        class Wrong:
            low: float = 0.0
            high: float

    with pytest.raises(TypeError, match="InitVar"):

        @record
        class Seeded:
            seed: dataclasses.InitVar(int)


def test_a_record_keeps_its_own_hash():
    @record
    class Listed:
        values: list

        def __hash__(self):
            return 5

    @record
    class Compared:
        value: int

        def __eq__(self, other):
            return True

    assert hash(Listed([1])) == 5
    assert hash(Compared(3)) == hash(Compared(3))


def test_frozen_dataclasses_and_records_inherit_from_each_other():
    @dataclasses.dataclass(frozen=True)
    class Named(Range):
        name: str = "x"

    @record
    class Stepped(Named):
        step: float = dataclasses.field(default=0.1, kw_only=True)
        marks: list = dataclasses.field(default_factory=list, init=False, compare=False)

    one = Stepped(0.0, 2.0, "note", "y", step=0.5)
    assert (one.high, one.name, one.step, one.marks) == (2.0, "y", 0.5, [])
    assert one == Stepped(0.0, 2.0, name="y", step=0.5) != Stepped(0.0, 2.0, name="y")
    assert Named(0.0) != Range(0.0)
    for changed in (one, Named(0.0)):
        with pytest.raises(FrozenInstanceError, match="name"):
            changed.name = "z"


def test_the_signature_and_checks_of_a_record_are_those_of_a_dataclass():
    @record
    class Checked:
        size: int
        width: float = 2.0

        def __post_init__(self):
            if self.size < 1:
                raise ValueError("size")
            object.__setattr__(self, "width", float(self.width))

    class Wider(Checked):
        def __init__(self, size):
            super().__init__(size, 3)
            self.more = size + 1

    assert str(inspect.signature(Checked)) == "(size: int, width: float = 2.0) -> None"
    assert isinstance(Checked(1, 2).width, float)
    assert (Wider(1).width, Wider(1).more) == (3.0, 2)
    with pytest.raises(FrozenInstanceError, match="size"):
        Wider(1).size = 2
    with pytest.raises(ValueError, match="size"):
        Checked(0)


def test_a_record_keeps_methods_of_its_own():
    @record
    class Shown:
        x: float

        def __eq__(self, other):
            return isinstance(other, Shown)

        def __hash__(self):
            return 1

        def __repr__(self):
            return "shown"

    assert Shown(1.0) == Shown(2.0)
    assert (hash(Shown(1.0)), repr(Shown(1.0))) == (1, "shown")
