"""Descriptions of the experiments: read from TOML, checked, and scaled to the size of a run."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import math
import tomllib
from collections.abc import Mapping
from dataclasses import field
from fractions import Fraction
from typing import Any

from kronfield._core.arrays import only_keys, problem
from kronfield._core.records import record

SPECS = ("table1", "table2", "table3", "table4", "rank-depth", "visual-grid", "visual-random")
SIZES = ("paper", "quick", "tiny")
GROUPS = {
    "simple": "simple encoding, network",
    "complex": "complex encoding, descent",
    "closed": "complex encoding, closed form",
    "ours": "kronfield",
    "factored": "kronfield: simple encoding, first layer from its factors",
    "line": "one axis, network",
}
ENCODERS = ("LinF", "LogF", "RFF", "Tri", "Gau")
DIMENSIONS = {"line": 1, "image": 2, "video": 3}
NOUNS = {"line": "lines", "image": "images", "video": "clips"}
# How a method is run: descent on a network, the paper's closed form, or kronfield's fit on a grid
# or at points.
HOWS = ("descent", "closed", "fit", "fit_points")
# How points are blended: the weights of `kronfield.Blending`, on a grid of as many cells as
# features. "released" is as in the authors' code: similarities in closed form, normalised, on as
# many nodes as features.
BLENDINGS = (
    "least-squares",
    "least-squares, normalised",
    "similarity",
    "similarity, normalised",
    "released",
)
# Exponents of frequencies are not scaled below one octave.
LEAST_EXPONENT = 1.0


@record
class Method:
    """One row of a table: an encoding, a model on it, and the numbers of the paper.

    ``setting`` is in the paper's terms: the width of Gau, half the width of Tri, the scale of RFF,
    the exponent of LinF and LogF. ``features`` is the total for simple encodings, else per axis.
    ``blending`` is one of `BLENDINGS` if points are blended.
    """

    group: str
    how: str
    name: str = ""
    encoder: str = ""
    features: int = 0
    setting: float = 0.0
    depth: int = 0
    hidden: int = 0
    rate: float = 0.0
    blending: str = ""
    note: str = ""
    paper: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The name of the method in results."""
        if self.name:
            return f"{self.group}: {self.name}"
        tail = f" {self.setting:g}" if self.group == "line" else ""
        return f"{self.group}: {self.encoder}{tail}" + (
            f", depth {self.depth}" if self.is_network else ""
        )

    @property
    def label(self) -> str:
        """The name of the method within its group."""
        return self.key.partition(": ")[2]

    @property
    def selectors(self) -> set[str]:
        """The names that select the method, in lower case: group, encoder, both, group:depth."""
        names = {
            self.group.lower(),
            self.encoder.lower(),
            f"{self.group}:{self.encoder}".lower(),
        } - {""}
        return names | ({f"{self.group}:{self.depth}".lower()} if self.is_network else set())

    @property
    def is_network(self) -> bool:
        """Whether it is trained by descent."""
        return self.how == "descent"

    @property
    def is_simple(self) -> bool:
        """Whether its encoding is the paper's simple one."""
        return self.group in ("simple", "factored", "line")

    def settings(self) -> dict[str, Any]:
        """Return the settings that decide the result, for the fingerprint of a job."""
        names = (
            "group",
            "how",
            "name",
            "encoder",
            "features",
            "setting",
            "depth",
            "hidden",
            "rate",
        )
        # Included only where points are blended: the fingerprints of all other methods are those
        # from before this setting existed.
        blended = {"blending": self.blending} if self.blending else {}
        return {name: getattr(self, name) for name in names} | blended


@record
class Size:
    """How much of an experiment is run.

    ``epochs`` maps groups to numbers of epochs. ``hidden`` replaces the hidden width of the methods
    unless it is 0. ``crops`` is the number of cubes of a clip.
    """

    name: str
    side: int
    count: int
    epochs: Mapping[str, int]
    hidden: int = 0
    seeds: tuple[int, ...] = (0,)
    crops: int = 1

    def epochs_of(self, method: Method) -> int:
        """Return the epochs of a method; the group "factored" has those of "simple"."""
        return (
            self.epochs.get("simple" if method.group == "factored" else method.group, 1)
            if method.is_network
            else 0
        )

    def replace(
        self,
        *,
        side: int | None = None,
        count: int | None = None,
        epochs: int | None = None,
        crops: int | None = None,
    ) -> Size:
        """Return the size with the given values replaced."""
        changes: dict[str, Any] = {}
        if crops is not None:
            changes["crops"] = crops
        if side is not None:
            changes["side"] = side
        if count is not None:
            changes["count"] = count
        if epochs is not None:
            changes["epochs"] = dict.fromkeys(GROUPS, epochs)
        return dataclasses.replace(self, **changes)


