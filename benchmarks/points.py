"""Fits to scattered points against their peers: quality, time, memory and growth, in one run.

    python benchmarks/points.py                         # everything; photographs of scikit-image
    python benchmarks/points.py --photographs FOLDER    # quality on the PNG files of a folder
    python benchmarks/points.py --photographs FOLDER --descent --all --stream 100000000 --json points.json
    python benchmarks/points.py --sections stream,growth --stream 3000000

Peers: SciPy's RBFInterpolator (thin plates, 30 neighbours), LinearNDInterpolator and CloughTocher2DInterpolator,
scikit-learn's SplineTransformer with Ridge, GPyTorch's KISS-GP, and the paper's gradient descent on blended features in
PyTorch. A peer that is not installed is reported. Nothing here fails because it is slow.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import math
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # idle threads of one library must not steal from the next

import numpy as np
import scipy.sparse
from frame import in_turn, machine, photographs, table, timed
from scipy.interpolate import CloughTocher2DInterpolator, LinearNDInterpolator, NearestNDInterpolator, RBFInterpolator
from scipy.ndimage import map_coordinates

import kronfield as kf

Array = np.ndarray
SECTIONS = ("stream", "quality", "video", "growth", "smooth")  # the stream first: it reads the peak memory of the process

ROUGHNESS = (0.04, 0.02)  # for a quarter of the pixels of a photograph, in pixels
TOLERANCE = 0.02  # of the spread of the field, which costs less than a hundredth of a decibel
VIDEO_ROUGHNESS = (4e-5, 1.5e-3)  # for an eighth of the voxels, in voxels: what fit_points chooses for them, rounded
FEATURES, WIDTH, EPOCHS, TIMED_EPOCHS = 256, 0.005, 2000, 50  # the paper's descent
ALPHAS = (0.01, 0.03, 0.1, 0.3, 1.0)  # of the ridge, chosen by a tenth of the points
GP_STEPS, GP_GRID = 20, 240

METHODS = {
    "chosen": "kronfield, nothing chosen: fit_points(points, values), and its grid",
    "given": f"kronfield, settings given: roughness={ROUGHNESS}, tolerance={TOLERANCE}",
    "linear": "SciPy LinearNDInterpolator; nearest point outside of the hull",
    "Clough": "SciPy CloughTocher2DInterpolator; nearest point outside of the hull",
    "RBF": "SciPy RBFInterpolator, thin plates, 30 neighbours",
    "ridge": f"""scikit-learn SplineTransformer (cubic, a knot every second pixel, product of both axes, sparse) and Ridge,
           alpha of {ALPHAS} by a tenth of the points held out, not in its time""",
    "KISS-GP": f"""GPyTorch, GridInterpolationKernel of a Matérn 1/2 on {GP_GRID} x {GP_GRID} nodes, trained by {GP_STEPS}
           steps of Adam on the mean of the channels; first photograph only, unless --all""",
    "descent": f"""the paper's blending, {FEATURES}² Gaussians of width {WIDTH}, Adam, full batch, our own PyTorch; time from
           {TIMED_EPOCHS} epochs, extrapolated to {EPOCHS}; PSNR of all {EPOCHS} with --descent""",
}


class Task:
    """A photograph of which a random quarter of the pixels is given."""

    def __init__(self, image: Array, seed: int) -> None:
        self.image, self.mask = image, np.random.default_rng(seed).random(image.shape[:2]) < 0.25
        self.points, self.values = np.argwhere(self.mask).astype(np.float64), image[self.mask]
        self.rest, self.truth = np.argwhere(~self.mask).astype(np.float64), image[~self.mask]


def psnr(values: Array, truth: Array) -> float:
    return -10 * math.log10(float(np.mean((np.clip(values, 0, 1) - truth).astype(np.float64) ** 2)))


def ours(task: Task, **settings: Any) -> Array:
    field = kf.fit_points(task.points, task.values, **settings)
    values = field.on_grid()
    if values.shape != task.image.shape:  # a row or column at the rim without any point
        values = field.on_grid([np.arange(float(n)) for n in task.mask.shape], outside="extrapolate")
    return values[~task.mask]


def triangulated(kind: type, points: Array, values: Array, at: Array) -> Array:
    """Interpolate on triangles; outside of the hull take the nearest point."""
    found = kind(points, values)(at)
    outside = np.isnan(found).reshape(len(at), -1).any(axis=1)
    if outside.any():
        found[outside] = NearestNDInterpolator(points, values)(at[outside])
    return found


def spline_rows(transformer: Any, points: Array) -> Any:
    """Return the products of the four splines of each axis at every point, as a sparse matrix."""
    both = transformer.transform(points).tocsr()
    both.sort_indices()
    P, K = len(points), both.shape[1] // 2
    data, index = both.data.reshape(P, 2, 4), both.indices.reshape(P, 2, 4)
    columns = index[:, 0, :, None] * K + (index[:, 1, None, :] - K)
    products = data[:, 0, :, None] * data[:, 1, None, :]
    return scipy.sparse.csr_matrix((products.ravel(), columns.ravel(), 16 * np.arange(P + 1)), (P, K * K))


def ridge(points: Array, values: Array, at: Array, side: int, alpha: float) -> Array:
    from sklearn.linear_model import Ridge
    from sklearn.preprocessing import SplineTransformer

    corners = np.array([[0.0, 0.0], [side - 1.0, side - 1.0]])
    transformer = SplineTransformer(n_knots=side // 2, degree=3, sparse_output=True).fit(corners)
    return Ridge(alpha=alpha).fit(spline_rows(transformer, points), values).predict(spline_rows(transformer, at))


def best_alpha(task: Task) -> float:
    held = np.random.default_rng(0).random(len(task.points)) < 0.1
    X, y = task.points, task.values
    scores = {a: psnr(ridge(X[~held], y[~held], X[held], len(task.mask), a), y[held]) for a in ALPHAS}
    return max(scores, key=scores.__getitem__)


def kiss_gp(task: Task) -> Array:
    import gpytorch
    import torch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x: Any, y: Any, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=0.5))
            kernel.outputscale, kernel.base_kernel.lengthscale = float(y.var()), 4.0
            self.covar_module = gpytorch.kernels.GridInterpolationKernel(kernel, grid_size=GP_GRID, num_dims=2)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    torch.manual_seed(0)
    x, y = torch.from_numpy(task.points).float(), torch.from_numpy(task.values)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = 1e-3
    model = Model(x, y.mean(dim=1), likelihood)
    marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimiser, settings, planes = torch.optim.Adam(model.parameters(), lr=0.1), gpytorch.settings, []
    with warnings.catch_warnings(), settings.max_preconditioner_size(0), settings.num_trace_samples(4):
        warnings.simplefilter("ignore")
        with settings.cg_tolerance(1.0), settings.max_cg_iterations(100):
            for _ in range(GP_STEPS):
                optimiser.zero_grad()
                (-marginal(model(x), y.mean(dim=1))).backward()
                optimiser.step()
        model.eval()
        at = torch.from_numpy(task.rest).float()
        with torch.no_grad(), settings.max_cg_iterations(1000), settings.skip_posterior_variances():
            for channel in y.T:
                model.set_train_data(targets=channel.contiguous())
                planes.append(model(at).mean.numpy())
    return np.stack(planes, axis=-1)


def descent(task: Task, epochs: int) -> tuple[Array, float]:
    """Return the values after so many epochs, and the seconds of one; the rim pixels lie on the outermost centres."""
    import torch

    embedder, nodes = kf.Gaussian(FEATURES, WIDTH), np.arange(FEATURES) / FEATURES
    blending = kf.Blending(kf.Kronecker(embedder, embedder), [nodes, nodes])
    scale = nodes[-1] / (len(task.mask) - 1)
    index, share = (torch.from_numpy(part) for part in blending.corners(task.points * scale))
    share = share.float()[..., None]
    Psi, y = torch.from_numpy(embedder(nodes)).float(), torch.from_numpy(task.values)
    W = torch.zeros(y.shape[1], FEATURES, FEATURES, requires_grad=True)
    optimiser = torch.optim.Adam([W], lr=1e-1, betas=(0.9, 0.999), weight_decay=1e-8)

    def on_nodes() -> Any:
        return (Psi @ W @ Psi.T).reshape(len(W), -1).T

    started = time.perf_counter()
    for _ in range(epochs):
        optimiser.zero_grad()
        torch.mean(((on_nodes()[index] * share).sum(dim=1) - y) ** 2).backward()
        optimiser.step()
    seconds = (time.perf_counter() - started) / epochs
    return blending.matrix(task.rest * scale) @ on_nodes().detach().numpy(), seconds


def stream(options: argparse.Namespace) -> dict[str, Any]:
    print(f"\n## Streaming: {options.stream} points in chunks of 2**20 into Statistics on 256 x 256 hats\n")
    seen = kf.Statistics(kf.Triangle(256, 2 / 256), domain=[(0, 1)] * 2)
    rng, seconds, peaks = np.random.default_rng(0), 0.0, []
    while seen.count < options.stream:
        points = rng.random((min(2**20, options.stream - seen.count), 2))
        values = np.sin(9 * points[:, 0]) * points[:, 1]
        seconds += timed(lambda p=points, v=values: seen.add(p, v))[1]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peaks.append(peak / (2**20 if sys.platform == "darwin" else 2**10))
    print(f"  {seen.count / seconds / 1e6:.2f} million points a second ({seconds:.1f} s, making them not counted)")
    print(f"  peak memory of the process {peaks[0]:.0f} MiB after the first chunk, {peaks[-1]:.0f} MiB at the end")
    return {"points": seen.count, "seconds": seconds, "first_peak_mib": peaks[0], "last_peak_mib": peaks[-1]}


def quality(options: argparse.Namespace) -> dict[str, Any]:
    images = photographs(options.photographs)
    print(f"\n## Random pixels: 25 % in, PSNR at the others, {len(images)} photographs\n")
    needs = {"ridge": "sklearn", "KISS-GP": "gpytorch", "descent": "torch"}
    missing = [name for name, module in needs.items() if importlib.util.find_spec(module) is None]
    for name, text in METHODS.items():
        print(f"  {name:8} {'not installed, so not measured' if name in missing else text}")
    calls: dict[str, Callable[[Task], Array]] = {
        "chosen": ours,
        "given": lambda t: ours(t, roughness=ROUGHNESS, tolerance=TOLERANCE),
        "linear": lambda t: triangulated(LinearNDInterpolator, t.points, t.values, t.rest),
        "Clough": lambda t: triangulated(CloughTocher2DInterpolator, t.points, t.values, t.rest),
        "RBF": lambda t: RBFInterpolator(t.points, t.values, kernel="thin_plate_spline", neighbors=30)(t.rest),
    }
    scores: dict[str, dict[str, float]] = {name: {} for name in METHODS if name not in missing}
    seconds: dict[str, dict[str, float]] = {name: {} for name in scores}
    small = Task(next(iter(images.values()))[:64, :64], 0)
    for call in calls.values():
        call(small)  # warm up
    for name in needs.keys() & scores.keys():
        importlib.import_module(needs[name])
    for number, (photograph, image) in enumerate(images.items()):
        task = Task(image, number)
        now = dict(calls)
        if "ridge" in scores:
            alpha = best_alpha(task)
            now["ridge"] = lambda t, a=alpha: ridge(t.points, t.values, t.rest, len(t.mask), a)
        if "KISS-GP" in scores and (options.all or not number):
            now["KISS-GP"] = kiss_gp
        for name, call in now.items():
            values, seconds[name][photograph] = timed(lambda c=call, t=task: c(t))
            scores[name][photograph] = psnr(values, task.truth)
        if "descent" in scores and number < options.timed:
            (_, epoch), whole = timed(lambda t=task: descent(t, TIMED_EPOCHS))
            seconds["descent"][photograph] = whole + (EPOCHS - TIMED_EPOCHS) * epoch
        if "descent" in scores and options.descent and (options.all or not number):
            (values, _), spent = timed(lambda t=task: descent(t, EPOCHS))
            scores["descent"][photograph] = psnr(values, task.truth)
            print(f"  {photograph}: all {EPOCHS} epochs of the descent took {spent:.1f} s")
    names = list(scores)
    rows = [[p, *(f"{scores[n][p]:.2f}" if p in scores[n] else "-" for n in names)] for p in images]
    complete = {n: np.mean(list(scores[n].values())) for n in names if len(scores[n]) == len(images)}
    rows.append(["mean", *(f"{complete[n]:.2f}" if n in complete else "-" for n in names)])
    print("\n  PSNR in dB")
    table(["", *names], rows)
    print("\n  Fit and evaluation: median seconds, and the median over photographs of the ratio to ours on the same one")
    rows = []
    for name, spent in seconds.items():
        if spent:
            ratios = [np.median([s / seconds[o][p] for p, s in spent.items()]) for o in ("chosen", "given")]
            times = [f"{np.median(list(spent.values())):.3f}", f"({min(spent.values()):.3f} to {max(spent.values()):.3f})"]
            rows.append([name, *times, *(f"{ratio:.2f} x" for ratio in ratios), str(len(spent))])
    table(["", "s", "", "of chosen", "of given", "photographs"], rows)
    return {"psnr": scores, "seconds": seconds}


def astronaut() -> Array:
    """Return the photograph of scikit-image that needs no file, (512, 512, 3)."""
    from skimage import data

    return data.astronaut().astype(np.float32) / 255


def moving_texture() -> Array:
    """Return frames (128, 128, 128, 3): a window that slides over a photograph and zooms out, bilinearly."""
    planes, frames = np.moveaxis(astronaut(), -1, 0), []
    for t in np.arange(128) / 128:
        window = (1 + 0.5 * t) * (np.arange(128) - 64)
        at = np.meshgrid(150 + 150 * t + window, 200 + 120 * t + window, indexing="ij")
        frames.append(np.stack([map_coordinates(plane, at, order=1) for plane in planes], axis=-1))
    return np.stack(frames)


def video(options: argparse.Namespace) -> dict[str, Any]:
    print("\n## Video: 128 x 128 x 128 x 3, synthetic (a window slides over a photograph and zooms), 12.5 % of voxels in\n")
    cube = moving_texture()
    mask = np.random.default_rng(0).random(cube.shape[:3]) < 0.125
    points, values, axes = np.argwhere(mask).astype(np.float64), cube[mask], [np.arange(128.0)] * 3

    def fit(encoding: kf.Triangle | None) -> tuple[kf.Field, Array]:
        field = kf.fit_points(points, values, encoding, roughness=VIDEO_ROUGHNESS)
        return field, field.on_grid(axes, outside="extrapolate")

    grids = {"64^3 hats": kf.Triangle(64, 2 / 64), "128^3, the lattice of the points": None}
    done = in_turn({name: lambda e=e: fit(e) for name, e in grids.items()}, options.repetitions)
    print(f"  {len(points)} points, roughness {VIDEO_ROUGHNESS}, fit and evaluation of the whole cube")
    result, rows = {}, []
    for name, ((field, found), timing) in done.items():
        score, steps = psnr(found[~mask], cube[~mask]), field.report.convergence.iterations
        result[name] = {"psnr": score, "seconds": timing.median, "iterations": steps}
        rows.append([name, f"{score:.2f} dB", f"{timing.median:.2f} s", str(steps)])
    table(["", "PSNR", "median", "iterations"], rows)
    return result


def growth(options: argparse.Namespace) -> dict[str, Any]:
    print("\n## Growth: 512² x 3 and 2048² x 3 unknowns, a quarter as many points, roughness the same per cell; fit only\n")
    calls: dict[str, Callable[[], kf.Field]] = {}
    for n in (512, 2048):
        rng = np.random.default_rng(0)
        picture = np.pad(astronaut(), ((0, n - 512), (0, n - 512), (0, 0)), mode="reflect").astype(np.float32)
        mask = rng.random((n, n)) < 0.25
        pixels, shades = np.argwhere(mask).astype(np.float64), picture[mask]
        X = rng.random((n * n // 4, 2))
        y = np.stack([map_coordinates(picture[..., c], n * X.T, order=1, mode="nearest") for c in range(3)], axis=1)
        settings = {"domain": [(0, 1)] * 2, "roughness": (ROUGHNESS[0] / n**2, ROUGHNESS[1] / n**4)}
        calls[f"scattered {n}"] = lambda X=X, y=y, n=n, s=settings: kf.fit_points(X, y, kf.Triangle(n, 2 / n), **s)
        calls[f"pixels {n}"] = lambda X=pixels, y=shades: kf.fit_points(X, y, roughness=ROUGHNESS)
    done = in_turn(calls, options.repetitions)
    result, rows = {}, []
    for kind in ("scattered", "pixels"):
        pair = [done[f"{kind} {n}"] for n in (512, 2048)]
        times, steps = [t.median for _, t in pair], [f.report.convergence.iterations for f, _ in pair]
        result[kind] = {"seconds": times, "iterations": steps, "ratio": times[1] / times[0]}
        cells = [f"{s:.3f} s, {i} iterations" for s, i in zip(times, steps, strict=True)]
        rows.append([kind, *cells, f"{times[1] / times[0]:.1f} x"])
    table(["", "512²", "2048²", "ratio for 16 times as many"], rows)
    return result


def franke(x: Array, y: Array) -> Array:
    hills = 0.75 * np.exp(-((9 * x - 2) ** 2 + (9 * y - 2) ** 2) / 4)
    hills += 0.75 * np.exp(-((9 * x + 1) ** 2) / 49 - (9 * y + 1) / 10)
    hills += 0.5 * np.exp(-((9 * x - 7) ** 2 + (9 * y - 3) ** 2) / 4)
    return hills - 0.2 * np.exp(-((9 * x - 4) ** 2) - (9 * y - 7) ** 2)


def smooth(options: argparse.Namespace) -> dict[str, Any]:
    print("\n## Franke's function: rms error at 4000 points of [0.02, 0.98]², and median seconds, fit and evaluation\n")
    print("  RBF: thin plates, all points up to 1000, then 30 neighbours, not smoothed, as it comes;")
    print("  best: with the best smoothing of 0, 1e-6 ... 1, known only with hindsight\n")
    at = np.random.default_rng(1).uniform(0.02, 0.98, (4000, 2))
    truth, result, rows = franke(*at.T), {}, []
    for P, noise in itertools.product((200, 1000, 5000), (0.0, 0.05)):
        rng = np.random.default_rng(0)
        X = rng.random((P, 2))
        y = franke(*X.T) + noise * rng.standard_normal(P)

        def plates(smoothing: float = 0.0, X: Array = X, y: Array = y) -> Array:
            return RBFInterpolator(X, y, neighbors=None if len(X) <= 1000 else 30, smoothing=smoothing)(at)

        calls = {
            "kronfield": lambda X=X, y=y: kf.fit_points(X, y, domain=[(0, 1)] * 2)(at),
            "RBF": plates,
            "Clough": lambda X=X, y=y: triangulated(CloughTocher2DInterpolator, X, y, at),
        }
        done = in_turn(calls, options.repetitions)
        found = {name: values for name, (values, _) in done.items()}
        tried = [plates(s) for s in (0, *10.0 ** np.arange(-6, 1))]
        found["RBF, best"] = min(tried, key=lambda v: np.mean((v - truth) ** 2))
        errors = {name: float(np.sqrt(np.mean((values - truth) ** 2))) for name, values in found.items()}
        times = {name: timing.median for name, (_, timing) in done.items()}
        cells = [f"{errors[n]:.2g}" + (f", {times[n]:.3f} s" if n in times else "") for n in errors]
        rows.append([f"{P} points, noise {noise:g}", *cells])
        result[f"{P}, {noise:g}"] = {"rms": errors, "seconds": times}
    table(["", *errors], rows)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", default=",".join(SECTIONS), help=f"of {', '.join(SECTIONS)}; by default all")
    parser.add_argument("--photographs", type=Path, help="a folder of PNG files")
    parser.add_argument("--timed", type=int, default=3, help="photographs on which to time the paper's descent")
    parser.add_argument("--descent", action="store_true", help="run all epochs of the descent on the first photograph")
    parser.add_argument("--all", action="store_true", help="KISS-GP, and with --descent the descent, on all photographs")
    parser.add_argument("--stream", type=int, default=10**7, help="points to stream")
    parser.add_argument("--repetitions", type=int, default=3, help="of video, growth and smooth, after one to warm up")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    wanted = options.sections.split(",")
    if unknown := set(wanted) - set(SECTIONS):
        parser.error(f"no section {', '.join(sorted(unknown))}: there are {', '.join(SECTIONS)}")
    used = machine("scikit-learn", "gpytorch")
    print(f"# Points benchmark\n\n{used}")
    figures: dict[str, Any] = {"machine": used}
    for name in SECTIONS:
        if name in wanted:
            figures[name] = globals()[name](options)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
