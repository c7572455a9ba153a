"""Settings for all tests."""

import hypothesis
import pytest
import torch

from effort import examples

hypothesis.settings.register_profile(
    "kronfield",
    deadline=None,
    derandomize=True,
    print_blob=False,
    max_examples=examples(100),
)
hypothesis.settings.load_profile("kronfield")
torch.set_num_threads(1)  # networks of tests are tiny: a second thread only waits


@pytest.fixture(scope="session")
def workshop(tmp_path_factory):
    """A folder with small files of every kind, and fields fitted to them."""
    from clifiles import make_fields, make_files

    folder = tmp_path_factory.mktemp("workshop")
    make_files(folder)
    make_fields(folder)
    return folder


@pytest.fixture
def here(workshop, tmp_path, monkeypatch):
    """A new current folder with links to the files of ``workshop``."""
    for path in workshop.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