@record
class Spec:
    """An experiment: data, task, sizes and methods.

    ``arrays`` are the names of the arrays in the authors' .npz files.
    """

    name: str
    title: str
    kind: str
    task: str
    fraction: float
    keep: bool
    sizes: Mapping[str, Size]
    methods: tuple[Method, ...]
    arrays: tuple[str, ...] = ("test_data",)

    @property
    def dimensions(self) -> int:
        """The number of axes of the data."""
        return DIMENSIONS[self.kind]

    @property
    def paper(self) -> Size:
        """The size of the paper."""
        return self.sizes["paper"]

    def method(self, key: str) -> Method | None:
        """Return the method with a key, or None."""
        return next((m for m in self.methods if m.key == key), None)

    def select(self, names: str | None) -> list[Method]:
        """Return the methods by groups, encoders or both ("simple:Gau"), separated by commas."""
        if names is None:
            return list(self.methods)
        wanted = {name.strip().lower() for name in names.split(",") if name.strip()}
        here = set[str]().union(*(method.selectors for method in self.methods))
        if wanted - here - {name.lower() for name in (*GROUPS, *ENCODERS)}:
            known = sorted(
                {m.group for m in self.methods} | {m.encoder for m in self.methods if m.encoder}
            )
            raise problem(
                "methods",
                names,
                f"of {', '.join(known)}",
                "Give groups, encoders, simple:Gau or simple:4 (the depth), separated by commas.",
            )
        return [method for method in self.methods if method.selectors & wanted]

    def scaled(self, method: Method, size: Size, side: int) -> Method:
        """Return a method as it is run on data with ``side`` samples per axis.

        Let r = side / the paper's side. Features and RFF scales are multiplied by r. Widths are
        divided by r, so they are equal in samples. Exponents grow by log2 r, since the domain has
        r times as many samples.
        """
        hidden = size.hidden if size.hidden and method.hidden else method.hidden
        r = side / self.paper.side
        if r == 1 or not method.encoder:
            return dataclasses.replace(method, hidden=hidden)
        step = 2  # Fourier features come in pairs
        if method.is_simple:
            step = {1: 2, 2: 4, 3: 6}[self.dimensions]
        features = max(1, round(method.features * r / step)) * step
        if method.encoder in ("Gau", "Tri"):
            setting = method.setting / r
        elif method.encoder == "RFF":
            setting = method.setting * r
        else:
            setting = max(LEAST_EXPONENT, method.setting + math.log2(r))
        return dataclasses.replace(method, features=features, setting=setting, hidden=hidden)

    def what_is_scaled(self, method: Method, side: int, epochs: int, hidden: int) -> list[str]:
        """Return how a run of a method differs from the paper's run, as a list of short texts."""
        words = []
        if side != self.paper.side:
            words.append(
                f"{_box(side, self.dimensions)} instead of {_box(self.paper.side, self.dimensions)}"
            )
        full = self.paper.epochs_of(method)
        if method.is_network and epochs != full:
            words.append(f"{epochs} epochs instead of {full}")
        if method.is_network and hidden != method.hidden:
            words.append(f"hidden layers of {hidden} instead of {method.hidden}")
        return words


def _box(side: int, dimensions: int) -> str:
    return " x ".join([str(side)] * dimensions)


@functools.lru_cache
def load_spec(name: str) -> Spec:
    """Return an experiment by its name.

    Examples
    --------
    >>> from kronfield.experiments import load_spec
    >>> spec = load_spec("table1")
    >>> spec.kind, spec.sizes["paper"].side, len(spec.methods)
    ('image', 512, 20)
    """
    if name not in SPECS:
        raise problem(
            "name",
            repr(name),
            f"one of {', '.join(SPECS)}",
            "Each is a table or an experiment of the paper.",
        )
    text = (
        importlib.resources.files("kronfield.experiments")
        .joinpath("specs", f"{name}.toml")
        .read_text(encoding="utf-8")
    )
    return parse_spec(name, text)


