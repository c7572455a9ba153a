"""Methods for values on a grid: functions from a `GridTask` to values at all of its positions.

Positions are in units of the given samples; the first sample is at 0. The last position is half a
step past the last sample. There each method extrapolates as it does by default; a method that has
no default repeats the last sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import ndimage
from scipy.interpolate import (
    Akima1DInterpolator,
    PchipInterpolator,
    RectBivariateSpline,
    RegularGridInterpolator,
    make_interp_spline,
)

import kronfield as kf
from benchmarks.data import Array, GridTask
from benchmarks.frame import OURS, Method


def ours(task: GridTask) -> Array:
    """Fit with default settings."""
    return kf.fit(task.given, channels=True).on_grid(task.positions())


class Refit:
    """Fits that keep the settings chosen for the first task of a size.

    This is how to fit the frames of a video or a folder of scans.
    """

    def __init__(self) -> None:
        self.fields: dict[tuple[int, ...], kf.Field] = {}

    def choose(self, task: GridTask) -> None:
        """Choose the settings if this is the first task of its size."""
        if task.given.shape not in self.fields:
            self.fields[task.given.shape] = kf.fit(task.given, channels=True)

    def __call__(self, task: GridTask) -> Array:
        self.choose(task)
        return self.fields[task.given.shape].refit(task.given).on_grid(task.positions())


def paper_encoding(kind: str, size: int, dimensions: int) -> kf.Kronecker:
    """Return the encoding of the paper's closed form, K = N.

    Gaussians are 0.64 samples wide; triangles reach one sample to either side.
    """
    emb = kf.Gaussian(size, 0.64 / size) if kind == "Gaussian" else kf.Triangle(size, 2 / size)
    return kf.Kronecker(*[emb] * dimensions)


def paper_fit(given: Array, kind: str) -> kf.Field:
    """Return the paper's closed form by kronfield; samples are at i/N on a domain of length 1."""
    size, D = len(given), given.ndim - 1
    axes = [kf.even_axis(size)] * D
    return kf.fit(
        given,
        axes,
        paper_encoding(kind, size, D),
        domain=[(0, 1)] * D,
        ridge=0.0,
        roughness=(0, 0),
        channels=True,
    )


def paper_ours(task: GridTask, kind: str) -> Array:
    given = task.given
    return paper_fit(given, kind).on_grid([x / len(given) for x in task.positions()])


class PapersWay:
    """The paper's closed form as printed.

    The pseudo-inverse is a dense least-squares solution for the identity; then it is multiplied
    along each axis.
    """

    def __init__(self, given: Array, kind: str) -> None:
        import torch

        size, self.D = len(given), given.ndim - 1
        self.embedder = paper_encoding(kind, size, 1).embedders[0]
        Psi = self.embedder(torch.arange(size, dtype=torch.float32) / size)
        inverse = torch.linalg.lstsq(Psi, torch.eye(size)).solution  # all axes are equal here
        self.weights = self._along_all(torch.from_numpy(given), inverse)

    def _along_all(self, values: Any, matrix: Any) -> Any:
        import torch

        for axis in range(self.D):
            values = torch.movedim(torch.tensordot(matrix, values, dims=([1], [axis])), 0, axis)
        return values

    def __call__(self, positions: Array) -> Array:
        """Return values on a grid with these positions on every axis, in units of the domain."""
        import torch

        Psi = self.embedder(torch.from_numpy(positions.astype(np.float32)))
        return self._along_all(self.weights, Psi).numpy()


def papers_way(task: GridTask, kind: str) -> Array:
    given = task.given
    return PapersWay(given, kind)(task.positions()[0] / len(given))


def bivariate(task: GridTask, degree: int) -> Array:
    given = task.given
    axes, at = [np.arange(float(n)) for n in given.shape[:2]], task.positions()
    planes = [
        RectBivariateSpline(*axes, given[..., c], kx=degree, ky=degree)(*at)
        for c in range(given.shape[2])
    ]
    return np.stack(planes, axis=-1)


def regular_grid(task: GridTask, method: str) -> Array:
    given = task.given
    axes = tuple(np.arange(float(n)) for n in given.shape[:-1])
    interpolator = RegularGridInterpolator(
        axes, given, method=method, bounds_error=False, fill_value=None
    )
    return interpolator(np.stack(np.meshgrid(*task.positions(), indexing="ij"), axis=-1))


def map_coordinates(task: GridTask, order: int) -> Array:
    given = task.given
    at = np.meshgrid(*task.positions(), indexing="ij")
    planes = [
        ndimage.map_coordinates(
            given[..., c], at, np.float32, order, mode="mirror" if order > 1 else "nearest"
        )
        for c in range(given.shape[-1])
    ]
    return np.stack(planes, axis=-1)


def zoom(task: GridTask, order: int) -> Array:
    """`ndimage.zoom` to twice the number of samples minus one, which it aligns with the samples.

    The last row and column are repeated.
    """
    given = task.given
    factors = [(2 * n - 1) / n for n in given.shape[:-1]]
    planes = [
        ndimage.zoom(given[..., c], factors, order=order, mode="mirror")
        for c in range(given.shape[-1])
    ]
    inner = np.stack(planes, axis=-1)
    return np.pad(
        inner,
        [(0, n - m) for n, m in zip(task.values.shape, inner.shape, strict=True)],
        mode="edge",
    )


