"""Quality of filling on the photographs that decisions are set on, at defaults and either side.

    python -m benchmarks.tuning.filling --photographs FOLDER

Photographs should be kodim01 to 08. Quality is the PSNR of missing pixels in dB, for every kind of
mask, and the CPU time is relative to that of the default.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks.data import photographs
from benchmarks.filling import KINDS, HoleTask, mask
from kronfield._core.threads import one_blas_thread
from kronfield.fitting.filling import decorrelating
from kronfield.fitting.filling_choice import Plan, are_wide, telling_rows
from kronfield.fitting.least_roughness import least_roughness
from kronfield.fitting.settings import DEFAULT, FillingSettings, changed, decisions

SIDE = 256
#: Decisions about how to fill; the others are about what is judged.
NAMES = (
    "sizes_by_dimension",
    "shifts",
    "rounds",
    "rounds_of_holes",
    "step",
    "first",
    "last",
    "first_of_holes",
    "last_of_holes",
    "least_share",
    "wide",
)


def quality(task: HoleTask, kind: str, own: FillingSettings) -> float:
    """Return the PSNR of the missing pixels.

    Holes are filled as `fit` fills them, except that the errors of the surface of least roughness
    are those of the missing pixels, not of hidden ones. The expected error of scattered pixels is
    that of a smooth guess.
    """
    planes = np.ascontiguousarray(np.moveaxis(task.given, -1, 0))
    known = task.image[~task.missing]
    if "pixels given" in kind:
        plan, error = Plan(own.rounds, True, own), 0.3 * float(np.std(known))
    else:
        ratio = 1.0 if "holes" in kind else 0.0
        surface = least_roughness(planes[:, None], task.missing[None], (ratio,))[0][:, 0]
        errors = (surface - np.moveaxis(task.image, -1, 0))[:, task.missing]
        rows = telling_rows(
            decorrelating(planes, task.missing, own.covariance_samples), [errors], own.least_share
        )
        wide = are_wide(task.missing, own)
        plan, error = Plan(own.rounds_of_holes, wide, own, ratio, 1.0, rows), float(np.std(errors))
    filled = plan.fill_lattice(planes, task.missing, error)
    return task.score(np.moveaxis(filled, 0, -1))[0]


def main() -> None:
    """Print a line for every decision and value."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photographs", type=Path)
    images = photographs(parser.parse_args().photographs, SIDE, 8)
    tasks = {
        kind: [HoleTask(image, mask(kind, SIDE, i)) for i, image in enumerate(images.values())]
        for kind in KINDS
    }
    unit = 0.0
    cases = [("default", "", DEFAULT.filling)]
    for one in decisions():
        if one.group == "filling" and one.name in NAMES:
            for side in one.sides:
                own = changed(DEFAULT, "filling", one.name, side).filling
                cases.append((one.name, str(side), own))
    for name, value, own in cases:
        started = time.process_time()
        with one_blas_thread():
            means = [
                np.mean([quality(task, kind, own) for task in some]) for kind, some in tasks.items()
            ]
        seconds = time.process_time() - started
        unit = unit or seconds
        told = " ".join(f"{mean:6.2f}" for mean in means)
        print(f"{name:20} {value:40.40} {told} dB, {seconds / unit:.2f} x the time", flush=True)


if __name__ == "__main__":
    main()
