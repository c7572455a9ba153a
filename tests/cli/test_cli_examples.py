"""Every example in the help, the README and the pages runs."""

import re
from pathlib import Path

import click
import pytest
import torch

from clifiles import copy_named, installed, run
from kronfield.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread for little work: waiting threads take time from other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def epilog_examples():
    context = click.Context(main)
    for name in (name for name in COMMANDS if name not in ("demo", "play")):  # run elsewhere
        command = main.get_command(context, name)
        lines = re.findall(r"^  (kronfield .+)$", command.epilog or "", flags=re.MULTILINE)
        assert len(lines) >= 2, f"{name} has no examples"
        for line in lines:
            assert line.startswith(f"kronfield {name}"), line
            if line != "kronfield reproduce report":  # run by tests/experiments/test_page.py
                yield line
    yield from re.findall(r"^  (kronfield .+)$", main.epilog, flags=re.MULTILINE)


def page_examples(page):
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = [line.split("  #")[0] for block in blocks for line in block.splitlines()]
    commands = [part.strip() for line in lines for part in line.split("&&")]
    served = "kronfield play"  # it does not end by itself: tests/play
    return [one for one in commands if one.startswith("kronfield ") and not one.startswith(served)]


@pytest.mark.parametrize("line", list(epilog_examples()))
def test_examples_in_the_help(line, workshop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copy_named(line, workshop, tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    done = run(line)
    assert not done.stderr
    words = line.split()
    if words[1] in ("info", "analyze", "completion") and "--plot" not in words:
        assert done.stdout
    elif "--no-picture" not in words:
        assert {path.name for path in tmp_path.iterdir()} > before  # something was made
    assert not [path.name for path in tmp_path.iterdir() if ".part" in path.name]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_examples_in_the_pages(page, workshop, tmp_path, monkeypatch):
    """The commands of a page run in order, from the files alone."""
    monkeypatch.chdir(tmp_path)
    for line in page_examples(page):
        for word in line.split():
            if not (tmp_path / word).exists() and not word.endswith(".field"):
                copy_named(f"x {word}", workshop, tmp_path)
        run(line)


def test_the_pages_have_examples():
    assert len(page_examples(ROOT / "README.md")) >= 3
    assert len(page_examples(ROOT / "docs" / "command-line.md")) >= 5


def test_the_help_shows_the_examples(tmp_path):
    text = installed("fit", "--help", cwd=tmp_path).stdout
    assert "Examples:\n    kronfield fit photo.png\n" in text
