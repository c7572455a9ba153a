"""Every number that decides something a user can see, with the data and the script that set it.

Each field of these dataclasses is made by `decision`. It stores with the value a text that says
what the value decides, the data it was set on, the script under ``benchmarks/tuning`` that sets it
again, and two values, one on either side, with which some test fails. The page "What is chosen for
you" is generated from here.

Other numbers stay beside the code that uses them, with their reason: numerical tolerances, sizes
that bound memory or save time without changing a result by more than a tolerance, limits past
which input is refused with a message, defaults of arguments, which signatures show, and the layout
of drawings and files. A limit of memory or time that changes what is fitted is a decision.

Examples
--------
>>> from dataclasses import replace
>>> settings = replace(DEFAULT, points=replace(DEFAULT.points, hat_cells=2.0))
>>> settings.points.hat_cells, DEFAULT.points.hat_cells
(2.0, 4.0)
"""

# ruff: noqa: RUF009 - groups of decisions cannot be changed, so they can be defaults

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kronfield._core.records import record

_PICTURES = "kodim01 to 08 (colour, grey, at 1/2 and 1/4 of their size, JPEG, demosaiced)"


def decision(value: Any, decides: str, *, data: str, script: str, sides: tuple[Any, ...]) -> Any:
    """Return a dataclass field of one decision.

    Parameters
    ----------
    value : Any
        The default.
    decides : str
        What the value decides.
    data : str
        The data that the value was set on.
    script : str
        The script under ``benchmarks/tuning`` that sets it again; "none" if no script does, as
        for limits of time and memory, and for conventions.
    sides : tuple
        Other values, lower and higher, with which a test must fail.
    """
    about = {"decides": decides, "data": data, "script": script, "sides": sides}
    return field(default=value, metadata=about)


class _Group:
    """The base class of all groups of decisions.

    The methods are written here once, because generating them for each group by `dataclass` took
    some 40 ms of importing `fit`. Decisions cannot be changed in place. A pickle of decisions holds
    only those that differ from the default; in most fields none does.
    """

    def __init__(self, **values: Any) -> None:
        names = self.__dataclass_fields__  # type: ignore[attr-defined]
        unknown = values.keys() - names.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__} has no decision {', '.join(sorted(unknown))}")
        # past __setattr__, which refuses changes
        self.__dict__.update({name: one.default for name, one in names.items()} | values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({values})"

    def __deepcopy__(self, memo: dict[int, Any]) -> _Group:
        """Return these decisions themselves, which cannot change."""
        return self

    def __reduce__(self) -> Any:
        """Return a function and its arguments that restore these decisions."""
        every = dataclasses.fields(self)  # type: ignore[arg-type]
        values = {one.name: getattr(self, one.name) for one in every}
        other = {one.name: values[one.name] for one in every if values[one.name] != one.default}
        return _made, (type(self), other)


def _made(kind: type[Any], other: dict[str, Any]) -> Any:
    # a decision that this version does not have is left out, so that the field can be loaded
    known = {one.name for one in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in other.items() if name in known})


