"""Labels of axes: names, units, and dates, which are exact because they are integers."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, problem, real_numbers
from kronfield._core.records import record

# Attoseconds in a second, and in one step of each unit of NumPy's dates below a second.
SECOND = 10**18
FRACTIONS = {"ms": 10**15, "us": 10**12, "ns": 10**9, "ps": 10**6, "fs": 10**3, "as": 1}
# Seconds in one step of each longer unit. Months and years have no fixed length.
SECONDS = {"s": 1, "m": 60, "h": 3600, "D": 86400, "W": 604800}
# Seconds in a Julian year of 365.25 days, for derivatives "per year".
YEAR = 31_557_600
# Names of units in words, for derivatives "per day".
WORDS = {
    "second": "s",
    "minute": "m",
    "hour": "h",
    "day": "D",
    "week": "W",
    "millisecond": "ms",
    "microsecond": "us",
    "nanosecond": "ns",
}
# Names of axes that are drawn to the right, and of axes that are drawn upwards.
ACROSS = {"x", "lon", "lng", "long", "longitude", "easting", "t", "time", "date", "column", "col"}
UP = {"y", "z", "lat", "latitude", "northing"}
# The kinds of an axis.
NUMBER, DATE, DURATION = "number", "date", "duration"


def is_time(values: Any) -> bool:
    """Return whether values are dates or durations of NumPy, pandas or the standard library."""
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    if kind is not None and kind != "O":
        return kind in "mM"
    if isinstance(values, datetime.date | datetime.timedelta):
        return True
    array = values if isinstance(values, np.ndarray) else None
    if kind == "O" and hasattr(values, "to_numpy"):  # an index or a column of pandas
        array = values.to_numpy()
    if array is None and isinstance(values, list | tuple):
        array = np.empty(len(values), dtype=object)
        array[:] = [None if isinstance(one, list | tuple) else one for one in values]
    if array is None or not array.size:
        return False
    first = array.flat[0]
    known = isinstance(first, datetime.date | datetime.timedelta | np.datetime64 | np.timedelta64)
    return known or _calendar(first) is not None


def _calendar(date: Any) -> str | None:
    """Return the calendar of a date of cftime; None for any other object."""
    return str(date.calendar) if type(date).__module__.partition(".")[0] == "cftime" else None


def calendar_of(value: Any) -> str | None:
    """Return the calendar of a date of cftime, or of the first of several; else None."""
    if isinstance(value, np.ndarray | list | tuple) or hasattr(value, "to_numpy"):
        array = np.asarray(value, dtype=object) if not isinstance(value, np.ndarray) else value
        return None if array.dtype != object or not array.size else _calendar(array.flat[0])
    return _calendar(value)


def _calendar_split(dates: Any) -> tuple[Array, Array]:
    """Return dates of cftime as whole seconds since 1970 in their calendar, and attoseconds."""
    array = np.asarray(dates, dtype=object)
    start = {"year": 1970, "month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0}
    since = [one - one.replace(**start, microsecond=0) for one in array.ravel()]
    seconds = np.array([one.days * 86400 + one.seconds for one in since], dtype=np.int64)
    rest = np.array([one.microseconds for one in since], dtype=np.int64) * FRACTIONS["us"]
    return seconds.reshape(array.shape), rest.reshape(array.shape)


def time_array(argument: str, values: Any) -> Array:
    """Return dates as datetime64 or durations as timedelta64; raise an error for missing ones.

    Dates with a time zone are converted to UTC.
    """
    zone = getattr(getattr(values, "dtype", None), "tz", None)
    if zone is not None:  # pandas: an index converts itself, a series by its accessor
        values = getattr(values, "dt", values).tz_convert("UTC")
        values = getattr(values, "dt", values).tz_localize(None)
    array = np.asarray(values)
    if array.dtype.kind in "OUST":
        flat = [_without_zone(one) for one in array.ravel()]
        durations = bool(flat) and isinstance(flat[0], datetime.timedelta | np.timedelta64)
        try:
            array = np.array(flat, dtype="m8" if durations else "M8").reshape(array.shape)
        except (TypeError, ValueError) as error:
            remedy = "Pass datetime64 or timedelta64, for example from numpy.array(dates, 'M8')."
            raise problem(
                argument, describe(values), "dates or durations", remedy, TypeError
            ) from error
    if array.dtype.kind not in "mM":
        raise problem(
            argument,
            describe(array),
            "dates or durations",
            "Pass datetime64 or timedelta64.",
            TypeError,
        )
    missing = int(np.isnat(array).sum())
    if missing:
        raise problem(
            argument,
            f"{missing} missing (NaT) of {array.size} dates",
            "dates",
            "Remove these samples first.",
        )
    unit = np.datetime_data(array.dtype)[0]
    if unit in ("Y", "M"):
        if array.dtype.kind == "m":
            raise problem(
                argument,
                describe(array),
                "durations of a fixed length",
                "Months and years differ in length: convert them to days.",
            )
        array = array.astype("M8[D]")
    elif unit == "generic":
        array = array.astype(f"{array.dtype.kind}8[s]")
    return array


def _without_zone(one: Any) -> Any:
    if isinstance(one, datetime.datetime) and one.tzinfo is not None:
        return one.astimezone(datetime.UTC).replace(tzinfo=None)
    return one


def _split(times: Array) -> tuple[Array, Array]:
    """Return whole seconds and attoseconds below a second, both int64; nothing is rounded."""
    unit, count = np.datetime_data(times.dtype)
    ticks = times.astype(np.int64)
    if unit in SECONDS:
        return ticks * (count * SECONDS[unit]), np.zeros_like(ticks)
    per = SECOND // FRACTIONS[unit]  # steps of the unit in a second
    seconds, rest = np.divmod(ticks, per)
    if count == 1:
        return seconds, rest * FRACTIONS[unit]
    total = rest * count
    return seconds * count + total // per, total % per * FRACTIONS[unit]


@record
class AxisLabel:
    """The name, unit and kind of one axis.

    Dates and durations are positions in seconds since the first sample. The difference is taken
    between integers, so that steps of a nanosecond are as exact as steps of a century.

    Examples
    --------
    >>> import numpy as np
    >>> days = np.array(["2024-02-28", "2024-02-29", "2024-03-01"], dtype="M8[D]")
    >>> label = AxisLabel.of(days, name="time")
    >>> label.numbers("axes", days)
    array([     0.,  86400., 172800.])
    >>> label.values(np.array([43200.0, 86400.0]))
    array(['2024-02-28T12:00:00', '2024-02-29T00:00:00'],
          dtype='datetime64[s]')

    Attributes
    ----------
    name : str or None
        The name of the axis.
    unit : str
        The unit of positions, '' if it is not known. Dates and durations have "s".
    kind : str
        "number", "date" or "duration".
    epoch : (int, int)
        The first sample of dates or durations, in whole seconds (since 1970) and attoseconds.
    step : str
        The NumPy unit in which dates or durations are returned.
    attrs : dict
        Other metadata of the axis.
    calendar : str
        The calendar of dates of cftime, such as "noleap"; '' for dates of NumPy.
    """

    name: str | None = None
    unit: str = ""
    kind: str = NUMBER
    epoch: tuple[int, int] = (0, 0)
    step: str = "s"
    attrs: Mapping[str, Any] = field(default_factory=dict)
    calendar: str = ""

    @classmethod
    def of(
        cls,
        values: Any,
        name: str | None = None,
        unit: str = "",
        attrs: Mapping[str, Any] | None = None,
    ) -> AxisLabel:
        """Return the label of an axis with these positions."""
        kept = plain_attrs(attrs)
        if not is_time(values):
            return cls(name, unit, attrs=kept)
        calendar = calendar_of(values)
        if calendar is not None:
            seconds, rest = _calendar_split(np.asarray(values, dtype=object).ravel()[:1])
            return cls(name, "s", DATE, (int(seconds[0]), int(rest[0])), "us", kept, calendar)
        times = time_array(name or "axes", values)
        step = np.datetime_data(times.dtype)[0]
        kind = DATE if times.dtype.kind == "M" else DURATION
        if not times.size:
            return cls(name, "s", kind, step=step, attrs=kept)
        seconds, rest = _split(times.ravel()[:1])
        return cls(name, "s", kind, (int(seconds[0]), int(rest[0])), step, kept)

    @property
    def is_time(self) -> bool:
        """Whether positions are dates or durations."""
        return self.kind != NUMBER

    @property
    def is_date(self) -> bool:
        """Whether positions are dates of NumPy, which Matplotlib and others support."""
        return self.kind == DATE and not self.calendar

    def numbers(self, argument: str, values: Any) -> Array:
        """Return positions as finite float64; dates as seconds since the first sample.

        Numbers on an axis of dates are seconds since the first sample already.
        """
        text = getattr(getattr(values, "dtype", None), "kind", None) in ("U", "T")
        words = isinstance(values, str) or (
            isinstance(values, list | tuple) and bool(values) and isinstance(values[0], str)
        )
        dates = is_time(values) or calendar_of(values) is not None
        if not self.is_time or not (dates or text or words):
            return real_numbers(argument, values)
        if self.calendar:
            return self._calendar_numbers(argument, values)
        times = time_array(argument, values)
        kind = DATE if times.dtype.kind == "M" else DURATION
        if kind != self.kind:
            raise problem(
                argument,
                f"a {kind}",
                f"a {self.kind}, as the axis {self.name or ''} has".replace("  ", " "),
                "Convert it first.",
                TypeError,
            )
        seconds, rest = _split(times)
        # subtract integers first, so that only the difference is rounded
        return np.asarray((seconds - self.epoch[0]) + (rest - self.epoch[1]) / SECOND)

    def _calendar_numbers(self, argument: str, values: Any) -> Array:
        """Return dates of the calendar of this axis as seconds since the first sample."""
        found = calendar_of(values)
        if found != self.calendar:
            raise problem(
                argument,
                describe(values) if found is None else f"dates of the calendar {found}",
                f"dates of cftime, of the calendar {self.calendar}",
                "Convert them: cftime.datetime(..., calendar=...).",
                TypeError,
            )
        seconds, rest = _calendar_split(values)
        return np.asarray((seconds - self.epoch[0]) + (rest - self.epoch[1]) / SECOND)

    def _calendar_dates(self, x: Array) -> Array:
        """Return positions as dates of cftime, to a microsecond."""
        import cftime

        start = cftime.datetime(1970, 1, 1, calendar=self.calendar)
        first = start + datetime.timedelta(
            seconds=self.epoch[0], microseconds=self.epoch[1] // FRACTIONS["us"]
        )
        dates = np.empty(x.shape, dtype=object)
        dates.ravel()[:] = [
            first + datetime.timedelta(microseconds=round(1e6 * float(one))) for one in x.ravel()
        ]
        return dates

    def values(self, positions: Any) -> Array:
        """Return positions as they were given: dates as datetime64, numbers unchanged.

        The unit of dates is that of the first sample, or a finer one if positions need it. Dates of
        cftime are returned as objects of cftime.
        """
        x = np.asarray(positions, dtype=np.float64)
        if not self.is_time:
            return x
        if self.calendar:
            return self._calendar_dates(x)
        letter = "M8" if self.kind == DATE else "m8"
        whole = np.floor(x)
        seconds = self.epoch[0] + whole.astype(np.int64)
        rest = self.epoch[1] + np.rint((x - whole) * 1e9).astype(np.int64) * FRACTIONS["ns"]
        seconds, rest = seconds + rest // SECOND, rest % SECOND
        step = self.step if self.step in FRACTIONS else "s"
        if step == "s" and rest.any():
            step = "ns"
        if step == "s":
            long = SECONDS[self.step]
            fits = not np.any(seconds % long)
            step, seconds = (self.step, seconds // long) if fits else ("s", seconds)
            return seconds.astype(f"{letter}[{step}]")
        per = SECOND // FRACTIONS[step]
        if seconds.size and int(np.abs(seconds).max()) > 2**62 // per:
            return seconds.astype(f"{letter}[s]")
        # round to the nearest step of the unit of the samples
        rounded = (rest + FRACTIONS[step] // 2) // FRACTIONS[step]
        return (seconds * per + rounded).astype(f"{letter}[{step}]")

    def dates(self, positions: Any) -> Array:
        """Return positions as `values` does, with NaT where they are NaN."""
        x = np.asarray(positions, dtype=np.float64)
        there = np.isfinite(x)
        known = self.values(x[there])
        result = np.full(x.shape, "NaT", dtype=known.dtype)
        result[there] = known
        return result

    def text(self, position: float, ends: Sequence[float] = ()) -> str:
        """Return one position as text, with enough digits to tell the ends of its axis apart."""
        if not self.is_time:
            span = max(ends, default=0.0) - min(ends, default=0.0)
            largest = max(map(abs, ends), default=0.0)
            more = math.ceil(math.log10(largest / span)) if largest > span > 0 else 0
            return f"{position:.{min(max(6, 4 + more), 17)}g}"
        value = self.values(np.array([position]))[0]
        if self.calendar:
            return str(value).removesuffix(" 00:00:00")
        if self.kind == DURATION:
            return f"{position + self.epoch[0] + self.epoch[1] / SECOND:g} s"
        words = str(value)
        for ending in ("000000", "000"):
            words = words.removesuffix(ending) if "." in words else words
        words = words.rstrip(".")
        return words.removesuffix(":00").removesuffix("T00:00")

    def range(self, low: float, high: float) -> str:
        """Return the ends of an axis as text, after its name and unit."""
        ends = f"[{self.text(low)}, {self.text(high)}]"
        name = f"{self.name}: " if self.name else ""
        unit = f" {self.unit}" if self.unit and not self.is_time else ""
        return f"{name}{ends}{unit}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can hold."""
        return {
            "name": self.name,
            "unit": self.unit,
            "kind": self.kind,
            "epoch": list(self.epoch),
            "step": self.step,
            "attrs": dict(self.attrs),
            "calendar": self.calendar,
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> AxisLabel:
        """Return the label that `to_dict` described."""
        seconds, rest = given["epoch"]
        name, kind, step = given["name"], given["kind"], given["step"]
        known = kind in (NUMBER, DATE, DURATION) and step in {**SECONDS, **FRACTIONS}
        if not known or not (name is None or isinstance(name, str)):
            raise ValueError(f"an axis of kind {kind!r} and step {step!r}")
        attrs = dict(given["attrs"])
        calendar = str(given.get("calendar", ""))  # files written before 0.2 have none
        unit, epoch = str(given["unit"]), (int(seconds), int(rest))
        return cls(name, unit, kind, epoch, step, attrs, calendar)


@record
class Labels:
    """The labels of a field: of each axis, of its channels, and of its values.

    Attributes
    ----------
    axes : tuple of AxisLabel
        One per axis.
    name : str or None
        The name of the values.
    attrs : dict
        Metadata of the values; "units" is their unit.
    channels : tuple of str or None
        The names of the channels.
    """

    axes: tuple[AxisLabel, ...]
    name: str | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    channels: tuple[str, ...] | None = None

    @property
    def names(self) -> tuple[str | None, ...]:
        """The names of the axes."""
        return tuple(axis.name for axis in self.axes)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can hold."""
        return {
            "axes": [axis.to_dict() for axis in self.axes],
            "name": self.name,
            "attrs": dict(self.attrs),
            "channels": None if self.channels is None else list(self.channels),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Labels:
        """Return the labels that `to_dict` described."""
        channels = given["channels"]
        return cls(
            tuple(AxisLabel.from_dict(axis) for axis in given["axes"]),
            given["name"],
            dict(given["attrs"]),
            None if channels is None else tuple(map(str, channels)),
        )


def plain(value: Any, *, not_finite: Callable[[float], Any] = str) -> Any:
    """Return ``value`` as data that JSON can hold; other objects become text.

    ``not_finite`` returns the replacement of a number that is not finite.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(one, not_finite=not_finite) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist(), not_finite=not_finite)
    if isinstance(value, list | tuple):
        return [plain(one, not_finite=not_finite) for one in value]
    if isinstance(value, np.generic) and value.dtype.kind in "fiub":
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return not_finite(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def plain_attrs(attrs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return facts that came with values as plain data, with numbers that are not finite."""
    found: dict[str, Any] = plain(attrs or {}, not_finite=float)
    return found


def attrs_of_derivative(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that came with values, without those that are untrue of a derivative."""
    untrue = ("units", "standard_name", "valid_min", "valid_max", "valid_range", "actual_range")
    return {key: value for key, value in attrs.items() if key not in untrue}


def seconds_of(per: Any) -> float:
    """Return the length in seconds of a unit of time: "day", "h", or a timedelta.

    A year has 365.25 days.

    Examples
    --------
    >>> seconds_of("day"), seconds_of("ms"), seconds_of("year")
    (86400.0, 0.001, 31557600.0)
    """
    if isinstance(per, str):
        if per.lower() in ("year", "years"):
            return float(YEAR)
        unit = WORDS.get(per.lower().removesuffix("s") if len(per) > 2 else per, per)
        if unit in SECONDS:
            return float(SECONDS[unit])
        if unit in FRACTIONS:
            return FRACTIONS[unit] / SECOND
    elif is_time(np.asarray(per)) or isinstance(per, datetime.timedelta):
        times = time_array("per", [per])
        if times.dtype.kind == "m" and times[0] > 0:
            seconds, rest = _split(times)
            return float(seconds[0]) + float(rest[0]) / SECOND
    raise problem(
        "per",
        describe(per),
        f"one of {', '.join(WORDS)}, year (of 365.25 days), or a timedelta",
        'For example per="day" for derivatives per day.',
    )


def same_names(names: Sequence[str | None], given: Sequence[Any]) -> bool:
    """Return whether the same names are given, in any order."""
    return None not in names and sorted(map(str, names)) == sorted(map(str, given))


def drawn_order(
    names: Sequence[str], axes: Sequence[int], always: bool = False
) -> tuple[tuple[int, int], bool]:
    """Return two axes as (vertical, horizontal), and whether the vertical one grows upwards.

    The names decide: x, longitude and time go to the right, y and latitude upwards. Other axes are
    drawn as rows and columns of a picture, or, with ``always``, as on a map.

    Examples
    --------
    >>> drawn_order(["lon", "lat"], (0, 1)), drawn_order(["row", "column"], (0, 1))
    (((1, 0), True), ((0, 1), False))
    """
    if not always and not set(names) <= ACROSS | UP:
        return (axes[0], axes[1]), False
    if "row" in names:
        down = list(names).index("row")
        return (axes[down], axes[1 - down]), False
    across = 1 if names[1] in ACROSS and names[0] not in ACROSS else 0
    return (axes[1 - across], axes[across]), True
