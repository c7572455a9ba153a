"""Networks against a plain PyTorch implementation of the paper's recipe: a step of training.

Both start from the same weights and take the same steps; their losses are compared, their time and
their peak memory. The plain implementation encodes all points once, then applies a Sequential of
Linear and ReLU, with full batches and Adam.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import kronfield as kf
from benchmarks.frame import OURS, Peak, Row, Settings, interleaved, peak, spread
from kronfield.fitting.settings import DEFAULT
from kronfield.nn import CoordinateMLP, Grid
from kronfield.nn.data import samples
from kronfield.nn.run import TrainingRun
from kronfield.nn.settings import Settings as TrainingSettings

SIDE, CUBE = 256, 64
PLAIN = "the paper's recipe, plain PyTorch"


def picture(shape: tuple[int, ...]) -> np.ndarray:
    """Return a sum of a few waves, float32 in [0, 1], with three channels."""
    rng = np.random.default_rng(0)
    waves = rng.standard_normal((6, len(shape))) * 8
    axes = np.stack(np.meshgrid(*[np.arange(n) / n for n in shape], indexing="ij"), axis=-1)
    return (
        (0.5 + 0.15 * np.sin(axes @ waves.T + rng.random(6)) @ rng.standard_normal((6, 3)))
        .clip(0, 1)
        .astype(np.float32)
    )


class Plain:
    """The paper's recipe, implemented directly."""

    def __init__(
        self, model: CoordinateMLP, inputs: Grid | torch.Tensor, values: np.ndarray, rate: float
    ) -> None:
        self.target = torch.from_numpy(values).reshape(-1, values.shape[-1])
        points = (inputs.points() if isinstance(inputs, Grid) else inputs).reshape(
            -1, model.encoding.dimensions
        )
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
                blending = kf.Blending(
                    model.encoding, [np.linspace(0, 1, K + 1)] * len(model.encoding.shape)
                )
                self.index, share = blending.corners(points)
                self.share = share[..., None]
                self.axes = [
                    torch.from_numpy(e(np.linspace(0, 1, K + 1))).float()
                    for e in model.encoding.embedders
                ]
                self.forward = self.corners
        else:
            self.features = torch.from_numpy(model.encoding(points.double().numpy())).float()
            width, depth, layers = model.width, model.depth, []
            for i in range(depth):
                layers += [
                    torch.nn.Linear(self.features.shape[1] if i == 0 else width, width),
                    torch.nn.ReLU(),
                ]
            self.network = torch.nn.Sequential(*layers, torch.nn.Linear(width, model.out))
            self.parameters = list(self.network.parameters())
            with torch.no_grad():
                for mine, theirs in zip(self.parameters, model.parameters(), strict=True):
                    mine.copy_(theirs)
            self.forward = lambda: self.network(self.features)
        self.optimiser = torch.optim.Adam(
            self.parameters, lr=rate, betas=(0.9, 0.999), weight_decay=1e-8
        )

    def mode_products(self) -> torch.Tensor:
        letters = "abcdef"[: len(self.axes)]
        kept = letters.upper()
        spec = (
            f"z{letters},"
            + ",".join(f"{n}{k}" for n, k in zip(kept, letters, strict=True))
            + f"->{kept}z"
        )
        return torch.einsum(spec, self.parameters[0], *self.axes).reshape(
            -1, len(self.parameters[0])
        )

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

    def __init__(
        self, model: CoordinateMLP, inputs: Grid | torch.Tensor, values: np.ndarray, rate: float
    ) -> None:
        data = samples((inputs, torch.from_numpy(values)), model)
        settings = TrainingSettings.checked(model, epochs=10**6, rate=rate)
        self.run = TrainingRun(model, data, None, settings, DEFAULT.networks.diverged)
        self.prepared = self.run.prepared()

    def step(self) -> float:
        return self.run.epoch(self.prepared)


