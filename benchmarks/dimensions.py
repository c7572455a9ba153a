"""Many dimensions: functions of 4 to 10 variables, and tables that packages ship.

python -m benchmarks.dimensions FILE [--sizes 300,2000] [--noise 0,0.2] [--functions ...] [--tables]
python -m benchmarks.dimensions FILE --page docs/dimensions.md

The first form measures rows and adds them to a file, the second writes the table of the file into a
page, between its marks. Rows have R^2 at new points (of functions, without noise; of tables, in
five-fold cross-validation) and seconds of CPU time of the fit and the prediction.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import kronfield as kf
from benchmarks.data import Array
from benchmarks.frame import OURS, Method, Row, Settings, contest

# The most points for a Gaussian process, and for support vectors.
PROCESS, VECTORS = 1000, 5000
# More points than this have 50 neighbours in RBFInterpolator, as its system is of all of them.
RADIAL, MOST_RADIAL = 2000, 20_000
NEW, FOLDS, DRAWS = 4000, 5, 3
START, END = "<!-- table of dimensions -->", "<!-- end of table -->"


@dataclass(frozen=True)
class Peer:
    """A method of another library: a function of points, values and new points to predictions."""

    name: str
    call: Callable[[Array, Array, Array], Array]
    most: int = 10**9


def r_squared(truth: Array, found: Array) -> float:
    """Return the part of the variance that is explained."""
    return 1.0 - float(np.mean((truth - found) ** 2) / np.var(truth))


def _process(X: Array, y: Array, new: Array) -> Array:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    kernel = ConstantKernel(1.0) * RBF(np.full(X.shape[1], 2.0), (1e-2, 1e4)) + WhiteKernel(1e-2)
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    return np.asarray(make_pipeline(StandardScaler(), model).fit(X, y).predict(new))


def _boosting(X: Array, y: Array, new: Array) -> Array:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return np.asarray(HistGradientBoostingRegressor(random_state=0).fit(X, y).predict(new))


def _splines(X: Array, y: Array, new: Array) -> Array:
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import SplineTransformer

    model = make_pipeline(SplineTransformer(8), RidgeCV(np.logspace(-4, 4, 17)))
    return np.asarray(model.fit(X, y).predict(new))


def _radial(X: Array, y: Array, new: Array) -> Array:
    from scipy.interpolate import RBFInterpolator

    centre, scale = X.mean(axis=0), X.std(axis=0) + 1e-12
    X, first = np.unique((X - centre) / scale, axis=0, return_index=True)
    few = len(X) <= RADIAL
    model = RBFInterpolator(
        X, y[first], kernel="linear", neighbors=None if few else 50, smoothing=1e-6
    )
    return np.asarray(model((new - centre) / scale))


def _vectors(X: Array, y: Array, new: Array) -> Array:
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVR

    inner = make_pipeline(StandardScaler(), SVR(C=10.0, epsilon=0.01))
    model = TransformedTargetRegressor(inner, transformer=StandardScaler())
    return np.asarray(model.fit(X, y).predict(new))


PEERS = (
    Peer("process", _process, PROCESS),
    Peer("boosting", _boosting),
    Peer("splines", _splines),
    Peer("radial", _radial, MOST_RADIAL),
    Peer("vectors", _vectors, VECTORS),
)


def peers(P: int) -> list[Peer]:
    """Return the methods that end in reasonable time for P points."""
    return [peer for peer in PEERS if peer.most >= P]


# Functions
# ------------------------------------------------------------------------------------------


def friedman1(x: Array) -> Array:
    """Return Friedman's first function: 5 axes matter of 10 (Friedman, 1991)."""
    return (
        10 * np.sin(np.pi * x[:, 0] * x[:, 1])
        + 20 * (x[:, 2] - 0.5) ** 2
        + 10 * x[:, 3]
        + 5 * x[:, 4]
    )


