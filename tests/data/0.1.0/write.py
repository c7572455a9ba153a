"""How the files of this folder were written: run once with version 0.1.0, and never again.

The point of them is that version 0.1.0 wrote them: fields, networks, checkpoints and statistics of
every kind, which all later versions must read. `expected.json` holds what 0.1.0 itself said of each
of them right after, from the file. ``tests/test_written_by_0_1_0.py`` compares. It was run as

    PYTHONPATH=src:tests python tests/data/0.1.0/write.py

in a checkout of that version, and is kept to tell what is in the files. For those of a later one
make a folder and a script of its own.

All data are functions or seeded random numbers. What a checkpoint is compared by bit for bit, the
data of its run, are whole numbers over a power of two, so that every machine has the same.
"""

import contextlib
import csv
import hashlib
import itertools
import json
import math
import os
import re
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from click.testing import CliRunner

import kronfield as kf
from cases import FUNCTIONS, cosine_bell, cosine_bell_bend, cosine_bell_slope
from kronfield.cli import main as command_line
from kronfield.files import write
from kronfield.nn import CoordinateMLP, NetworkField, as_field, train

HERE = Path(__file__).parent
VERSION = "0.1.0"
INFO = {
    "source": "a function",
    "units": ["m", "s"],
    "nested": {"numbers": [1, 2.5, -3e-7], "none": None, "yes": True, "deeper": [{"ß": "μm"}]},
}


# What is fitted --------------------------------------------------------------------------------


def wave(*shape, channels=0):
    """Return a smooth function on a grid."""
    units = _units(shape)
    total = sum(np.sin((5 - i) * x + i) for i, x in enumerate(units))
    if len(shape) > 1:
        total = total + 2 * math.prod(units)
    if not channels:
        return total
    return np.stack([total * (c + 1) + c for c in range(channels)], axis=-1)


def edges(*shape):
    """Return two slopes with an edge between them that runs across a grid."""
    units = _units(shape)
    return (sum(units) > 0.45 * len(shape)) + units[0] ** 3 + math.prod(units)


def _units(shape):
    return np.meshgrid(*[np.linspace(0, 1, n) for n in shape], indexing="ij")


def scattered(count, D, seed=0):
    """Return points in a box of unequal sides, and a smooth function at them."""
    points = np.random.default_rng(seed).random((count, D)) * [2, 5, 1][:D] + [0, -2, 3][:D]
    product = math.prod(points.T) / 10
    return points, product + np.sin(2 * points[:, 0]) + sum(np.cos(x) for x in points.T[1:])


