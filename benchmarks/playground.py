"""The playground: from the request of a slider to its answer, through the server."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

from benchmarks.frame import OURS, Row, Settings, spread

COMMAND = "from kronfield.cli import main; main(['play', '--no-browser', '--port', '0'])"


class _Server:
    """`kronfield play` in a process of its own, for the duration of a context."""

    def __enter__(self) -> _Server:
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        address = urlsplit(self.process.stdout.readline().strip())
        self.headers = {"X-Kronfield-Token": parse_qs(address.query)["token"][0]}
        self.connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=120)
        self.number = 0
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.communicate()

    def ask(self, name: str, state: dict[str, Any]) -> None:
        self.number += 1
        body = json.dumps({"page": "benchmark", "number": self.number, "state": state})
        self.connection.request("POST", f"/api/{name}", body, self.headers)
        answer = self.connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content


def playground(settings: Settings) -> list[Row]:
    """Return the times of one move of each slider, after a first that is not counted."""
    side = settings.pick(32, 256, 256)
    turns = settings.pick(2, 15, 40)
    picture = {"picture": "shapes", "side": side}
    # the request, its state, and the setting that the slider moves, from a value by steps
    moves: dict[str, tuple[str, dict[str, Any], str, float, float]] = {
        f"Encode: the width, {side} samples and features": (
            "encode",
            {"n": side, "k": side, "b": "rff"},
            "as",
            0.01,
            0.001,
        ),
        f"Reconstruct: the width, {side} x {side}": ("reconstruct", picture, "s", 0.5, 0.01),
        f"Reconstruct: nothing chosen, and peers, {side} x {side}": (
            "baselines",
            picture,
            "seed",
            0,
            1,
        ),
        f"Repair: the noise, {side} x {side}": ("repair", picture, "noise", 0.05, 0.001),
        "Points: 24 points, with standard errors": (
            "points",
            {"points": _points(), "show": "error"},
            "loss",
            0,
            0,
        ),
    }
    rows = []
    with _Server() as server:
        for case, (name, state, setting, start, step) in moves.items():
            seconds = []
            for turn in range(turns + 1):
                moved = {} if setting == "loss" else {setting: round(start + turn * step, 6)}
                started = time.perf_counter()
                server.ask(name, state | moved)
                seconds.append(time.perf_counter() - started)
            rows.append(Row("playground", case, OURS, *spread(seconds[1:])))
            settings.say(f"  {case}: {1e3 * rows[-1].seconds:.0f} ms")
    return rows


def _points() -> str:
    from kronfield.play.points import example

    return example()
