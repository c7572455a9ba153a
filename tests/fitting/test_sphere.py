"""Fields on a sphere: poles and seam are ordinary places, wherever they are."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import kronfield as kf

LAT, LON = np.linspace(-87, 87, 30), np.arange(0.0, 360.0, 7.5)


def directions(lat, lon):
    lat, lon = np.deg2rad(lat), np.deg2rad(lon)
    z = np.sin(lat) + 0 * lon
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), z], axis=-1)


def signal(p):
    return np.exp(p[..., 0] - 0.5 * p[..., 2]) + p[..., 0] * p[..., 1]


def everywhere(n=300, seed=0):
    p = np.random.default_rng(seed).standard_normal((n, 3))
    p /= np.linalg.norm(p, axis=1, keepdims=True)
    lat, lon = np.rad2deg(np.arcsin(p[:, 2])), np.rad2deg(np.arctan2(p[:, 1], p[:, 0]))
    return p, np.stack([lat, lon], axis=1)


@pytest.mark.parametrize("seed", range(4))
def test_a_rotated_field_is_the_same_everywhere(seed):
    """The error does not depend on where the poles are, and is far below that of a plain grid."""
    turn = Rotation.random(rng=np.random.default_rng(seed)).as_matrix()
    values = signal(directions(LAT[:, None], LON[None, :]) @ turn)
    field = kf.sphere(values, LAT, LON)
    p, at = everywhere(seed=seed)
    assert np.abs(field(at) - signal(p @ turn)).max() < 1e-7
    # at both poles the value does not depend on the longitude, and neither do slopes on the side
    for pole in (90.0, -90.0):
        rim = np.stack([np.full(12, pole), np.arange(12) * 30.0], axis=1)
        assert np.ptp(field(rim)) < 1e-7
        slopes = field(rim, (1, 0))
        np.testing.assert_allclose(slopes[:6], -slopes[6:], atol=1e-7)
    seam = np.array([[10.0, -180.0], [10.0, 180.0], [170.0, 0.0]])
    assert np.ptp(field(seam)) < 1e-7
    assert field.on_grid().shape == values.shape
    np.testing.assert_allclose(field.on_grid(), values, atol=1e-9)


def test_it_is_better_than_a_grid_that_ends_at_the_poles():
    values = signal(directions(LAT[:, None], LON[None, :]))
    plain = kf.fit(values, [LAT, LON], periodic=[None, 360.0], domain=[(-90, 90), (0, 360)])
    field = kf.sphere(values, LAT, LON)
    rim = np.stack([np.full(12, 90.0), np.arange(12) * 30.0], axis=1)
    assert np.ptp(field(rim)) < 0.1 * np.ptp(plain(rim))


@pytest.mark.parametrize("case", ["odd", "uneven", "poles", "falling", "both ends", "channels"])
def test_grids_as_they_come(case):
    lat, lon = LAT, LON
    if case == "odd":
        lon = np.arange(45) * 8.0
    elif case == "uneven":
        lon = (np.arange(48) + np.random.default_rng(0).uniform(-0.3, 0.3, 48)) * 7.5
        lat = np.sort(np.random.default_rng(1).uniform(-90, 90, 40))
    elif case == "poles":
        lat = np.linspace(-90, 90, 31)
    elif case == "falling":
        lat = LAT[::-1]
    elif case == "both ends":
        lon = np.arange(-180.0, 181.0, 7.5)
    values = signal(directions(lat[:, None], lon[None, :]))
    if case == "channels":
        values = np.stack([values, -values], axis=-1)
    field = kf.sphere(values, lat, lon)
    p, at = everywhere(100)
    found = field(at)[:, 0] if case == "channels" else field(at)
    assert np.abs(found - signal(p)).max() < (0.02 if case == "uneven" else 1e-4)
    np.testing.assert_allclose(field.on_grid(), values, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"latitude": LAT * 2}, "latitude"),
        ({"latitude": LAT[:-1]}, "values"),
        ({"longitude": LON[:1], "values": np.ones((30, 1))}, "longitude"),
        ({"mask": np.zeros((30, 48), dtype=bool)}, "mask"),
    ],
)
def test_what_is_no_sphere_is_refused(change, words):
    given = {"values": np.ones((30, 48)), "latitude": LAT, "longitude": LON, **change}
    with pytest.raises(kf.InputError, match=words):
        kf.sphere(**given)
