"""The rules of the code itself: imports go one way, heavy libraries are lazy, public names are complete."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import kronfield as kf

SOURCE = Path(kf.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# Bottom first: a module imports only what stands before it.
LAYERS = [
    "_arrays",
    "_atomic",
    "_core",
    "coordinates",
    "spectra",
    "embedders",
    "modes",
    "encoding",
    "blending",
    "analysis",
    "solvers",
    "evaluation",
    "report",
    "point_report",
    "uncertainty",
    "saving",
    "field",
    "refinement",
    "choice",
    "inputs",
    "point_inputs",
    "point_grids",
    "point_search",
    "point_gaussians",
    "point_choice",
    "fitting_points",
    "statistics",
    "fitting",
    "measures",
    "presets",
    "peers",
    "contest",
    "progress",
    "nn",
    "loading",
    "field_axes",
    "rendering",
    "tones",
    "files",
    "signals",
    "exporting",
    "signal_networks",
    "facts",
    "judging",
    "diagnosis",
    "plots",
    "reporting",
    "paper_plots",
    "experiments",
    "__init__",
    "cli",
]
# Where each heavy or optional library may be imported; everywhere else it is out of place.
HOMES = {
    "torch": ("nn", "signal_networks", "experiments"),
    "matplotlib": ("plots", "paper_plots"),
    "PIL": ("files", "paper_plots"),
    "av": ("files",),
    "tifffile": ("files",),
    "soundfile": ("files",),
    "nibabel": ("files",),
    "pyarrow": ("files",),
    "safetensors": ("saving", "nn"),
    "skimage": ("files", "experiments"),
    "click": ("cli",),
    "rich": ("cli", "progress"),
}
LAZY = {"torch", "matplotlib", "PIL", "av", "tifffile", "soundfile", "nibabel", "pyarrow", "safetensors", "skimage"}


def layer(path):
    relative = path.relative_to(SOURCE).with_suffix("")
    return relative.parts[0]


def imports(tree):
    """Every import as (module, whether it runs on import of the file)."""
    lazy = {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef) or (isinstance(outer, ast.If) and "TYPE_CHECKING" in ast.dump(outer.test))
        for inner in ast.walk(outer)
    }
    for node in ast.walk(tree):
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


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_down_only(path):
    own = LAYERS.index(layer(path))
    for module, _ in imports(ast.parse(path.read_text(encoding="utf-8"))):
        top, _, rest = module.partition(".")
        if top == "kronfield":
            target = rest.split(".")[0] or "__init__"
            assert LAYERS.index(target) <= own, f"{path.name} imports {module}, which stands above it"
            if LAYERS.index(target) == own:
                assert path.parent != SOURCE or path.name == "__init__.py", "a file does not import itself"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_heavy_libraries_stay_at_home_and_lazy(path):
    for module, eager in imports(ast.parse(path.read_text(encoding="utf-8"))):
        top = module.split(".")[0]
        if top in HOMES:
            assert layer(path) in HOMES[top], f"{top} does not belong in {path.name}"
        if top in LAZY and layer(path) != "nn":
            assert not eager, f"{path.name} imports {top} when it is loaded"


def test_the_rules_can_fail():
    found = list(imports(ast.parse("import torch\ndef f():\n    from matplotlib.figure import Figure\n")))
    assert found == [("torch", True), ("matplotlib.figure", False)]


def test_importing_kronfield_loads_nothing_heavy():
    code = "import sys; from kronfield import *; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "numpy" in loaded
    assert not set(loaded) & (LAZY | {"click", "rich", "pandas", "sklearn"})


def test_importing_kronfield_alone_loads_next_to_nothing():
    code = "import sys, kronfield; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "scipy", "kronfield.fitting"} & set(loaded)  # they come with the first name that needs them


def test_only_the_command_line_prints():
    for path in FILES:
        calls = [n.func.id for n in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                 if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]  # fmt: skip
        assert layer(path) == "cli" or "print" not in calls, path


def test_all_is_complete():
    """Three lists of the public names (for the reader, for type checkers, for loading on first use) say the same."""
    import kronfield.analysis
    import kronfield.embedders

    typed = {alias.name: node.module
             for outer in ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8")).body if isinstance(outer, ast.If)
             for node in outer.body if isinstance(node, ast.ImportFrom)
             for alias in node.names}  # fmt: skip
    assert list(kf.__all__) == sorted(kf.__all__)
    assert typed == {name: f"kronfield.{home}" for name, home in kf._HOME_OF.items()}
    assert set(typed) == set(kf.__all__)
    for name in kf.__all__:
        assert getattr(kf, name).__module__.startswith(typed[name])
        assert name in dir(kf)
    public = {name for name, value in vars(kf).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert public - {"TYPE_CHECKING", "Any"} == set(kf.__all__)
    for package in (kronfield.analysis, kronfield.embedders):
        assert set(package.__all__) <= set(kf.__all__)
    with pytest.raises(AttributeError, match="no attribute 'fit_2d'"):
        _ = kf.fit_2d


RESULTS = {
    "Candidate",
    "Convergence",
    "Embedder",
    "Encoding",
    "FitReport",
    "InputError",
    "InputTypeError",
    "LocalEmbedder",
    "Memorisation",
    "ConvergenceError",
    "PointReport",
    "RankCurve",
    "RankWarning",
    "Saved",
    "SimilarityCurve",
}


@pytest.mark.parametrize("name", sorted(set(kf.__all__) - RESULTS))
def test_every_public_name_is_documented_with_an_example(name):
    assert ">>>" in inspect.getdoc(getattr(kf, name))


def test_no_dimension_in_a_name():
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                assert not node.name.lower().endswith(("1d", "2d", "3d")), f"{path.name}: {node.name}"


def test_files_are_small():
    for path in FILES:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 500, path