def _circuit(x: Array) -> tuple[Array, Array, Array, Array]:
    """Return resistance, frequency, inductance and capacity of an alternating current circuit."""
    return 100 * x[:, 0], np.pi * (40 + 520 * x[:, 1]), x[:, 2], 1 + 10 * x[:, 3]


def friedman2(x: Array) -> Array:
    """Return Friedman's second function: an impedance."""
    R, w, L, C = _circuit(x)
    return np.hypot(R, w * L - 1 / (w * C))


def friedman3(x: Array) -> Array:
    """Return Friedman's third function: a phase."""
    R, w, L, C = _circuit(x)
    return np.arctan((w * L - 1 / (w * C)) / np.maximum(R, 1e-9))


def smooth(x: Array) -> Array:
    """Return a smooth function of 6 variables."""
    bump = np.exp(-4 * np.sum((x[:, :3] - 0.4) ** 2, axis=1))
    return bump + np.sin(2 * np.pi * x[:, 3] * x[:, 4]) / 2 + np.cos(3 * x[:, 5]) * x[:, 0]


def borehole(x: Array) -> Array:
    """Return the flow of water through a borehole: 8 axes (Harper and Gupta, 1983)."""
    low = np.array([0.05, 100, 63070, 990, 63.1, 700, 1120, 9855])
    high = np.array([0.15, 50000, 115600, 1110, 116, 820, 1680, 12045])
    rw, r, Tu, Hu, Tl, Hl, L, Kw = (low + (high - low) * x).T
    ratio = np.log(r / rw)
    return 2 * np.pi * Tu * (Hu - Hl) / (ratio * (1 + 2 * L * Tu / (ratio * rw**2 * Kw) + Tu / Tl))


FUNCTIONS: dict[str, tuple[Callable[[Array], Array], int]] = {
    "Friedman 1": (friedman1, 10),
    "Friedman 2": (friedman2, 4),
    "Friedman 3": (friedman3, 4),
    "smooth": (smooth, 6),
    "borehole": (borehole, 8),
}


# Tables
# ------------------------------------------------------------------------------------------


def tables() -> Iterator[tuple[str, Array, Array]]:
    """Yield name, columns and values of tables of numbers; categories are integers or 0 and 1."""
    from sklearn import datasets

    one = datasets.load_diabetes()
    yield "diabetes (scikit-learn)", one.data, one.target
    wine = datasets.load_wine().data
    yield "wine: alcohol (scikit-learn)", wine[:, 1:], wine[:, 0]
    import statsmodels.api as sm

    fair = sm.datasets.fair.load_pandas().data
    yield (
        "fair: affairs (statsmodels)",
        fair.drop(columns="affairs").to_numpy(float),
        np.log1p(fair["affairs"].to_numpy(float)),
    )
    health = sm.datasets.randhie.load_pandas().data
    yield (
        "randhie: visits (statsmodels)",
        health.drop(columns="mdvis").to_numpy(float),
        np.log1p(health["mdvis"].to_numpy(float)),
    )
    star = sm.datasets.star98.load_pandas().data
    share = star["NABOVE"] / (star["NABOVE"] + star["NBELOW"])
    yield "star98: share above (statsmodels)", star.iloc[:, 2:14].to_numpy(float), share.to_numpy()
    anes = sm.datasets.anes96.load_pandas().data
    columns = ["popul", "TVnews", "selfLR", "ClinLR", "DoleLR", "PID", "educ", "income"]
    yield "anes96: age (statsmodels)", anes[columns].to_numpy(float), anes["age"].to_numpy(float)
    from vega_datasets import data

    cars = data.cars().dropna()
    names = ["Cylinders", "Displacement", "Horsepower", "Weight_in_lbs", "Acceleration"]
    year = cars["Year"].dt.year.to_numpy(float)
    origin = (cars["Origin"].to_numpy()[:, None] == ["Europe", "Japan"]).astype(float)
    columns = np.column_stack([cars[names].to_numpy(float), year, origin])
    yield "cars: miles per gallon (vega)", columns, cars["Miles_per_Gallon"].to_numpy(float)
    weather = data.seattle_weather()
    day = weather["date"].dt.dayofyear.to_numpy() * 2 * np.pi / 365.25
    columns = np.column_stack(
        [weather[["precipitation", "temp_min", "wind"]].to_numpy(float), np.sin(day), np.cos(day)]
    )
    yield "weather: temp_max (vega)", columns, weather["temp_max"].to_numpy(float)


