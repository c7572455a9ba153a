"""Networks against a plain PyTorch implementation of the paper's recipe: steps a second, the same losses, memory.

    python benchmarks/networks.py
    python benchmarks/networks.py --steps 5 --json networks.json

Each pair starts from the same weights and takes the same steps; what both computed is compared. Plain means: encode all
points once, then a Sequential of Linear and ReLU, full batch, Adam. Nothing here fails because it is slow.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # idle threads of one library must not steal from the next

import numpy as np
import torch
from frame import interleaved, machine, table

import kronfield as kf
from kronfield.nn import CoordinateMLP, Grid
from kronfield.nn.data import samples
from kronfield.nn.run import Run

SIDE, CUBE = 256, 64


def picture(shape: tuple[int, ...]) -> np.ndarray:
    """Return values that are neither constant nor noise, float32 in [0, 1], three channels."""
    rng = np.random.default_rng(0)
    waves = rng.standard_normal((6, len(shape))) * 8
    axes = np.stack(np.meshgrid(*[np.arange(n) / n for n in shape], indexing="ij"), axis=-1)
    return (0.5 + 0.15 * np.sin(axes @ waves.T + rng.random(6)) @ rng.standard_normal((6, 3))).clip(0, 1).astype(np.float32)


class Plain:
    """The recipe as one writes it down."""

    def __init__(self, model: CoordinateMLP, inputs: Grid | torch.Tensor, values: np.ndarray, rate: float) -> None:
        self.target = torch.from_numpy(values).reshape(-1, values.shape[-1])
        points = (inputs.points() if isinstance(inputs, Grid) else inputs).reshape(-1, model.encoding.dimensions)
        if isinstance(model.encoding, kf.Kronecker):
            self.parameters = [model.first.weight.detach().clone().requires_grad_()]
            if isinstance(inputs, Grid):
                self.axes = [
                    torch.from_numpy(e(x.double().numpy())).float()
                    for e, x in zip(model.encoding.embedders, inputs.axes, strict=True)
                ]
                self.forward = self.mode_products
            else:
                K = model.encoding.shape[0]
                blending = kf.Blending(model.encoding, [np.linspace(0, 1, K + 1)] * len(model.encoding.shape))
                self.index, share = blending.corners(points)
                self.share = share[..., None]
                self.axes = [torch.from_numpy(e(np.linspace(0, 1, K + 1))).float() for e in model.encoding.embedders]
                self.forward = self.corners
        else:
            self.features = torch.from_numpy(model.encoding(points.double().numpy())).float()
            width, depth, layers = model.width, model.depth, []
            for i in range(depth):
                layers += [torch.nn.Linear(self.features.shape[1] if i == 0 else width, width), torch.nn.ReLU()]
            self.network = torch.nn.Sequential(*layers, torch.nn.Linear(width, model.out))
            self.parameters = list(self.network.parameters())
            with torch.no_grad():
                for mine, theirs in zip(self.parameters, model.parameters(), strict=True):
                    mine.copy_(theirs)
            self.forward = lambda: self.network(self.features)
        self.optimiser = torch.optim.Adam(self.parameters, lr=rate, betas=(0.9, 0.999), weight_decay=1e-8)

    def mode_products(self) -> torch.Tensor:
        letters = "abcdef"[: len(self.axes)]
        kept = letters.upper()
        spec = f"z{letters}," + ",".join(f"{n}{k}" for n, k in zip(kept, letters, strict=True)) + f"->{kept}z"
        return torch.einsum(spec, self.parameters[0], *self.axes).reshape(-1, len(self.parameters[0]))

    def corners(self) -> torch.Tensor:
        return (self.mode_products()[self.index] * self.share).sum(1)

    def step(self) -> float:
        self.optimiser.zero_grad()
        loss = torch.mean((self.forward() - self.target) ** 2)
        loss.backward()
        self.optimiser.step()
        return float(loss.detach())


class Ours:
    """A step of `kronfield.nn.train`."""

    def __init__(self, model: CoordinateMLP, inputs: Grid | torch.Tensor, values: np.ndarray, rate: float) -> None:
        data = samples((inputs, torch.from_numpy(values)), model)
        self.run = Run(
            model, data, None, 10**6, rate, (0.9, 0.999), 1e-8, None, None, "constant", "mse", None, None, None, 0, None
        )
        self.prepared = self.run._prepared()

    def step(self) -> float:
        return self.run._epoch(self.prepared)


def cases() -> dict[str, Callable[[], tuple[CoordinateMLP, Any, np.ndarray, float]]]:
    def image(encoding: Any, depth: int, rate: float) -> Callable[[], Any]:
        return lambda: (CoordinateMLP(encoding, depth, 256), Grid.even((SIDE, SIDE)), picture((SIDE, SIDE)), rate)

    def video(encoding: Any, depth: int, rate: float) -> Callable[[], Any]:
        shape = (CUBE, CUBE, CUBE)
        return lambda: (CoordinateMLP(encoding, depth, 512), Grid.even(shape), picture(shape), rate)

    def scattered() -> tuple[CoordinateMLP, Any, np.ndarray, float]:
        encoding = kf.Kronecker(*[kf.Gaussian(256, 0.005)] * 2)
        points = torch.rand(SIDE * SIDE, 2, generator=torch.Generator().manual_seed(0))
        return CoordinateMLP(encoding, 0, points="blending"), points, picture((SIDE, SIDE)).reshape(-1, 3), 1e-1

    return {
        "image, simple Gau, depth 4": image(kf.Concatenated.with_diagonals(kf.Gaussian(128, 0.006), 2), 4, 5e-3),
        "image, simple LogF, depth 4": image(kf.Concatenated(*[kf.LogFourier(256, 5.5)] * 2), 4, 5e-3),
        "image, simple RFF, depth 4": image(kf.Concatenated(kf.RandomFourier(512, 14.0, dimensions=2)), 4, 5e-3),
        "image, Kronecker Gau, depth 0": image(kf.Kronecker(*[kf.Gaussian(256, 0.004)] * 2), 0, 1e-1),
        "points, Kronecker Gau blended, depth 0": scattered,
        "video 64³, simple Gau, depth 5": video(kf.Concatenated(*[kf.Gaussian(256, 0.015)] * 3), 5, 5e-3),
        "video 64³, Kronecker Gau, depth 0": video(kf.Kronecker(*[kf.Gaussian(64, 0.015)] * 3), 0, 1e-1),
    }


def peak(name: str, kind: str, queue: Any) -> None:
    """Measure in a process of its own: the memory one step needs beyond what was there before, in MiB."""
    torch.set_num_threads(2)
    before = high_water()
    torch.manual_seed(0)
    (Ours if kind == "ours" else Plain)(*cases()[name]()).step()
    queue.put(high_water() - before)


def high_water() -> float:
    """Return the peak memory of this process in MiB; what getrusage says includes that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


