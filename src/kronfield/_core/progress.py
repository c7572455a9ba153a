"""Progress bars on a terminal or in a notebook; the library itself prints nothing."""

from __future__ import annotations

import contextlib
import html
import importlib.util
import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self


def in_notebook() -> bool:
    """Return whether this runs in a notebook, where rich shows bars without a terminal."""
    shell = sys.modules.get("IPython")
    running = None if shell is None else shell.get_ipython()
    return type(running).__name__ == "ZMQInteractiveShell"


class _NotebookBar:
    """A bar in the output of a cell, for notebooks without ipywidgets, which rich needs."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._handle = sys.modules["IPython"].display.display(
            self._html(0, None, ""), display_id=True
        )

    def _html(self, done: int, total: int | None, figures: str) -> Any:
        size = f'value="{done}" max="{total}"' if total else ""
        count = f"{done}/{total}" if total else str(done)
        words = html.escape(f"{count} {figures}")
        return sys.modules["IPython"].display.HTML(
            f"{html.escape(self._title)} <progress {size}></progress> {words}"
        )

    def update(self, task: Any, *, completed: int, figures: str, total: int | None) -> None:
        """Redraw the bar. ``task`` is not used; the method of rich has it too."""
        self._handle.update(self._html(completed, total, figures))

    def stop(self) -> None:
        """Do nothing: the last state of the bar stays in the output of the cell."""


class Bar:
    """A progress bar with a title, the time left and a line of figures.

    It is shown on a terminal or in a notebook only.

    Examples
    --------
    >>> with Bar("Training", total=3, shown=False) as bar:
    ...     for epoch in range(3):
    ...         bar.update(epoch + 1, "loss 0.1")

    Parameters
    ----------
    title : str
        The name of the task.
    total : int, optional
        The amount of work; it may also be given later, to `update`.
    shown : bool
        Whether to show the bar if there is a terminal or a notebook.
    after : float
        The delay in seconds before the bar appears, so that short tasks show none.
    """

    def __init__(
        self, title: str, total: int | None = None, *, shown: bool = True, after: float = 0.0
    ) -> None:
        self.title, self.total = title, total
        self.shown = shown and (sys.stderr.isatty() or in_notebook())
        self._due = time.perf_counter() + after
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self.shown and time.perf_counter() >= self._due:
            self._start()
        return self

    def _start(self) -> None:
        if in_notebook() and importlib.util.find_spec("ipywidgets") is None:
            self._bar = _NotebookBar(self.title)
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True)  # in a notebook, rich draws in the output of the cell
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
        )
        hidden = not (console.is_terminal or console.is_jupyter)
        self._bar = Progress(*columns, console=console, transient=True, disable=hidden)
        self._bar.start()
        self._task = self._bar.add_task(self.title, total=self.total, figures="")

    def update(self, done: int, figures: str = "", *, total: int | None = None) -> None:
        """Set the amount done, the figures beside the bar, and the total if it became known."""
        if self.shown and self._bar is None and time.perf_counter() >= self._due:
            self._start()
        if self._bar is not None:
            self._bar.update(
                self._task,
                completed=done,
                figures=figures,
                total=self.total if total is None else total,
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextlib.contextmanager
def spinner(title: str, *, shown: bool = True) -> Iterator[None]:
    """Show a spinner for a task of unknown duration, if there is a terminal.

    Examples
    --------
    >>> with spinner("Fitting", shown=False):
    ...     total = sum(range(100))
    """
    if not shown or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        bar.add_task(title, total=None)
        yield