# Measurements
# ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """One method in one row: R^2, its standard error against ours, and seconds of CPU time."""

    row: str
    points: int
    noise: float
    method: str
    score: float
    difference: float
    error: float
    seconds: float
    form: str = ""


def _ours(X: Array, y: Array, new: Array) -> tuple[Array, str]:
    field = kf.fit_points(X, y)
    return field(new, outside="clamp"), field.report.form  # type: ignore[union-attr]


def compare(
    row: str, points: int, noise: float, items: list[tuple[Array, Array, Array, Array]]
) -> list[Result]:
    """Return the results of all methods on items (points, values, new points, their values)."""
    count = len(items[0][0])
    losses: dict[str, list[Array]] = {}
    spent: dict[str, float] = {}
    forms = set()
    for X, y, new, truth in items:
        for name in (OURS, *(peer.name for peer in peers(count))):
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if name == OURS:
                    found, form = _ours(X, y, new)
                    forms.add(form)
                else:
                    found = next(p for p in PEERS if p.name == name).call(X, y, new)
            spent[name] = spent.get(name, 0.0) + time.process_time() - began
            scale = float(np.var(truth if noise >= 0 else np.concatenate([y, truth])))
            losses.setdefault(name, []).append((truth - found) ** 2 / scale)
    results = []
    for name, parts in losses.items():
        all_points = np.concatenate(parts)
        away = all_points - np.concatenate(losses[OURS])
        error = float(away.std() / math.sqrt(len(away)))
        if noise >= 0 and len(parts) > 1:  # of functions: between draws, if that is more
            means = [float(np.mean(a - b)) for a, b in zip(parts, losses[OURS], strict=True)]
            error = max(error, float(np.std(means, ddof=1)) / math.sqrt(len(means)))
        score = 1.0 - float(all_points.mean())
        seconds = spent[name] / len(items)
        shown = " and ".join(sorted(forms)) if name == OURS else ""
        results.append(
            Result(row, points, noise, name, score, float(away.mean()), error, seconds, shown)
        )
    return results


def function_row(name: str, points: int, noise: float, draws: int) -> list[Result]:
    """Return the results for a function, with noise relative to its spread."""
    function, D = FUNCTIONS[name]
    items = []
    for draw in range(draws):
        rng = np.random.default_rng(1000 + draw)
        X, new = rng.random((points, D)), rng.random((NEW, D))
        y = function(X)
        y = y + noise * y.std() * rng.standard_normal(points)
        items.append((X, y, new, function(new)))
    return compare(f"{name}, {D}-D", points, noise, items)


def table_row(name: str, X: Array, y: Array, folds: int = FOLDS) -> list[Result]:
    """Return the results for a table, by cross-validation."""
    part = np.random.default_rng(0).permutation(len(y)) % FOLDS
    items = [(X[part != k], y[part != k], X[part == k], y[part == k]) for k in range(folds)]
    return compare(f"{name}, {X.shape[1]}-D", len(y), -1.0, items)


