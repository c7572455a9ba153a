"""What a page asks for: the settings of each tab, checked, as they stand in an address.

A state is a dictionary of plain values. The names are short because they are the parameters of the
page's address, which can be shared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from kronfield._core.arrays import describe, problem, real, whole
from kronfield._core.records import record

State = dict[str, Any]


@record
class Choice:
    """One of some names; the first is the default."""

    names: tuple[str, ...]

    def checked(self, name: str, value: Any) -> str:
        """Return the value, if it is one of the names."""
        if value not in self.names:
            raise problem(name, describe(value), f"one of {', '.join(self.names)}", "Choose one.")
        return str(value)

    @property
    def default(self) -> str:
        """The first name."""
        return self.names[0]


@record
class Count:
    """A whole number in a range."""

    default: int
    low: int
    high: int

    def checked(self, name: str, value: Any) -> int:
        """Return the value as an int, if it is in the range."""
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,9}", value):
            value = int(value)
        number = whole(name, value, at_least=self.low)
        if number > self.high:
            remedy = f"The largest valid value is {self.high}."
            raise problem(name, number, f"at most {self.high}", remedy)
        return number


@record
class Number:
    """A real number in a range."""

    default: float
    low: float
    high: float

    def checked(self, name: str, value: Any) -> float:
        """Return the value as a float, if it is in the range."""
        if isinstance(value, str) and len(value) <= 32:
            try:
                value = float(value)
            except ValueError as error:
                remedy = f"For example: {self.default:g}."
                raise problem(name, describe(value), "a number", remedy) from error
        return real(
            name, value, low=self.low, high=self.high, remedy=f"For example: {self.default:g}."
        )


@record
class Text:
    """A short text that matches a pattern."""

    default: str
    pattern: str
    longest: int
    expected: str

    def checked(self, name: str, value: Any) -> str:
        """Return the value, if it is a text of this kind."""
        text = value if isinstance(value, str) else ""
        if value != text or len(text) > self.longest or not re.fullmatch(self.pattern, text):
            raise problem(name, describe(value), self.expected, "Use the controls of the page.")
        return text


@record
class Shape:
    """The shape parameter of an embedder: its name, default and range, and a scale for sliders.

    In the tabs with pictures the parameter is relative to the K features of an axis:
    `at` turns such a number into the parameter.
    """

    parameter: str
    label: str
    default: float
    low: float
    high: float
    per_features: str = "none"
    relative: float = 0.0

    def at(self, number: float, size: int) -> float:
        """Return the parameter for ``size`` features from a number relative to them."""
        if self.per_features == "spacings":  # a width, in spacings of the features
            return number / size
        if self.per_features == "frequency":  # a scale, in multiples of the features
            return number * size
        return math.log2(max(number * size, 1.0))  # an exponent, of a multiple of the features


#: The embedders of the page. Widths are those of the unit interval.
SHAPES: dict[str, Shape] = {
    "gaussian": Shape("width", "width (standard deviation)", 0.02, 0.001, 0.5, "spacings", 0.64),
    "triangle": Shape("width", "width (full support)", 0.06, 0.002, 1.0, "spacings", 2.0),
    "rectangle": Shape("width", "width (full support)", 0.04, 0.002, 1.0),
    "impulse": Shape("", "", 0.0, 0.0, 0.0),
    "rff": Shape("scale", "scale (of the frequencies)", 5.6, 0.2, 64.0, "frequency", 0.176),
    "linf": Shape(
        "exponent", "exponent (log2 of the highest frequency)", 4.0, 0.5, 8.0, "exp", 0.25
    ),
    "logf": Shape(
        "exponent", "exponent (log2 of the highest frequency)", 4.0, 0.5, 8.0, "exp", 0.25
    ),
    "sine": Shape("frequency", "frequency", 1.0, 0.25, 16.0),
    "square": Shape("frequency", "frequency", 1.0, 0.25, 16.0),
}
#: Those with which pictures are encoded.
PICTURE_KINDS = tuple(name for name, shape in SHAPES.items() if shape.relative)
#: Those whose features are local, which a fit at random pixels needs.
LOCAL_KINDS = ("gaussian", "triangle")

_SEED = Count(0, 0, 9999)
#: The name of a built-in picture, of the file on the command line, or of a picture that was sent.
_PICTURE = Text("photograph", r"photograph|shapes|waves|file|sent-[0-9a-f]{16}", 24, "a picture")
_SIDE = Count(128, 32, 256)

ENCODE = {
    "a": Choice(tuple(SHAPES)),
    "as": Number(SHAPES["gaussian"].default, 1e-4, 1e3),
    "b": Choice(("none", *SHAPES)),
    "bs": Number(SHAPES["rff"].default, 1e-4, 1e3),
    "k": Count(64, 2, 256),
    "n": Count(32, 2, 256),
    "at": Choice(("even", "random")),
    "seed": _SEED,
    "signal": Choice(("waves", "steps", "chirp", "bumps", "drawn")),
    # 64 heights, two digits each, from 00 to zz in base 36
    "drawn": Text("", r"([0-9a-z]{2}){64}|", 128, "64 heights of two digits in base 36"),
}
RECONSTRUCT = {
    "picture": _PICTURE,
    "side": _SIDE,
    "task": Choice(("grid", "random")),
    "share": Number(0.25, 0.02, 0.9),
    "seed": _SEED,
    "kind": Choice(PICTURE_KINDS),
    "s": Number(SHAPES["gaussian"].relative, 0.01, 32.0),
    "zoom": Text("", r"(0(\.[0-9]{1,3})?,0(\.[0-9]{1,3})?)|", 16, "a corner, row,column in [0, 1)"),
}
TRAIN = {
    **{
        name: RECONSTRUCT[name]
        for name in ("picture", "side", "task", "share", "seed", "kind", "s")
    },
    "combine": Choice(("complex", "simple")),
    "depth": Count(0, 0, 4),
    "epochs": Count(300, 1, 2000),
}
# Parts of lists have separators between them: otherwise a text that does not match could be split
# in very many ways, and all of them would be tried.
_STROKE = r"[0-9]{1,2}:[0-9]{1,3}(\.[0-9]{1,3})*"
REPAIR = {
    "picture": _PICTURE,
    "side": _SIDE,
    "noise": Number(0.1, 0.0, 0.5),
    "seed": _SEED,
    # strokes: radius:x.y.x.y...;..., in pixels of the painted picture
    "strokes": Text("", rf"({_STROKE}(;{_STROKE})*;?)?", 6000, "strokes of the brush"),
}
_NUMBER = r"-?[0-9]{1,12}(\.[0-9]{1,6})?"
_POINT = rf"{_NUMBER},{_NUMBER},{_NUMBER}"
POINTS = {
    "points": Text("", rf"({_POINT}(;{_POINT})*;?)?", 12000, "points, x,y,value;x,y,value"),
    "table": Text("", r"(sent-[0-9a-f]{16})|file|", 24, "a table"),
    "loss": Choice(("squared", "huber")),
    "show": Choice(("value", "error")),
}


def checked(spec: Mapping[str, Any], given: Any) -> State:
    """Return a state with all settings of a tab; those that are not given have their defaults."""
    if not isinstance(given, Mapping):
        remedy = "Use the controls of the page."
        raise problem("state", describe(given), "settings by name", remedy)
    unknown = sorted(str(name) for name in given if name not in spec)
    if unknown:
        names = ", ".join(spec)
        raise problem(
            "state", f"{', '.join(unknown)[:60]}", f"settings among {names}", "Leave it out."
        )
    return {
        name: one.checked(name, given[name]) if name in given else one.default
        for name, one in spec.items()
    }


def choices() -> dict[str, Any]:
    """Return all that a page needs to make its controls: names, ranges and defaults."""

    def one(setting: Any) -> dict[str, Any]:
        if isinstance(setting, Choice):
            return {"names": list(setting.names), "default": setting.default}
        if isinstance(setting, Text):
            return {"default": setting.default, "longest": setting.longest}
        return {"default": setting.default, "low": setting.low, "high": setting.high}

    tabs = {
        "encode": ENCODE,
        "reconstruct": {**TRAIN, **RECONSTRUCT},
        "repair": REPAIR,
        "points": POINTS,
    }
    return {
        "tabs": {tab: {name: one(s) for name, s in spec.items()} for tab, spec in tabs.items()},
        "shapes": {
            name: {
                "parameter": shape.parameter,
                "label": shape.label,
                "default": shape.default,
                "low": shape.low,
                "high": shape.high,
                "relative": shape.relative,
            }
            for name, shape in SHAPES.items()
        },
    }
