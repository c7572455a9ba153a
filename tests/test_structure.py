"""Rules of the code: imports go one way, heavy libraries are lazy, public names are complete."""

import ast
import functools
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kronfield as kf

SOURCE = Path(kf.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# Bottom first: a package imports only from those before it.
PACKAGES = [
    "_core",
    "files",
    "embedders",
    "encoding",
    "analysis",
    "solvers",
    "field",
    "fitting",
    "nn",
    "plots",
    "interop",
    "lazy",
    "xarray",
    "sklearn",
    "signals",
    "experiments",
    "__init__",
    "play",
    "cli",
]
# Modules at the top level: what is imported by the name of another library.
DOORS = {"xarray", "sklearn"}
ARCHITECTURE = Path(__file__).parents[1] / "docs" / "architecture.md"
# The packages in which each heavy or optional library may be imported.
HOMES = {
    "torch": ("nn", "signals", "experiments", "play"),
    "matplotlib": ("plots", "experiments"),
    "PIL": ("files", "experiments"),
    "av": ("files",),
    "tifffile": ("files",),
    "soundfile": ("files",),
    "nibabel": ("files",),
    "pyarrow": ("files",),
    "safetensors": ("field", "nn"),
    "skimage": ("files", "experiments"),
    "click": ("cli",),
    "rich": ("cli", "_core"),
    "xarray": ("files", "interop", "xarray"),
    "netCDF4": ("files",),
    "zarr": ("files", "lazy"),
    "dask": ("lazy",),
    "distributed": ("lazy",),
    "cftime": ("_core",),
    "openpyxl": ("files",),
    "pandas": ("files", "interop"),
    "sklearn": ("sklearn",),
    "starlette": ("play",),
    "uvicorn": ("play",),
}
LAZY = {
    "torch",
    "matplotlib",
    "PIL",
    "av",
    "tifffile",
    "soundfile",
    "nibabel",
    "pyarrow",
    "safetensors",
    "skimage",
    "xarray",
    "netCDF4",
    "zarr",
    "dask",
    "distributed",
    "cftime",
    "openpyxl",
    "pandas",
    "sklearn",
    "starlette",
    "uvicorn",
}


def layer(path):
    relative = path.relative_to(SOURCE).with_suffix("")
    return relative.parts[0]


def within(tree, wanted):
    """Return the ids of all nodes inside nodes that are ``wanted``."""
    return {id(inner) for outer in ast.walk(tree) if wanted(outer) for inner in ast.walk(outer)}


def imports(tree, *, types=True):
    """Yield every import as (module, whether it runs on import of the file).

    Without ``types``, imports for type checkers are left out.
    """
    typed = within(
        tree, lambda node: isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    )
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    lazy = within(tree, lambda node: isinstance(node, functions)) | typed
    for node in ast.walk(tree):
        if id(node) in typed and not types:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) not in lazy
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            if node.module == "kronfield":  # from kronfield import module
                for alias in node.names:
                    yield f"kronfield.{alias.name}", id(node) not in lazy
            else:
                yield node.module, id(node) not in lazy


