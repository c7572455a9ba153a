"""Closed form on grids against its peers: time, memory and quality, in one run.

    python benchmarks/grid.py                         # sizes 256, 1024, 2048, 4096; photographs of scikit-image
    python benchmarks/grid.py --photographs FOLDER    # quality on the PNG files of a folder
    python benchmarks/grid.py --sizes 256 --quick

Peers: the paper's way (dense least squares against the identity in PyTorch, two products), SciPy's RectBivariateSpline
(k = 1, 3), RegularGridInterpolator and ndimage.spline_filter, and csaps. A peer that is not installed is reported.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # idle threads of one library must not steal from the next

import numpy as np
from frame import interleaved, machine, peak_memory, photographs
from scipy import ndimage
from scipy.interpolate import RectBivariateSpline, RegularGridInterpolator

import kronfield as kf
from kronfield.solvers.inverse import forget

Image = np.ndarray


def paper_settings(size: int, kind: str) -> kf.Kronecker:
    """The paper's closed form: Gaussian of width 0.64 samples, triangle of one sample to either side; K = N."""
    emb = kf.Gaussian(size, 0.64 / size) if kind == "Gaussian" else kf.Triangle(size, 2 / size)
    return kf.Kronecker(emb, emb)


def our_fit(values: Image, encoding: kf.Kronecker) -> kf.Field:
    x = kf.even_axis(len(values))
    return kf.fit(values, [x, x], encoding, domain=[(0, 1)] * 2, ridge=0.0)


def first_fit(values: Image, encoding: kf.Kronecker) -> kf.Field:
    """Factor anew, as for the first image of a size."""
    forget()
    return our_fit(values, encoding)


def papers_way(values: Image, encoding: kf.Kronecker) -> Callable[[Image], Image]:
    """Dense least squares against the identity, then a product on either side, channels as a batch; float32."""
    import torch

    S = torch.from_numpy(values).permute(2, 0, 1).contiguous()
    n = len(values)
    Psi = encoding.embedders[0](torch.arange(n, dtype=torch.float32) / n)
    inverse = torch.linalg.lstsq(Psi, torch.eye(n)).solution  # once: both axes are alike here
    W = inverse @ S @ inverse.T

    def evaluate(fine: Image) -> Image:
        x = torch.from_numpy(fine.astype(np.float32))
        return (encoding.embedders[0](x) @ W @ encoding.embedders[1](x).T).permute(1, 2, 0).numpy()

    return evaluate


def spline(values: Image, k: int) -> Callable[[Image], Image]:
    x = kf.even_axis(len(values))
    parts = [RectBivariateSpline(x, x, values[..., c], kx=k, ky=k) for c in range(values.shape[2])]
    return lambda fine: np.stack([part(fine, fine) for part in parts], axis=-1)


def regular_grid(values: Image) -> Callable[[Image], Image]:
    x = kf.even_axis(len(values))
    part = RegularGridInterpolator((x, x), values, bounds_error=False, fill_value=None)
    return lambda fine: part(np.stack(np.meshgrid(fine, fine, indexing="ij"), axis=-1))


def ndimage_spline(values: Image) -> Callable[[Image], Image]:
    filtered = np.stack([ndimage.spline_filter(values[..., c], 3, np.float32, "mirror") for c in range(values.shape[2])])

    def evaluate(fine: Image) -> Image:
        at = np.meshgrid(fine * len(values), fine * len(values), indexing="ij")
        planes = [ndimage.map_coordinates(f, at, np.float32, 3, "mirror", prefilter=False) for f in filtered]
        return np.stack(planes, axis=-1)

    return evaluate


def csaps_spline(values: Image) -> Callable[[Image], Image]:
    from csaps import csaps

    x = kf.even_axis(len(values))
    parts = [csaps([x, x], values[..., c].astype(np.float64), smooth=1.0) for c in range(values.shape[2])]
    return lambda fine: np.stack([part([fine, fine]) for part in parts], axis=-1)


def peers(kind: str) -> dict[str, Callable[[Image], Callable[[Image], Image]]]:
    """Every peer as a function from values to an evaluator on a fine square grid."""
    found = {
        "paper's way (torch)": lambda v: papers_way(v, paper_settings(len(v), kind)),
        "RectBivariateSpline k=1": lambda v: spline(v, 1),
        "RectBivariateSpline k=3": lambda v: spline(v, 3),
        "RegularGridInterpolator": regular_grid,
        "ndimage.spline_filter": ndimage_spline,
        "csaps": csaps_spline,
    }
    for name, module in (("paper's way (torch)", "torch"), ("csaps", "csaps")):
        if importlib.util.find_spec(module) is None:
            print(f"  {name}: not installed, so not measured")
            del found[name]
    return found