def noise(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


BOX = [(0, 2), (-2, 3), (3, 4)]
BELL = kf.ShiftedBasis(
    12,
    cosine_bell,
    (cosine_bell_slope, cosine_bell_bend),
    support=(-0.2, 0.2),
    name="bell",
)
EMBEDDERS = {
    "gaussian": kf.Gaussian(14, 0.07, padding=1),
    "triangle": kf.Triangle(12, 0.17, padding="auto"),
    "rectangle": kf.Rectangle(12, 0.13),
    "impulse": kf.Impulse(12),
    "sine": kf.Sine(12, 1.5),
    "square": kf.Square(12, 1.5),
    "random-fourier": kf.RandomFourier(12, 1.0, seed=5),
    "linear-fourier": kf.LinearFourier(12, 3.5),
    "log-fourier": kf.LogFourier(12, 2.5),
    "shifted-basis": BELL,
    "tension-spline": kf.TensionSpline(14, 3.0, padding=2),
}


# Fields ----------------------------------------------------------------------------------------


def chosen_fields():
    """Yield fields whose encoding the data chose."""
    refined = {
        "refined-1d": kf.fit(edges(24)),
        "refined-2d-float32": kf.fit(edges(12, 12).astype(np.float32)),
        "refined-complex64-channels": kf.fit(
            (edges(25)[:, None] * np.exp([0.5j, 1j])).astype(np.complex64),
            channels=True,
        ),
    }
    splines = {
        "splines-1d": kf.fit(wave(24)),
        "splines-2d-float32": kf.fit(wave(12, 14).astype(np.float32)),
        "splines-3d-float32-channels": kf.fit(
            wave(3, 4, 5, channels=2).astype(np.float32),
            channels=True,
        ),
        "splines-complex128": kf.fit(wave(24) * np.exp(3j * np.arange(24) / 24)),
        "splines-complex64-channels": kf.fit(
            (wave(13, channels=3) * (1 - 2j)).astype(np.complex64),
            channels=True,
        ),
        "smoothed": kf.fit(wave(24) + 0.3 * noise(24), roughness="gcv"),
        "integers-uint8": kf.fit((100 * wave(9, 8)).clip(0, 255).astype(np.uint8)),
        "integers-int64": kf.fit((1000 * wave(16)).astype(np.int64)),
        "uneven-axes": kf.fit(wave(7, 5), [np.linspace(0, 2, 7) ** 1.5, np.linspace(-1, 1, 5)]),
        "falling-axes": kf.fit(
            wave(7, 5, channels=2),
            [np.linspace(3, 1, 7), np.linspace(50, 80, 5)],
        ),
        "domain-of-cells": kf.fit(wave(6, 7), domain=[(0, 1), (-3, 2)]),
        "domain-with-axes": kf.fit(wave(15), [np.linspace(0.1, 0.8, 15)], domain=[(0, 1)]),
        "refitted": kf.fit(wave(16)).refit(np.cos(np.arange(16.0))),
    }
    for name, field in refined.items():
        assert field.report.refined, name
        yield name, field, {}
    for name, field in splines.items():
        assert not field.report.refined, name
        yield name, field, {}


def encoded_fields():
    """Yield fields of every embedder, and of several together."""
    for name, emb in EMBEDDERS.items():
        n = 12 if emb.size == 12 else 16
        penalty = {"roughness": (0.0, 1e-4)} if emb.smoothness > 1 else {"ridge": 0.0}
        if "fourier" in name:  # these lie close together
            penalty = {"ridge": 1e-3}
        place = {}
        if emb.smoothness == 0:  # no sample may lie on a jump, where rounding decides
            place = {"axes": [np.arange(n) / n + 0.03], "domain": [(0, 1)]}
        yield f"encoding-{name}", kf.fit(wave(n), encoding=emb, **place, **penalty), {}
    paper = kf.Gaussian(8, 0.5 / 8)
    yield "encoding-paper", kf.fit(wave(8, 8, channels=3), encoding=paper, ridge=0.0), {}
    mixed = kf.Kronecker(kf.Gaussian(6, 0.15), kf.Triangle(5, 0.4), kf.TensionSpline(7, 1.0))
    yield "encoding-mixed-3d", kf.fit(wave(6, 5, 7), encoding=mixed, roughness=(0.0, 1e-3)), {}


def stored_fields():
    """Yield fields with weights stored in fewer digits, and with something to remember."""
    yield "stored-float16", kf.fit(wave(9, 8).astype(np.float32)), {"dtype": "float16"}
    yield "stored-float16-of-float64", kf.fit(wave(16)), {"dtype": "float16"}
    yield "stored-float16-complex", kf.fit(wave(16) * (1 + 2j)), {"dtype": "float16"}
    yield "stored-float32", kf.fit(wave(8, channels=1), channels=True), {"dtype": "float32"}
    field = kf.fit(wave(3, 4))
    field.info = INFO
    yield "with-info", field, {}


def point_fields():
    """Yield fields of points."""
    points, values = scattered(60, 2)
    hats = kf.Triangle(8, 2 / 8)
    bells = kf.Gaussian(8, 0.15)
    rough = {"roughness": (0.0, 1e-4)}
    given = {
        "points-exact": (points, values, hats, {"rows": "exact", **rough}),
        "points-blending": (points, values, bells, {"rows": "blending", "ridge": 1e-2}),
        "points-float32-channels": (
            points,
            np.stack([values, values**2], axis=1).astype(np.float32),
            hats,
            {"domain": [(-1, 3), (-2, 4)], "weights": 1 + points[:, 0], **rough},
        ),
        "points-complex": (points, values * np.exp(1j * points[:, 0]), hats, rough),
        "points-3d": (*scattered(90, 3), kf.TensionSpline(5, 2.0, padding=1), {"ridge": 1e-3}),
    }
    for name, (at, y, encoding, options) in given.items():
        yield name, kf.fit_points(at, y, encoding, tolerance=1e-8, **options), {}
    gaussians = kf.fit_points(*scattered(40, 2))
    assert all(isinstance(emb, kf.Gaussian) for emb in gaussians.encoding.embedders)
    yield "points-chosen-gaussians", gaussians, {}
    single = kf.fit_points(points, values.astype(np.float32))
    assert single.weights.dtype == np.float64
    assert single.dtype == np.float32
    yield "points-chosen-gaussians-float32", single, {}
    kinks = kf.fit_points(points, np.abs(points[:, 0] - 1) + np.abs(points[:, 1]))
    assert all(isinstance(emb, kf.TensionSpline) for emb in kinks.encoding.embedders)
    yield "points-chosen-splines", kinks, {}
    many, _ = scattered(150, 2)
    steps = kf.fit_points(many, np.floor(2 * many[:, 0]).astype(np.float32))
    assert all(isinstance(emb, kf.Triangle) for emb in steps.encoding.embedders)
    yield "points-chosen-hats-float32", steps, {}
    lattice = np.stack([x.ravel() for x in _units((7, 6))], axis=1)
    yield "points-of-a-lattice", kf.fit_points(lattice[::2], wave(7, 6).ravel()[::2]), {}
    hole = np.zeros((8, 9), dtype=bool)
    hole[3:5, 5:7] = True
    yield "masked", kf.fit(wave(8, 9), mask=hole), {}
    seen = kf.Statistics(hats, BOX[:2])
    seen.add(points, values)
    yield "statistics-solved", seen.solve(tolerance=1e-8, **rough), {}


def command_line_fields(folder):
    """Write fields with the command line, in this folder; yield their names."""
    rows, columns = np.arange(9)[:, None], np.arange(8)
    red = (37 * rows + 91 * columns) % 256
    green = np.where(rows + columns > 7, 220, 30)
    picture = np.stack([red, green, 10 * rows + 8 * columns], axis=-1) / 255
    points, values = scattered(40, 2)
    with contextlib.chdir(folder):
        write("picture.png", picture, {"levels": 255})
        write("sound.wav", 0.5 * np.sin(np.arange(40) / 3), {"rate": 8000})
        with open("table.csv", "w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["lon", "lat", "wind [m/s]", "temperature"])
            for (lon, lat), value in zip(points, values, strict=True):
                table.writerow([f"{lon:.4f}", f"{lat:.4f}", f"{value:.4f}", f"{value**2:.3f}"])
        gaussian = "-e gaussian:width=0.05 --ridge 0 --size 5,4 --dtype float16"
        small = "--encoding simple -e gaussian:size=6,width=0.1 --depth 1 --width 5 --epochs 20"
        lines = {
            "command-line-picture": "fit picture.png",
            "command-line-picture-gaussian": f"fit picture.png {gaussian}",
            "command-line-sound": "fit sound.wav",
            "command-line-table": "fit table.csv --coordinates lon,lat",
            "command-line-network": f"train picture.png {small}",
        }
        for name, line in lines.items():
            run(f"{line} -o {name}.field --quiet")
            yield name


def run(line):
    """Run a line of the command line in the current folder."""
    done = CliRunner().invoke(command_line, line.split(), prog_name="kronfield")
    assert done.exit_code == 0, done.output
    return done.output


def rendered(folder):
    """Return what the command line of this version makes of two of its fields."""
    pixels = "render command-line-picture.field --size 3x4 -o rendered.npy"
    table = "render command-line-table.field --size 2,3 -o rendered.csv"
    with contextlib.chdir(folder):
        run(pixels)
        run(table)
        with open("rendered.csv", newline="", encoding="utf-8") as file:
            header, *rows = list(csv.reader(file))
        return {
            "command-line-picture.field": {
                "command": pixels,
                "values": plain(np.load("rendered.npy")),
            },
            "command-line-table.field": {
                "command": table,
                "header": header,
                "values": [[float(one) for one in row] for row in rows],
            },
        }


# Networks and checkpoints ----------------------------------------------------------------------


def whole_numbers(*shape):
    """Return values that every machine computes alike: whole numbers over 32."""
    mixed = sum((5 + 2 * i) * x for i, x in enumerate(np.indices(shape)))
    return (mixed * mixed % 29) / 32


def network(encoding, depth, out, **settings):
    """Return a network whose first weights are short to write."""
    torch.manual_seed(7)
    model = CoordinateMLP(encoding, depth, width=4, out=out, **settings)
    with torch.no_grad():
        for weights in model.parameters():
            weights.copy_(torch.round(weights * 256) / 256)
    return model


SIDE_BY_SIDE = kf.Concatenated.with_diagonals(kf.Gaussian(4, 0.2), 2)
TOGETHER = kf.Kronecker(kf.Gaussian(5, 0.3, padding=1), kf.Gaussian(4, 0.3, padding=1))


def networks():
    """Yield trained networks as fields."""
    picture, line = wave(8, 9, channels=2) / 4, wave(16)
    points, values = scattered(40, 2)
    place = {"domain": BOX[:2]}
    yield "network-concatenated", train(network(SIDE_BY_SIDE, 2, 2), picture, epochs=20).field, {}
    blended = network(TOGETHER, 1, 1, points="blending", activation="tanh", **place)
    field = train(blended, (points, values), epochs=20).field
    yield "network-blending", as_field(blended, axes=_few(field), channels=False, info=INFO), {}
    exact = network(TOGETHER, 1, 1, activation="gelu", **place).double()
    field = train(exact, (points, values), epochs=20).field
    yield "network-kronecker-float64", as_field(exact, axes=_few(field), channels=False), {}
    learned = network(
        kf.Concatenated(kf.Gaussian(5, 0.2), kf.Gaussian(4, 0.3)),
        1,
        2,
        activation="silu",
        trainable=["width", "centres"],
    )
    yield "network-learned-widths", train(learned, picture, epochs=20).field, {}
    several = kf.Concatenated(kf.RandomFourier(8, 1.0, seed=3, dimensions=2))
    sine = network(several, 1, 2, activation="sine")
    yield "network-float16", train(sine, picture, epochs=20).field, {"dtype": "float16"}
    closed = kf.fit(wave(12, 8).astype(np.float32), encoding=kf.Gaussian(6, 0.15), ridge=1e-3)
    torch.manual_seed(7)
    warm = CoordinateMLP.from_field(closed, 1, 4)
    yield "network-of-a-field", as_field(warm, axes=closed.axes, domain=closed.domain), {}
    # one linear layer is a field in closed form
    linear = train(network(kf.Kronecker(kf.Gaussian(10, 0.1)), 0, 1), line, epochs=50).field
    assert not isinstance(linear, NetworkField)
    yield "network-linear", linear, {}


def _few(field):
    return [np.linspace(low, high, 5) for low, high in field.domain]


def checkpoints(folder):
    """Write checkpoints of runs that broke off and of one at its end; yield how to go on."""
    runs = {
        "checkpoint-batches": (
            network(SIDE_BY_SIDE, 1, 2, activation="tanh", trainable=["width"]),
            {"values": whole_numbers(8, 9, 2)},
            {"epochs": 12, "every": 3, "batch": 20, "held_out": 0.25, "seed": 3, "rate": 1e-3},
        ),
        "checkpoint-blending-float64": (
            network(TOGETHER, 1, 1, points="blending").double(),
            {"points": whole_numbers(40, 2), "values": whole_numbers(40)},
            {"epochs": 12, "every": 2, "schedule": "cosine", "clip": 1.0, "loss": "huber"},
        ),
        "checkpoint-linear-finished": (
            network(kf.Kronecker(kf.Triangle(8, 0.25)), 0, 1),
            {"values": whole_numbers(16)},
            {"epochs": 5},
        ),
    }
    for name, (model, data, settings) in runs.items():
        start = {key: plain(tensor.numpy()) for key, tensor in model.state_dict().items()}
        samples = (data["points"], data["values"]) if "points" in data else data["values"]
        path = folder / f"{name}.checkpoint"
        last = settings["epochs"] if name.endswith("finished") else 8
        twin = CoordinateMLP.from_dict(model.to_dict()).to(model.first.weight.dtype)
        twin.load_state_dict(model.state_dict())
        with contextlib.suppress(InterruptedError):
            train(model, samples, checkpoint=path, callback=_break_off(last), **settings)
        whole = train(twin, samples, **settings)
        at, field = places(whole.field), whole.field
        yield (
            path.name,
            {
                "kind": "checkpoint",
                "network": model.to_dict(),
                "dtype": str(field.dtype),
                "start": start,
                "data": {key: value.tolist() for key, value in data.items()},
                "settings": settings,
                "losses": whole.losses,
                "held_out": whole.held_out,
                "best_loss": whole.best_loss,
                "points": at.tolist(),
                "values": plain(field(at)),
            },
        )


def _break_off(last):
    def stop(epoch):
        if epoch.number == last:
            raise InterruptedError

    return stop


# Statistics ------------------------------------------------------------------------------------


def statistics(folder):
    """Write statistics; yield what to solve for, and what comes of it."""
    hats = kf.Triangle(6, 2 / 6)
    ridge = {"ridge": 1e-2}
    several = {
        "statistics-exact": (hats, 2, "exact", {"roughness": (1e-3, 1e-3)}),
        "statistics-blending": (kf.Gaussian(7, 0.15), 1, "blending", ridge),
        "statistics-linear": (kf.Gaussian(7, 0.15), 2, "linear", ridge),
        "statistics-default-float32": (hats, 2, None, ridge),
        "statistics-complex": (hats, 2, None, ridge),
        "statistics-splines-channels": (
            kf.TensionSpline(8, 2.0, padding=1),
            1,
            "exact",
            {"roughness": (0.0, 1e-3), "units": [2.0]},
        ),
        "statistics-shifted-basis": (BELL, 1, None, ridge),
        "statistics-3d": (kf.Triangle(3, 1 / 3), 3, "exact", ridge),
    }
    for name, (encoding, D, rows, penalty) in several.items():
        points, values = scattered(80, D)
        if "float32" in name:
            values = values.astype(np.float32)
        if "complex" in name:
            values = values * (1 + 0.5j * points[:, 0])
        if "channels" in name:
            values = np.stack([values, values**2, 1 + 0 * values], axis=1)
        weights = 1 + points[:, 0] if name == "statistics-exact" else None
        missing = values.copy()
        missing[5] = np.nan
        seen = kf.Statistics(encoding, BOX[:D], rows=rows)
        seen.add(points, missing, weights)
        path = folder / f"{name}.statistics"
        seen.save(path)
        solve = {"tolerance": 1e-10, **penalty}
        field = seen.solve(**solve)
        at = places(field)
        # a few more points, which a summary that was loaded must be able to take
        more = np.round(at + 0.01, 4)
        extra = np.round(field(at) + 1, 2)
        later = kf.Statistics.load(path, FUNCTIONS)
        later.add(more, extra)
        entry = {
            "kind": "statistics",
            "repr": said(seen),
            "count": seen.count,
            "dropped": seen.dropped,
            "total": seen.total,
            "domain": seen.domain,
            "encoding": said(seen.encoding),
            "solve": solve,
            "dtype": str(field.dtype),
            "points": at.tolist(),
            "values": plain(field(at)),
            "residual": field.report.residual,
            "more": {"points": more.tolist(), "values": plain(extra)},
            "values_with_more": plain(later.solve(**solve)(at)),
        }
        if rows == "linear":  # serves every encoding
            other = kf.Triangle(7, 0.3)
            entry["other"] = {"encoding": kf.Kronecker(*[other] * D).to_dict()}
            entry["other"]["values"] = plain(seen.solve(encoding=other, **solve)(at))
        yield path.name, entry
    kf.Statistics(hats, BOX[:1]).save(folder / "statistics-empty.statistics")
    points, values = scattered(20, 1)
    seen = kf.Statistics(hats, BOX[:1])
    seen.add(points, values)
    at = places(seen.solve(**ridge))
    solve = {"tolerance": 1e-10, **ridge}
    yield (
        "statistics-empty.statistics",
        {
            "kind": "statistics",
            "repr": said(kf.Statistics(hats, BOX[:1])),
            "count": 0,
            "dropped": 0,
            "total": 0.0,
            "domain": seen.domain,
            "encoding": said(seen.encoding),
            "solve": solve,
            "dtype": "float64",
            "points": at.tolist(),
            "more": {"points": points.tolist(), "values": values.tolist()},
            "values_with_more": plain(seen.solve(**solve)(at)),
        },
    )


# What this version says of its files -----------------------------------------------------------


def places(field, count=4):
    """Return points inside of the domain of a field that are short to write and on no edge."""
    low, high = np.array(field.domain).T
    part = 0.03 + 0.94 * np.random.default_rng(1).random((count, field.dimensions))
    return np.round(low + (high - low) * part, 4)


def described(field):
    """Return all that a field must still be when another version has loaded it.

    Axes in full, and all of the info, are in its file, where they can be read without kronfield.
    """
    points = places(field)
    axes = [np.sort(x) for x in points[::2].T]
    box = [(float(x[0]), float(x[-1])) for x in axes]
    own = field.on_grid()
    stride = max(1, math.prod(len(x) for x in field.axes) // 4)
    per_place = own.reshape(-1, *own.shape[field.dimensions :])[::stride]
    return {
        "kind": "network" if isinstance(field, NetworkField) else "field",
        "encoding": said(field.encoding),
        "dtype": str(field.dtype),
        "domain": field.domain,
        "axes": [[len(axis), float(axis[0]), float(axis[-1])] for axis in field.axes],
        "info": {key: value for key, value in field.info.items() if key != "made"},
        "points": points.tolist(),
        "values": plain(field(points)),
        "grid": [x.tolist() for x in axes],
        "on_grid": plain(field.on_grid(axes)),
        "stride": stride,
        "on_its_grid": plain(per_place),
        "derivatives": [
            {"orders": list(orders), "on_grid": plain(field.on_grid(axes, derivative=orders))}
            for orders in derivatives(field)
        ],
        "integral": plain(np.asarray(field.integral())),
        "integral_of_box": plain(np.asarray(field.integral(box))),
    }


def derivatives(field):
    """Return the derivatives to compare: a first one, a second one, a mixed one."""
    smooth = [emb.smoothness for emb in field.encoding.embedders]
    if len(smooth) != field.dimensions:  # side by side, along diagonals too
        smooth = [min(smooth)] * field.dimensions
    D = field.dimensions
    first = [tuple(int(i == axis) for i in range(D)) for axis in range(D) if smooth[axis]]
    second = [tuple(2 * int(i == axis) for i in range(D)) for axis in range(D) if smooth[axis] > 1]
    mixed = [tuple(int(i < 2) for i in range(D))] if D > 1 and min(smooth[:2]) else []
    return [*first[:1], *second[-1:], *mixed]


def said(thing):
    """Return the repr, without where in memory functions are."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(thing))


def plain(array):
    """Return an array as lists, with 14 digits or those that float32 has; complex are pairs."""
    array = np.asarray(array)
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], axis=-1)
    digits = 9 if array.dtype == np.float32 else 14
    short = np.vectorize(lambda one: float(f"{one:.{digits}g}"), otypes=[float])
    return short(array).tolist()


def main():
    """Write everything."""
    if kf.__version__ != VERSION:
        raise SystemExit(f"This is kronfield {kf.__version__}: only {VERSION} may write here.")
    if any(path.suffix in (".field", ".json") for path in HERE.iterdir()):
        raise SystemExit("The files are there, as version 0.1.0 wrote them: leave them alone.")
    # rows of some encodings are not independent, which is fine here
    warnings.simplefilter("ignore", kf.RankWarning)
    torch.set_num_threads(1)
    expected = {}
    parts = (chosen_fields(), encoded_fields(), stored_fields(), point_fields(), networks())
    for name, field, options in itertools.chain(*parts):
        path = HERE / f"{name}.field"
        assert not path.exists(), name
        field.save(path, **options)
        loaded = kf.load(path, FUNCTIONS)
        expected[path.name] = described(loaded)
        if not options:
            at = places(field)
            assert np.array_equal(loaded(at), field(at)), name
    with tempfile.TemporaryDirectory() as folder:
        for name in command_line_fields(folder):
            path = HERE / f"{name}.field"
            path.write_bytes((Path(folder) / path.name).read_bytes())
            expected[path.name] = described(kf.load(path))
        for name, entry in rendered(folder).items():
            expected[name]["rendered"] = entry
    expected |= dict(checkpoints(HERE))
    expected |= dict(statistics(HERE))
    for name, entry in expected.items():
        entry["sha256"] = hashlib.sha256((HERE / name).read_bytes()).hexdigest()[:16]
        here = (os.fspath(HERE), os.fspath(Path.home()), tempfile.gettempdir())
        assert not any(place.encode() in (HERE / name).read_bytes() for place in here), name
    short = json.JSONEncoder(separators=(",", ":")).encode
    lines = []
    for name in sorted(expected):
        pairs = [f'"{key}": {short(value)}' for key, value in expected[name].items()]
        lines.append(f"{json.dumps(name)}: {{\n" + ",\n".join(pairs) + "\n}")
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (HERE / "expected.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