def csaps_spline(task: GridTask) -> Array:
    from csaps import csaps

    given, at = task.given, task.positions()
    axes = [np.arange(float(n)) for n in given.shape[:-1]]
    if len(axes) == 1:
        return csaps(axes[0], given.T.astype(np.float64), smooth=1.0)(at[0]).T
    planes = [
        csaps(axes, given[..., c].astype(np.float64), smooth=1.0)(at)
        for c in range(given.shape[-1])
    ]
    return np.stack(planes, axis=-1)


def pillow(task: GridTask, filter_name: str) -> Array:
    """`Image.resize` of every channel, with a box that keeps the first sample in its place."""
    from PIL import Image

    given = np.pad(task.given, ((1, 1), (1, 1), (0, 0)), mode="edge")
    height, width = task.values.shape[:2]
    box = (1.25, 1.25, 1.25 + width / 2, 1.25 + height / 2)
    how = getattr(Image.Resampling, filter_name)
    planes = [
        Image.fromarray(np.ascontiguousarray(given[..., c])).resize((width, height), how, box)
        for c in range(3)
    ]
    return np.stack([np.asarray(plane) for plane in planes], axis=-1)


def scikit_image(task: GridTask, order: int) -> Array:
    """`skimage.transform.warp`, since `resize` cannot keep the first sample in its place."""
    from skimage.transform import AffineTransform, warp

    half = AffineTransform(scale=0.5)
    return warp(task.given, half, order=order, output_shape=task.values.shape[:2], mode="edge")


def along_axes(task: GridTask, make: Any) -> Array:
    """Apply a 1-D interpolator along each axis in turn."""
    result = task.given
    for axis, at in enumerate(task.positions()):
        result = make(np.arange(float(result.shape[axis])), result, axis)(at)
    return result


def _pchip(x: Array, y: Array, axis: int) -> Any:
    return PchipInterpolator(x, y, axis=axis, extrapolate=True)


def _akima(x: Array, y: Array, axis: int, method: str) -> Any:
    return Akima1DInterpolator(x, y, axis=axis, extrapolate=True, method=method)


def peers(dimensions: int) -> list[Method]:
    """Return the methods for tasks of this number of dimensions, ours first."""
    kept = Refit()
    found = [
        Method(OURS, ours, note="nothing chosen by hand"),
        Method(
            "kronfield, refit",
            kept,
            note="the choice for the first item of a size kept",
            before=kept.choose,
        ),
        Method(
            "kronfield, the paper's Gaussian",
            lambda t: paper_ours(t, "Gaussian"),
            note="the paper's settings",
        ),
        Method(
            "kronfield, the paper's Triangle",
            lambda t: paper_ours(t, "Triangle"),
            note="the paper's settings",
        ),
        Method(
            "the paper's way, Gaussian",
            lambda t: papers_way(t, "Gaussian"),
            "torch",
            note="dense, PyTorch",
        ),
    ]
    for degree in (1, 3):
        name = f"SciPy make_interp_spline, k={degree}"
        found.append(
            Method(
                name,
                lambda t, k=degree: along_axes(
                    t, lambda x, y, a: make_interp_spline(x, y, k=k, axis=a)
                ),
            )
        )
    found.append(Method("SciPy PchipInterpolator", lambda t: along_axes(t, _pchip)))
    for kind in ("akima", "makima"):
        name = f"SciPy Akima1DInterpolator, {kind}"
        found.append(
            Method(name, lambda t, k=kind: along_axes(t, lambda x, y, a: _akima(x, y, a, k)))
        )
    if dimensions > 1:
        found.append(
            Method("SciPy RegularGridInterpolator, linear", lambda t: regular_grid(t, "linear"))
        )
        for order in (1, 3):
            found.append(
                Method(
                    f"SciPy map_coordinates, order {order}",
                    lambda t, k=order: map_coordinates(t, k),
                )
            )
        for order in (1, 3):
            found.append(Method(f"SciPy zoom, order {order}", lambda t, k=order: zoom(t, k)))
    if dimensions == 2:
        for degree in (1, 3):
            found.append(
                Method(
                    f"SciPy RectBivariateSpline, k={degree}", lambda t, k=degree: bivariate(t, k)
                )
            )
        found.append(
            Method(
                "SciPy RegularGridInterpolator, cubic", lambda t: regular_grid(t, "cubic"), most=1
            )
        )
        for name in ("BILINEAR", "BICUBIC", "LANCZOS"):
            found.append(Method(f"Pillow resize, {name.lower()}", lambda t, f=name: pillow(t, f)))
        for order, name in ((1, "bilinear"), (3, "bicubic")):
            found.append(
                Method(
                    f"scikit-image warp, {name}", lambda t, k=order: scikit_image(t, k), "skimage"
                )
            )
    found.append(Method("csaps, cubic", csaps_spline, "csaps"))
    return found


def peak_call(dimensions: int, side: int, channels: int, name: str) -> Any:
    """Return a call of a method on synthetic values, to measure its memory after a small call."""
    from benchmarks.data import waves

    method = next(one for one in peers(dimensions) if one.name == name)
    method.call(GridTask(waves((16,) * dimensions, channels, noise=0.0)))
    task = GridTask(waves((side,) * dimensions, channels, noise=0.0))
    if isinstance(method.call, Refit):
        method.call(task)
    return lambda: method.call(task)
