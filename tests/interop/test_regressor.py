"""`FieldRegressor` in scikit-learn: its own checks, pipelines, searches, weights."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from kronfield.sklearn import FieldRegressor

# Checks of scikit-learn on five or ten features, whose fits did not end within 8 seconds.
MANY_FEATURES = {
    "check_positive_only_tag_during_fit",
    "check_estimators_dtypes",
    "check_sample_weight_equivalence_on_dense_data",
    "check_dtype_object",
    "check_regressors_train",
    "check_regressor_data_not_an_array",
    "check_regressor_multioutput",
    "check_regressors_int",
}


def named(value):
    return value.func.__name__ if hasattr(value, "func") else ""


@pytest.mark.parametrize(
    ("estimator", "check"), list(estimator_checks_generator(FieldRegressor())), ids=named
)
@pytest.mark.filterwarnings("ignore")
def test_the_checks_of_scikit_learn(estimator, check):
    if named(check) in MANY_FEATURES:
        pytest.skip("five or ten features: fits of so many dimensions take too long")
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
    with pytest.raises(ValueError, match="feature names"):
        model.predict(pandas.DataFrame(X, columns=["b", "c"]))