def upward_calls():
    """Return the allowed upward imports (from, to), from the table of the architecture page."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    table = text.split("<!-- upward calls -->")[1].split("<!-- end -->")[0]
    rows = [line.split("|")[1:3] for line in table.strip().splitlines()[2:]]
    return {tuple(cell.strip().strip("`") for cell in row) for row in rows}


def upward(path):
    """Yield the imports of a file from packages above its own: (from, to, runs on import).

    Imports for type checkers do not count.
    """
    own, name = (
        PACKAGES.index(layer(path)),
        ".".join(path.relative_to(SOURCE).with_suffix("").parts),
    )
    for module, eager in imports(ast.parse(path.read_text(encoding="utf-8")), types=False):
        top, _, rest = module.partition(".")
        target = (rest.split(".")[0] or "__init__") if top == "kronfield" else None
        if target is not None and PACKAGES.index(target) > own:
            yield name, rest, eager


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_down_only(path):
    for source, target, eager in upward(path):
        assert not eager, f"{source} imports {target}, which stands above it"
        assert (source, target) in upward_calls(), (
            f"{source} calls {target}: list it in docs/architecture.md, or do not"
        )


def test_no_call_upwards_is_listed_that_is_not_there():
    there = {(source, target) for path in FILES for source, target, _ in upward(path)}
    assert upward_calls() == there


def rows_of_packages():
    """Return the files named in the row of each package on the architecture page."""
    table = ARCHITECTURE.read_text(encoding="utf-8").split("| package |")[1].split("\n\n")[0]
    rows = [line.split("|")[1:4] for line in table.splitlines()[2:]]
    return {name.strip(" `"): re.findall(r"`([^`]+)`", files) for name, _, files in rows}


def test_every_file_is_named_in_the_row_of_its_package():
    rows = rows_of_packages()
    assert list(rows) == [name for name in PACKAGES if name not in {"__init__", *DOORS}]
    for name, named in rows.items():
        modules = {path for path in (SOURCE / name).rglob("*.py") if path.stem != "__init__"}
        missing = {path.stem for path in modules} - set(named)
        assert not missing, f"docs/architecture.md, row {name}: {sorted(missing)} are not named"


def places_on_the_page():
    """Return what the architecture page names as `package/module` or `package/module.name`."""
    words = re.findall(r"`([\w/.]+)`", ARCHITECTURE.read_text(encoding="utf-8"))
    return sorted({word for word in words if word.split("/")[0] in PACKAGES and "/" in word})


@pytest.mark.parametrize("place", places_on_the_page())
def test_the_architecture_page_names_what_there_is(place):
    folder, _, last = place.removesuffix(".py").rpartition("/")
    stem, *names = last.split(".")
    module = SOURCE / folder / stem
    if module.is_dir():
        module = module / "__init__"
    text = module.with_suffix(".py").read_text(encoding="utf-8")
    for name in names:
        assert re.search(rf"\b(def|class) {name}\b|^ *{name}\b.*=", text, re.MULTILINE), place


def test_the_top_level_is_packages():
    assert {path.stem for path in SOURCE.glob("*.py")} == {"__init__", *DOORS}
    assert {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()} == set(
        PACKAGES
    ) - {"__init__", *DOORS}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def private_names(tree):
    """Return the private functions, classes, methods and attributes that code defines."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return set(filter(is_private, names))


