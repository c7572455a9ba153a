"""README and docs are correct: their Python runs, their links exist, versions agree."""

import re
from pathlib import Path

import pytest

import kronfield as kf

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
ids = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)


@ids
def test_python_in_the_pages_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks or page.name != "README.md"
    scope = {}
    for block in blocks:
        exec(compile(block, page.name, "exec"), scope)


@ids
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path) if path else page
        assert linked.exists(), f"{page.name}: {target}"
        if anchor:
            headings = re.findall(
                r"^#+ (.+)$", linked.read_text(encoding="utf-8"), flags=re.MULTILINE
            )
            slugs = [
                re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
                for heading in headings
            ]
            assert anchor in slugs, f"{page.name}: {target}"


@ids
def test_names_in_the_pages_exist(page):
    for name in re.findall(r"`kf\.([A-Za-z_]+)", page.read_text(encoding="utf-8")):
        assert hasattr(kf, name), f"{page.name}: kf.{name}"


def long_lines(text):
    """Return the lines of prose that are too long: not code, tables, HTML, headings, one word."""
    code, found = False, []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.strip()
        code ^= words.startswith("```")
        if len(line) > 100 and " " in words and not code and words[0] not in "|<#":
            found.append(number)
    return found


@ids
def test_lines_of_prose_have_at_most_100_characters(page):
    assert long_lines(page.read_text(encoding="utf-8")) == []


def test_the_rule_about_long_lines_can_fail():
    long = "word " * 21
    assert long_lines(f"{long}\n```\n{long}\n```\n{long}\n| {long} |\n") == [1, 5]


def test_versions_agree():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{kf.__version__}"' in project
    assert f"## {kf.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
