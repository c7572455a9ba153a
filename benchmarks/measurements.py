"""Real measurements at scattered places and times: ten-fold cross-validation, and coverage.

The tables come from packages: elevations of airports (airportsdata), CO2 with gaps and sunspots
(statsmodels), temperatures (vega_datasets), and terrain at uneven places (inside matplotlib). No
decision of `fit_points` was set on them. A package that is not installed is reported.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import statistics
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.interpolate import RBFInterpolator

import kronfield as kf
from benchmarks.data import Array
from benchmarks.frame import OURS, Method, Row, Settings, contest, timed
from benchmarks.point_peers import gaussian_process, triangulated

FOLDS = 10
# The most points for an exact Gaussian process, and for the splines of verde: their time is cubic.
FEW, FEW_OF_SPLINES = 1500, 6000


@dataclass(frozen=True)
class Table:
    """Measured values (P,) at points (P, D), and what they are."""

    name: str
    points: Array
    values: Array

    @property
    def box(self) -> list[tuple[float, float]]:
        ends = zip(self.points.min(axis=0), self.points.max(axis=0), strict=True)
        return [(float(low), float(high)) for low, high in ends]


@dataclass(frozen=True)
class Split:
    """A table of which one of ten parts is held out."""

    table: Table
    held: Array

    @property
    def given(self) -> tuple[Array, Array]:
        return self.table.points[~self.held], self.table.values[~self.held]

    @property
    def at(self) -> Array:
        return self.table.points[self.held]

    @property
    def truth(self) -> Array:
        return self.table.values[self.held]

    def decibels(self, found: Array) -> float:
        """Return the spread of all values over the rms error, in dB."""
        return 20 * math.log10(float(np.std(self.table.values)) / self.rms(found))

    def rms(self, found: Array) -> float:
        return float(np.sqrt(np.mean((np.ravel(found) - self.truth) ** 2)))


def _airports() -> Table:
    import airportsdata

    rows = [
        (one["lon"], one["lat"], one["elevation"])
        for one in airportsdata.load("ICAO").values()
        if one["country"] == "US" and -125 < one["lon"] < -66 and 24 < one["lat"] < 50
    ]
    table = np.array(rows)
    return Table("airports of the contiguous US, elevation in feet", table[:, :2], table[:, 2])


def _co2() -> Table:
    from statsmodels.datasets import co2

    data = co2.load_pandas().data["co2"]
    known = data.notna().to_numpy()
    days = (data.index - data.index[0]).days.to_numpy(dtype=np.float64)
    return Table("CO2, weekly with gaps, in ppm", days[known, None], data.to_numpy(float)[known])


def _sunspots() -> Table:
    from statsmodels.datasets import sunspots

    data = sunspots.load_pandas().data.to_numpy(dtype=np.float64)
    return Table("sunspots, yearly", data[:, :1], data[:, 1])


def _temperatures() -> Table:
    from vega_datasets import local_data

    highest = local_data.seattle_weather()["temp_max"].to_numpy(dtype=np.float64)
    days = np.arange(len(highest), dtype=np.float64)[:, None]
    return Table("Seattle, highest temperature of each day, in degrees", days, highest)


def _terrain() -> Table:
    """Heights of a DEM at places that are denser towards a corner, on axes turned by 30 degrees."""
    from matplotlib import cbook

    with cbook.get_sample_data("jacksboro_fault_dem.npz") as file:
        heights = file["elevation"].astype(np.float64)
    rng = np.random.default_rng(0)
    places = np.unique(
        (rng.random((6000, 2)) ** [1.5, 1.0] * np.array(heights.shape)).astype(int), axis=0
    )
    c, s = math.cos(math.pi / 6), math.sin(math.pi / 6)
    turned = places @ np.array([[c, -s], [s, c]])
    return Table("terrain at uneven places, height in metres", turned, heights[tuple(places.T)])


#: The tables, by the package that each needs.
TABLES: dict[str, tuple[str, Callable[[], Table]]] = {
    "airports": ("airportsdata", _airports),
    "CO2": ("statsmodels", _co2),
    "sunspots": ("statsmodels", _sunspots),
    "temperatures": ("vega_datasets", _temperatures),
    "terrain": ("matplotlib", _terrain),
}


def tables(settings: Settings) -> Iterator[tuple[str, Table | str]]:
    """Yield the name of each table with the table, or with the package that is missing."""
    for name, (package, load) in TABLES.items():
        if importlib.util.find_spec(package) is None:
            yield name, package
        elif settings.size != "tiny":
            yield name, load()
        elif name == "terrain":
            table = load()
            yield name, replace(table, points=table.points[::20], values=table.values[::20])


def splits(table: Table, settings: Settings) -> dict[str, Split]:
    """Return the splits of a table: ten, or the first few of them in smaller runs."""
    label = np.random.default_rng(0).permutation(len(table.values)) % FOLDS
    count = settings.pick(1, 3, FOLDS)
    return {f"part {k}": Split(table, label == k) for k in range(count)}


def fit(split: Split) -> kf.Field:
    """Return our fit to what is given, nothing chosen by hand."""
    return kf.fit_points(*split.given, domain=split.table.box)


def _plates(kernel: str) -> Callable[[Split], Array]:
    return lambda s: RBFInterpolator(*s.given, kernel=kernel, neighbors=50)(s.at)


def _linear(split: Split) -> Array:
    points, values = split.given
    if points.shape[1] > 1:
        return triangulated("linear", points, values, split.at)
    order = np.argsort(points[:, 0])
    return np.interp(split.at[:, 0], points[order, 0], values[order])


def _process(split: Split) -> Array:
    points, values = split.given
    low, high = np.array(split.table.box).T
    return gaussian_process((points - low) / (high - low), values, (split.at - low) / (high - low))


def _spline(split: Split) -> Array:
    import verde

    chain = verde.Chain([("trend", verde.Trend(1)), ("spline", verde.Spline(damping=1e-8))])
    points, values = split.given
    return np.asarray(chain.fit(tuple(points.T), values).predict(tuple(split.at.T)))


def _kriging(split: Split) -> Array:
    from pykrige.ok import OrdinaryKriging

    points, values = split.given
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = OrdinaryKriging(*points.T, values, variogram_model="exponential")
        found = model.execute("points", *split.at.T, backend="C", n_closest_points=50)[0]
    return np.asarray(found)


def methods(table: Table) -> list[Method]:
    """Return the methods for a table, ours first."""
    few, plane = len(table.values) <= FEW, table.points.shape[1] == 2
    able = [
        Method(OURS, lambda s: fit(s)(s.at), note="nothing chosen by hand"),
        Method("SciPy griddata, linear", _linear),
        Method("SciPy RBFInterpolator, linear", _plates("linear"), note="50 neighbours"),
        Method(
            "SciPy RBFInterpolator, thin plates",
            _plates("thin_plate_spline"),
            note="50 neighbours",
        ),
    ]
    if few:
        able.append(Method("scikit-learn GaussianProcessRegressor", _process, "sklearn", most=1))
    if plane:
        able.append(
            Method("PyKrige, exponential", _kriging, "pykrige", most=1, note="50 neighbours")
        )
    if plane and len(table.values) <= FEW_OF_SPLINES:
        able.append(Method("verde Spline", _spline, "verde", most=1))
    return able


def measurements(settings: Settings) -> list[Row]:
    """Every table: the spread of the values over the error, in dB, and the error in the note."""
    rows = list[Row]()
    for name, table in tables(settings):
        if isinstance(table, str):
            note = f"not measured: {table} is not installed"
            rows.append(Row("measurements", name, OURS, note=note))
            continue
        items = splits(table, settings)
        errors: dict[str, list[float]] = {}
        able = [replace(one, call=_kept(one, errors)) for one in methods(table)]
        case = (
            f"{table.name}, {len(table.values)} points, {len(items)} of {FOLDS} parts held out; "
            "decibels are the spread of the values over the rms error"
        )
        found = contest(
            "measurements",
            case,
            items,
            able,
            settings,
            score=lambda split, values: (split.decibels(values), None),
        )
        rows += [_with_errors(row, errors.get(row.method, [])) for row in found]
    return rows


def _kept(method: Method, errors: dict[str, list[float]]) -> Callable[[Split], Array]:
    """Return the call of a method that also keeps the rms error of each part."""

    def call(split: Split) -> Array:
        found = method.call(split)
        errors.setdefault(method.name, []).append(split.rms(found))
        return found

    return call


def _with_errors(row: Row, errors: list[float]) -> Row:
    if not errors:
        return row
    spread = f" ± {statistics.stdev(errors):.3g}" if len(errors) > 1 else ""
    note = f"rmse {statistics.fmean(errors):.4g}{spread}"
    return replace(row, note=f"{note}; {row.note}" if row.note else note)


def coverage(settings: Settings) -> list[Row]:
    """How many values of a tenth of each table lie within two standard deviations of the fit.

    The variance is that of the fit and of the noise together. If the share is not right, the report
    names the assumption that fails.
    """
    rows = list[Row]()
    for name, table in tables(settings):
        if isinstance(table, str):
            continue
        note, seconds = timed(functools.partial(_covered, table))
        rows.append(Row("coverage", name, OURS, seconds, seconds, seconds, 1, note=note))
    return rows


def _covered(table: Table) -> str:
    field = kf.fit_points(table.points, table.values, domain=table.box)
    try:
        return str(field.report.coverage)
    except kf.InputError as error:
        return f"no coverage: {str(error).partition('. ')[0]}"