@dataclass(init=False, repr=False, eq=False)
class GridSettings(_Group):
    """Samples on a grid: the samples that are judged, and when slopes are taken from the data."""

    crop_samples: int = decision(
        1 << 16,
        "Everything is chosen on a central crop of about this many samples.",
        data="by design",
        script="sweep.py",
        sides=(1 << 12, 1 << 20),
    )
    direction_samples: int = decision(
        1 << 14,
        "Whether slopes are taken along axes or along edges is judged on about this many samples, "
        "in boxes spread over the crop: both predict every second sample.",
        data="by design: tens of milliseconds",
        script="sweep.py",
        sides=(1 << 12, 1 << 16),
    )
    edge_trust: float = decision(
        0.8,
        "Where slopes along edges predict better, they are mixed with slopes along axes. Their "
        "weight is the one that predicts best from every second sample, times this factor, and at "
        "most 1. At the samples' own spacing the best weight is smaller: the factor is the slope "
        "of a regression, through 0, of this weight on the other.",
        data="kodim01 to 08",
        script="directional.py",
        sides=(0.4, 1.2),
    )
    clearly: float = decision(
        1.25,
        "Splines are chosen over slopes from the data, and other splines over cubic ones, if the "
        "error with which they predict samples is this many times smaller. Of many lines along one "
        "axis the error is known better: slopes have the advantage of this number to the power of "
        "one over the root of the number of lines.",
        data="kodim01 to 08, smooth and rough functions",
        script="sweep.py",
        sides=(1.0, 10.0),
    )
    shortest_refined: int = decision(
        12,
        "Slopes are taken from the data on axes of at least this many samples, if all are even.",
        data="rows of kodim01 to 08",
        script="sweep.py",
        sides=(6, 24),
    )
    shortest_uneven: int = decision(
        5,
        "Slopes are taken from the data on axes of at least this many samples if an axis is "
        "uneven: there splines through few samples swing widely between them.",
        data="by design: with fewer samples slopes cannot be judged",
        script="none",
        sides=(4, 8),
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
    longest_basis: int = decision(
        1024,
        "A penalised fit is exact, in the eigenbasis of the penalty, on axes of up to this many "
        "samples, and of up to longest_halves if all axes are even and no axis has more than four "
        "times the samples of the others together. If an even axis is longer, the samples are "
        "smoothed in cosines, with reflecting ends, and then interpolated; an uneven line is "
        "solved as a band.",
        data="by design: the eigenbasis takes N³ operations, half a second",
        script="none",
        sides=(256, 4096),
    )
    longest_halves: int = decision(
        8000,
        "The longest even axis of a lattice whose eigenbasis is computed in two halves.",
        data="by design: both halves take N³ / 4 operations, and a tenth of the memory of cosines",
        script="none",
        sides=(1024, 1 << 14),
    )
    most_removed: float = decision(
        1.05,
        "In cosines, a penalty is lowered while it removes more than this many times the noise, "
        "whose standard deviation is known to a few per cent.",
        data="by design: the noise is known to a few per cent",
        script="none",
        sides=(1.0, 1.5),
    )
    held_out_samples: int = decision(
        1 << 14,
        "The error at held-out samples in a report is measured on about this many samples in the "
        "middle of the grid.",
        data="by design: tens of milliseconds",
        script="none",
        sides=(1 << 11, 1 << 17),
    )
    fewest_held_out: int = decision(
        12,
        "The error at held-out samples is not measured if an axis has fewer samples than this: "
        "every second one would be too few to fit.",
        data="by design: six samples are left",
        script="none",
        sides=(6, 24),
    )


@dataclass(init=False, repr=False, eq=False)
class PredictionSettings(_Group):
    """Samples left out: which features predict them, and how many are judged."""

    fewest: int = decision(
        5,
        "Axes with fewer samples are not judged: the polynomial through all of them is used.",
        data="by design: a cubic through four samples predicts the fifth",
        script="lines.py",
        sides=(3, 9),
    )
    widths: tuple[float, ...] = decision(
        (1.0, 1.5, 4.0),
        "The widths of the Gaussians that are tried on lines, in spacings. The widest comes after "
        "the splines of high degree, the others before.",
        data="random smooth and rough functions on lines of 10 to 60 samples",
        script="lines.py",
        sides=((0.5, 0.7), (3.0, 6.0)),
    )
    padding: int = decision(
        20,
        "The number of centres of these Gaussians past each end.",
        data="random smooth and rough functions on lines of 10 to 60 samples",
        script="lines.py",
        sides=(4, 60),
    )
    fewest_for_gaussians: int = decision(
        10,
        "Lines with fewer samples have no Gaussians.",
        data="random smooth and rough functions on lines of 10 to 60 samples",
        script="lines.py",
        sides=(8, 16),
    )
    longest_for_gaussians: int = decision(
        256,
        "Lines with more samples have no Gaussians, whose matrix is factored densely.",
        data="by design: tens of milliseconds",
        script="lines.py",
        sides=(128, 512),
    )
    most_judged: int = decision(
        1 << 12,
        "The most predictions on an axis: their mean square is then known to about 2 %.",
        data="by design",
        script="lines.py",
        sides=(1 << 8, 1 << 16),
    )
    most_uneven: int = decision(
        256,
        "About the most samples of a long uneven axis that are predicted, half where the values "
        "change most, and half spread over the rest. All are predicted of axes up to twice as "
        "long: with those around them they would be as many.",
        data="by design: a millisecond",
        script="lines.py",
        sides=(64, 1024),
    )
    most_channels: int = decision(
        64,
        "The most channels in which samples are predicted, or more if `most_judged` predictions on "
        "the longest axis need them. Further channels are not used.",
        data="by design: as many predictions as on an axis of a picture",
        script="none",
        sides=(16, 256),
    )
    highest: float = decision(
        0.125,
        "Trigonometric polynomials on a circle are judged by the highest frequencies: this part "
        "of all frequencies.",
        data="by design",
        script="none",
        sides=(0.02, 0.5),
    )
    seen: float = decision(
        0.1,
        "Trigonometric polynomials through an even number of samples are tried if the highest "
        "cosine is at least this large at the samples: the weight of this cosine is divided by its "
        "size.",
        data="by design: errors of samples are multiplied by at most ten",
        script="none",
        sides=(0.001, 0.9),
    )


@dataclass(init=False, repr=False, eq=False)
class NoiseSettings(_Group):
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
        "The ratio must exceed its threshold by this many standard errors (95 % confidence): the "
        "ratio of few samples is uncertain.",
        data="rows of kodim01 to 08, random walks and sines of 50 to 200 samples",
        script="noise.py",
        sides=(0.0, 4.0),
    )
    flat: float = decision(
        0.1,
        "The part of the samples where the signal changes least, which is also judged alone: in a "
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
    near: float = decision(
        0.25,
        "On uneven axes the differences of the closest samples, this part of all, are compared "
        "with the others: noise is as strong in them, a signal is weaker.",
        data="by design; 0.05, 0.1, 0.25 and 0.5 missed as often on 60 lines of waves with noise "
        "at random, clustered and paired positions",
        script="uneven.py",
        sides=(0.0, 0.9),
    )
    least_steps: float = decision(
        1.5,
        "Noise below this many steps of quantised values is taken for rounding. Rounding has "
        "0.29, colour planes of clean 8-bit pictures had up to 0.93, noise of 0.01 has 2.6.",
        data=_PICTURES,
        script="noise.py",
        sides=(0.2, 4.0),
    )
    least_part: float = decision(
        1e-5,
        "Noise below this part of the largest deviation from the mean is taken for rounding.",
        data="by design: single precision",
        script="noise.py",
        sides=(0.0, 1e-2),
    )
    unlike: float = decision(
        100.0,
        "Channels whose deviations from their means differ by more than this factor are in "
        "different units: noise is looked for in each of them.",
        data="by design: channels of pictures have about the same contrast",
        script="noise.py",
        sides=(1.0, 1e9),
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
    varies: float = decision(
        1.6,
        "Noise depends on the signal if its standard deviation varies by more than this factor.",
        data="kodim01 to 08 with constant, Poisson and multiplicative noise",
        script="shrinkage.py",
        sides=(1.0, 10.0),
    )
    varies_fewest: int = decision(
        1000,
        "Whether noise depends on the signal is not judged by fewer samples than this.",
        data="by design: each variance is then known to 15 %",
        script="none",
        sides=(100, 20_000),
    )
    varies_flat: tuple[float, float] = decision(
        (0.1, 0.5),
        "The variance of the noise is fitted where the signal is flattest, in these parts of the "
        "samples of each class of brightness. Both must show that it varies; the second is used.",
        data="kodim01 to 08 with constant, Poisson and multiplicative noise",
        script="shrinkage.py",
        sides=((0.02, 0.02), (1.0, 1.0)),
    )
    varies_classes: int = decision(
        12,
        "The classes of brightness.",
        data="by design: a variance has three parameters",
        script="shrinkage.py",
        sides=(1, 5000),
    )
    varies_cut: float = decision(
        6.0,
        "In this fit squared differences count as at most this many times the variance: 1.4 % of "
        "those of noise are larger, and most of those at edges.",
        data="kodim01 to 08 with constant, Poisson and multiplicative noise",
        script="shrinkage.py",
        sides=(0.05, 1000.0),
    )
    varies_box: tuple[int, int] = decision(
        (5, 3),
        "Brightness is the mean of this many samples along each axis, and flat is where means at "
        "this distance to either side are alike. Shorter axes than two of these take no part.",
        data="by design: means of 5 and 25 samples have 0.45 and 0.2 of the noise",
        script="shrinkage.py",
        sides=((3, 1), (9, 6)),
    )
    varies_normal: float = decision(
        0.7,
        "Noise varies only if, where it is strongest, the median of its squares is at least this "
        "part of that of normal noise of the fitted variance: lone bright samples raise the "
        "variance of few samples alone.",
        data="kodim01 to 08 with Poisson and sensor noise: 0.85 or more, but 0.7 and 0.75 in two "
        "grey pictures; stars: 0.4 to 0.7",
        script="none",
        sides=(0.0, 0.98),
    )
    cut_off: float = decision(
        0.002,
        "Noise is cut off at an end of the range only if more than this part of the samples is "
        "exactly there: of fewer the error is not noticed.",
        data="by design: at σ = 0.1 the error is then 55 dB",
        script="none",
        sides=(0.0, 0.2),
    )
    cut_off_mean: float = decision(
        0.8,
        "Neighbours of samples at such an end are at least this many times σ/√(2π) from it in the "
        "mean, which is their mean distance where the signal reaches the end. Around zeros of "
        "counts, and in masked or saturated areas, they are nearer.",
        data="kodim01 to 08 with noise of 0.02 to 0.2, cut off or counted",
        script="none",
        sides=(0.0, 3.0),
    )
    cut_off_next: float = decision(
        0.25,
        "Noise is cut off at such an end only if more samples are exactly there than within this "
        "part of σ next to it. In the tail of a smooth distribution there are fewer.",
        data="by design: values that are cut off half of σ beyond the end give twice as many",
        script="none",
        sides=(0.001, 3.0),
    )
    cut_off_away: float = decision(
        2.0,
        "Noise that is cut off depends on the signal too if its strength varies where means are "
        "at least this many σ from the ends: nearer to an end, cutting off makes it weaker.",
        data="by design: 2 % of the noise is cut off at this distance",
        script="none",
        sides=(0.0, 8.0),
    )
    most_outliers: float = decision(
        0.002,
        "Shrinkage removes noise if at most this part of the samples changes by more than "
        "`outlying` standard deviations; otherwise it removes detail, such as faint stars. Noise "
        "that seemed to depend on the signal is then treated as constant; constant noise is not "
        "removed, unless the caller gave it or asked for its removal. White noise has 0.00006, "
        "pictures with noise of all kinds had at most 0.0005.",
        data=_PICTURES + " with constant, Poisson and sensor noise",
        script="noise.py",
        sides=(0.0, 0.02),
    )
    accuracy: float = decision(
        0.01,
        "The relative error of the measured standard deviation of noise. An expected error is at "
        "least the error that follows from it.",
        data="by design: the standard error of 2^14 differences",
        script="none",
        sides=(0.0, 0.1),
    )
    short_line: int = decision(
        400,
        "Lines of up to this many samples are also judged by smoothing them with several "
        "weights; longer ones have enough differences.",
        data="by design: time of the eigenvectors of all differences",
        script="none",
        sides=(100, 2000),
    )
    few_zeros: float = decision(
        0.05,
        "Constant parts are left out if more than this part of the finest differences is zero.",
        data="by design",
        script="none",
        sides=(0.0, 0.9),
    )
    many_known: int = decision(
        2000,
        "In samples with gaps, differences along all axes are compared if there are this many at "
        "twice the spacing; otherwise those along the longest axis.",
        data="by design: the ratio is then known to a few per cent",
        script="none",
        sides=(200, 20_000),
    )
    whole_channels: int = decision(
        4,
        "In up to this many channels noise is looked for in `most_samples` of each. More channels "
        "share the same total number of samples.",
        data="by design: colours and alpha",
        script="none",
        sides=(1, 64),
    )
    outlying: float = decision(
        4.0,
        "`most_outliers` is the part of the samples that change by more than this many standard "
        "deviations of the noise.",
        data="by design: white noise has 1 in 16,000",
        script="none",
        sides=(1.0, 8.0),
    )
    varies_range: tuple[float, float] = decision(
        (0.05, 0.95),
        "The quantiles of brightness between which the standard deviation of the noise must vary.",
        data="by design: at the ends few samples are known",
        script="none",
        sides=((0.0, 0.5), (0.45, 0.55)),
    )
    flat_box: tuple[int, int] = decision(
        (5, 3),
        "The signal is flat where means of this many samples along each axis, at this distance "
        "to either side, are alike.",
        data="by design: means of 5 and 25 samples have 0.45 and 0.2 of the noise",
        script="none",
        sides=((1, 1), (31, 20)),
    )


@dataclass(init=False, repr=False, eq=False)
class SmoothingSettings(_Group):
    """Noisy grids: the penalties that are tried, and where they are judged."""

    windows: tuple[int, ...] = decision(
        (16384, 128, 40, 20),
        "The samples on an axis of each window by which a penalty is judged, by the number of axes "
        "from one to four: the middle and the corners of a larger grid.",
        data="by design: up to a fifth of a second",
        script="sweep.py",
        sides=((400, 30, 10, 5), (1 << 20, 400, 100, 50)),
    )
    tensions: tuple[float, float] = decision(
        (8.0, 0.05),
        "The tension of the splines that are smoothed, by the order of the derivative: gradients "
        "go with nearly linear pieces, second derivatives with cubic ones.",
        data="by design",
        script="sweep.py",
        sides=((0.05, 8.0), (50.0, 50.0)),
    )
    weakest: float = decision(
        -6.0,
        "The exponent of ten of the weakest penalty, in units of a cell: it stands for no penalty.",
        data="by design: it changes samples by a part of 1e-6",
        script="sweep.py",
        sides=(-14.0, 0.0),
    )
    uneven_line: int = decision(
        4096,
        "A penalty of an uneven line is judged by at most this many samples.",
        data="by design: a fifth of a second",
        script="none",
        sides=(512, 32_768),
    )
    ridge_decades: tuple[float, float] = decision(
        (-14.0, 2.0),
        "The lowest and the highest ridge tried for a given encoding, as powers of ten, relative "
        "to the largest squared singular value. If the lowest is best, there is no ridge.",
        data="by design: from rounding to a fit of a hundredth of the values",
        script="none",
        sides=((-8.0, 2.0), (-14.0, -3.0)),
    )
    longest_basis: int = decision(
        400,
        "Penalties of lines with up to this many samples are judged in the eigenbasis of the "
        "fit, and otherwise by differences, or by splines solved as a band if positions are "
        "uneven.",
        data="by design: both take time in proportion to the samples; scores differ at the ends",
        script="none",
        sides=(100, 4000),
    )


@dataclass(init=False, repr=False, eq=False)
class DirectionalSettings(_Group):
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
    past_the_end: float = decision(
        0.25,
        "The part of the last difference by which values continue to the rim, half a cell past the "
        "last sample. A straight line would continue by a half.",
        data="photographs, not recorded which; kodim01 to 08: 0, 0.25 and 0.5 are within 0.05 dB",
        script="sweep.py",
        sides=(0.0, 0.5),
    )


@dataclass(init=False, repr=False, eq=False)
class PointSettings(_Group):
    """Scattered points: the grids that are tried, and how they are judged."""

    fewest: int = decision(
        5,
        "Fewer points than this are fitted with a default penalty: they are too few to choose by.",
        data="by design",
        script="sweep.py",
        sides=(3, 9),
    )
    judged: int = decision(
        6000,
        "Settings are judged on at most this many points, in windows spread over all points.",
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
        "The same for points on a lattice, to measure the error of its missing samples.",
        data="by design: the points that are left are nearly as dense",
        script="sweep.py",
        sides=(0.02, 0.4),
    )
    windows_per_axis: tuple[int, ...] = decision(
        (9, 3, 2, 2),
        "The windows of a lattice along each axis, by the number of axes from one to four.",
        data="by design: corners, edges and the middle of a picture",
        script="none",
        sides=((3, 1, 1, 1), (27, 9, 4, 4)),
    )
    sparse: float = decision(
        0.15,
        "If a smaller part of the lattice is known, there is one window in the middle: gaps of "
        "small windows would be crossed slowly by conjugate gradients.",
        data="by design: time",
        script="none",
        sides=(0.05, 0.5),
    )
    margin: float = decision(
        2.0,
        "Points within this many mean distances of the ends of a window are not held out: the "
        "points beyond the end are missing there.",
        data="by design: cubic splines reach this far",
        script="none",
        sides=(0.0, 6.0),
    )
    blocks: int = decision(
        100,
        'With hold_out="blocks", the box of the points is divided into about this many blocks.',
        data="by design: 20 blocks are held out at a time, each a tenth of a side of the plane",
        script="none",
        sides=(25, 2500),
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
    fine_hat_cells: float = decision(
        16.0,
        "Cells per point of a finer grid of hats, tried where hats are better than splines.",
        data="seen to help on terrain and airports of the benchmark, whose figures are therefore "
        "not of untouched data; on random fields with the similarities exp(-r) and (1 + r) exp(-r) "
        "8, 16 and 32 are level",
        script="rough.py",
        sides=(8.0, 32.0),
    )
    most_fine_unknowns: int = decision(
        1 << 19,
        "The finer grid is not tried if it would have more nodes than this.",
        data="by design: time",
        script="none",
        sides=(1 << 16, 1 << 24),
    )
    units_gain: float = decision(
        2.0,
        "An axis gets a unit of length of its own if the logarithm of the likelihood of the "
        "differences between neighbours rises by this.",
        data="by design: chance alone raises it by a half for each axis but one",
        script="none",
        sides=(0.0, 50.0),
    )
    widest_units: float = decision(
        32.0,
        "A unit of length differs from the one in which points are equally far apart on every axis "
        "by at most this factor.",
        data="by design: the cells of the grid become longer on one axis by the same factor",
        script="none",
        sides=(2.0, 1024.0),
    )
    chance: float = decision(
        1.0,
        "Gaussians are chosen if their mean squared error is below (1 + this / sqrt(number of "
        "held-out points)) times the lowest of the grids: they have a single score, the grids the "
        "best of many.",
        data="Franke's function, steps and random fields at 40 to 150 random, jittered, repeated "
        "points and tracks: 2 loses 2 % of the error, 0 and 0.5 are level",
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
    spline_tension: float = decision(
        0.05,
        "The tension of the splines for scattered points: almost cubic.",
        data="by design; swept on functions: the sides lose 0.01 dB at most",
        script="sweep.py",
        sides=(0.01, 1.0),
    )
    sparsest_lattice: int = decision(
        64,
        "Points lie on a lattice if it has at most this many nodes for each of them.",
        data="by design",
        script="sweep.py",
        sides=(16, 256),
    )
    small_lattice: int = decision(
        4096,
        "Points lie on a lattice of up to this many nodes, however few they are.",
        data="by design",
        script="none",
        sides=(1024, 16384),
    )
    most_unknowns: int = decision(
        1 << 24,
        "A grid or lattice that is chosen has at most about this many nodes.",
        data="by design: memory",
        script="none",
        sides=(1 << 20, 1 << 28),
    )
    default_roughness: float = decision(
        1e-3,
        "The roughness, of first and of second derivatives, if data are too few to choose by.",
        data="by design: close to the points, smooth between them",
        script="none",
        sides=(1e-5, 0.1),
    )
    default_ridge: float = decision(
        1e-6,
        "The ridge of a given encoding if data are too few to choose by.",
        data="by design: close to the points",
        script="none",
        sides=(1e-10, 1e-3),
    )
    longest_row: int = decision(
        256,
        "Rows of a given encoding are exact if at most this many features are within reach of a "
        "point.",
        data="by design: time and memory per point",
        script="none",
        sides=(64, 1024),
    )
    few_entries: int = decision(
        1 << 22,
        "Longer rows are exact if those of all points together have at most this many entries; "
        "otherwise they are blended.",
        data="by design: 50 MB in a sparse matrix",
        script="none",
        sides=(1 << 18, 1 << 26),
    )
    part_of_error: float = decision(
        0.05,
        "The tolerance of the solver is this part of the error at held-out points.",
        data="kodim01 to 08, a quarter of the pixels",
        script="sweep.py",
        sides=(0.001, 0.5),
    )
    tightest: float = decision(
        1e-5,
        "The smallest tolerance that is derived from the predicted error.",
        data="by design; swept on kodim01 to 08 and functions: the sides change nothing",
        script="sweep.py",
        sides=(1e-8, 1e-4),
    )
    loosest: float = decision(
        0.02,
        "The largest tolerance that is derived from the predicted error, and the tolerance of a "
        "second attempt if the first does not converge.",
        data="by design; swept on kodim01 to 08 and functions: the sides change nothing",
        script="sweep.py",
        sides=(0.005, 0.2),
    )
    tolerance: float = decision(
        1e-3,
        "The tolerance if a penalty is given, for `Statistics`, and for tables; also the largest "
        "tolerance for samples with a mask: in gaps a less accurate solution is visible.",
        data="by design",
        script="none",
        sides=(1e-5, 1e-2),
    )
    iterations: int = decision(
        2000,
        "The solver gives up after this many iterations, unless the caller sets another limit.",
        data="by design",
        script="none",
        sides=(200, 20_000),
    )
    scattered_windows: int = decision(
        8,
        "Settings of many scattered points are chosen in this many windows, spread over all "
        "points; a power of 2, because the windows are found by halving.",
        data="by design",
        script="none",
        sides=(2, 32),
    )
    window_axes: int = decision(
        3,
        "In more dimensions than this there is one window: in small windows nearly all points "
        "would be near an end.",
        data="by design",
        script="none",
        sides=(1, 5),
    )
    true_coverage: tuple[float, float] = decision(
        (0.93, 0.97),
        "Bands of two standard deviations are called true if they hold this share of held-out "
        "values, or if chance explains the difference from 95 %.",
        data="by design",
        script="none",
        sides=((0.8, 0.97), (0.93, 0.99)),
    )
    heavy_tails: float = decision(
        4.0,
        "If bands are not true, errors are said to have heavy tails if their kurtosis is above "
        "this; that of normal errors is 3.",
        data="by design",
        script="none",
        sides=(2.0, 12.0),
    )

    @property
    def row_limits(self) -> tuple[int, int]:
        """The limits up to which rows are exact."""
        return self.longest_row, self.few_entries

    occupied: int = decision(
        2,
        "Blocks that are held out are halved until this many times the number of folds have "
        "points: points in a few small clusters are in few blocks.",
        data="by design: each fold has at least a block or two",
        script="none",
        sides=(1, 12),
    )
    coverage_points: int = decision(
        2000,
        "This part is no more points than this.",
        data="by design: the share is then known to 0.5 %",
        script="none",
        sides=(500, 8000),
    )
    fewest_covered: int = decision(
        30,
        "Coverage is not measured with fewer points than this.",
        data="by design: a share of thirty is known to 4 %",
        script="none",
        sides=(10, 60),
    )
    unit_neighbours: int = decision(
        8,
        "The units of axes are found from the differences of each point and this many neighbours.",
        data="by design: they lie in all directions",
        script="none",
        sides=(2, 50),
    )
    coverage_part: float = decision(
        0.1,
        "The part of the points that is held out at a time to measure the coverage of standard "
        "errors.",
        data="by design: the points that are left are nearly as dense",
        script="none",
        sides=(0.02, 0.3),
    )
    well_covered: int = decision(
        400,
        "These parts are held out in turn until this many points have been.",
        data="by design: a share of 400 is known to 1 %, which tells 93 % from 95 %",
        script="none",
        sides=(150, 1000),
    )
    coverage_draws: int = decision(
        16,
        "To measure coverage, standard errors of large fits are estimated from this many random "
        "fits.",
        data="by design: to 18 %, which changes the share in the bands by less than 1 %",
        script="none",
        sides=(2, 200),
    )
    coverage_iterations: int = decision(
        200,
        "The most iterations of each of these random fits.",
        data="by design: time",
        script="none",
        sides=(20, 2000),
    )
    clustered: float = decision(
        3.0,
        "If bands are not true, the variance is said to differ from place to place if the sizes "
        "of errors of neighbours are correlated by this many standard errors.",
        data="by design: chance exceeds it once in 700",
        script="none",
        sides=(0.5, 30.0),
    )
    exact_errors: int = decision(
        2048,
        "Standard errors are exact for up to this many weights. Beyond, they are estimated from "
        "random fits.",
        data="by design: a second, and 32 MB",
        script="none",
        sides=(256, 16_384),
    )
    interpolating: float = decision(
        0.01,
        "A fit is said to interpolate if residuals have less than this part of the degrees of "
        "freedom. Noise is then measured by the roughness of the fit.",
        data="by design: rounding and the error of the solver",
        script="none",
        sides=(1e-4, 0.5),
    )


@dataclass(init=False, repr=False, eq=False)
class SearchSettings(_Group):
    """Scattered points: the penalties that are searched.

    A penalty of derivatives is the weight of second derivatives, a power of ten, and the ratio of
    the weight of first derivatives to it. The unit of length is the mean distance of points.
    """

    ratios: tuple[float, ...] = decision(
        (0.0, 0.1, 1.0, 4.0, 16.0, 64.0),
        "The ratios, from smooth to rough functions. The search starts in the middle.",
        data="kodim01 to 08, a quarter of the pixels; functions at random points",
        script="sweep.py",
        sides=((0.0, 0.1, 1.0, 4.0, 16.0), (1.0, 4.0, 16.0, 64.0)),
    )
    decades: tuple[float, float] = decision(
        (-6.0, 5.0),
        "The lowest and the highest power of ten: from no smoothing to a plane.",
        data="by design; swept on kodim01 to 08 and functions: the sides change 0.03 dB at most",
        script="sweep.py",
        sides=((-4.0, 5.0), (-6.0, 3.0)),
    )
    start: float = decision(
        -2.0,
        "The power of ten at which the search starts.",
        data="by design; swept on kodim01 to 08 and functions: the sides change nothing",
        script="sweep.py",
        sides=(-5.0, 2.0),
    )
    smooth_starts: tuple[float, ...] = decision(
        (-1.0, 1.0),
        "Powers of ten at which a penalty of second derivatives alone is scored before the search: "
        "the score of noisy values can have two minima.",
        data="by design: noise of 0.01 to 0.3 of the spread; pictures and functions",
        script="none",
        sides=((), (-4.0,)),
    )
    steps: tuple[float, ...] = decision(
        (1.0, 0.5),
        "The steps between powers of ten, coarse to fine.",
        data="by design; swept on kodim01 to 08: the sides lose 0.01 and 0.04 dB",
        script="sweep.py",
        sides=((1.0, 0.25), (1.0,)),
    )
    line_ratios: tuple[float, float] = decision(
        (-6.0, 4.0),
        "The lowest and the highest ratio of first to second derivatives on a line, as powers of "
        "ten: from an integrated random walk to a random walk.",
        data="by design; random walks, cycles, seasons and smooth lines with noise: lines.py",
        script="none",
        sides=((-1.0, 4.0), (-6.0, 0.0)),
    )
    line_points: int = decision(
        5000,
        "On a line, tenths of the points are held out in turn until this many have been.",
        data="by design: the error is then known to a few per cent, in a second",
        script="none",
        sides=(50, 1_000_000),
    )
    line_folds: int = decision(
        10,
        "On a line, the points are divided into this many parts, of which one at a time is held "
        "out.",
        data="by design: the points that are left are nearly as dense",
        script="none",
        sides=(3, 30),
    )
    line_starts: int = decision(
        6,
        "The number of penalties, and of ratios, on the first grid of the search on a line.",
        data="by design: one per two decades",
        script="none",
        sides=(2, 20),
    )
    line_steps: tuple[float, ...] = decision(
        (1.0, 0.5),
        "The steps, in powers of ten, of the search that follows.",
        data="by design",
        script="none",
        sides=((2.0,), (1.0, 0.25)),
    )
    ridge_decades: tuple[float, float] = decision(
        (-12.0, 4.0),
        "The lowest and the highest ridge of blended rows, as powers of ten, relative to the "
        "largest eigenvalue of the data term.",
        data="by design: from rounding to a constant",
        script="none",
        sides=((-8.0, 4.0), (-12.0, 0.0)),
    )
    ridge_start: float = decision(
        -6.0,
        "The power of ten of the ridge at which the search starts.",
        data="by design",
        script="none",
        sides=(-10.0, -2.0),
    )
    ridge_steps: tuple[float, ...] = decision(
        (2.0, 1.0, 0.5),
        "The steps between powers of ten of the ridge, coarse to fine.",
        data="by design",
        script="none",
        sides=((2.0, 1.0, 0.25), (2.0, 1.0)),
    )
    iterations: int = decision(
        400,
        "A penalty is left out if its solution takes more iterations than this.",
        data="by design; swept on kodim01 to 08 and functions: the sides change nothing",
        script="sweep.py",
        sides=(40, 4000),
    )
    probes: int = decision(
        4,
        "Random probes for the degrees of freedom in the generalised cross-validation of "
        "`Statistics` (Hutchinson, 1990).",
        data="by design",
        script="none",
        sides=(1, 16),
    )


@dataclass(init=False, repr=False, eq=False)
class GaussianSettings(_Group):
    """Scattered points of smooth functions: widths and ridge of Gaussians by likelihood."""

    fewest: int = decision(
        10,
        "Gaussians are not tried for fewer points than this: their likelihood is too uncertain.",
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
    ridge_decades: tuple[float, float] = decision(
        (-12.0, 1.0),
        "The lowest and the highest ridge tried, as powers of ten, relative to the largest "
        "eigenvalue of the centred Gram matrix.",
        data="by design; swept on functions: without the smallest ridges 4 dB are lost",
        script="sweep.py",
        sides=((-6.0, 1.0), (-12.0, -1.0)),
    )
    most_features: int = decision(
        2500,
        "Gaussians have at most this many features.",
        data="by design: time; swept on functions: the sides change nothing",
        script="sweep.py",
        sides=(1000, 10_000),
    )
    most_of_many: int = decision(
        300,
        "The same for more points than `points.few_points`: each width that is tried takes an "
        "eigendecomposition.",
        data="by design: time; swept on functions: 100 loses 0.3 dB, 1000 gains 0.1 dB",
        script="sweep.py",
        sides=(100, 1000),
    )


@dataclass(init=False, repr=False, eq=False)
class RobustSettings(_Group):
    """Outliers among points: how they are found, and how they are treated."""

    constant: float = decision(
        1.345,
        "Huber's loss is quadratic for residuals up to this many scales, and linear beyond.",
        data="Holland and Welsch (1977): 95 % as efficient as squares if the noise is normal",
        script="none",
        sides=(0.9, 2.5),
    )
    neighbours: int = decision(
        8,
        "A point is compared with the median of this many neighbours, to set outliers aside before "
        "settings are chosen.",
        data="by design: more than a third of them would have to be outliers",
        script="none",
        sides=(2, 60),
    )
    suspected: float = decision(
        5.0,
        "A point is set aside if it differs from this median by more scales than this.",
        data="smooth, wavy and broken functions at 1000 to 10,000 random points",
        script="none",
        sides=(1.0, 50.0),
    )
    rejected: float = decision(
        5.0,
        "A point that was set aside is rejected if it is further from the fit of the others than "
        "this many times the expected error of a prediction, noise included.",
        data="smooth, wavy and broken functions at 1000 to 10,000 random points",
        script="none",
        sides=(0.5, 100.0),
    )
    fewest_neighbours: int = decision(
        4,
        "No point is set aside if it has fewer neighbours than this: a single outlier could "
        "determine their median.",
        data="by design",
        script="none",
        sides=(2, 7),
    )
    agreeing: int = decision(
        2,
        "A point that agrees with this many of its neighbours is no outlier.",
        data="by design: points beside a jump agree with those on their side",
        script="none",
        sides=(1, 4),
    )
    several: int = decision(
        3,
        "If this many neighbours of a suspect are suspects too, the field is taken to be steep "
        "there, and its slope is taken from all neighbours.",
        data="by design: three outliers are rarely neighbours",
        script="none",
        sides=(1, 9),
    )
    spare: int = decision(
        4,
        "A suspect is compared with a paraboloid through its neighbours if they are this many "
        "more than its coefficients.",
        data="by design: with fewer, the standard error of the paraboloid is too uncertain",
        script="none",
        sides=(1, 7),
    )
    trimmed: int = decision(
        3,
        "Where several neighbours of a suspect are suspects too, a plane is fitted without this "
        "many of them: those furthest from it.",
        data="by design: 5 of 8 neighbours are enough for a plane of 3 coefficients",
        script="none",
        sides=(0, 4),
    )
    trimmed_factor: float = decision(
        5.0,
        "The standard deviation of the other neighbours from this plane is multiplied by this: "
        "they were selected for their small deviations.",
        data="five functions on lattices and at random points, with outliers: misses and false "
        "alarms",
        script="none",
        sides=(1.0, 100.0),
    )
    remarked: float = decision(
        8.0,
        "In many dimensions the report recommends Huber's loss if values are further from the fit "
        "than this many robust standard deviations.",
        data="by design: of a million normal values none is, of Laplace's 1 in 4000",
        script="none",
        sides=(2.0, 200.0),
    )
    trimming_steps: int = decision(
        4,
        "The most steps in which the furthest neighbours are found (Rousseeuw and Van Driessen, "
        "2006).",
        data="by design: sets of eight neighbours settle in four steps",
        script="none",
        sides=(1, 40),
    )
    choices: int = decision(
        5,
        "In many dimensions, settings are chosen at most this often: each time, points that "
        "outliers had hidden are rejected too.",
        data="by design: time",
        script="none",
        sides=(1, 20),
    )
    rounds: int = decision(
        50,
        "The most rounds in which points are weighted again.",
        data="by design: weights settle in 5 to 20 rounds",
        script="none",
        sides=(5, 500),
    )
    rounds_without_grid: int = decision(
        10,
        "The same in the dual form and with factored weights.",
        data="by design: each round fits all points",
        script="none",
        sides=(2, 100),
    )
    listed: int = decision(
        5,
        "The number of outliers that a report lists.",
        data="by design",
        script="none",
        sides=(1, 50),
    )


@dataclass(init=False, repr=False, eq=False)
class SignalSettings(_Group):
    """Files and the command line: how signals are processed."""

    averaged_above: float = decision(
        1.25,
        "A smaller picture is averaged over its cells if they are this many times as long as "
        "those of the samples; otherwise the field is evaluated at their centres.",
        data="by design: a cell holds more than one sample",
        script="none",
        sides=(1.0, 3.0),
    )
    points_side: int = decision(
        512,
        "The longest side of a map of scattered points.",
        data="by design",
        script="none",
        sides=(128, 2048),
    )
    frame_rate: int = decision(
        25,
        "Frames per second of a video from a field that has no frame rate.",
        data="by design",
        script="none",
        sides=(10, 60),
    )
    longest_line: int = decision(
        512,
        "`kronfield denoise` fits longer lines as points.",
        data="by design",
        script="none",
        sides=(128, 2048),
    )
    longest_smoothed: int = decision(
        8192,
        "`kronfield denoise` refuses grids with a longer axis.",
        data="by design: eigenvectors of an axis are computed",
        script="none",
        sides=(2048, 32_768),
    )
    longest_ridge: int = decision(
        4096,
        "`kronfield fit` with an embedder chooses no ridge if an axis is longer.",
        data="by design: singular values of an axis are computed",
        script="none",
        sides=(1024, 16_384),
    )
    contest_ridge: int = decision(
        512,
        "`kronfield compare` chooses ridges of embedders on axes of up to this many samples.",
        data="by design: singular values of an axis are computed",
        script="none",
        sides=(128, 2048),
    )
    contest_dense: int = decision(
        4096,
        "`kronfield compare` leaves out embedders whose features are nowhere zero if an axis is "
        "longer.",
        data="by design: dense matrices of an axis are factored",
        script="none",
        sides=(1024, 16_384),
    )
    contest_shortest: int = decision(
        6,
        "`kronfield compare` holds out every second sample of axes of at least this many.",
        data="by design: three samples are left",
        script="none",
        sides=(4, 12),
    )
    contest_part: float = decision(
        0.2,
        "The part of scattered points that `kronfield compare` holds out.",
        data="by design",
        script="none",
        sides=(0.1, 0.4),
    )
    network_range: tuple[float, float] = decision(
        (0.1, 1.0),
        "Networks learn values divided by their largest magnitude, unless it lies within these "
        "limits: the learning rates suit values of about 1.",
        data="by design: pictures stay in 0 to 1",
        script="none",
        sides=((0.5, 1.0), (0.1, 10.0)),
    )
    cut_off: float = decision(
        0.02,
        "`kronfield denoise` says that the expected error is too small if more than this part of "
        "the samples is black or white. It changes no result.",
        data="by design",
        script="none",
        sides=(0.001, 0.2),
    )
    network_features: int = decision(
        256,
        "Networks for scattered points have at most this many features per axis.",
        data="by design",
        script="none",
        sides=(64, 1024),
    )
    most_left_out: float = decision(
        0.5,
        "The expected error of filled samples is not measured if more than this part of the known "
        "samples would have to be left out.",
        data="by design",
        script="none",
        sides=(0.1, 0.95),
    )
    fewest_left_out: int = decision(
        4,
        "The expected error of filled samples is not measured at fewer samples than this.",
        data="by design",
        script="none",
        sides=(1, 12),
    )
    noise_left: float = decision(
        1e-3,
        "`kronfield denoise` with a given penalty does not print the noise if less than this part "
        "of the degrees of freedom is left.",
        data="by design: the residuals of an interpolation hold no information about noise",
        script="none",
        sides=(1e-6, 0.3),
    )
    denoised_part: int = decision(
        1 << 20,
        "`kronfield denoise` decides how to remove noise on a central part of this many numbers.",
        data="by design: all of a colour picture of 512 x 512 pixels",
        script="none",
        sides=(1 << 14, 1 << 26),
    )
    denoised_around: int = decision(
        160,
        "Under a penalty, `kronfield denoise` smooths tiles with at most this many samples around "
        "them. If more samples affect a tile, arrays are smoothed as a whole, and for videos these "
        "samples are left out.",
        data="by design: memory",
        script="none",
        sides=(40, 1000),
    )
    contest_fewest: int = decision(
        10,
        "`kronfield compare` refuses fewer points than this.",
        data="by design: two of ten are held out on average",
        script="none",
        sides=(5, 40),
    )
    contest_features: int = decision(
        256,
        "Embedders that `kronfield compare` fits to points have at most this many features per "
        "axis.",
        data="by design: time",
        script="none",
        sides=(64, 1024),
    )
    point_features: int = decision(
        512,
        "Embedders that `kronfield fit` fits to points have at most this many features per "
        "axis, unless a size is given.",
        data="by design: time",
        script="none",
        sides=(128, 2048),
    )
    held_out_points: int = decision(
        20,
        "A report measures the error at held-out points if there are at least this many.",
        data="by design: four are held out on average",
        script="none",
        sides=(8, 60),
    )
    freedom_points: int = decision(
        2000,
        "`kronfield fit` records the degrees of freedom of fits to at most this many points.",
        data="by design: time",
        script="none",
        sides=(500, 20_000),
    )
    passes: float = decision(
        1e-3,
        "A report says nothing about the error at the samples if it is below this part of their "
        "spread: the field passes through them.",
        data="by design: less than a level of 8 bits",
        script="none",
        sides=(1e-6, 0.1),
    )
    drawn_side: int = decision(
        500,
        "The number of values on the longer side of a map that is drawn, unless a size is given.",
        data="by design",
        script="none",
        sides=(100, 2000),
    )
    curve_samples: int = decision(
        1 << 16,
        "Curves of scores in a report are computed on about this many samples.",
        data="by design: time",
        script="none",
        sides=(1 << 12, 1 << 20),
    )
    curve_fewest: int = decision(
        12,
        "These curves, and the error at held-out samples of a grid, are left out of a report if an "
        "axis has fewer samples than this.",
        data="by design: six samples are left of every second one",
        script="none",
        sides=(6, 24),
    )
    curve_longest: int = decision(
        400,
        "These curves are computed on at most this many samples along an axis.",
        data="by design: time",
        script="none",
        sides=(100, 4000),
    )


@dataclass(init=False, repr=False, eq=False)
class ShrinkageSettings(_Group):
    """Noise removed by shrinking cosines in blocks: their sizes, shifts and thresholds."""

    first_sizes: tuple[tuple[int, ...], ...] = decision(
        ((8, 32), (4, 8), (4,), (2,)),
        "The samples along each axis of the blocks of the first estimate, for 1, 2, 3 and 4 or "
        "more axes.",
        data="kodim01 to 08 with noise of 0.05 and 0.1, their rows, drawn shapes, clips, volumes",
        script="shrinkage.py",
        sides=(((2,), (2,), (2,), (1,)), ((256,), (64,), (32,), (16,))),
    )
    second_sizes: tuple[tuple[int, ...], ...] = decision(
        ((8, 32, 128), (8, 16), (6, 8), (4,)),
        "The samples along each axis of the blocks of the second estimate. Blocks of 16 x 16 alone "
        "are as good in photographs, but 1 to 4 dB worse in drawings; blocks of 8 alone are 0.15 "
        "dB worse in both.",
        data="kodim01 to 08 with noise of 0.05 and 0.1, their rows, drawn shapes, clips, volumes",
        script="shrinkage.py",
        sides=(((4,), (4,), (2,), (2,)), ((512,), (64,), (32,), (16,))),
    )
    larger: float = decision(
        0.5,
        "Blocks weigh in the average as one over their noise, the sum of their squared factors, "
        "times this power of their number of samples. With 1, the weights would be those of least "
        "noise; larger blocks lose more detail, which is not known.",
        data="kodim01 to 08 in colour and grey, drawings, their rows, clips, volumes, sounds",
        script="shrinkage.py",
        sides=(-1.5, 2.5),
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
    lone_reaches: tuple[int, ...] = decision(
        (48, 8, 4, 2),
        "A sample is kept as it was given if noise cannot explain its distance from the result, "
        "noise as strong as the median distance of samples up to this far away, for 1, 2, 3 and 4 "
        "or more axes.",
        data="by design: 81 to 625 samples, so that the median is known to a tenth",
        script="none",
        sides=((1, 1, 1, 1), (2000, 200, 60, 20)),
    )
    lone_chance: float = decision(
        0.001,
        "Noise explains a distance of a sample from the result if the largest of as many samples "
        "is as far from it with this probability or more.",
        data="by design: one sample with its noise is left in one of 1000 results",
        script="none",
        sides=(1e-13, 20.0),
    )

    judged: tuple[int, ...] = decision(
        (400, 64, 32, 16),
        "The samples along each axis of the windows in which shrinkage is compared with the "
        "penalised fit, for 1, 2, 3 and 4 or more axes.",
        data="by design: a sixth of the samples of a picture of 480 x 480",
        script="none",
        sides=((40, 16, 8, 4), (4000, 400, 100, 40)),
    )
    judged_margin: tuple[int, ...] = decision(
        (32, 8, 4, 2),
        "Samples nearer than this to an end of a window that is no end of the grid are not judged: "
        "they are denoised less well, because the samples beyond the end are missing.",
        data="kodim04 in colour with noise of 0.1: its risk was a third too large",
        script="none",
        sides=((0, 0, 0, 0), (200, 40, 16, 8)),
    )
    picture_windows: int = decision(
        3,
        "Pictures are judged in up to this many windows along each axis: they are smooth in some "
        "places and have detail in others.",
        data="kodim04 in grey: its corners are smooth",
        script="none",
        sides=(1, 20),
    )
    line_windows: int = decision(
        32,
        "Lines are judged in up to this many windows: a voice pauses, and a machine rests.",
        data="lines with pauses",
        script="none",
        sides=(1, 1000),
    )
    lag: int = decision(
        4,
        "Channels are decorrelated by their differences at this distance: those of neighbours are "
        "mostly noise, far ones are mostly shading.",
        data="kodim01 to 08 with noise of 0.05 and 0.1",
        script="shrinkage.py",
        sides=(1, 64),
    )
    error_block: int = decision(
        16,
        "The standard error of an estimated risk is that of means over blocks of this many samples "
        "along each axis, since neighbours are correlated.",
        data="by design: as wide as the blocks of cosines",
        script="none",
        sides=(1, 64),
    )
    gap_rounds: int = decision(
        5,
        "Noisy samples with gaps are filled and denoised in turn, in this many rounds.",
        data="kodim01 to 08 with noise: later rounds change less than a tenth of the error",
        script="none",
        sides=(1, 20),
    )
    gap_hidden: float = decision(
        0.1,
        "The part of the known samples that is hidden to compare filling and denoising in turn "
        "with the penalised fit.",
        data="by design: the samples that are left are nearly as dense",
        script="none",
        sides=(0.02, 0.4),
    )

    def sizes(self, D: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the sizes of blocks in D dimensions, of the first and of the second estimate."""
        first, second = self.first_sizes, self.second_sizes
        return first[min(D, len(first)) - 1], second[min(D, len(second)) - 1]

    def lone_reach(self, D: int) -> int:
        """Return how far along each of D axes the samples are beside which others are lone."""
        return self.lone_reaches[min(D, len(self.lone_reaches)) - 1]


@dataclass(init=False, repr=False, eq=False)
class GroupingSettings(_Group):
    """Noise removed from groups of similar patches.

    The quick way has smaller and fewer groups; the slower setting of `denoise` begins with it.
    """

    unasked: tuple[float, ...] = decision(
        (500.0, 1000.0, 1100.0, 500.0),
        "Groups follow shrinkage unasked if they take at most this many multiplications for a "
        "sample of the grid, all channels together, for 1, 2, 3 and 4 or more axes. In one channel "
        "pictures take 1840, in the quick way 790, volumes 820; in colour pictures take 1660 in "
        "the quick way, clips 1020; lines take 1840.",
        data="kodim01 to 08, drawn clips and volumes: no more CPU time than non-local means",
        script="shrinkage.py",
        sides=((300.0, 600.0, 600.0, 300.0), (2000.0, 2000.0, 3000.0, 2000.0)),
    )

    patches: tuple[int, ...] = decision(
        (16, 5, 3, 3),
        "The samples of a patch along each axis, for 1, 2, 3 and 4 or more axes.",
        data="kodim01 to 08 with noise of 0.05 and 0.1, their rows",
        script="shrinkage.py",
        sides=((2, 1, 1, 1), (64, 16, 6, 4)),
    )
    patch_of_one: int = decision(
        6,
        "The same in pictures of one channel, whose patches have fewer numbers.",
        data="kodim01 to 08 in grey with noise of 0.05 and 0.1: 0.08 dB better than patches of 5",
        script="shrinkage.py",
        sides=(2, 20),
    )
    group: int = decision(
        24,
        "The number of similar patches that are modelled together.",
        data="kodim01 to 08 with noise of 0.05 and 0.1",
        script="shrinkage.py",
        sides=(4, 100),
    )
    steps: tuple[int, ...] = decision(
        (6, 6, 4, 4),
        "Groups are made around every patch of a lattice of this step, for 1, 2, 3 and 4 or more "
        "axes.",
        data="kodim01 to 08 with noise of 0.05 and 0.1, drawn clips and volumes",
        script="shrinkage.py",
        sides=((2, 2, 1, 1), (40, 20, 8, 8)),
    )
    reaches: tuple[int, ...] = decision(
        (100, 10, 4, 3),
        "Similar patches are searched up to this many samples away along each axis, for 1, 2, 3 "
        "and 4 or more axes.",
        data="kodim01 to 08 with noise of 0.05 and 0.1",
        script="shrinkage.py",
        sides=((20, 2, 1, 1), (1000, 40, 10, 6)),
    )
    leading: float = decision(
        0.8,
        "Patches are compared in the decorrelated channels that vary most, as many as have this "
        "part of the variance or more: of colours in brightness alone, which takes a third of the "
        "time.",
        data="kodim01 to 08 in colour with noise of 0.05 and 0.1",
        script="shrinkage.py",
        sides=(0.0, 1.0),
    )
    slow: tuple[tuple[tuple[int, int, int, int], ...], ...] = decision(
        (
            ((8, 24, 6, 100), (32, 48, 6, 200)),
            ((5, 14, 8, 4), (7, 32, 8, 12), (5, 24, 6, 10)),
            ((4, 24, 4, 4), (3, 32, 4, 4), (3, 24, 4, 4)),
            ((3, 14, 4, 3), (3, 24, 4, 3), (3, 24, 4, 3)),
        ),
        "The rounds of the slower setting, for 1, 2, 3 and 4 or more axes: the samples of a patch "
        "along each axis, the patches of a group, the step of the lattice of groups, and how far "
        "patches are searched. In pictures of one channel patches are one sample larger.",
        data="kodim01 to 08 in colour and grey, their rows, sounds, clips and volumes with noise "
        "of 0.05 and 0.1: 0 to 0.3 dB better than the same patches in all rounds",
        script="shrinkage.py",
        sides=(
            (
                ((8, 24, 6, 100),),
                ((5, 14, 8, 4),),
                ((3, 14, 4, 4),),
                ((3, 14, 4, 3),),
            ),
            (
                ((8, 24, 2, 100), (32, 48, 2, 200)),
                ((5, 14, 4, 4), (7, 32, 4, 12), (5, 24, 3, 10)),
                ((3, 14, 2, 4), (4, 32, 2, 4), (3, 24, 2, 4)),
                ((3, 14, 2, 3), (3, 24, 2, 3), (3, 24, 2, 3)),
            ),
        ),
    )
    quick_groups: tuple[int, ...] = decision(
        (14, 16, 14, 14),
        "The number of similar patches in the quick way, for 1, 2, 3 and 4 or more axes.",
        data="kodim01 to 08 in grey with noise of 0.05 and 0.1: 20 gain 0.03 dB more",
        script="shrinkage.py",
        sides=((4, 4, 4, 4), (64, 64, 64, 64)),
    )
    quick_step: int = decision(
        6,
        "The step of the lattice of groups in pictures in the quick way.",
        data="kodim01 to 08 in grey with noise of 0.05 and 0.1: 0.08 dB better than a step of 8",
        script="shrinkage.py",
        sides=(3, 30),
    )
    quick_reach: int = decision(
        4,
        "How far similar patches are searched in pictures in the quick way.",
        data="kodim01 to 08 in grey with noise of 0.05 and 0.1: 10 gain 0.03 dB more",
        script="shrinkage.py",
        sides=(1, 20),
    )

    def quick(self, D: int) -> GroupingSettings:
        """Return the settings of the quick way in D dimensions."""
        steps, reaches = (
            (*every[:1], own, *every[2:])
            for every, own in (
                (self.steps, self.quick_step),
                (self.reaches, self.quick_reach),
            )
        )
        group = self.quick_groups[min(D, len(self.quick_groups)) - 1]
        return dataclasses.replace(self, group=group, steps=steps, reaches=reaches)

    def slower(self, D: int) -> tuple[GroupingSettings, ...]:
        """Return the settings of the rounds of the slower setting in D dimensions."""
        larger, found = self.patch_of_one - self.patches[1], []
        for patch, group, step, reach in self.slow[min(D, len(self.slow)) - 1]:
            count = max(D, len(self.patches))
            found.append(
                dataclasses.replace(
                    self,
                    patches=(patch,) * count,
                    patch_of_one=patch + larger,
                    group=group,
                    steps=(step,) * count,
                    reaches=(reach,) * count,
                )
            )
        return tuple(found)

    def work(self, D: int, channels: int) -> float:
        """Return about how many multiplications groups take for a sample of a grid."""
        patch = self.patch(D, channels)
        near = (2 * self.reach(D) + 1) ** D
        compared = near * channels * ((patch + 1) // 2) ** D
        modelled = 3 * self.group**2 * channels * patch**D
        return (compared + modelled) / self.step(D) ** D

    def patch(self, D: int, channels: int = 2) -> int:
        """Return the samples of a patch along each of D axes."""
        if D == 2 and channels == 1:
            return self.patch_of_one
        return self.patches[min(D, len(self.patches)) - 1]

    def step(self, D: int) -> int:
        """Return the step of the lattice of groups along each of D axes."""
        return self.steps[min(D, len(self.steps)) - 1]

    def reach(self, D: int) -> int:
        """Return how far alike patches are searched along each of D axes."""
        return self.reaches[min(D, len(self.reaches)) - 1]


@dataclass(init=False, repr=False, eq=False)
class FillingSettings(_Group):
    """Missing samples of a lattice, filled by falling thresholds: see `filling`."""

    sizes_by_dimension: tuple[tuple[int, ...], ...] = decision(
        ((16, 32, 64), (8, 16, 32), (4, 8, 16), (4, 8)),
        "The samples along each axis of the blocks, for 1, 2, 3 and 4 axes.",
        data="kodim01 to 08: a quarter of the pixels, text, scratches, holes of 16 pixels",
        script="filling.py",
        sides=(((4,), (4,), (2,), (2,)), ((256,), (64,), (32,), (16,))),
    )
    line_chance: float = decision(
        2.0,
        "Gaps of a line are filled by thresholds if the best share of this filling is more than "
        "this many standard errors. Otherwise they are filled by a linear fit, which has standard "
        "errors of its own.",
        data="by design: once in forty by chance",
        script="none",
        sides=(0.0, 1000.0),
    )
    share_caution: float = decision(
        2.0,
        "Of its best share w, with the standard error e, the filling gets w (1 - c (e/w)²), c this "
        "number. The estimate of James and Stein (1961) has 1, but to take too much of the filling "
        "is worse than to take too little.",
        data="by design",
        script="none",
        sides=(0.5, 4.0),
    )
    rounds: int = decision(
        32,
        "The number of rounds where samples are scattered.",
        data="kodim01 to 08: a quarter and half of the pixels",
        script="filling.py",
        sides=(6, 200),
    )
    rounds_of_holes: int = decision(
        18,
        "The number of rounds where holes are small parts of the lattice.",
        data="kodim01 to 08: text, scratches, holes of 16 pixels",
        script="filling.py",
        sides=(3, 40),
    )
    step: float = decision(
        2.0,
        "How far the first round moves missing samples towards its result; steps fall to 1.",
        data="kodim01 to 08: a quarter of the pixels, text, scratches, holes of 16 pixels",
        script="filling.py",
        sides=(0.5, 4.0),
    )
    first: float = decision(
        3.0,
        "The threshold of the first round where samples are scattered, relative to the expected "
        "error.",
        data="kodim01 to 08: a quarter and half of the pixels",
        script="filling.py",
        sides=(0.3, 100.0),
    )
    last: float = decision(
        0.3,
        "The threshold of the last round where samples are scattered, relative to the expected "
        "error.",
        data="kodim01 to 08: a quarter and half of the pixels",
        script="filling.py",
        sides=(0.01, 3.0),
    )
    first_of_holes: float = decision(
        2.5,
        "The threshold of the first round in holes, relative to the expected error.",
        data="kodim01 to 08: text, scratches, holes of 16 pixels",
        script="filling.py",
        sides=(0.3, 100.0),
    )
    last_of_holes: float = decision(
        0.4,
        "The threshold of the last round in holes, relative to the expected error.",
        data="kodim01 to 08: text, scratches, holes of 16 pixels",
        script="filling.py",
        sides=(0.01, 3.0),
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
    wide: float = decision(
        0.25,
        "Holes are wide if a cell has no known sample, a cell of this part of the length of the "
        "largest blocks. The largest blocks are used only in wide holes.",
        data="kodim01 to 04: 0.6 loses 0.2 dB in holes of 16 pixels, 0.1 gains 0.1 dB in scratches",
        script="filling.py",
        sides=(0.1, 0.6),
    )
    windows: int = decision(
        16,
        "The most windows in which known samples are hidden; they are spread over the missing "
        "samples.",
        data="by design: at most half of the time of filling a photograph",
        script="filling.py",
        sides=(2, 64),
    )
    window_samples: int = decision(
        1 << 10,
        "The samples of a window in which known samples are hidden; more if holes are wider.",
        data="by design: 32 x 32 pixels are as wide as the blocks",
        script="filling.py",
        sides=(1 << 6, 1 << 14),
    )
    judged: int = decision(
        1 << 16,
        "The most samples of all windows together, without a margin around them if samples are "
        "scattered. There are at least `fewest_windows` windows, even if they have more.",
        data="by design: at most half of the time of filling a photograph",
        script="filling.py",
        sides=(1 << 12, 1 << 18),
    )
    least_share: float = decision(
        0.1,
        "In holes, the weakest decorrelated channels keep the linear fit, as long as they have "
        "together at most this part of its squared error.",
        data="kodim01 to 08: text, scratches, holes of 16 pixels",
        script="filling.py",
        sides=(0.0, 0.6),
    )
    noise_samples: int = decision(
        1 << 14,
        "The samples around holes in which noise is looked for.",
        data="by design: a small part of the time of filling a photograph",
        script="filling.py",
        sides=(1 << 9, 1 << 20),
    )
    crop_samples: int = decision(
        1 << 12,
        "The samples of the central crop on which the fit between the samples of a filled lattice "
        "is chosen.",
        data="by design: a small part of the time of filling a photograph",
        script="filling.py",
        sides=(1 << 9, 1 << 20),
    )
    whole_samples: int = decision(
        1 << 18,
        "Small holes that stay linear are filled by the surface of least roughness around them if "
        "the lattice has more samples than this; otherwise all samples are fitted together, which "
        "has standard errors.",
        data="by design: a photograph of 512 x 512 is fitted as a whole in about a second",
        script="none",
        sides=(1 << 10, 1 << 24),
    )
    fewest: int = decision(
        64,
        "Filling is considered if at least this many known samples can be hidden.",
        data="by design",
        script="filling.py",
        sides=(16, 256),
    )
    most_axes: int = decision(
        4,
        "Lattices with more axes than this are not filled by thresholds.",
        data="by design: a block of 4 samples along each of five axes has a thousand",
        script="none",
        sides=(3, 6),
    )
    near: int = decision(
        2,
        "A known sample within this distance of a missing one, along an axis, is not hidden: it "
        "would make the hole larger.",
        data="by design: two neighbours on each side determine a cubic",
        script="none",
        sides=(0, 8),
    )
    fewest_windows: int = decision(
        8,
        "At least this many windows with hidden samples are looked at: their spread is the "
        "standard error.",
        data="by design: the standard error of eight is known to a quarter",
        script="none",
        sides=(3, 24),
    )
    most_missing: float = decision(
        0.5,
        "Windows are enlarged if more than this part of their samples is missing.",
        data="by design: known samples around the hidden ones must remain",
        script="none",
        sides=(0.1, 0.9),
    )
    fewest_differences: int = decision(
        200,
        "Between scattered gaps, noise is not looked for if fewer differences between known "
        "samples than this are known.",
        data="by design: their quantile is then known to a tenth",
        script="none",
        sides=(20, 5000),
    )
    stronger: float = decision(
        0.75,
        "The strength of differences between scattered gaps is this quantile of their magnitudes: "
        "noise is everywhere, edges are in a small part of a picture.",
        data="by design: the median of quantised values is often 0",
        script="none",
        sides=(0.1, 0.999),
    )

    shifts: int = decision(
        8,
        "The number of different shifts of the blocks of one size.",
        data="kodim01 to 08: more are hardly more accurate, and take longer",
        script="filling.py",
        sides=(1, 64),
    )
    covariance_samples: int = decision(
        1 << 14,
        "Channels are decorrelated by the covariance of this many known samples.",
        data="by design: time",
        script="none",
        sides=(1 << 6, 1 << 20),
    )
    moves: int = decision(
        4,
        "Each part of the holes is moved onto known samples at random this often, and the move "
        "that hides most samples is used.",
        data="by design",
        script="none",
        sides=(1, 40),
    )
    move: int = decision(
        2,
        "The largest distance of a move, in lengths of a window.",
        data="by design: samples nearby are alike",
        script="none",
        sides=(0, 20),
    )
    activity_distances: tuple[int, ...] = decision(
        (2, 4, 8),
        "Errors in holes are expected to grow with the differences between samples at these "
        "distances to either side.",
        data="photographs, not recorded which",
        script="none",
        sides=((1,), (32, 64)),
    )
    activity_samples: int = decision(
        1 << 12,
        "The number of missing samples at which these differences are computed.",
        data="by design: their mean is then known to a few per cent",
        script="none",
        sides=(1 << 6, 1 << 20),
    )
    step_samples: int = decision(
        1 << 14,
        "The number of samples in which the step of quantised values is looked for.",
        data="by design: most values occur several times",
        script="none",
        sides=(1 << 8, 1 << 20),
    )

    def sizes(self, D: int) -> tuple[int, ...]:
        """Return the sizes of blocks in D dimensions."""
        return self.sizes_by_dimension[min(D, len(self.sizes_by_dimension)) - 1]


@dataclass(init=False, repr=False, eq=False)
class DualSettings(_Group):
    """Points in many dimensions: when no grid is used, and how the dual form is chosen."""

    least_dimensions: int = decision(
        4,
        "Points in at least this many dimensions are fitted in the dual form, without a grid.",
        data="by design: 300 points in 4-D took 40 s on a grid",
        script="none",
        sides=(3, 5),
    )
    lattice_nodes: float = decision(
        2.0,
        "Points on a lattice in many dimensions are fitted on it if it has at most this many nodes "
        "per point.",
        data="by design",
        script="none",
        sides=(1.0, 8.0),
    )
    most_grid_dimensions: int = decision(
        4,
        "A grid is refused in more dimensions than this, unless an encoding is given.",
        data="by design: 300 points in 6-D did not end",
        script="none",
        sides=(3, 6),
    )
    most_features: int = decision(
        1 << 26,
        "A given encoding with more features than this is refused.",
        data="by design: 0.5 GB for each vector of the solver",
        script="none",
        sides=(1 << 20, 1 << 34),
    )
    shape_points: int = decision(
        400,
        "The shape of the similarity is chosen on at most this many points.",
        data="by design: 300 points in 10-D within 2 s",
        script="none",
        sides=(100, 1600),
    )
    width_points: int = decision(
        1000,
        "Widths and ridge of the chosen shape are set on at most this many points.",
        data="by design: 20,000 points in 10-D within 10 s",
        script="none",
        sides=(400, 4000),
    )
    direct_points: int = decision(
        5000,
        "Up to this many points, the matrix of all of them is factored.",
        data="by design: 400 MB",
        script="none",
        sides=(1000, 20_000),
    )
    inducing_points: int = decision(
        1000,
        "The number of inducing points if there are more than `direct_points`.",
        data="by design: 20,000 points in 10-D within 10 s",
        script="none",
        sides=(300, 3000),
    )
    width_prior: float = decision(
        1.0,
        "The prior of widths: minus its logarithm is this number times the sum over axes of the "
        "standard deviation of positions over the width.",
        data="seven functions of 6 to 10 variables of their own, with much noise and idle axes",
        script="dimensions.py",
        sides=(0.0, 10.0),
    )
    most_pairs: int = decision(
        12_000_000,
        "Widths in many dimensions are chosen on fewer points, so that the table of distances of "
        "all pairs on all axes has at most about this many numbers.",
        data="by design: 100 MB, twice",
        script="none",
        sides=(1_000_000, 100_000_000),
    )
    widths: tuple[float, float] = decision(
        (1e-2, 1e3),
        "The narrowest and the widest similarity along an axis, relative to the standard deviation "
        "of positions.",
        data="by design: functions hardly depend on an axis of the largest width",
        script="none",
        sides=((0.3, 1e3), (1e-2, 3.0)),
    )
    ridges: tuple[float, float] = decision(
        (1e-10, 1e3),
        "The smallest and the largest ridge, relative to the mean weight.",
        data="by design: below, rounding errors dominate; above, all variation is noise",
        script="none",
        sides=((1e-4, 1e3), (1e-10, 0.5)),
    )
    default_ridge: float = decision(
        1e-6,
        "The ridge if all values are equal, or there are hardly more points than terms of the "
        "trend.",
        data="by design: the fit passes through the points",
        script="none",
        sides=(1e-10, 1e-2),
    )
    starts: tuple[tuple[float, float], ...] = decision(
        ((1.0, 1e-2), (3.0, 1e-1)),
        "Where the search for widths and ridge starts: widths relative to the standard "
        "deviation of positions times the root of D, and the ridge. The first is for smooth "
        "functions, the second for noise.",
        data="by design: the likelihood can have two maxima",
        script="none",
        sides=(((1.0, 1e-2),), ((3.0, 1e-1),)),
    )
    clear: float = decision(
        3e-3,
        "Factored weights are not tried if the error of the dual form is below this part of the "
        "spread of the values.",
        data="by design: it explains all but a hundred thousandth of the variance",
        script="none",
        sides=(1e-6, 0.3),
    )
    most_sums: float = decision(
        4e11,
        "With many points, fewer inducing points are used, so that the sums over all points take "
        "about this many multiplications.",
        data="by design: about a minute of one core",
        script="none",
        sides=(1e10, 1e13),
    )
    fewest_inducing: int = decision(
        200,
        "The number of inducing points is at least this.",
        data="by design: two hundred describe a smooth function in six dimensions",
        script="none",
        sides=(50, 600),
    )
    steps: int = decision(
        40,
        "The most iterations of the search for widths and ridge, for each shape of the similarity.",
        data="by design: 300 points in 10-D within 2 s",
        script="none",
        sides=(5, 400),
    )
    last_steps: int = decision(
        25,
        "The most iterations of this search for the chosen shape, on `width_points` points.",
        data="by design: 20,000 points in 10-D within 10 s",
        script="none",
        sides=(3, 300),
    )


@dataclass(init=False, repr=False, eq=False)
class FactoredSettings(_Group):
    """Factored weights: their splines, their number, and the points they are chosen on."""

    splines: int = decision(
        12,
        "The number of splines on an axis to begin with.",
        data="seven functions of 6 to 10 variables of their own",
        script="dimensions.py",
        sides=(6, 24),
    )
    most_splines: int = decision(
        48,
        "The most splines on an axis, if more splines lower the error at held-out points.",
        data="seven functions of 6 to 10 variables of their own",
        script="dimensions.py",
        sides=(12, 96),
    )
    points_per_spline: int = decision(
        4,
        "Few points have fewer splines on an axis to begin with: one for this many points.",
        data="by design: three of four points are left to choose settings",
        script="none",
        sides=(1, 20),
    )
    few_values: int = decision(
        12,
        "An axis with at most this many different positions has one hat for each.",
        data="by design: months and smaller numbers of categories",
        script="none",
        sides=(3, 40),
    )
    most_products: int = decision(
        16,
        "The largest number of products.",
        data="seven functions of 6 to 10 variables of their own",
        script="dimensions.py",
        sides=(4, 40),
    )
    settings_points: int = decision(
        8000,
        "Rank, penalty and splines are chosen on at most this many points, a quarter of them held "
        "out.",
        data="by design: 20,000 points in 10-D within 10 s",
        script="dimensions.py",
        sides=(2000, 40_000),
    )
    settings_share: float = decision(
        0.05,
        "Of many points, rank, penalty and splines are chosen on this share, if that is more than "
        "`settings_points`, and on at most five times `settings_points`.",
        data="by design: 10^6 points in 6-D within 2 minutes",
        script="none",
        sides=(0.01, 0.2),
    )
    most_work: float = decision(
        1.6e10,
        "No further product is tried after about this many multiplications, for 8000 points.",
        data="by design: some seconds",
        script="none",
        sides=(1e9, 2e11),
    )
    last_sweeps: int = decision(
        5,
        "The most sweeps over all points.",
        data="seven functions of 6 to 10 variables of their own",
        script="dimensions.py",
        sides=(2, 20),
    )
    most_points: int = decision(
        4_000_000,
        "Of more points than this, a random subset of this size is used.",
        data="by design: 2 to 4 GB in 6 dimensions",
        script="none",
        sides=(1_000_000, 20_000_000),
    )
    judged_points: int = decision(
        100_000,
        "Whether the dual form or factored weights are better is judged on at most this many "
        "points.",
        data="by design: 10^6 points in 6-D within 2 minutes",
        script="none",
        sides=(20_000, 500_000),
    )
    gain: float = decision(
        2e-3,
        "A product is kept if it lowers the squared error at held-out points by this part.",
        data="by design",
        script="none",
        sides=(0.0, 0.2),
    )
    idle: float = decision(
        1.0,
        "An axis is left out unless that raises the squared error at held-out points by more than "
        "this many standard errors of the difference (Breiman et al., 1984).",
        data="by design: the rule of one standard error",
        script="none",
        sides=(-1.0, 30.0),
    )
    patience: int = decision(
        3,
        "The search for products ends after this many in a row that do not help.",
        data="by design: time",
        script="none",
        sides=(1, 9),
    )
    first_sweeps: int = decision(
        8,
        "The sweeps for main effects alone, with each penalty that is compared.",
        data="seven functions of 6 to 10 variables of their own",
        script="dimensions.py",
        sides=(2, 24),
    )
    sweeps: int = decision(
        4,
        "The sweeps after each change of the model while it is chosen.",
        data="seven functions of 6 to 10 variables of their own",
        script="dimensions.py",
        sides=(1, 12),
    )
    compared_at: tuple[int, ...] = decision(
        (1, 2, 4, 8, 12, 16),
        "Penalties are compared again when the number of products is one of these.",
        data="by design: time",
        script="none",
        sides=((), tuple(range(1, 17))),
    )

    fewest: int = decision(
        8,
        "Fewer points than this are fitted by their mean.",
        data="by design: a quarter of them is held out",
        script="none",
        sides=(4, 16),
    )
    held_out: float = decision(
        0.25,
        "The part of these points that is held out to choose rank, penalty and splines.",
        data="by design",
        script="none",
        sides=(0.1, 0.5),
    )
    knots_at_points: float = decision(
        0.5,
        "Knots are placed between even positions and quantiles of the points, in which the "
        "quantiles have this weight.",
        data="by design: half of each",
        script="none",
        sides=(0.0, 1.0),
    )
    slopes: float = decision(
        0.03,
        "The weight of squared slopes in the penalty of squared curvature, which makes the "
        "function of an axis without effect constant.",
        data="by design: little against curvature",
        script="none",
        sides=(0.0, 1.0),
    )
    penalties: tuple[float, float] = decision(
        (1e-9, 1e4),
        "The smallest and the largest penalty, relative to values of unit variance.",
        data="by design: from no penalty to a straight line",
        script="none",
        sides=((1e-3, 1e4), (1e-9, 0.1)),
    )
    first_penalty: float = decision(
        1e-2,
        "The penalty at which the search starts.",
        data="by design: the search moves in both directions",
        script="none",
        sides=(1e-4, 1.0),
    )
    penalty_step: float = decision(
        10.0,
        "The factor between penalties that are compared.",
        data="seven functions of 6 to 10 variables of their own",
        script="dimensions.py",
        sides=(3.0, 100.0),
    )
    splines_gain: float = decision(
        0.01,
        "Twice as many splines are kept if they lower the squared error at held-out points by "
        "this part.",
        data="by design",
        script="none",
        sides=(0.0, 0.3),
    )
    searched_axes: int = decision(
        40,
        "The pair of axes of a new product is searched among at most this many axes: those with "
        "the strongest effects.",
        data="by design: time",
        script="none",
        sides=(10, 200),
    )
    bins: int = decision(
        5,
        "The pair is searched with this many bins on each axis.",
        data="by design: 25 means per pair",
        script="none",
        sides=(2, 20),
    )
    error_points: int = decision(
        20_000,
        "Standard errors are computed from at most this many points.",
        data="by design: time",
        script="none",
        sides=(2000, 200_000),
    )
    error_weights: int = decision(
        8000,
        "Standard errors are refused for more weights than this.",
        data="by design: a matrix of 0.5 GB",
        script="none",
        sides=(2000, 32_000),
    )
    least_left: float = decision(
        0.1,
        "The degrees of freedom that are left for the noise are at least this part of the points.",
        data="by design: of fewer, the noise of a linearised fit is too uncertain",
        script="none",
        sides=(0.01, 0.5),
    )
    few_work: float = decision(
        0.3,
        "With few points, `most_work` is multiplied by the number of points over "
        "`settings_points`, but at least by this.",
        data="by design: a second",
        script="none",
        sides=(0.01, 1.0),
    )

    def work(self, points: int) -> float:
        """Return the most multiplications for a choice that is made on ``points`` points."""
        return self.most_work * max(self.few_work, points / self.settings_points)

    def part(self, points: int) -> int:
        """Return the number of points on which settings are chosen, of ``points`` in all."""
        some = self.settings_points
        return min(points, max(some, min(5 * some, int(self.settings_share * points))))


@dataclass(init=False, repr=False, eq=False)
class LazySettings(_Group):
    """Arrays and points of Dask: chunks, memory, and how a penalty of points is chosen."""

    chunk_samples: int = decision(
        1 << 22,
        "Chunks of a file are joined or divided to about this many samples: 16 MB of float32.",
        data="by design: smaller chunks cost more than their samples, larger ones more memory",
        script="none",
        sides=(1 << 18, 1 << 26),
    )
    most_made: int = decision(
        1 << 24,
        "Chunks of weights that would make more values than this are divided first.",
        data="by design: 128 MB of float64",
        script="none",
        sides=(1 << 20, 1 << 28),
    )
    most_gathered: int = decision(
        1 << 28,
        "Points of Dask are refused beside weights of more bytes, which would be gathered.",
        data="by design: the memory of a small worker",
        script="none",
        sides=(1 << 24, 1 << 32),
    )
    short: int = decision(
        256,
        "Axes of up to this many samples become one chunk where every weight needs all samples.",
        data="by design: the length of an efficient chunk",
        script="none",
        sides=(64, 1024),
    )
    tile_error: float = decision(
        1e-6,
        "A penalised fit in chunks uses as many samples around each as change its values by about "
        "this part of their range.",
        data="by design: far below noise that is found, at least 1e-3 of the range",
        script="none",
        sides=(1e-10, 1e-2),
    )
    widest_overlap: int = decision(
        512,
        "Noise is not removed in chunks if that needs more samples than this around them.",
        data="by design: a chunk of 2048 x 2048 samples is then 2.3 times as large",
        script="none",
        sides=(64, 4096),
    )
    widest_hole: int = decision(
        64,
        "Chunks with missing samples are filled from this many samples around them. Holes that are "
        "wider are refused: chunks would see different parts of their rim.",
        data="by design: both chunks that share a hole see all of it",
        script="none",
        sides=(16, 256),
    )
    least_memory: int = decision(
        1 << 28,
        "Workers with less memory are not started: modules take half of it.",
        data="measured: a worker that has imported all modules has 150 MB",
        script="none",
        sides=(1 << 26, 1 << 30),
    )

    drawn: int = decision(
        1 << 16,
        "Features are chosen on this many points, drawn at random. If there are no more, they are "
        "fitted as in memory.",
        data="by design: ten times the points that settings are judged on",
        script="none",
        sides=(1 << 13, 1 << 20),
    )
    held_out: float = decision(
        0.1,
        "The penalty is chosen by the error at this part of the points, at most those drawn.",
        data="by design: as for points in memory",
        script="none",
        sides=(0.01, 0.4),
    )
    step: float = decision(
        4.0,
        "The penalty changes by this factor from trial to trial.",
        data="by design: between neighbours, errors hardly differ",
        script="none",
        sides=(1.5, 100.0),
    )
    first_step: int = decision(
        3,
        "The first penalty is that of the points drawn, times `step` this often: equations are "
        "solved faster under a larger penalty.",
        data="by design: time",
        script="none",
        sides=(0, 8),
    )
    most_steps: int = decision(
        12,
        "The search for the penalty ends where the error no longer falls, or after this many steps "
        "from the penalty of the points drawn: 12 steps are a factor of 16 million.",
        data="by design: time",
        script="none",
        sides=(3, 100),
    )
    summary_bytes: int = decision(
        1 << 28,
        "A grid that is chosen has at most as many nodes as a summary of this many bytes holds. "
        "Every worker of Dask holds some summaries.",
        data="by design: memory",
        script="none",
        sides=(1 << 20, 1 << 34),
    )
    tightest: float = decision(
        1e-4,
        "The smallest tolerance of the solver that is derived from the predicted error: a summary "
        "has no coarser grids to start from.",
        data="by design: time",
        script="none",
        sides=(1e-7, 1e-2),
    )


@dataclass(init=False, repr=False, eq=False)
class NetworkSettings(_Group):
    """Training of networks: when it is given up."""

    diverged: float = decision(
        1e4,
        "Training ends with an error if the loss exceeds this many times the largest of three "
        "losses: at the start, of zero and of the mean of the values.",
        data="by design: runs that recover rise by less, others pass any bound within a few steps",
        script="none",
        sides=(10.0, 1e9),
    )


@dataclass(init=False, repr=False, eq=False)
class Settings(_Group):
    """All decisions. ``fit`` and ``fit_points`` take other settings for experiments."""

    grid: GridSettings = GridSettings()
    prediction: PredictionSettings = PredictionSettings()
    noise: NoiseSettings = NoiseSettings()
    shrinkage: ShrinkageSettings = ShrinkageSettings()
    grouping: GroupingSettings = GroupingSettings()
    filling: FillingSettings = FillingSettings()
    smoothing: SmoothingSettings = SmoothingSettings()
    directional: DirectionalSettings = DirectionalSettings()
    points: PointSettings = PointSettings()
    search: SearchSettings = SearchSettings()
    gaussians: GaussianSettings = GaussianSettings()
    robust: RobustSettings = RobustSettings()
    signals: SignalSettings = SignalSettings()
    dual: DualSettings = DualSettings()
    factored: FactoredSettings = FactoredSettings()
    lazy: LazySettings = LazySettings()
    networks: NetworkSettings = NetworkSettings()


DEFAULT = Settings()


@record
class Decision:
    """One decision as a row of the page: group, name, value, and how the value was set."""

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
