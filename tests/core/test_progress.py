"""Progress bars: on a terminal, and nowhere else."""

import io
import sys
from types import SimpleNamespace

import pytest

from kronfield._core.progress import Bar, in_notebook, spinner


class Terminal(io.StringIO):
    def isatty(self):
        return True


def written(monkeypatch, stream, **options):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with Bar("Working", **options) as bar:
        for i in range(3):
            bar.update(i + 1, "loss 0.5", total=3)
    return stream.getvalue()


def test_bars_are_for_terminals(monkeypatch):
    text = written(monkeypatch, Terminal())
    assert "Working" in text
    assert "3/3" in text
    assert "loss 0.5" in text
    assert written(monkeypatch, io.StringIO()) == ""
    assert written(monkeypatch, Terminal(), shown=False) == ""
    assert written(monkeypatch, Terminal(), after=60.0) == ""  # done before it was due


@pytest.mark.parametrize(("stream", "shown"), [(Terminal(), True), (io.StringIO(), False)])
def test_spinners_too(stream, shown, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with spinner("Fitting"):
        pass
    assert ("Fitting" in stream.getvalue()) == shown


def test_notebooks_have_bars_too(monkeypatch):
    assert not in_notebook()
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert in_notebook()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert Bar("Working").shown
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not Bar("Working").shown


def test_notebooks_without_widgets_draw_the_bar_themselves(monkeypatch):
    drawn = []
    handle = SimpleNamespace(update=drawn.append)
    display = SimpleNamespace(
        HTML=str, display=lambda text, display_id: drawn.append(text) or handle
    )
    shell = type("ZMQInteractiveShell", (), {})()
    notebook = SimpleNamespace(get_ipython=lambda: shell, display=display)
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert written(monkeypatch, io.StringIO()) == ""
    assert "Working <progress" in drawn[0]
    assert 'value="3" max="3"' in drawn[-1]
    assert "3/3 loss 0.5" in drawn[-1]
