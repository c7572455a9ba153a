"""Every number that decides something a user can see, with the data and the script that set it.

Each field of these dataclasses is made by `decision`, which keeps beside the value what it decides,
the data it was set on, the script under ``benchmarks/tuning`` that sets it again, and two values,
one on either side, with which some test fails. The page "What is chosen for you" is generated from
here. Numerical tolerances are not decisions: they stay beside their formula.

Examples
--------
>>> from dataclasses import replace
>>> settings = replace(DEFAULT, points=replace(DEFAULT.points, hat_cells=2.0))
>>> settings.points.hat_cells, DEFAULT.points.hat_cells
(2.0, 4.0)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_PICTURES = "kodim01 to 08 (colour, grey, at 1/2 and 1/4 of their size, JPEG, demosaiced)"


def decision(value: Any, decides: str, *, data: str, script: str, sides: tuple[Any, ...]) -> Any:
    """Return a dataclass field of one decision.

    Parameters
    ----------
    value : Any
        The default.
    decides : str
        What it decides, in one sentence.
    data : str
        The data that it was set on.
    script : str
        The script under ``benchmarks/tuning`` that sets it again.
    sides : tuple
        Other values, lower and higher, with which a test must fail.
    """
    about = {"decides": decides, "data": data, "script": script, "sides": sides}
    return field(default=value, metadata=about)


@dataclass(frozen=True)
class GridSettings:
    """Samples on a grid: what is judged, and when slopes are taken from the data."""

    crop_samples: int = decision(
        1 << 16,
        "Everything is chosen on a central crop of about this many samples.",
        data="by design",
        script="sweep.py",
        sides=(1 << 12, 1 << 20),
    )
    clearly: float = decision(
        1.25,
        "Splines are chosen over slopes from the data, and other splines over cubic ones, if the "
        "error with which they predict samples is this many times smaller.",
        data="kodim01 to 08, smooth and rough functions",
        script="sweep.py",
        sides=(1.0, 10.0),
    )
    shortest_refined: int = decision(
        12,
        "Slopes are taken from the data on axes of at least this many samples.",
        data="rows of kodim01 to 08",
        script="sweep.py",
        sides=(6, 24),
    )
    fine_tension: float = decision(
        8.0,
        "The tension of the splines between the nodes of the lattice that slopes fill.",
        data="kodim01 to 08",
        script="sweep.py",
        sides=(1.0, 50.0),
    )
    most_nodes: int = decision(
        1 << 26,
        "Slopes are not taken if the finer lattice would have more nodes than this.",
        data="by design",
        script="sweep.py",
        sides=(1 << 16, 1 << 40),
    )


@dataclass(frozen=True)
class NoiseSettings:
    """Noise on grids: when differences between neighbours are taken for noise."""

    ratio: float = decision(
        0.77,
        "Noise is found if the finest differences are at least this many times as strong as those "
        "at twice the spacing: white noise has 1, random fields with power 1/f and 1/f² have 0.75 "
        "and 0.55. Clean pictures reached 0.70 (0.82 with film grain); grey pictures with noise "
        "of 0.05 and 0.1 had at least 0.78 and 0.82, colour pictures with 0.02 at least 0.85.",
        data=_PICTURES,
        script="noise.py",
        sides=(0.6, 0.95),
    )
    confidence: float = decision(
        1.645,
        "The ratio must exceed its threshold by this many standard errors (95 % confidence): few "
        "samples prove nothing.",
        data="rows of kodim01 to 08, random walks and sines of 50 to 200 samples",
        script="noise.py",
        sides=(0.0, 4.0),
    )
    flat: float = decision(
        0.1,
        "The part of the samples where the signal changes least, which is judged on its own: in a "
        "textured grey picture noise shows only there.",
        data=_PICTURES,
        script="noise.py",
        sides=(0.001, 1.0),
    )
    kept: float = decision(
        0.9,
        "Strengths are measured from the smallest differences, this part of all: edges and "
        "outliers are left out. Less is more robust and less accurate.",
        data=_PICTURES + ", sines and random walks of 50 to 200 samples",
        script="noise.py",
        sides=(0.1, 0.999),
    )
    quiet: float = decision(
        0.5,
        "The smallest differences, this part of all, must show the same strength: noise is "
        "everywhere, the lines of a drawing are not.",
        data="drawn shapes and text, " + _PICTURES,
        script="noise.py",
        sides=(0.02, 0.8),
    )
    growth: float = decision(
        4.0,
        "The power of a signal at twice the spacing over that at the given one, by which its share "
        "in the measured noise is subtracted: 4 belongs to power 1/f², and lowered the mean error "
        "on grey pictures from 5.7 % to 3.1 %.",
        data=_PICTURES,
        script="noise.py",
        sides=(1.5, 100.0),
    )
    least_steps: float = decision(
        1.5,
        "Noise below this many steps of quantised values is not told from rounding. Rounding has "
        "0.29, colour planes of clean 8-bit pictures had up to 0.93, noise of 0.01 has 2.6.",
        data=_PICTURES,
        script="noise.py",
        sides=(0.2, 4.0),
    )
    least_part: float = decision(
        1e-5,
        "Noise below this part of the largest deviation from the mean is not told from rounding.",
        data="by design: single precision",
        script="noise.py",
        sides=(0.0, 1e-2),
    )
    shortest: int = decision(
        8,
        "Axes with fewer samples take no part in the differences.",
        data="by design: third differences at twice the spacing use 8 samples",
        script="noise.py",
        sides=(4, 32),
    )
    most_samples: int = decision(
        1 << 16,
        "Noise is looked for in a central part with about this many samples per channel.",
        data="by design: a few milliseconds",
        script="noise.py",
        sides=(1 << 8, 1 << 24),
    )


@dataclass(frozen=True)
class DirectionalSettings:
    """Slopes along edges: how the directions between samples are weighted.

    A filter is written as the distances of a product of two-term sums: (1, 1) is the filter 1, 2, 1
    and (1, 1, 2) is the filter 1, 2, 2, 2, 1. It is applied along each finer axis in turn.
    """

    slope: float = decision(
        1.5,
        "The factor of PCHIP's slopes; up to 2, middles stay between their neighbours.",
        data="kodim01 to 08",
        script="directional.py",
        sides=(1.0, 2.5),
    )
    power: int = decision(
        6,
        "Directions are weighted by their pooled change to minus this power; the larger it is, the "
        "more the direction of least change prevails.",
        data="kodim01 to 08",
        script="directional.py",
        sides=(2, 12),
    )
    floor: float = decision(
        0.01,
        "The part of the changes along all directions that is added to each, which bounds weights.",
        data="kodim01 to 08",
        script="directional.py",
        sides=(0.0001, 0.3),
    )
    cells: tuple[int, ...] = decision(
        (1, 1, 2, 2),
        "The filter that pools changes for the middles of cells on two axes; its sum is even.",
        data="kodim01 to 08",
        script="directional.py",
        sides=((1, 1), (1, 1, 2, 2, 4, 4)),
    )
    cells_of_volumes: tuple[int, ...] = decision(
        (1, 1),
        "The same on three or more axes, where a short filter pools as many changes.",
        data="by design: the shortest filter",
        script="directional.py",
        sides=((2,), (1, 1, 2)),
    )
    same: tuple[int, ...] = decision(
        (1, 1),
        "The filter for all other middles, along axes on which the pooled change and the node that "
        "is filled have the same parity; its sum is even.",
        data="kodim01 to 08",
        script="directional.py",
        sides=((2,), (1, 1, 2)),
    )
    other: tuple[int, ...] = decision(
        (1,),
        "The same along axes on which they differ in parity; its sum is odd.",
        data="kodim01 to 08",
        script="directional.py",
        sides=((3,), (1, 2)),
    )


@dataclass(frozen=True)
class PointSettings:
    """Scattered points: the grids that are tried, and how they are judged."""

    fewest: int = decision(
        5,
        "Fewer points than this are fitted with a default penalty: there is nothing to choose by.",
        data="by design",
        script="sweep.py",
        sides=(3, 9),
    )
    judged: int = decision(
        6000,
        "Settings are judged on at most this many points, those nearest to the middle; of a "
        "lattice, those in windows from everywhere.",
        data="kodim01 to 08, a quarter of the pixels",
        script="sweep.py",
        sides=(1000, 20000),
    )
    held_out: float = decision(
        0.2,
        "The part of these points that is held out at a time to measure the error.",
        data="by design",
        script="sweep.py",
        sides=(0.1, 0.4),
    )
    held_out_of_lattice: float = decision(
        0.1,
        "The same for points on a lattice, whose missing samples have the error that is measured.",
        data="by design: the points that are left are nearly as dense",
        script="sweep.py",
        sides=(0.02, 0.4),
    )
    few_points: int = decision(
        600,
        "Up to this many points, every part is held out in turn; beyond, only the first.",
        data="smooth functions at random points",
        script="sweep.py",
        sides=(300, 1200),
    )
    spline_cells: float = decision(
        1.0,
        "Cells per point of the grid of splines.",
        data="smooth functions at random points",
        script="sweep.py",
        sides=(0.5, 2.0),
    )
    hat_cells: float = decision(
        4.0,
        "Cells per point of the grid of hats.",
        data="kodim01 to 08, a quarter of the pixels",
        script="sweep.py",
        sides=(2.0, 8.0),
    )
    few_hat_cells: float = decision(
        3.0,
        "The same where points are few: they are fitted several times.",
        data="functions at random points",
        script="sweep.py",
        sides=(2.0, 6.0),
    )
    chance: float = decision(
        2.0,
        "Gaussians are chosen unless others predict better by this over the root of the number of "
        "points held out: they have one score, the others the best of many.",
        data="smooth functions at random points",
        script="sweep.py",
        sides=(0.0, 100.0),
    )
    gain: float = decision(
        0.001,
        "The search for a penalty goes on while a step lowers the error by this part.",
        data="kodim01 to 08, a quarter of the pixels",
        script="sweep.py",
        sides=(0.0, 0.05),
    )
    lattice_tension: float = decision(
        8.0,
        "The tension of the splines between the nodes of a lattice with gaps.",
        data="kodim01 to 08, a quarter of the pixels",
        script="sweep.py",
        sides=(2.0, 24.0),
    )
    sparsest_lattice: int = decision(
        64,
        "Points lie on a lattice if it has at most this many nodes for each of them.",
        data="by design",
        script="sweep.py",
        sides=(16, 256),
    )
    part_of_error: float = decision(
        0.05,
        "The solver stops at this part of the error that held-out points predict.",
        data="kodim01 to 08, a quarter of the pixels",
        script="sweep.py",
        sides=(0.001, 0.5),
    )


@dataclass(frozen=True)
class GaussianSettings:
    """Scattered points of smooth functions: widths and ridge of Gaussians by likelihood."""

    fewest: int = decision(
        10,
        "Fewer points than this do not have a likelihood that can be judged.",
        data="smooth functions at random points",
        script="sweep.py",
        sides=(5, 20),
    )
    narrowest: float = decision(
        0.01,
        "The narrowest width tried, as a part of the box.",
        data="by design",
        script="sweep.py",
        sides=(0.001, 0.05),
    )
    widest: float = decision(
        2.0,
        "The widest width tried, as a part of the box.",
        data="by design",
        script="sweep.py",
        sides=(1.0, 8.0),
    )
    gain: float = decision(
        1.0,
        "An axis gets a width of its own if the logarithm of the likelihood rises by this.",
        data="smooth functions at random points",
        script="sweep.py",
        sides=(0.0, 5.0),
    )


@dataclass(frozen=True)
class ShrinkageSettings:
    """Noise removed by shrinking cosines in blocks: their sizes, shifts and thresholds."""

    sizes_by_dimension: tuple[tuple[int, ...], ...] = decision(
        ((16, 32, 64), (8, 16), (4, 8), (4,)),
        "The samples along each axis of the blocks, for 1, 2, 3 and 4 or more axes.",
        data="kodim01 to 08 with noise of 0.05 and 0.1, their rows",
        script="shrinkage.py",
        sides=(((4,), (4,), (2,), (2,)), ((256,), (64,), (32,), (16,))),
    )
    shifts: int = decision(
        4,
        "The number of shifts of the blocks that are averaged.",
        data="kodim01 to 08 with noise of 0.05 and 0.1",
        script="shrinkage.py",
        sides=(1, 64),
    )
    threshold: float = decision(
        2.7,
        "Cosines with smaller weights than this many standard deviations of the noise are dropped "
        "from the first estimate.",
        data="kodim01 to 08 with noise of 0.05 and 0.1",
        script="shrinkage.py",
        sides=(1.0, 6.0),
    )

    def sizes(self, D: int) -> tuple[int, ...]:
        """Return the sizes of blocks in D dimensions."""
        return self.sizes_by_dimension[min(D, len(self.sizes_by_dimension)) - 1]


@dataclass(frozen=True)
class FillingSettings:
    """Missing samples of a lattice, filled by falling thresholds: see `filling`."""

    sizes_by_dimension: tuple[tuple[int, ...], ...] = decision(
        ((16, 32, 64), (8, 16, 32), (4, 8, 16), (4, 8)),
        "The samples along each axis of the blocks, for 1, 2, 3 and 4 axes.",
        data="kodim01 to 08: a quarter of the pixels, text, scratches, holes of 16 pixels",
        script="filling.py",
        sides=(((4,), (4,), (2,), (2,)), ((256,), (64,), (32,), (16,))),
    )
    rounds: int = decision(
        48,
        "The number of rounds where samples are scattered.",
        data="kodim01 to 08: a quarter of the pixels",
        script="filling.py",
        sides=(6, 200),
    )
    rounds_of_holes: int = decision(
        30,
        "The number of rounds where holes are small parts of the lattice.",
        data="kodim01 to 08: text, scratches, holes of 16 pixels",
        script="filling.py",
        sides=(3, 60),
    )
    first: float = decision(
        6.0,
        "The threshold of the first round, relative to the expected error.",
        data="kodim01 to 08: a quarter of the pixels, text, scratches, holes of 16 pixels",
        script="filling.py",
        sides=(1.0, 100.0),
    )
    last: float = decision(
        0.6,
        "The threshold of the last round, relative to the expected error.",
        data="kodim01 to 08: a quarter of the pixels, text, scratches, holes of 16 pixels",
        script="filling.py",
        sides=(0.01, 3.0),
    )
    averaged: float = decision(
        0.2,
        "The part of the rounds, the last ones, which use all sizes of blocks and are averaged.",
        data="kodim01 to 08: a quarter of the pixels, text, scratches, holes of 16 pixels",
        script="filling.py",
        sides=(0.0, 1.0),
    )
    holes: float = decision(
        0.35,
        "Missing samples are holes if they are at most this part of the lattice: the error is then "
        "measured at known samples that are hidden in the shape of the holes, otherwise at known "
        "samples hidden at random.",
        data="by design: a mask that is moved onto known samples must leave most of them",
        script="filling.py",
        sides=(0.1, 0.6),
    )
    windows: int = decision(
        8,
        "The most windows in which holes are judged; they are spread over the missing samples.",
        data="by design: a tenth of the time of filling a photograph",
        script="filling.py",
        sides=(2, 64),
    )
    window_samples: int = decision(
        1 << 12,
        "The samples of a window.",
        data="by design: 64 x 64 pixels are four times as wide as the blocks",
        script="filling.py",
        sides=(1 << 8, 1 << 16),
    )
    fewest: int = decision(
        64,
        "Filling is considered if at least this many known samples can be hidden.",
        data="by design",
        script="filling.py",
        sides=(16, 256),
    )

    def sizes(self, D: int) -> tuple[int, ...]:
        """Return the sizes of blocks in D dimensions."""
        return self.sizes_by_dimension[min(D, len(self.sizes_by_dimension)) - 1]


@dataclass(frozen=True)
class Settings:
    """All decisions. ``fit`` and ``fit_points`` take other settings for experiments."""

    grid: GridSettings = GridSettings()
    noise: NoiseSettings = NoiseSettings()
    shrinkage: ShrinkageSettings = ShrinkageSettings()
    filling: FillingSettings = FillingSettings()
    directional: DirectionalSettings = DirectionalSettings()
    points: PointSettings = PointSettings()
    gaussians: GaussianSettings = GaussianSettings()


DEFAULT = Settings()


@dataclass(frozen=True)
class Decision:
    """One decision as a row of the page: group, name, value, and what is known about it."""

    group: str
    name: str
    value: Any
    decides: str
    data: str
    script: str
    sides: tuple[Any, ...]


def decisions(settings: Settings | None = None) -> Iterator[Decision]:
    """Yield every decision, in order."""
    used = DEFAULT if settings is None else settings
    for group in dataclasses.fields(used):
        part = getattr(used, group.name)
        for one in dataclasses.fields(part):
            yield Decision(group.name, one.name, getattr(part, one.name), **one.metadata)


def changed(settings: Settings, group: str, name: str, value: Any) -> Settings:
    """Return the settings with one decision changed."""
    part = dataclasses.replace(getattr(settings, group), **{name: value})
    return dataclasses.replace(settings, **{group: part})
