"""Small files of every kind, and the command line run in a folder of them."""

import csv
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import skimage
import xarray
from click.testing import CliRunner
from PIL import Image

import kronfield as kf
from kronfield.cli import main
from kronfield.files import sample_clip, write
from kronfield.signals.fit import fit_signal, lazy_signal

COMMAND = Path(sys.executable).with_name("kronfield")
PHOTOGRAPHS = Path(skimage.__file__).parent / "data"


def installed(*arguments, cwd, timeout=120, **kwargs):
    """Run the installed command."""
    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=timeout,
        check=False,
        **kwargs,
    )


def run(line, *, code=0):
    """Run a command in this process, in the current folder; check its exit code."""
    arguments = shlex.split(line) if isinstance(line, str) else list(map(str, line))
    if arguments[0] == "kronfield":
        arguments = arguments[1:]
    done = CliRunner().invoke(main, arguments, prog_name="kronfield")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, f"{line}: exit code {done.exit_code}\n{done.output}"
    return done


def refused(line, *words):
    """Run a command that must fail.

    Its exit code is 2, its error is one line with these words, and it writes nothing.
    """
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    done = run(line, code=2)
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before
    return done


def as_json(line):
    return json.loads(run(line + " --json").stdout)


def pixels(path):
    with Image.open(path) as picture:
        return np.asarray(picture)


def colours(path):
    """Return the number of colours among some pixels of a picture: few if it is blank."""
    return len(np.unique(pixels(path)[::5, ::5, :3].reshape(-1, 3), axis=0))


def photograph(height=48, width=64):
    """Return a part of a photograph of scikit-image at this size, float32 in [0, 1]."""
    with Image.open(PHOTOGRAPHS / "astronaut.png") as picture:
        part = picture.crop((100, 20, 420, 260)).resize((width, height), Image.Resampling.BOX)
    return np.asarray(part, dtype=np.float32) / 255


def stations(count=120, seed=0):
    """Return lon, lat, temperature and wind of synthetic stations."""
    rng = np.random.default_rng(seed)
    lon, lat = 5 + 10 * rng.random(count), 45 + 8 * rng.random(count)
    temperature = 20 - 1.5 * (lat - 45) + 2 * np.sin(lon) + 0.2 * rng.standard_normal(count)
    return lon, lat, temperature, 3 + np.cos(lat)


def write_table(path, header, columns, gaps=()):
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(header)
        for i, row in enumerate(zip(*columns, strict=True)):
            table.writerow(
                [
                    f"{value:.6g}" if j < len(row) - 1 or i not in gaps else ""
                    for j, value in enumerate(row)
                ]
            )


