"""Values on a grid: quality, time and memory; and the paper's closed form by size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import kronfield as kf
from benchmarks.data import Array, GridTask, by_use, clip, photographs, sides, waves
from benchmarks.frame import OURS, Method, Peak, Row, Settings, contest
from benchmarks.grid_peers import PapersWay, paper_fit, peers
from kronfield.solvers.grid.inverse import forget

SIDE, CUBE = 480, 128


def images(settings: Settings) -> list[Row]:
    """Photographs of which every second pixel on each axis is given."""
    side = settings.pick(48, SIDE, SIDE)
    found = photographs(settings.photographs, side, settings.pick(1, 16, 16))
    rows = list[Row]()
    for label, part in by_use(found, settings).items():
        items = {name: GridTask(image) for name, image in part.items()}
        case = f"{len(items)} photographs of {sides(part)}, every second pixel on each axis given"
        rows += _contest("images", f"{case}; {label}", items, 2, side, 3, settings)
    return rows


def video(settings: Settings) -> list[Row]:
    """A clip of which every second sample of time, height and width is given."""
    side = settings.pick(16, CUBE, CUBE)
    items = {"bikes": GridTask(clip(side))}
    half = " x ".join([str(side // 2)] * 3)
    return _contest(
        "video",
        f"a clip of {side}³ x 3, {half} x 3 given",
        items,
        3,
        side,
        3,
        settings,
        repetitions=3,
    )


def lines(settings: Settings) -> list[Row]:
    """Rows of photographs, of which every second pixel is given."""
    side = settings.pick(32, SIDE, SIDE)
    found = photographs(settings.photographs, side, settings.pick(1, 16, 16))
    rng, each = np.random.default_rng(0), 64 // len(found) if settings.size != "tiny" else 2
    rows = list[Row]()
    for label, part in by_use(found, settings).items():
        items = {
            f"{name} {at}": GridTask(image[at])
            for name, image in part.items()
            for at in rng.integers(0, len(image), each)
        }
        case = f"{len(items)} rows of photographs of {sides(part)}, every second pixel given"
        rows += _contest("lines", f"{case}; {label}", items, 1, side, 3, settings)
    return rows


def _contest(
    section: str,
    case: str,
    items: dict[str, GridTask],
    D: int,
    side: int,
    channels: int,
    settings: Settings,
    repetitions: int = 1,
) -> list[Row]:
    memory: Callable[[str], Peak | None] | None = None
    if settings.size != "tiny":
        memory = lambda name: Peak("benchmarks.grid_peers:peak_call", (D, side, channels, name))  # noqa: E731
    warm = GridTask(waves((32,) * D, channels))
    return contest(
        section,
        case,
        items,
        peers(D),
        settings,
        score=lambda task, values: task.score(values),
        warm=warm,
        repetitions=repetitions if settings.size != "tiny" else 1,
        memory=memory,
    )


def closed_form(settings: Settings) -> list[Row]:
    """The paper's closed form by size: the fit, and the fit plus values at twice the size."""
    rows = list[Row]()
    for size in settings.pick((64,), (256, 1024), (256, 1024, 2048, 4096)):
        channels = 3 if size <= 1024 else 1
        values = np.random.default_rng(0).random((size, size, channels), dtype=np.float32)
        for kind in ("Gaussian", "Triangle"):
            methods = [
                Method(OURS, lambda v, k=kind: _first(v, k)),
                Method("kronfield, next of its size", lambda v, k=kind: paper_fit(v, k)),
                Method("the paper's way", lambda v, k=kind: PapersWay(v, k), "torch"),
            ]
            case = f"fit, {kind}, {size} x {size} x {channels}"
            rows += contest(
                "closed form",
                case,
                {"noise": values},
                methods,
                settings,
                repetitions=settings.pick(1, 9, 15),
            )
            if size > 2048:
                continue
            fine = kf.even_axis(2 * size)
            both = [
                Method(OURS, lambda v, k=kind, x=fine: _first(v, k).on_grid([x, x])),
                Method("the paper's way", lambda v, k=kind, x=fine: PapersWay(v, k)(x), "torch"),
            ]
            case = f"fit + values at 2x, {kind}, {size} x {size} x {channels}"
            rows += contest(
                "closed form",
                case,
                {"noise": values},
                both,
                settings,
                repetitions=settings.pick(1, 5, 9),
            )
    return rows


def _first(values: Array, kind: str) -> kf.Field:
    """Fit without stored factorisations, as for the first image of a size."""
    forget()
    return paper_fit(values, kind)