def speed(sizes: list[int], repetitions: int) -> None:
    print("\n## Speed: fit only, and fit and evaluation at twice the resolution\n")
    previous: dict[str, tuple[int, float]] = {}
    for size in sizes:
        channels = 3 if size <= 1024 else 1
        values = np.random.default_rng(0).random((size, size, channels), dtype=np.float32)
        fine = kf.even_axis(2 * size)
        for kind in ("Gaussian", "Triangle"):
            encoding = paper_settings(size, kind)
            n = max(3, repetitions // (1 + size // 256))
            others = peers(kind)
            if size > 1024:  # minutes each
                others = {k: v for k, v in others.items() if "paper" in k or "ndimage" in k}
            if size > 2048:
                n = 3
            fits: dict[str, Callable[[], object]] = {
                "kronfield": lambda e=encoding, v=values: first_fit(v, e),
                "kronfield, next of its size": lambda e=encoding, v=values: our_fit(v, e),
            }
            both: dict[str, Callable[[], object]] = {
                "kronfield": lambda e=encoding, v=values, x=fine: first_fit(v, e).on_grid([x, x])
            }
            for name, peer in others.items():
                fits[name] = lambda p=peer, v=values: p(v)
                both[name] = lambda p=peer, v=values, x=fine: p(v)(x)
            print(f"{size} x {size} x {channels}, {kind}, float32")
            for title, calls in (("fit", fits), ("fit + evaluate 2x", both)):
                if title != "fit" and size > 2048:
                    continue
                timings = interleaved(calls, n)
                ours = timings["kronfield"].median
                for name, timing in timings.items():
                    ratio = "" if name == "kronfield" else f"   {timing.median / ours:7.1f} x kronfield's"
                    print(f"  {title:18} {name:26} {timing}{ratio}")
                if title == "fit":
                    key = f"{kind} {channels}"
                    if key in previous and size == 2 * previous[key][0]:
                        print(f"  growth from {previous[key][0]}: {ours / previous[key][1]:.1f} x")
                    previous[key] = (size, ours)
            extra = peak_memory(lambda e=encoding, v=values: our_fit(v, e))
            copy, products = _limits(values)
            print(f"  memory at most {extra / values.nbytes:.2f} x the data (weights included)")
            print(f"  limits: copying the data {1e3 * copy:.2f} ms, two dense products {1e3 * products:.2f} ms")


def _limits(values: Image) -> tuple[float, float]:
    n = len(values)
    A, flat = np.eye(n, dtype=np.float32), values.reshape(n, -1)
    timings = interleaved({"copy": values.copy, "products": lambda: A @ (A @ flat)}, 3)
    return timings["copy"].median, timings["products"].median


def quality(folder: Path | None) -> None:
    images = photographs(folder)
    print(f"\n## Quality: every second pixel in, PSNR on the rest, {len(images)} photographs, mean\n")
    scores: dict[str, list[float]] = {}
    seconds: list[float] = []
    for image in images.values():
        size = len(image)
        train = np.ascontiguousarray(image[::2, ::2])
        rest = np.ones((size, size), bool)
        rest[::2, ::2] = False
        fine = kf.even_axis(size)

        def psnr(values: Image, image: Image = image, rest: np.ndarray = rest) -> float:
            return -10 * math.log10(float(np.mean((values - image)[rest].astype(np.float64) ** 2)))

        index = np.arange(size) / 2
        field = kf.fit(train)
        seconds.append(field.report.seconds)
        scores.setdefault("kronfield, nothing chosen by hand", []).append(psnr(field.on_grid([index, index])))
        for kind in ("Gaussian", "Triangle"):
            ours = our_fit(train, paper_settings(len(train), kind)).on_grid([fine, fine])
            scores.setdefault(f"the paper's settings, {kind}", []).append(psnr(ours))
        for name, peer in peers("Gaussian").items():
            if "paper" not in name:
                scores.setdefault(name, []).append(psnr(peer(train)(fine)))
    for name, values in sorted(scores.items(), key=lambda item: -np.mean(item[1])):
        print(f"  {name:36} {np.mean(values):6.2f} dB   (from {min(values):.2f} to {max(values):.2f})")
    print(f"  kronfield: {np.mean(seconds):.2f} s an image, all told")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[256, 1024, 2048, 4096])
    parser.add_argument("--photographs", type=Path, help="a folder of PNG files")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    arguments = parser.parse_args()
    print(f"# Grid benchmark\n\n{machine()}")
    quality(arguments.photographs)
    speed(arguments.sizes, 5 if arguments.quick else 25)


if __name__ == "__main__":
    main()
