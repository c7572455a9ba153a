"""Methods for scattered points: functions from a `PointTask` to values at every pixel."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse
from scipy.interpolate import (
    CloughTocher2DInterpolator,
    LinearNDInterpolator,
    NearestNDInterpolator,
    RBFInterpolator,
)

import kronfield as kf
from benchmarks.data import UNTUNED, Array, PointTask, waves
from benchmarks.frame import OURS, Method, Settings, psnr

# Roughness that suits a quarter of the pixels of a photograph, in units of pixels.
ROUGHNESS = (0.04, 0.02)
# Tolerance of the solver, relative to the spread of the field; it costs less than 0.01 dB.
TOLERANCE = 0.02
# The paper's gradient descent.
FEATURES, WIDTH, EPOCHS = 256, 0.005, 2000
# Candidates for the weight of the ridge; a tenth of the points is held out to choose it.
ALPHAS = (0.01, 0.03, 0.1, 0.3, 1.0)
# Steps of Adam, and nodes on each axis, of the Gaussian process.
GP_STEPS, GP_GRID = 20, 240


def ours(task: PointTask, **settings: Any) -> Array:
    field = kf.fit_points(task.points, task.values, **settings)
    return field.on_grid([np.arange(float(n)) for n in task.image.shape[:2]], outside="extrapolate")


def triangulated(kind: str, points: Array, values: Array, at: Array) -> Array:
    """Interpolate on triangles; outside the convex hull use the nearest point."""
    found = (LinearNDInterpolator if kind == "linear" else CloughTocher2DInterpolator)(
        points, values
    )(at)
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
    return scipy.sparse.csr_matrix(
        (products.ravel(), columns.ravel(), 16 * np.arange(P + 1)), (P, K * K)
    )


def ridge(points: Array, values: Array, at: Array, side: int, alpha: float) -> Array:
    from sklearn.linear_model import Ridge
    from sklearn.preprocessing import SplineTransformer

    corners = np.array([[0.0, 0.0], [side - 1.0, side - 1.0]])
    transformer = SplineTransformer(n_knots=side // 2, degree=3, sparse_output=True).fit(corners)
    return (
        Ridge(alpha=alpha)
        .fit(spline_rows(transformer, points), values)
        .predict(spline_rows(transformer, at))
    )


def chosen_ridge(task: PointTask) -> Array:
    """Choose alpha of the ridge by a held-out tenth of the points, then fit all points."""
    X, y, side = task.points, task.values, len(task.image)
    held = np.random.default_rng(0).random(len(X)) < 0.1
    scores = {a: psnr(ridge(X[~held], y[~held], X[held], side, a), y[held]) for a in ALPHAS}
    return ridge(X, y, task.everywhere, side, max(scores, key=scores.__getitem__))


def kiss_gp(task: PointTask, steps: int = GP_STEPS) -> Array:
    import gpytorch
    import torch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x: Any, y: Any, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=0.5))
            kernel.outputscale, kernel.base_kernel.lengthscale = float(y.var()), 4.0
            self.covar_module = gpytorch.kernels.GridInterpolationKernel(
                kernel, grid_size=GP_GRID, num_dims=2
            )

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    torch.manual_seed(0)
    x, y = torch.from_numpy(task.points).float(), torch.from_numpy(task.values)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = 1e-3
    model = Model(x, y.mean(dim=1), likelihood)
    marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimiser, settings, planes = (
        torch.optim.Adam(model.parameters(), lr=0.1),
        gpytorch.settings,
        [],
    )
    with (
        warnings.catch_warnings(),
        settings.max_preconditioner_size(0),
        settings.num_trace_samples(4),
    ):
        warnings.simplefilter("ignore")
        with settings.cg_tolerance(1.0), settings.max_cg_iterations(100):
            for _ in range(steps):
                optimiser.zero_grad()
                (-marginal(model(x), y.mean(dim=1))).backward()
                optimiser.step()
        model.eval()
        at = torch.from_numpy(task.everywhere).float()
        with torch.no_grad(), settings.max_cg_iterations(1000), settings.skip_posterior_variances():
            for channel in y.T:
                model.set_train_data(targets=channel.contiguous())
                planes.append(model(at).mean.numpy())
    return np.stack(planes, axis=-1)


def gaussian_process(X: Array, y: Array, at: Array) -> Array:
    """Exact process with a squared-exponential kernel and noise; parameters by likelihood."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel() * RBF(0.2) + WhiteKernel(1e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about parameters at the ends of their ranges
        return (
            GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(X, y).predict(at)
        )


