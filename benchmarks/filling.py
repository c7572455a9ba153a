"""Missing pixels of photographs: random ones, text, scratches and square holes.

Every method gets the known pixels and the mask. Known pixels are put back, and the PSNR is that of
the missing ones; over all pixels it is higher by -10 log10 of the missing part, which the case
states.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.interpolate import RBFInterpolator

import kronfield as kf
from benchmarks.data import UNTUNED, Array, by_use, photographs, sides, waves
from benchmarks.frame import OURS, Method, Row, Settings, contest, psnr
from benchmarks.point_peers import triangulated

SIDE = 480
#: Masks by name.
KINDS = (
    "a quarter of the pixels given",
    "half of the pixels given",
    "text",
    "scratches of 3 pixels",
    "holes of 16 pixels",
)
TEXT = "the quick brown fox jumps over the lazy dog "


def mask(kind: str, side: int, seed: int) -> Array:
    """Return where pixels are missing."""
    from PIL import Image, ImageDraw, ImageFont

    rng = np.random.default_rng(seed)
    if "pixels given" in kind:
        return rng.random((side, side)) >= (0.25 if "quarter" in kind else 0.5)
    drawn = Image.new("L", (side, side))
    pen = ImageDraw.Draw(drawn)
    if kind == "text":
        font = ImageFont.load_default(18)
        for line, top in enumerate(range(4, side, 28)):
            pen.text((3, top), (TEXT * 4)[5 * line % 40 :], fill=255, font=font)
    elif kind.startswith("scratches"):
        for _ in range(12):
            pen.line(tuple(rng.random(4) * side), fill=255, width=3)
    else:
        for top, left in rng.integers(0, max(1, side - 16), (max(1, side**2 // 6400), 2)):
            pen.rectangle((left, top, left + 15, top + 15), fill=255)
    return np.asarray(drawn) > 96


@dataclass(frozen=True, eq=False)
class HoleTask:
    """A photograph with missing pixels."""

    image: Array
    missing: Array

    @functools.cached_property
    def given(self) -> Array:
        """The photograph, black where pixels are missing."""
        return np.where(self.missing[..., None], np.float32(0), self.image)

    def score(self, found: Array) -> tuple[float, None]:
        """Return the PSNR of the missing pixels."""
        return psnr(found[self.missing], self.image[self.missing]), None


def ours(task: HoleTask) -> Array:
    """Nothing chosen by hand."""
    return kf.fit(task.given, mask=task.missing).on_grid()


def _biharmonic(task: HoleTask) -> Array:
    from skimage.restoration import inpaint_biharmonic

    return np.asarray(inpaint_biharmonic(task.given, task.missing, channel_axis=-1))


def _triangles(task: HoleTask) -> Array:
    known, found = np.argwhere(~task.missing), task.given.copy()
    found[task.missing] = triangulated(
        "linear", known.astype(float), task.image[~task.missing], np.argwhere(task.missing)
    )
    return found


def _plates(task: HoleTask) -> Array:
    known, found = np.argwhere(~task.missing), task.given.copy()
    plates = RBFInterpolator(known, task.image[~task.missing].astype(float), neighbors=30)
    found[task.missing] = plates(np.argwhere(task.missing))
    return found


def _opencv(task: HoleTask, method: str) -> Array:
    import cv2

    flag: Any = getattr(cv2, method)
    bytes_ = np.round(255 * task.given).astype(np.uint8)
    return cv2.inpaint(bytes_, task.missing.astype(np.uint8), 3, flag) / np.float32(255)


def peers(settings: Settings, kind: str, label: str = UNTUNED) -> list[Method]:
    """Return the methods, ours first; slow ones have few of the photographs of a quick run."""
    scattered, untuned = "pixels given" in kind, label == UNTUNED
    return [
        Method(OURS, ours, note="nothing chosen by hand"),
        # of scattered pixels its system has as many unknowns as the picture
        Method(
            "scikit-image inpaint_biharmonic",
            _biharmonic,
            "skimage",
            most=settings.pick(1, int(untuned), 4) if scattered else 10**9,
        ),
        Method(
            "SciPy LinearNDInterpolator",
            _triangles,
            "scipy",
            most=settings.pick(1, 1, 99),
        ),
        Method(
            "SciPy RBFInterpolator, thin plates",
            _plates,
            "scipy",
            most=settings.pick(1, int(untuned), 4),
            note="30 neighbours",
        ),
        Method("OpenCV inpaint, Telea", lambda t: _opencv(t, "INPAINT_TELEA"), "cv2"),
        Method("OpenCV inpaint, Navier-Stokes", lambda t: _opencv(t, "INPAINT_NS"), "cv2"),
    ]


def filling(settings: Settings) -> list[Row]:
    """Photographs with missing pixels."""
    side = settings.pick(48, SIDE, SIDE)
    found = photographs(settings.photographs, side, settings.pick(1, 16, 16))
    rows = list[Row]()
    for kind in KINDS:
        for label, part in by_use(found, settings).items():
            items = {
                name: HoleTask(image, mask(kind, len(image), seed))
                for seed, (name, image) in enumerate(part.items())
            }
            for task in items.values():
                assert task.given.shape == task.image.shape  # made here, so that it is not timed
            share = float(np.mean([task.missing.mean() for task in items.values()]))
            case = (
                f"{len(items)} photographs of {sides(part)}, {kind} ({share:.0%} missing, "
                f"{-10 * math.log10(share):.2f} dB more over all pixels); {label}"
            )
            small = HoleTask(waves((48, 48), 3), mask(kind, 48, 0))
            rows += contest(
                "filling",
                case,
                items,
                peers(settings, kind, label),
                settings,
                score=lambda task, values: task.score(values),
                warm=small,
            )
    return rows
