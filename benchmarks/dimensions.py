"""Many dimensions: functions of 4 to 10 variables, and tables that packages ship."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.data import Array

# The most points for methods whose time is cubic, and for those whose time is quadratic.
CUBIC, QUADRATIC = 2000, 20_000


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
    few = len(X) <= CUBIC
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
    Peer("process", _process, CUBIC),
    Peer("boosting", _boosting),
    Peer("splines", _splines),
    Peer("radial", _radial, QUADRATIC),
    Peer("vectors", _vectors, QUADRATIC),
)


def peers(P: int) -> list[Peer]:
    """Return the methods that end in reasonable time for P points."""
    return [peer for peer in PEERS if peer.most >= P]