def memory(name: str, kind: str) -> float:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=peak, args=(name, kind, queue))
    process.start()
    found = queue.get()
    process.join()
    return float(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5, help="timed, after one to warm up")
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    used = machine()
    print(f"# Networks: one step of training\n\n{used}\n")
    rows, figures = [], {"machine": used}
    for name, make in cases().items():
        if options.only and options.only not in name:
            continue
        torch.manual_seed(0)
        settings = make()
        plain, ours = Plain(*settings), Ours(*settings)
        losses: dict[str, list[float]] = {"plain": [], "ours": []}
        calls = {
            "plain": lambda p=plain, k=losses: k["plain"].append(p.step()),
            "ours": lambda o=ours, k=losses: k["ours"].append(o.step()),
        }
        timings = interleaved(calls, options.steps)
        apart = max(abs(a - b) / b for a, b in zip(losses["ours"], losses["plain"], strict=True))
        used_memory = {kind: memory(name, kind) for kind in ("plain", "ours")}
        ratio = timings["plain"].median / timings["ours"].median
        rows.append([
            name, f"{1 / timings['plain'].median:.2f}", f"{1 / timings['ours'].median:.2f}", f"{ratio:.2f} x",
            f"{apart:.0e}", f"{used_memory['plain']:.0f}", f"{used_memory['ours']:.0f}",
        ])  # fmt: skip
        figures[name] = {
            "plain": vars(timings["plain"]), "ours": vars(timings["ours"]), "ratio": ratio, "losses differ by": apart,
            "MiB": used_memory,
        }  # fmt: skip
        print(f"  {name}: {ratio:.2f} x", flush=True)
    print()
    table(["", "plain steps/s", "ours", "ratio", "losses apart", "plain MiB", "ours MiB"], rows)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