def cases(
    side: int = SIDE, cube: int = CUBE
) -> dict[str, Callable[[], tuple[CoordinateMLP, Any, np.ndarray, float]]]:
    def image(encoding: Any, depth: int, rate: float) -> Callable[[], Any]:
        return lambda: (
            CoordinateMLP(encoding, depth, 256),
            Grid.even((side, side)),
            picture((side, side)),
            rate,
        )

    def video(encoding: Any, depth: int, rate: float) -> Callable[[], Any]:
        shape = (cube, cube, cube)
        return lambda: (CoordinateMLP(encoding, depth, 512), Grid.even(shape), picture(shape), rate)

    def scattered() -> tuple[CoordinateMLP, Any, np.ndarray, float]:
        encoding = kf.Kronecker(*[kf.Gaussian(256, 0.005)] * 2)
        points = torch.rand(side * side, 2, generator=torch.Generator().manual_seed(0))
        return (
            CoordinateMLP(encoding, 0, points="blending"),
            points,
            picture((side, side)).reshape(-1, 3),
            1e-1,
        )

    return {
        "image, simple Gau, depth 4": image(
            kf.Concatenated.with_diagonals(kf.Gaussian(128, 0.006), 2), 4, 5e-3
        ),
        "image, simple LogF, depth 4": image(
            kf.Concatenated(*[kf.LogFourier(256, 5.5)] * 2), 4, 5e-3
        ),
        "image, simple RFF, depth 4": image(
            kf.Concatenated(kf.RandomFourier(512, 14.0, dimensions=2)), 4, 5e-3
        ),
        "image, Kronecker Gau, depth 0": image(
            kf.Kronecker(*[kf.Gaussian(256, 0.004)] * 2), 0, 1e-1
        ),
        "points, Kronecker Gau blended, depth 0": scattered,
        "video, simple Gau, depth 5": video(
            kf.Concatenated(*[kf.Gaussian(256, 0.015)] * 3), 5, 5e-3
        ),
        "video, Kronecker Gau, depth 0": video(
            kf.Kronecker(*[kf.Gaussian(64, 0.015)] * 3), 0, 1e-1
        ),
    }


def steps(settings: Settings) -> list[Row]:
    """Time a step of training of both implementations in turn, from the same weights."""
    torch.set_num_threads(os.cpu_count() or 1)
    rows = list[Row]()
    side, cube = settings.pick((8, 4), (SIDE, 40), (SIDE, CUBE))
    for name, make in cases(side, cube).items():
        torch.manual_seed(0)
        given = make()
        runners = {OURS: Ours(*given), PLAIN: Plain(*given)}
        losses: dict[str, list[float]] = {method: [] for method in runners}

        def step(
            method: str, runners: dict[str, Any] = runners, losses: dict[str, list[float]] = losses
        ) -> None:
            losses[method].append(runners[method].step())

        calls = {method: lambda m=method, s=step: s(m) for method in runners}
        times = interleaved(calls, *settings.pick((1,), (5, 30.0), (15,)))
        apart = max(abs(a - b) / b for a, b in zip(losses[OURS], losses[PLAIN], strict=True))
        case = f"a step, {name}, {side}²" if "video" not in name else f"a step, {name}, {cube}³"
        for method, seconds in times.items():
            ratio = statistics.median(b / a for a, b in zip(times[OURS], seconds, strict=True))
            memory = (
                None
                if settings.size == "tiny"
                else peak(Peak("benchmarks.networks:peak_call", (name, method, side, cube)))
            )
            note = f"losses differ by {apart:.0e} of themselves" if method == PLAIN else ""
            rows.append(
                Row(
                    "networks",
                    case,
                    method,
                    *spread(seconds),
                    ratio=ratio,
                    peak_mib=memory,
                    note=note,
                )
            )
        settings.say(f"  networks, {name}: done")
    return rows


def peak_call(name: str, method: str, side: int, cube: int) -> Callable[[], object]:
    """Return a call that builds a network and takes one step, to measure its memory."""
    torch.set_num_threads(os.cpu_count() or 1)
    torch.manual_seed(0)
    return lambda: (Ours if method == OURS else Plain)(*cases(side, cube)[name]()).step()
