"""Files that appear whole or not at all, also beside other processes and after signals."""

import os
import signal
import subprocess
import sys
import time

import pytest

import kronfield as kf
from kronfield._core import atomic
from kronfield._core.atomic import replacing
from kronfield.files import read


@pytest.mark.parametrize("links", [True, False])
def test_of_two_that_write_one_new_name_the_second_is_refused(links, tmp_path, monkeypatch):
    if not links:

        def refused(*_names):
            raise PermissionError("no links here")

        monkeypatch.setattr(os, "link", refused)
    path = tmp_path / "a.txt"

    def write(text, meanwhile=lambda: None):
        with replacing(path, overwrite=False) as temporary:
            meanwhile()
            temporary.write_text(text)

    with pytest.raises(kf.InputError, match="which exists"):
        write("second", lambda: write("first"))
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_of_two_new_folders_the_second_is_refused(tmp_path):
    path = tmp_path / "a.zarr"

    def write(text, meanwhile=lambda: None):
        with replacing(path, overwrite=False) as temporary:
            meanwhile()
            temporary.unlink()
            temporary.mkdir()
            (temporary / "zarr.json").write_text(text)

    with pytest.raises(kf.InputError, match="which exists"):
        write("second", lambda: write("first"))
    assert (path / "zarr.json").read_text() == "first"
    assert os.listdir(tmp_path) == ["a.zarr"]


def test_a_link_stays_and_leads_to_the_new_file(tmp_path):
    (tmp_path / "there").mkdir()
    link, real = tmp_path / "link.txt", tmp_path / "there" / "real.txt"
    link.symlink_to(real)
    for text in ("new", "newer"):  # at first it leads nowhere
        with replacing(link) as temporary:
            temporary.write_text(text)
        assert link.is_symlink()
        assert real.read_text() == text
    assert os.listdir(tmp_path / "there") == ["real.txt"]


def test_what_killed_processes_left_is_swept(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    tag, rest = atomic._machine(), "0123456789ab.part"
    stale = [f".a.{tag}-{ended.pid}-{rest}.png", f".b.{tag}-{ended.pid}-{rest}"]
    kept = [f".a.{tag}-{os.getppid()}-{rest}.png", f".a.{'0' * 8}-{ended.pid}-{rest}", ".a.part"]
    for name in (*stale, *kept):
        (tmp_path / name).touch()
    folder = tmp_path / f".c.{tag}-{ended.pid}-{rest}.zarr"
    folder.mkdir()
    (folder / "0.0").touch()
    with replacing(tmp_path / "a.png"):
        pass
    assert sorted(os.listdir(tmp_path)) == sorted([*kept, "a.png"])


def test_long_names(tmp_path):
    longest = "é" * 125 + ".txt"
    with replacing(tmp_path / longest) as temporary:
        temporary.write_text("whole")
    assert (tmp_path / longest).read_text() == "whole"
    with pytest.raises(kf.InputError, match="258 bytes"), replacing(tmp_path / ("é" + "x" * 256)):
        pass


def test_files_of_long_names_are_refused_when_read():
    with pytest.raises(kf.InputError, match="304 bytes"):
        read("x" * 300 + ".png")


def test_sigterm_leaves_no_temporary_file(tmp_path):
    """A command that is told to end while it writes removes what it has begun."""
    code = """
import time, click
from kronfield._core.atomic import replacing
from kronfield.cli.common import Commands

class One(Commands):
    def get_command(self, ctx, name):
        return command

@click.command()
def command():
    with replacing("a.txt"):
        time.sleep(60)

One(name="one", names=["command"])(["command"])
"""
    run = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    limit = time.monotonic() + 60
    while not os.listdir(tmp_path) and time.monotonic() < limit:
        time.sleep(0.02)
    assert len(os.listdir(tmp_path)) == 1
    run.send_signal(signal.SIGTERM)
    assert run.wait(60) == 128 + signal.SIGTERM
    assert os.listdir(tmp_path) == []
