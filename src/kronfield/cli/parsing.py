"""Parsers of option values: sizes, ranges, rates, embedders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kronfield.embedders import Embedder
    from kronfield.encoding import Kronecker

    _Base = click.ParamType[Any]
else:
    _Base = click.ParamType

Span = tuple[float | None, float | None]


class _Kind(_Base):
    """A type of option value, with an example for its error message."""

    example = ""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value.strip())
        except (ValueError, ZeroDivisionError, OverflowError):
            self.fail(f"{value!r} is not a {self.name}. For example: {self.example}", param, ctx)

    def parse(self, text: str) -> Any:
        raise NotImplementedError


class Size(_Kind):
    """WIDTHxHEIGHT of a picture, or one number per axis, or the longest side."""

    name, example = "size", "1920x1080, or 40,200,300, or 2000"

    def parse(self, text: str) -> int | tuple[int, ...]:
        """Return the longest side, or numbers in the order of the axes, or the sides of a frame."""
        if "x" in text.lower():
            from kronfield.signals.view import Within

            width, height = (_count(part) for part in text.lower().split("x"))
            return Within((height, width))
        parts = tuple(_count(part) for part in text.split(","))
        return parts[0] if len(parts) == 1 else parts


class Numbers(_Kind):
    """Numbers separated by commas."""

    name = "list of numbers"

    def __init__(self, example: str, *, count: int | None = None, whole: bool = False) -> None:
        self.example, self.count, self.whole = example, count, whole

    def parse(self, text: str) -> tuple[float, ...]:
        """Return the numbers."""
        values = tuple(int(part) if self.whole else _finite(part) for part in text.split(","))
        if self.count is not None and len(values) != self.count:
            raise ValueError
        return values


class Roughness(Numbers):
    """Two weights, or gcv."""

    name = "roughness"

    def __init__(self) -> None:
        super().__init__("0,1e-3, or gcv", count=2)

    def parse(self, text: str) -> Any:
        """Return the pair, or "gcv"."""
        return "gcv" if text.lower() == "gcv" else super().parse(text)


class Names(_Kind):
    """Names separated by commas."""

    name, example = "list of names", "x,y"

    def parse(self, text: str) -> tuple[str, ...]:
        """Return the names."""
        names = tuple(part.strip() for part in text.split(","))
        if not all(names):
            raise ValueError
        return names


class Periods(_Kind):
    """AXIS=PERIOD, by the name or number of an axis."""

    name, example = "periods", "lon=360"

    def parse(self, text: str) -> dict[str, float]:
        """Return the period of each axis that is named."""
        parts = [part.partition("=") for part in text.split(",")]
        if not all(name.strip() and mark for name, mark, _ in parts):
            raise ValueError
        return {name.strip(): float(period) for name, _, period in parts}


class Domain(_Kind):
    """LOW:HIGH of each axis."""

    name, example = "domain", "0:1,-2:2"

    def parse(self, text: str) -> tuple[tuple[float, float], ...]:
        """Return a pair per axis."""
        pairs = [_span(part) for part in text.split(",")]
        if any(None in pair for pair in pairs):
            raise ValueError
        return tuple((low, high) for low, high in pairs if low is not None and high is not None)


class Frames(_Kind):
    """START:STOP."""

    name, example = "range of frames", "0:100"

    def parse(self, text: str) -> tuple[int | None, int | None]:
        """Return the first frame, and the frame before which to stop."""
        start, colon, stop = text.partition(":")
        if not colon:
            raise ValueError
        return (int(start) if start.strip() else None), (int(stop) if stop.strip() else None)


class Range(_Kind):
    """LOW:HIGH."""

    name, example = "range", "0:100"

    def parse(self, text: str) -> tuple[float, float]:
        """Return both ends."""
        low, high = _span(text)
        if low is None or high is None:
            raise ValueError
        return low, high


class Crop(_Kind):
    """NAME=LOW:HIGH, separated by commas."""

    name, example = "crop", "row=64:144,column=176:256"

    def parse(self, text: str) -> tuple[tuple[str, tuple[Any, Any]], ...]:
        """Return (name, (low, high)) pairs; dates are text."""
        parts = [part.partition("=") for part in text.split(",")]
        if not all(name.strip() and equals for name, equals, _ in parts):
            raise ValueError
        return tuple((name.strip(), _dated_span(span)) for name, _, span in parts)


class Slice(_Kind):
    """NAME=POSITION."""

    name, example = "slice", "time=1.5, or time=2024-02-29"

    def parse(self, text: str) -> tuple[str, float | str]:
        """Return name and position; a date is text."""
        name, equals, value = text.partition("=")
        position = _position(value)
        if not name.strip() or not equals or position is None:
            raise ValueError
        return name.strip(), position


class Rate(_Kind):
    """Frames or samples per second."""

    name, example = "rate", "25, 29.97, or 30000/1001"

    def parse(self, text: str) -> Fraction:
        """Return the rate as a fraction."""
        rate = Fraction(text).limit_denominator(1001)
        if not 0 < rate < 10**7:
            raise ValueError
        return rate


class Noise(_Kind):
    """A standard deviation, or decibels of full scale."""

    name, example = "noise", "12, or of a sound -40dB"

    def parse(self, text: str) -> tuple[float, bool]:
        """Return the number, and whether it is in decibels."""
        number, in_decibels = text.lower().strip(), text.lower().strip().endswith("db")
        value = _finite(number.removesuffix("db"))
        if value <= 0 and not in_decibels:
            raise ValueError
        return value, in_decibels


class Missing(_Kind):
    """A value, a colour, nan, or transparent."""

    name, example = "value", "0, or 255,0,255, or nan, or transparent"

    def parse(self, text: str) -> str | tuple[float, ...]:
        """Return the word, or the numbers."""
        word = text.lower()
        return (
            word
            if word in ("nan", "transparent")
            else tuple(_finite(part) for part in text.split(","))
        )


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError
    return number


def _position(text: str) -> float | str | None:
    """Return a number, or a date as text; None for an empty text."""
    from kronfield.files.dates import parse_dates

    word = text.strip()
    if not word:
        return None
    return word if parse_dates([word], [False]) is not None else _finite(word)


def _dated_span(text: str) -> tuple[float | str | None, float | str | None]:
    """Return the ends of a range of numbers or dates: LOW:HIGH, or LOW..HIGH with times of day."""
    low, mark, high = text.partition(".." if ".." in text else ":")
    if not mark:
        raise ValueError
    return _position(low), _position(high)


def _span(text: str) -> Span:
    low, colon, high = text.partition(":")
    if not colon:
        raise ValueError
    return (_finite(low) if low.strip() else None), (_finite(high) if high.strip() else None)


# Embedders
# ------------------------------------------------------------------------------------------


def parse_embedder(
    spec: str, size: int | None, *, samples: int | None = None, width: float | None = None
) -> Embedder:
    """Return the embedder that ``NAME[:KEY=VALUE,...]`` describes.

    Without ``samples``, all settings but the size must be given. With ``samples``, settings that
    are left out get values that suit this number of samples.
    """
    from kronfield._core.arrays import problem
    from kronfield.analysis.presets import kind_named, natural_size, preset

    name, _, text = spec.partition(":")
    kind = kind_named(name)
    settings: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        settings[key.strip()] = _value(value.strip())
        if not equals:
            raise problem("--encoding", repr(part), "KEY=VALUE", f"For example: {name}:width=0.01")
    if width is not None:
        if kind.shape_parameter is None:
            raise problem(
                "--width", f"{width:g} for {name}", "an encoding with a width", "Leave it out."
            )
        settings.setdefault(kind.shape_parameter, width)
    wanted = settings.pop("size", size)
    if wanted is None:
        wanted = natural_size(name, samples or 1)
    return preset(name, wanted, complete=samples is not None, **settings)


def parse_encoding(
    specs: Sequence[str], sizes: Sequence[int] | None, width: float | None, samples: Sequence[int]
) -> Kronecker | None:
    """Return the encoding that -e, --size and --width describe; None if none of them is given.

    ``samples`` holds the number of samples on each axis, from which defaults follow.
    """
    from kronfield._core.arrays import problem
    from kronfield.encoding import Kronecker

    if not specs and sizes is None and width is None:
        return None
    chosen = list(specs) or ["gaussian"]
    each: list[int | None] = [None] if sizes is None else list(sizes)
    D = len(samples)
    for option, found in (("--encoding", chosen), ("--size", each)):
        if len(found) not in (1, D):
            raise problem(
                option, f"{len(found)} of them", f"one, or one per axis ({D})", "Add or drop some."
            )
    chosen, each = chosen * D if len(chosen) == 1 else chosen, each * D if len(each) == 1 else each
    axes = zip(chosen, each, samples, strict=True)
    return Kronecker(
        *[parse_embedder(spec, size, samples=n, width=width) for spec, size, n in axes]
    )


def _value(text: str) -> int | float | str:
    """Return ``text`` as an int or a float if possible, else unchanged."""
    for kind in (int, float):
        try:
            return kind(text[:400])
        except ValueError:
            continue
    return text[:400]