def make_files(folder):
    """Fill a folder with small files of every kind, with the names used in the examples."""
    picture = photograph()
    rng = np.random.default_rng(0)
    write(folder / "photo.png", picture, {"levels": 255})
    write(folder / "photo.jpg", picture, {"levels": 255})
    holes = rng.random(picture.shape[:2]) < 0.1
    holes[20:24] = True
    write(folder / "mask.png", holes.astype(np.float32), {"levels": 255})
    write(
        folder / "scratched.png",
        np.where(holes[..., None], 0, np.clip(picture, 0.01, 1)),
        {"levels": 255},
    )
    write(
        folder / "gaps.tif", np.where(holes, np.nan, picture[..., 0]), {"axes": ["row", "column"]}
    )
    write(folder / "noisy.png", picture + 0.1 * rng.standard_normal(picture.shape), {"levels": 255})
    clip = sample_clip("carphone_pristine", frames=(0, 12))
    write(folder / "clip.mp4", clip.values[:, 24:88, 40:120], clip.info)
    x, y, z = np.meshgrid(*[np.linspace(-1, 1, n) for n in (24, 20, 16)], indexing="ij")
    volume = 100 * np.exp(-3 * (x**2 + y**2 + 2 * z**2)).astype(np.float32)
    spacing = [1.5, 1.5, 2.0]
    write(
        folder / "scan.nii.gz",
        volume,
        {"spacing": spacing, "affine": np.diag([*spacing, 1]).tolist()},
    )
    t = np.arange(2000) / 8000
    tone = 0.5 * np.sin(2 * np.pi * 440 * t) * np.exp(-4 * t)
    write(folder / "sound.wav", tone, {"rate": 8000})
    slow = 0.5 * np.sin(2 * np.pi * 110 * t)
    write(folder / "hiss.wav", slow + 0.05 * rng.standard_normal(len(t)), {"rate": 8000})
    names = ("lon", "lat", "wind [m/s]", "temperature")
    lon, lat, temperature, wind = stations()
    write_table(folder / "stations.csv", names, (lon, lat, wind, temperature), gaps=(3, 17))
    days = "".join(f"2024-02-{day:02d},{np.sin(day / 4):.3f},{day}\n" for day in range(1, 30))
    (folder / "series.csv").write_text(f"day of visit,level,count\n{days}")
    time = (np.datetime64("2024-02-01") + np.arange(12)).astype("M8[ns]")
    lat = np.linspace(60, -60, 13)
    air = 20 * np.cos(np.radians(lat)) + np.sin(np.arange(12) / 2)[:, None]
    both = {"t2m": (("time", "lat"), air, {"units": "K"}), "day": ("time", np.arange(12.0))}
    xarray.Dataset(both, {"time": time, "lat": lat}).to_netcdf(folder / "air.nc")
    make_store(folder / "large.zarr")
    write_table(
        folder / "places.csv",
        ("lon", "lat"),
        (np.array([6.0, 9.5, 14.0, 30.0]), np.array([46.0, 50.0, 52.0, 47.0])),
    )


def make_store(path, shape=(90, 80), chunks=(40, 40)):
    """Write a zarr store with a variable of steps on named axes; return its values."""
    rng = np.random.default_rng(0)
    steps = np.repeat(np.repeat(rng.integers(0, 9, [-(-n // 5) for n in shape]), 5, 0), 5, 1)
    values = (steps[: shape[0], : shape[1]] + 0.1 * np.add.reduce(np.indices(shape))).astype("f4")
    coords = {"y": 10 + 0.5 * np.arange(shape[0]), "x": np.arange(shape[1]) * 2.0}
    array = xarray.DataArray(values, coords, ("y", "x"), attrs={"units": "m"})
    data = array.to_dataset(name="height").chunk(dict(zip("yx", chunks, strict=True)))
    data.to_zarr(path, zarr_format=2)
    return values


FIELDS = {
    "photo.field": "photo.png",
    "clip.field": "clip.mp4",
    "scan.field": "scan.nii.gz",
    "sound.field": "sound.wav",
}


def make_fields(folder):
    """Fit the fields that the examples of rendering use."""
    from kronfield.files import read

    for name, source in FIELDS.items():
        fit_signal(read(folder / source)).save(folder / name)
    table = read(folder / "stations.csv", coordinates=["lon", "lat"], columns=["temperature"])
    fit_signal(table).save(folder / "stations.field")
    fit_signal(read(folder / "series.csv", columns=["level"])).save(folder / "series.field")
    kf.fit(lazy_signal(str(folder / "large.zarr"))[0]).save(folder / "large-field.zarr")
    assert kf.load(folder / "photo.field").info["kind"] == "image"


def copy_named(line, source, target):
    """Copy the existing input files of a command to another folder."""
    words = shlex.split(line)
    outputs = {
        after for word, after in itertools.pairwise(words) if word in ("-o", "--picture", "--plot")
    }
    for word in words:
        name = word.split(":")[0]  # air.nc:t2m
        if word not in outputs and (source / name).is_file():
            shutil.copy(source / name, target)
        elif word not in outputs and name.endswith(".zarr") and (source / name).is_dir():
            shutil.copytree(source / name, target / name, dirs_exist_ok=True)


def limited(bytes_per_file):
    """Return a function that limits the size of files of a process, to simulate a full disk."""
    import resource

    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_per_file, bytes_per_file))


def environment(**changes):
    return {**os.environ, **changes}