def descent(task: PointTask, epochs: int) -> Array:
    """The paper's recipe in plain PyTorch: blended Gaussians, Adam, full batch.

    The pixels at the border lie on the outermost centres.
    """
    import torch

    embedder, nodes = kf.Gaussian(FEATURES, WIDTH), np.arange(FEATURES) / FEATURES
    blending = kf.Blending(kf.Kronecker(embedder, embedder), [nodes, nodes])
    scale = nodes[-1] / (len(task.image) - 1)
    index, share = (torch.from_numpy(part) for part in blending.corners(task.points * scale))
    share = share.float()[..., None]
    Psi, y = torch.from_numpy(embedder(nodes)).float(), torch.from_numpy(task.values)
    W = torch.zeros(y.shape[1], FEATURES, FEATURES, requires_grad=True)
    optimiser = torch.optim.Adam([W], lr=1e-1, betas=(0.9, 0.999), weight_decay=1e-8)

    def on_nodes() -> Any:
        return (Psi @ W @ Psi.T).reshape(len(W), -1).T

    for _ in range(epochs):
        optimiser.zero_grad()
        torch.mean(((on_nodes()[index] * share).sum(dim=1) - y) ** 2).backward()
        optimiser.step()
    return blending.matrix(task.everywhere * scale) @ on_nodes().detach().numpy()


def peers(settings: Settings, label: str = UNTUNED) -> list[Method]:
    """Return the methods, ours first; slow ones have few of the photographs of a quick run."""
    epochs = settings.pick(2, EPOCHS, EPOCHS)
    untuned = label == UNTUNED
    gp, paper = settings.pick(0, int(untuned), 4), settings.pick(1, int(untuned), 16)
    plates, spline = (settings.pick(1, some if untuned else 1, 16) for some in (2, 3))
    given = {"roughness": ROUGHNESS, "tolerance": TOLERANCE}
    return [
        Method(OURS, ours, note="nothing chosen by hand"),
        Method(
            "kronfield, settings given",
            lambda t: ours(t, **given),
            note=f"roughness {ROUGHNESS}, {TOLERANCE=}".lower(),
        ),
        Method(
            "SciPy NearestNDInterpolator",
            lambda t: NearestNDInterpolator(t.points, t.values)(t.everywhere),
        ),
        Method(
            "SciPy LinearNDInterpolator",
            lambda t: triangulated("linear", t.points, t.values, t.everywhere),
        ),
        Method(
            "SciPy CloughTocher2DInterpolator",
            lambda t: triangulated("cubic", t.points, t.values, t.everywhere),
        ),
        Method("SciPy RBFInterpolator", _plates, most=plates, note="thin plates, 30 neighbours"),
        Method(
            "scikit-learn splines and Ridge",
            chosen_ridge,
            "sklearn",
            most=spline,
            note="a knot every second pixel; alpha chosen",
        ),
        Method(
            "GPyTorch KISS-GP",
            kiss_gp,
            "gpytorch",
            most=gp,
            note=f"Matérn 1/2, {GP_STEPS} steps of Adam",
        ),
        Method(
            "the paper's descent",
            lambda t: descent(t, epochs),
            "torch",
            most=paper,
            note=f"plain PyTorch, blended Gaussians, Adam, {epochs} epochs",
        ),
    ]


def _plates(task: PointTask) -> Array:
    return RBFInterpolator(task.points, task.values, kernel="thin_plate_spline", neighbors=30)(
        task.everywhere
    )


def peak_call(side: int, name: str) -> Any:
    """Return a call of a method on synthetic pixels, to measure its memory.

    Methods that train take a few steps only.
    """
    task = PointTask(waves((side, side), 3), 0)
    if name.startswith("GPyTorch"):
        return lambda: kiss_gp(task, 1)
    method = next(one for one in peers(Settings("tiny")) if one.name == name)
    method.call(PointTask(waves((32, 32), 3), 0))
    return lambda: method.call(task)
