"""The form of a fit of points (a grid, the dual form or factored weights) and its cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kronfield._core.arrays import problem
from kronfield._core.records import record
from kronfield.fitting.options import PointOptions
from kronfield.solvers.dual.systems import BLOCK, MOST_LEFT_OUT
from kronfield.solvers.factored.axes import SINGLE

FORMS = ("grid", "dual", "factored")
# Seconds of one core per multiplication in matrix products and in sweeps, whose matrices are small,
# and per similarity of two points on one axis.
PER_PRODUCT, PER_SWEEP, PER_SIMILARITY = 1e-10, 5e-10, 2e-9
# Widths are chosen on at least this many points, also with more axes than memory is planned for.
FEWEST_POINTS = 100
# The most values of the likelihood that are expected in the searches for shape and widths, and in
# the last one: smooth and noisy functions of 4 to 10 variables took 50 to 110, and 7 or 8.
FIRST_VALUES, LAST_VALUES = 120, 15
# The seconds of a fit of few points, and the part of the most work after which most searches for
# products end.
OVERHEAD, USUAL_PART = 0.05, 0.25


@record
class Form:
    """The form of a fit, why it was selected, and its cost.

    Attributes
    ----------
    name : str
        "grid", "dual", "factored", or "either": dual or factored, decided by their errors at
        held-out points.
    reason : str
        Why it was selected.
    seconds : float
        About how long the fit takes on one core of a common computer; NaN for a grid, whose solver
        iterates.
    memory : int
        The bytes that the fit needs beside points and values; 0 if it is not known (a grid).
    """

    name: str
    reason: str
    seconds: float = math.nan
    memory: int = 0


def select_form(
    D: int,
    P: int,
    form: str | None = None,
    options: PointOptions | None = None,
    nodes: int | None = None,
    channels: int = 1,
) -> Form:
    """Return the form in which `fit_points` fits P points in D dimensions, and its cost.

    Examples
    --------
    >>> import kronfield as kf
    >>> kf.select_form(2, 1000).name, kf.select_form(6, 1000).name, kf.select_form(6, 10**6).name
    ('grid', 'dual', 'either')
    >>> form = kf.select_form(10, 300)
    >>> form.seconds < 2, form.memory < 10**8
    (True, True)

    Parameters
    ----------
    D, P : int
        The numbers of dimensions and of points.
    form : "grid", "dual", "factored" or None
        The form that the caller asked for.
    options : PointOptions, optional
        The other options of the caller.
    nodes : int, optional
        The number of nodes of the lattice that the points lie on, if any.
    channels : int
        The number of real planes of the values.

    Raises
    ------
    InputError
        If the options need a grid, and a grid in D dimensions would be too large.
    """
    options = options or PointOptions()
    settings = options.settings.dual
    needs = _needs_grid(options)
    if form in ("dual", "factored"):
        needs = needs or (_needs_dual(options) if form == "factored" else "")
        if needs:
            remedy = "Leave it out, or form='grid'."
            raise problem("form", f'"{form}"', f"a fit without {needs}", remedy)
        return _costed(form, "asked for", D, P, channels, options)
    few = settings.least_dimensions > D
    if few or (nodes is not None and nodes <= settings.lattice_nodes * P):
        return Form("grid", f"{D} dimensions" if few else "points on a lattice")
    if form == "grid" or needs:
        return _grid_form(D, "" if form == "grid" else needs, settings.most_grid_dimensions)
    reason = f"{D} dimensions, in which a grid would have too many nodes"
    if settings.direct_points >= P:
        return _costed("dual", reason, D, P, channels, options)
    if options.trend or options.penalty is not None:
        needs = "a trend" if options.trend else "a given ridge"
        return _costed("dual", f"{reason}; {needs} needs the dual form", D, P, channels, options)
    return _costed("either", reason, D, P, channels, options)


def _needs_dual(options: PointOptions) -> str:
    """Return the option that factored weights do not have, or ""."""
    if options.trend:
        return f"trend {options.trend}"
    return "ridge" if options.penalty is not None else ""


def _grid_form(D: int, needs: str, most: int) -> Form:
    """Return the form of a grid, asked for or needed for ``needs``; refuse too many dimensions."""
    if most < D:
        got = f"{needs}, which needs a grid," if needs else '"grid"'
        raise problem(
            needs.split()[0] if needs else "form",
            f"{got} with {D} dimensions",
            f"at most {most} dimensions on a grid",
            "Leave it out: the dual form needs no grid.",
        )
    return Form("grid", f"needed for {needs}" if needs else "asked for")


def _costed(name: str, reason: str, D: int, P: int, C: int, options: PointOptions) -> Form:
    """Return the form with its time and memory."""
    dual = dual_cost(D, P, options)
    factored = factored_cost(D, P, C, options)
    if name == "dual":
        return Form(name, reason, *dual)
    if name == "factored":
        return Form(name, reason, *factored)
    n = min(P, options.settings.factored.judged_points)
    judged = dual_cost(D, n, options)
    last = 0.0 if n == P else max(dual[0] - judged[0], 0.0)
    seconds = judged[0] + factored[0] + last
    return Form(name, reason, seconds, max(dual[1], factored[1]))


def inducing_count(P: int, options: PointOptions) -> int:
    """Return the number of inducing points for P points."""
    settings = options.settings.dual
    affordable = int(math.sqrt(settings.most_sums / P))
    return min(settings.inducing_points, max(settings.fewest_inducing, affordable))


def part_counts(D: int, P: int, options: PointOptions) -> tuple[int, int]:
    """Return how many points choose the shape and the widths: tables of pairs have D columns."""
    settings = options.settings.dual
    most = max(FEWEST_POINTS, int(math.sqrt(2 * settings.most_pairs / D)))
    return min(P, settings.shape_points, most), min(P, settings.width_points, most)


def dual_cost(D: int, P: int, options: PointOptions) -> tuple[float, int]:
    """Return seconds and bytes of the dual form."""
    first, more = part_counts(D, P, options)
    # a value of the likelihood inverts a matrix of n points, and goes over all pairs on each axis
    steps = [(first, FIRST_VALUES)] + ([(more, LAST_VALUES)] if more > first else [])
    seconds = OVERHEAD + sum(
        count * (PER_PRODUCT * n**3 + PER_SIMILARITY * n * n * (D + 3)) for n, count in steps
    )
    pairs = 16 * D * more * more // 2 + 40 * more * more
    if options.settings.dual.direct_points >= P:
        left_out = min(P, MOST_LEFT_OUT)
        seconds += PER_PRODUCT * (P**3 / 6 + P * P * left_out) + PER_SIMILARITY * P * P * (D + 3)
        return seconds, max(pairs, 16 * P * P)
    m = inducing_count(P, options)
    seconds += PER_PRODUCT * (P * m * m + 10 * m**3)
    seconds += PER_SIMILARITY * P * m * (D + 3)
    return seconds, max(pairs, 8 * (6 * m * m + 4 * BLOCK * m + 2 * P * D))


def factored_cost(D: int, P: int, C: int, options: PointOptions) -> tuple[float, int]:
    """Return seconds and bytes of factored weights, for half of the most products."""
    settings = options.settings.factored
    P = min(P, settings.most_points)
    T = settings.most_products + 1
    choice = USUAL_PART * settings.work(settings.part(P))
    T = T // 2
    sweeps = settings.last_sweeps * D * P * (16 * T * T + 100 * T)
    size = 4 if P > SINGLE else 8
    memory = P * D * (4 * size + 12 + T * size) + 8 * (12 * D * T) ** 2
    return C * PER_SWEEP * (choice + sweeps), memory


def _needs_grid(options: PointOptions) -> str:
    """Return the option that only a grid has; empty if there is none."""
    if options.rows is not None:
        return "rows"
    if options.penalty is not None and any(options.penalty.roughness):
        return "roughness"
    return "hold_out 'blocks'" if options.hold_out == "blocks" else ""


def checked_form(form: Any, encoding: Any) -> str | None:
    """Return the form that the caller asked for, checked."""
    if form is not None and not (isinstance(form, str) and form in FORMS):
        remedy = "Leave it out to have it selected."
        raise problem("form", repr(form), '"grid", "dual", "factored" or None', remedy)
    if form in ("dual", "factored") and encoding is not None:
        remedy = "The encoding is that of a grid: leave one of them out."
        raise problem("form", f'"{form}" with an encoding', "only one of the two", remedy)
    return form


def check_features(shape: Sequence[int], options: PointOptions) -> None:
    """Raise an error if a given encoding has more features than can be solved for."""
    most, count = options.settings.dual.most_features, math.prod(shape)
    if count > most:
        raise problem(
            "encoding",
            f"{' x '.join(map(str, shape))} = {count:.3g} features",
            f"at most {most:.3g}",
            "Use fewer features per axis, or leave the encoding out: in many dimensions the dual "
            "form has no grid.",
        )
