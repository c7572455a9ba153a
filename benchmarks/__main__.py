"""Run the benchmark and write its page.

python -m benchmarks                                  # `make bench`: at most 20 minutes on 2 cores
python -m benchmarks --size full --photographs KODAK  # everything, on the PNG files of a folder
python -m benchmarks --sections images,pixels         # some sections; the others are kept
python -m benchmarks --report                         # only write tables and plots from the results
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    axes,
    chunks,
    denoising,
    dimensions,
    filling,
    functions,
    grid,
    labels,
    measurements,
    playground,
    points,
    report,
    scaling,
)
from benchmarks.frame import PACKAGES, Row, Settings, machine


def _networks(settings: Settings) -> list[Row]:
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        return [
            Row(
                "networks",
                "a step",
                "the paper's recipe, plain PyTorch",
                note="not measured: torch is not installed",
            )
        ]
    from benchmarks import networks

    return networks.steps(settings)


SECTIONS: dict[str, Callable[[Settings], list[Row]]] = {
    "images": grid.images,
    "video": grid.video,
    "lines": grid.lines,
    "functions": functions.functions,
    "labels": labels.labels,
    "axes": axes.axes,
    "denoising": denoising.denoising,
    "closed form": grid.closed_form,
    "pixels": points.pixels,
    "filling": filling.filling,
    "smooth": points.smooth,
    "measurements": measurements.measurements,
    "coverage": measurements.coverage,
    "dimensions": dimensions.dimensions,
    "stream": points.stream,
    "chunks": chunks.chunks,
    "networks": _networks,
    "playground": playground.playground,
    "scaling": scaling.scaling,
}
#: Sections of the full size, or by name: a quick run has no time for them.
BEYOND_QUICK = ("measurements", "coverage", "dimensions", "chunks")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=("tiny", "quick", "full"), default="quick")
    parser.add_argument(
        "--photographs",
        type=Path,
        help="a folder of PNG files; by default the photographs inside scikit-image",
    )
    parser.add_argument(
        "--sections",
        help=f"any of {', '.join(SECTIONS)}; default: all, without {' and '.join(BEYOND_QUICK)} if "
        "the size is quick",
    )
    parser.add_argument(
        "--output", type=Path, default=Path("bench"), help="a folder for data, plots and report.md"
    )
    parser.add_argument(
        "--page",
        type=Path,
        help="a Markdown page in which to replace the report, between its marks",
    )
    parser.add_argument(
        "--readme", type=Path, help="a Markdown page in which to replace the short table"
    )
    parser.add_argument(
        "--report",
        action="store_true",
        help="run nothing; write tables and plots from the results in the folder",
    )
    options = parser.parse_args()
    beyond = BEYOND_QUICK if options.size == "quick" else ()
    usual = ",".join(name for name in SECTIONS if name not in beyond)
    wanted = [name.strip() for name in (options.sections or usual).split(",") if name.strip()]
    if unknown := set(wanted) - set(SECTIONS):
        parser.error(f"no section {', '.join(sorted(unknown))}: there are {', '.join(SECTIONS)}")
    results = options.output / "results.json"
    about, rows = report.load(results) if results.exists() else ({}, [])
    # drop sections of other versions
    rows = [row for row in rows if row.section in (*SECTIONS, "limits")]
    if not options.report:
        settings = Settings(
            options.size, options.photographs, say=lambda text: print(text, flush=True)
        )
        used = machine()
        print(
            f"Size {options.size}; {', '.join(f'{key} {value}' for key, value in used.items())}",
            flush=True,
        )
        for name in PACKAGES:
            if used[name] == "not installed":
                print(f"{name} is not installed: its rows will say so", flush=True)
        # minutes of the sections that are kept; results of version 0.1.0 have only their sum
        spent: dict[str, float] = {}
        kept = {row.section for row in rows} - {*wanted, "limits"}
        if kept:
            spent = dict(about.get("sections", {"others": about.get("minutes", 0.0)}))
        for name in wanted:
            print(name, flush=True)
            started = time.perf_counter()
            fresh = SECTIONS[name](settings)
            spent[name] = round((time.perf_counter() - started) / 60, 3)
            print(f"  {name}: {spent[name]:.1f} minutes", flush=True)
            replaced = {row.section for row in fresh} | {name}
            rows = [row for row in rows if row.section not in replaced] + fresh
            data = (
                "photographs of a folder"
                if options.photographs
                else "photographs inside scikit-image"
            )
            about = {
                "size": options.size,
                "data": data,
                "minutes": sum(spent.values()),
                "sections": spent,
                "whole": not kept,
                **used,
            }
            report.save(options.output, about, rows)  # after every section, to keep finished ones
    if not rows:
        parser.error(f"{results} has no results: run without --report first")
    report.save(options.output, about, rows)
    about, rows = report.load(results)  # the page shows the rounded numbers on disk
    report.draw(options.output, rows)
    text = report.page(about, rows, ".")
    (options.output / "report.md").write_text(text, encoding="utf-8")
    if options.page:
        link = os.path.relpath(options.output, options.page.parent).replace(os.sep, "/")
        report.fill(options.page, report.page(about, rows, link))
    if options.readme:
        report.fill(options.readme, report.readme_table(rows))
    print(
        f"\n{text}\nWrote {options.output}/report.md, results.json, results.csv and plots",
        flush=True,
    )


if __name__ == "__main__":
    main()
