"""`sphere`: values on latitudes and longitudes to a field that is smooth at poles and seam.

A circle through both poles has a period of 360 degrees. Past a pole, latitude 90 + a at longitude b
is latitude 90 - a at longitude b + 180. The samples are continued like this over the other half of
every circle, and fitted with both axes periodic (the double Fourier sphere: Merilees, 1973;
Townsend et al., 2016).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, number_array, problem, real_numbers
from kronfield.field import Field
from kronfield.fitting.grid import fit
from kronfield.fitting.periods import is_even_circle
from kronfield.fitting.settings import Settings

# A latitude counts as a pole if it is no further from it than this, in degrees.
AT_POLE = 1e-9


def sphere(values: Any, latitude: Any, longitude: Any, **options: Any) -> Field:
    """Return the field of values on a sphere, smooth across both poles and the seam.

    Examples
    --------
    >>> import numpy as np
    >>> import kronfield as kf
    >>> lat, lon = np.linspace(-85, 85, 18), np.arange(0.0, 360.0, 10.0)
    >>> height = np.sin(np.deg2rad(lat))[:, None] + 0 * lon  # the coordinate z
    >>> field = kf.sphere(height, lat, lon)
    >>> field(np.array([[90.0, 0.0], [90.0, 123.0], [-90.0, 7.0]])).round(6)
    array([ 1.,  1., -1.])

    Parameters
    ----------
    values : array of shape (N_lat, N_lon) or (N_lat, N_lon, C)
        Scalars; the components of vectors change sign at a pole and are not for this.
    latitude : array of shape (N_lat,)
        Degrees from -90 to 90, rising or falling, even or not, with or without the poles.
    longitude : array of shape (N_lon,)
        Degrees, rising or falling, over at most 360. An even number of even longitudes is exact;
        others are first interpolated along each circle of latitude.
    **options
        As in `fit`: noise, roughness, rank, settings.

    Returns
    -------
    Field
        On (latitude, longitude), both with a period of 360 degrees. At a pole all longitudes have
        one value. Derivatives are per degree; along a circle of latitude divide them by the cosine
        of the latitude. It has twice as many weights as samples.
    """
    for name in ("axes", "periodic", "domain", "encoding", "mask", "weights", "ends"):
        if name in options:
            raise problem(
                name,
                f"{name} of a sphere",
                "none",
                "Leave it out: latitude and longitude alone decide how the grid is continued.",
            )
    lat, lon = real_numbers("latitude", latitude), real_numbers("longitude", longitude)
    if lat.ndim != 1 or len(lat) < 2 or np.abs(lat).max() > 90 + AT_POLE:
        raise problem(
            "latitude",
            describe(lat),
            "two or more latitudes from -90 to 90",
            "Pass degrees, one per row of values.",
        )
    array = number_array("values", values)
    if array.ndim not in (2, 3) or array.shape[:2] != (len(lat), lon.size):
        raise problem(
            "values",
            describe(array),
            f"shape ({len(lat)}, {lon.size}) or with channels",
            "Latitudes are the first axis: transpose values if they are the second.",
        )
    if lat[0] > lat[-1]:
        lat, array = lat[::-1], array[::-1]
    array = _single_poles(array, lat)
    opposite = _opposite(array, lat, lon, options.get("settings"))
    # past the north pole latitudes fall again; a pole itself is not repeated
    inside = np.abs(np.abs(lat) - 90) > AT_POLE
    positions = np.concatenate([lat, 180 - lat[inside][::-1]])
    both = np.concatenate([array, opposite[inside][::-1]])
    field = fit(
        both,
        [positions, lon],
        periodic=[360.0, 360.0],
        channels=array.ndim == 3,
        **options,
    )
    return field.with_axes([real_numbers("latitude", latitude), lon])


def _single_poles(array: Array, lat: Array) -> Array:
    """Return values with the mean of all longitudes at a pole."""
    for row in np.flatnonzero(np.abs(np.abs(lat) - 90) <= AT_POLE):
        array = array.astype(np.result_type(array.dtype, np.float32), copy=True)
        array[row] = array[row].mean(axis=0)
    return array


def _opposite(array: Array, lat: Array, lon: Array, settings: Settings | None) -> Array:
    """Return the values 180 degrees further on each circle of latitude."""
    if lon.ndim != 1 or len(lon) < 2:
        raise problem(
            "longitude",
            describe(lon),
            "two or more longitudes",
            "Pass degrees, one per column of values.",
        )
    rising = lon if lon[0] < lon[-1] else lon[::-1]
    if len(lon) % 2 == 0 and is_even_circle(rising, 360.0):
        return np.roll(array, len(lon) // 2, axis=1)
    ring = fit(
        array,
        [lat, lon],
        periodic=[None, 360.0],
        channels=array.ndim == 3,
        noise=0.0,
        settings=settings,
    )
    return ring.on_grid([lat, lon + 180.0])
