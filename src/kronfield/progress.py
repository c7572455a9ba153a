"""A progress bar on standard error, if that is a terminal; the library itself prints nothing."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self


class Bar:
    """A bar with a title, the time left, and a line of figures; silent where there is no terminal.

    Examples
    --------
    >>> with Bar("Training", total=3, shown=False) as bar:
    ...     for epoch in range(3):
    ...         bar.update(epoch + 1, "loss 0.1")
    """

    def __init__(self, title: str, total: int | None = None, *, shown: bool = True) -> None:
        self.title, self.total, self.shown = title, total, shown
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self.shown:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            console = Console(stderr=True)
            columns = (
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[figures]}"),
                TimeRemainingColumn(),
            )  # fmt: skip
            self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=self.total, figures="")
        return self

    def update(self, done: int, figures: str = "") -> None:
        """Set how much is done, and the figures beside the bar."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, figures=figures)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
