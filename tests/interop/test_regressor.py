"""`FieldRegressor` in scikit-learn: its own checks, pipelines, searches, weights."""

import copy
import os
import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")

import joblib
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from kronfield.sklearn import FieldRegressor


def named(value):
    return value.func.__name__ if hasattr(value, "func") else ""


@pytest.mark.parametrize(
    ("estimator", "check"), list(estimator_checks_generator(FieldRegressor())), ids=named
)
@pytest.mark.filterwarnings("ignore")
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    X = np.random.default_rng(0).random((200, 2))
    return X, np.sin(4 * X[:, 0]) + X[:, 1]


def test_pipelines_and_searches(data):
    X, y = data
    search = GridSearchCV(
        make_pipeline(StandardScaler(), FieldRegressor()),
        {"fieldregressor__loss": ["squared", "huber"]},
        cv=2,
    ).fit(X, y)
    assert search.best_score_ > 0.99
    assert clone(search.best_estimator_).fit(X, y).score(X, y) > 0.99


def test_weights_are_repeated_rows(data):
    X, y = data
    weights = np.random.default_rng(1).integers(0, 3, len(X))
    weighted = FieldRegressor().fit(X, y, sample_weight=weights)
    repeated = FieldRegressor().fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert np.allclose(weighted.predict(X), repeated.predict(X))


def test_several_targets_and_standard_errors(data):
    X, y = data
    model = FieldRegressor().fit(X, np.stack([y, 2 * y], axis=1))
    mean, error = model.predict(X[:7], return_std=True)
    assert mean.shape == error.shape == (7, 2)
    assert np.allclose(mean[:, 1], 2 * mean[:, 0], atol=1e-3)


def test_names_of_features(data):
    pandas = pytest.importorskip("pandas")
    X, y = data
    model = FieldRegressor().fit(pandas.DataFrame(X, columns=["a", "b"]), y)
    assert list(model.feature_names_in_) == ["a", "b"]
    assert model.field_.labels.names == ("a", "b")
    assert model.field_(a=0.2, b=0.3) == model.predict(
        pandas.DataFrame([[0.2, 0.3]], columns=["a", "b"])
    )
    with pytest.raises(ValueError, match="feature names"):
        model.predict(pandas.DataFrame(X, columns=["b", "c"]))


def test_ten_features_are_fitted_in_the_dual_form():
    X, y = make_friedman1(300, noise=1.0, random_state=0)
    model = FieldRegressor().fit(X[:200], y[:200])
    assert model.field_.report.form == "dual"
    assert model.score(X[200:], y[200:]) > 0.85  # 0.68 by ridge regression
    mean, error = model.predict(X[200:], return_std=True)
    inside = np.abs(mean - y[200:]) < 2 * np.hypot(error, 1.0)
    assert inside.mean() > 0.85


@pytest.mark.filterwarnings("ignore:.*Early stopping")
def test_jobs_pickles_and_imputation(data):
    X, y = data
    with joblib.parallel_config("loky" if "KRONFIELD_LONG_TESTS" in os.environ else "threading"):
        scores = cross_val_score(FieldRegressor(), X, y, cv=2, n_jobs=2)
    assert scores.min() > 0.99
    model = FieldRegressor().fit(X, y)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        found = again.predict(X[:5], return_std=True)
        np.testing.assert_allclose(found, model.predict(X[:5], return_std=True), rtol=1e-9)
    changed = pickle.loads(pickle.dumps(model.set_params(ridge=1e3)))  # not fitted again
    np.testing.assert_allclose(changed.predict(X[:5], return_std=True), found, rtol=1e-9)
    gaps = np.column_stack([X, y])
    gaps[::9, 2] = np.nan
    filled = IterativeImputer(FieldRegressor(), max_iter=1).fit_transform(gaps)
    assert np.abs(filled[:, 2] - y).max() < 0.1