def page(results: list[Result]) -> str:
    """Return the table in Markdown: R^2 and seconds of every method, the best in bold."""
    names = [OURS, *(peer.name for peer in PEERS)]
    rows: dict[tuple[str, int, float], dict[str, Result]] = {}
    for one in results:
        rows.setdefault((one.row, one.points, one.noise), {})[one.method] = one
    lines = [
        f"| | points | noise | form | {' | '.join(names)} |",
        f"|---|---|---|---|{'---|' * len(names)}",
    ]
    best, behind = 0, []
    for (row, points, noise), found in rows.items():
        top = max(one.score for one in found.values())
        best += found[OURS].score >= top
        peer = max((one for one in found.values() if one.method != OURS), key=lambda x: x.score)
        if -peer.difference > max(0.005, peer.error):
            behind.append(f"{row} {points}")
        cells = []
        for name in names:
            if name not in found:
                cells.append("")
                continue
            one = found[name]
            bold = "**" if one.score >= top - 5e-5 else ""
            cells.append(f"{bold}{one.score:.4f}{bold} ({one.seconds:.2g} s)")
        shown = "real" if noise < 0 else f"{noise:g}"
        lines.append(f"| {row} | {points} | {shown} | {found[OURS].form} | {' | '.join(cells)} |")
    lines.append("")
    lines.append(
        f"kronfield is the best in {best} of {len(rows)} rows. Behind the best by more than 0.005 "
        f"and the standard error of the paired difference: {', '.join(behind) or 'none'}."
    )
    return "\n".join(lines)


def load(path: Path) -> list[Result]:
    """Return the results of a file."""
    if not path.exists():
        return []
    return [Result(**json.loads(line)) for line in path.read_text().splitlines() if line]


def dimensions(settings: Settings) -> list[Row]:
    """Functions of many variables: quality in decibels, 10 log10(1 / (1 - R^2))."""
    rows = list[Row]()
    for P in settings.pick((60,), (300, 2000), (300, 2000, 20_000)):
        for name in settings.pick(("Friedman 2",), FUNCTIONS, FUNCTIONS):
            function, D = FUNCTIONS[name]
            rng = np.random.default_rng(1000)
            X, new = rng.random((P, D)), rng.random((settings.pick(100, NEW, NEW), D))
            y = function(X)
            item = (X, y + 0.2 * y.std() * rng.standard_normal(P), new, function(new))
            methods = [Method(OURS, lambda one: _ours(*one[:3])[0])]
            methods += [
                Method(_NAMES[p.name], lambda one, p=p: p.call(*one[:3]), _NEEDS[p.name])
                for p in peers(P)
            ]

            def score(one: tuple[Array, ...], found: Array) -> tuple[float, None]:
                return -10 * math.log10(max(1 - r_squared(one[3], found), 1e-12)), None

            case = f"{name} in {D} dimensions, {P} points, noise 0.2 of the spread"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                rows += contest("dimensions", case, {"": item}, methods, settings, score=score)
    return rows


_NAMES = {
    "process": "scikit-learn GaussianProcessRegressor",
    "boosting": "scikit-learn HistGradientBoostingRegressor",
    "splines": "scikit-learn SplineTransformer + RidgeCV",
    "radial": "SciPy RBFInterpolator",
    "vectors": "scikit-learn SVR",
}
_NEEDS = {name: "scipy" if name == "radial" else "sklearn" for name in _NAMES}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--sizes", default="")
    parser.add_argument("--noise", default="0,0.2")
    parser.add_argument("--functions", default=",".join(FUNCTIONS))
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()

    def keep(found: list[Result]) -> None:
        with options.file.open("a") as out:
            for one in found:
                out.write(json.dumps(asdict(one)) + "\n")
                print(one, flush=True)

    for P in [int(size) for size in options.sizes.split(",") if size]:
        for noise in map(float, options.noise.split(",")):
            for name in options.functions.split(","):
                keep(function_row(name, P, noise, DRAWS if P <= 300 else 1))
    if options.tables:
        for name, X, y in tables():
            keep(table_row(name, X, y, FOLDS if len(y) < 3000 else 2))
    text = page(load(options.file))
    if options.page:
        whole = options.page.read_text(encoding="utf-8")
        head, rest = whole.split(START)
        _, tail = rest.split(END)
        options.page.write_text(f"{head}{START}\n\n{text}\n\n{END}{tail}", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
