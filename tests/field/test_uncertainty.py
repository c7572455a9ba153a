"""The inverse from which exact standard errors are computed."""

import numpy as np
import pytest

import kronfield as kf
from kronfield.field import uncertainty


def regular_and_singular():
    rows = np.random.default_rng(0).standard_normal((30, 12))
    whole = rows.T @ rows
    return whole, whole - whole[:, :1] @ whole[:1] / whole[0, 0]


@pytest.mark.parametrize("which", [0, 1])
def test_it_is_the_pseudo_inverse(which):
    matrix = regular_and_singular()[which]
    wanted = np.linalg.pinv(matrix, rcond=1e-13, hermitian=True)
    np.testing.assert_allclose(
        uncertainty._inverse(matrix), wanted, atol=1e-9 * np.abs(wanted).max()
    )


def test_only_singular_matrices_need_eigenvalues(monkeypatch):
    seen, plain = [], np.linalg.pinv
    monkeypatch.setattr(np.linalg, "pinv", lambda m, **o: seen.append(1) or plain(m, **o))
    for matrix, count in zip(regular_and_singular(), (0, 1), strict=True):
        uncertainty._inverse(matrix)
        assert len(seen) == count


def test_every_one_of_few_points_is_held_out_once(monkeypatch):
    from kronfield.fitting import points as module

    seen = []
    plain = module.PointFit._left_out

    def watched(self, values, scale, held, robust):
        seen.append(held)
        return plain(self, values, scale, held, robust)

    monkeypatch.setattr(module.PointFit, "_left_out", watched)
    x = np.linspace(0, 1, 95)
    field = kf.fit_points(x[:, None], np.sin(9 * x), kf.Triangle(20, 0.1), roughness=(0, 1e-6))
    assert field.report.coverage.held == 95
    assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(95))