def classes(tree):
    """Return the classes of a file: name -> (names of parents, private names)."""
    return {
        node.name: (
            {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases},
            private_names(node),
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


@functools.cache
def all_classes():
    """Return the classes of all files as (name, parents, private names)."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in FILES]
    return [(name, *about) for tree in trees for name, about in classes(tree).items()]


def inherited(tree, known):
    """Return the private names that the classes of a file have from parents in other files."""
    own, names = classes(tree), set()
    waiting = [parent for parents, _ in own.values() for parent in parents - set(own)]
    for parent in waiting:  # it grows
        for name, parents, private in known:
            if name == parent:
                names |= private
                waiting += [one for one in parents if one not in waiting]
    return names


def private_uses(tree, known=()):
    """Yield the private names of others that a file uses.

    These are private imports, and private attributes of objects that the file does not define, or
    that its classes only override: then the object may be of a class from elsewhere. A subclass may
    use its parent's through ``self``, ``cls`` and ``super()``. ``known`` are classes as in
    `all_classes`.
    """
    own = private_names(tree) - inherited(tree, known)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if ast.unparse(node.value) not in ("self", "cls", "super()") and node.attr not in own:
                yield ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kronfield"):
            yield from (
                alias.name
                for alias in node.names
                if alias.name.startswith("_") and alias.name[:2] != "__"
            )


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_nothing_private_is_used_from_outside(path):
    assert list(private_uses(ast.parse(path.read_text(encoding="utf-8")), all_classes())) == []


def test_the_rule_about_what_is_private_can_fail():
    code = (
        "from kronfield.field import _hidden, Field\n"
        "class A:\n"
        "    def _own(self): self._x = other._y + other._own()"
    )
    assert list(private_uses(ast.parse(code))) == ["_hidden", "other._y"]


def test_what_a_class_overrides_is_not_its_own():
    code = (
        "class A(Parent):\n"
        "    def _hook(self): return super()._hook() + self._more() + self.other._hook()\n"
        "    def _mine(self): return A()._mine()"
    )
    known = [("Parent", {"First"}, {"_more"}), ("First", set(), {"_hook"})]
    assert list(private_uses(ast.parse(code), known)) == ["self.other._hook"]
    assert list(private_uses(ast.parse(code))) == []


def loads(module):
    """Return the modules of kronfield that importing this module loads, in a new process."""
    code = f"import sys, kronfield.{module}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    return {name for name in loaded if name.partition(".")[0] == "kronfield"}


def test_measures_load_no_solver_and_files_nothing_that_chooses():
    assert not {
        name
        for name in loads("signals.measures")
        if name.startswith(("kronfield.solvers", "kronfield.fitting"))
    }
    above = tuple(f"kronfield.{name}" for name in ("solvers", "field", "fitting", "embedders"))
    assert not {name for name in loads("files") if name.startswith(above)}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_heavy_libraries_stay_at_home_and_lazy(path):
    for module, eager in imports(ast.parse(path.read_text(encoding="utf-8"))):
        top = module.split(".")[0]
        if top in HOMES:
            assert layer(path) in HOMES[top], f"{top} does not belong in {path.name}"
        if top in LAZY and layer(path) not in ("nn", *DOORS):
            assert not eager, f"{path.name} imports {top} when it is loaded"


def test_the_rules_can_fail():
    found = list(
        imports(ast.parse("import torch\ndef f():\n    from matplotlib.figure import Figure\n"))
    )
    assert found == [("torch", True), ("matplotlib.figure", False)]


def test_importing_kronfield_loads_nothing_heavy():
    code = "import sys; from kronfield import *; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    loaded = {name.split(".")[0] for name in modules}
    assert "numpy" in loaded
    assert not loaded & (LAZY | {"click", "rich", "pandas", "sklearn"})


def test_importing_kronfield_alone_loads_next_to_nothing():
    code = "import sys, kronfield; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    # loaded with the first name that needs them
    assert not {"numpy", "scipy", "kronfield.fitting.grid"} & set(loaded)


def test_only_the_command_line_prints():
    for path in FILES:
        calls = [
            node.func.id
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        ]
        assert layer(path) == "cli" or "print" not in calls, path


def test_all_is_complete():
    """The list of public names, in the stub, is that of the names that exist."""
    import kronfield.analysis
    import kronfield.embedders

    assert list(kf.__all__) == sorted(set(kf.__all__))
    for name in kf.__all__:
        assert getattr(kf, name).__module__.startswith(kf._HOME_OF[name])
        assert name in dir(kf)
    public = {
        name
        for name, value in vars(kf).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == set(kf.__all__)
    for package in (kronfield.analysis, kronfield.embedders):
        assert set(package.__all__) - {"FourierEmbedder", "periodic_form"} <= set(kf.__all__)
    with pytest.raises(AttributeError, match="no attribute 'fit_2d'"):
        _ = kf.fit_2d


# The names that 0.1.0 had: they stay.
NAMES_OF_0_1_0 = """
Blending Candidate Concatenated Convergence ConvergenceError Embedder Encoding Field FitReport
Gaussian Impulse InputError InputTypeError Kronecker LinearFourier LocalEmbedder LogFourier
Memorisation PointReport RandomFourier RankCurve RankWarning Rectangle Saved ShiftedBasis
SimilarityCurve Sine Square Statistics TensionSpline Triangle blending_weights can_memorise compare
diagonals distance_preservation even_axis features_needed fit fit_points kronecker_spectrum load
matching_gaussian matching_random_fourier mode_product multilinear numerical_rank preserved_range
rank_curve similarity_curve spectrum stable_rank standard_embedders width_for_range width_for_rank
"""


def test_the_names_of_earlier_versions_stay():
    assert set(NAMES_OF_0_1_0.split()) <= set(kf.__all__)


RESULTS = {
    "Candidate",
    "Convergence",
    "Embedder",
    "Encoding",
    "FitReport",
    "InputError",
    "InputTypeError",
    "KronfieldError",
    "LocalEmbedder",
    "Memorisation",
    "ConvergenceError",
    "PointReport",
    "NoiseWarning",
    "RankCurve",
    "RankWarning",
    "Saved",
    "SimilarityCurve",
}


@pytest.mark.parametrize("name", sorted(set(kf.__all__) - RESULTS))
def test_every_public_name_is_documented_with_an_example(name):
    assert ">>>" in inspect.getdoc(getattr(kf, name))


def test_errors_share_a_base_and_keep_the_usual_one():
    from kronfield._core.errors import KronfieldError
    from kronfield.nn import DivergenceError

    usual = {
        kf.InputError: ValueError,
        kf.InputTypeError: TypeError,
        kf.ConvergenceError: RuntimeError,
        DivergenceError: RuntimeError,
    }
    for kind, base in usual.items():
        assert issubclass(kind, KronfieldError)
        assert issubclass(kind, base)


def test_the_base_of_errors_loads_nothing_heavy():
    assert loads("_core.errors") == {"kronfield", "kronfield._core", "kronfield._core.errors"}


def many_positional(tree):
    """Return the functions and calls with more than eight arguments by position.

    Commands are called by click, with the names of their options.
    """
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
            is_command = any("click." in ast.unparse(one) for one in node.decorator_list)
            if not is_command and len(names) - (names[:1] in (["self"], ["cls"])) > 8:
                found.append(f"{node.lineno}: {node.name}")
        elif isinstance(node, ast.Call) and len(node.args) > 8:
            found.append(f"{node.lineno}: {ast.unparse(node.func)}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_long_lists_of_positional_arguments(path):
    """Options are passed as an object, or by name."""
    assert many_positional(ast.parse(path.read_text(encoding="utf-8"))) == []


def test_the_rule_about_positional_arguments_can_fail():
    names = ", ".join("abcdefghi")
    assert len(many_positional(ast.parse(f"def f({names}): g({names})"))) == 2
    assert many_positional(ast.parse(f"def f(self, {names[:-3]}): g(*all)")) == []


def test_no_dimension_in_a_name():
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                assert not node.name.lower().endswith(("1d", "2d", "3d")), (
                    f"{path.name}: {node.name}"
                )


def _is_numeric(value):
    """Tell whether an expression is a number, or a tuple of numbers."""
    if isinstance(value, ast.Tuple):
        return all(map(_is_numeric, value.elts))
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float) and not isinstance(value.value, bool)
    if isinstance(value, ast.UnaryOp):
        return _is_numeric(value.operand)
    if isinstance(value, ast.BinOp):
        return _is_numeric(value.left) and _is_numeric(value.right)
    return False


def _without_a_reason(text):
    """Return the numeric constants of a module that have no comment above their block."""
    lines, found = text.splitlines(), []
    for node in ast.parse(text).body:
        if not isinstance(node, ast.Assign) or not _is_numeric(node.value):
            continue
        names = [part.id for part in ast.walk(node.targets[0]) if isinstance(part, ast.Name)]
        first = node.lineno - 1
        while first and lines[first - 1].strip() and not lines[first - 1].startswith("#"):
            first -= 1
        if all(name.isupper() for name in names) and not lines[first - 1].startswith("#"):
            found += names
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_constants_have_a_reason(path):
    """Numbers that decide are in fitting/settings.py; other constants say what they are for."""
    assert not _without_a_reason(path.read_text(encoding="utf-8"))


def test_the_rule_about_constants_can_fail():
    assert _without_a_reason("import os\n\nMOST = 1 << 4\n") == ["MOST"]
    assert _without_a_reason("import os\n\nA, B = 1e-3, -2\nC = 3\n") == ["A", "B", "C"]
    assert not _without_a_reason("# For speed.\nMOST = 1 << 4\nLEAST = 2\nNAMES = ('a', 'b')\n")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_lines_are_short(path):
    """At most 100 characters, also with a remark for mypy, which ruff does not count."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [i for i, line in enumerate(lines, 1) if len(line) > 100] == []