def parse_spec(name: str, text: str) -> Spec:
    """Return the experiment that a TOML text describes; reject unknown and missing keys."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise problem(
            name, str(error), "TOML", "See the specs that ship with kronfield."
        ) from error
    only_keys(name, {**{"fraction": 0.0, "keep": False, "arrays": []}, **data}, SPEC_KEYS)
    _known(name, "kind", data["kind"], DIMENSIONS)
    _known(name, "task", data["task"], ("grid", "random"))
    sizes = {key: _size(name, key, value) for key, value in data["size"].items()}
    if set(sizes) != set(SIZES):
        raise problem(f"{name}.size", sorted(sizes), f"{', '.join(SIZES)}", "Give all sizes.")
    methods = tuple(_method(name, one, data["task"]) for one in data["method"])
    keys = [m.key for m in methods]
    if len(set(keys)) != len(keys):
        raise problem(
            f"{name}.method",
            sorted(k for k in keys if keys.count(k) > 1),
            "distinct names",
            "Give each method its own name.",
        )
    fraction = float(data.get("fraction", 0.0))
    if (data["task"] == "random") != (0 < fraction < 1):
        raise problem(
            f"{name}.fraction",
            fraction,
            "a fraction between 0 and 1 for random tasks only",
            "The paper uses 0.25 and 0.125.",
        )
    return Spec(
        name=name,
        title=str(data["title"]),
        kind=data["kind"],
        task=data["task"],
        fraction=fraction,
        keep=bool(data.get("keep", False)),
        sizes=sizes,
        methods=methods,
        arrays=tuple(data.get("arrays", Spec.arrays)),
    )


SPEC_KEYS = ("title", "kind", "task", "fraction", "keep", "arrays", "size", "method")


def _size(spec: str, name: str, data: Mapping[str, Any]) -> Size:
    only_keys(
        f"{spec}.size.{name}",
        {"hidden": 0, "seeds": [0], **data},
        ("side", "count", "epochs", "hidden", "seeds"),
    )
    given = data["epochs"]
    epochs = (
        {g: int(n) for g, n in given.items()}
        if isinstance(given, Mapping)
        else dict.fromkeys(GROUPS, int(given))
    )
    side, count = int(data["side"]), int(data["count"])
    if side < 8 or side % 2 or count < 1 or min(epochs.values()) < 1:
        raise problem(
            f"{spec}.size.{name}",
            dict(data),
            "an even side, a count and epochs",
            "All are whole numbers.",
        )
    return Size(
        name, side, count, epochs, int(data.get("hidden", 0)), tuple(data.get("seeds", (0,)))
    )


def _method(spec: str, data: Mapping[str, Any], task: str) -> Method:
    names = [f.name for f in dataclasses.fields(Method)]
    if unknown := set(data) - set(names):
        raise problem(
            f"{spec}.method", sorted(unknown), f"of {', '.join(names)}", "See the other methods."
        )
    group = data.get("group", "")
    _known(spec, "group", group, GROUPS)
    how = data.get("how", "closed" if group == "closed" else "descent")
    _known(spec, "how", how, HOWS)
    if how in ("descent", "closed") or "encoder" in data:
        _known(spec, "encoder", data.get("encoder", ""), ENCODERS)
        if int(data.get("features", 0)) < 2 or "setting" not in data:
            raise problem(f"{spec}.method", dict(data), "features and a setting", "Give both.")
    if how == "descent" and not float(data.get("rate", 0.0)) > 0:
        raise problem(f"{spec}.method", dict(data), "a rate", "Networks are trained: give rate.")
    values = dict(data)
    values["how"] = how
    if "setting" in values:
        values["setting"] = _number(values["setting"])
    method = Method(**values)
    if task == "random" and method.is_network and not method.is_simple:
        method = dataclasses.replace(method, blending=method.blending or BLENDINGS[0])
        _known(spec, "blending", method.blending, BLENDINGS)
    return method


def _number(value: Any) -> float:
    """Return a number, which may be written as a quotient: "2.5/128"."""
    if isinstance(value, str):
        top, _, bottom = value.partition("/")
        return float(Fraction(top) / Fraction(bottom or "1"))
    return float(value)


def _known(spec: str, key: str, value: Any, known: Any) -> None:
    if value not in known:
        raise problem(f"{spec}.{key}", repr(value), f"one of {', '.join(known)}", "Choose one.")
