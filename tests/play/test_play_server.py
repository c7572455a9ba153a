"""The server of the playground: what it refuses, what it limits, and that it lives on."""

import asyncio
import contextlib
import glob
import http.client
import io
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from served import COMMAND, Served

from kronfield._core.arrays import InputError
from kronfield.play import encode, points
from kronfield.play.jobs import plain
from kronfield.play.server import MOST_ASKED, MOST_SENT, Playground, _asked
from kronfield.play.states import ENCODE, checked
from kronfield.play.worker import Worker, WorkError


@pytest.fixture(scope="module")
def server():
    served = Served()
    yield served
    served.end()


def picture_bytes(side=40, kind="PNG"):
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (side, side, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(buffer, format=kind)
    return buffer.getvalue()


# who may ask
# ------------------------------------------------------------------------------------------


def test_the_address_is_the_first_line_and_on_this_machine_alone(server):
    assert server.address.startswith(f"http://127.0.0.1:{server.port}/?token=")
    assert len(server.token) >= 32
    with pytest.raises(OSError, match=r"refused|unreachable|assign"):
        socket.create_connection(("127.0.0.2", server.port), timeout=2)


def test_the_page_needs_its_token(server):
    assert server.request(f"/?token={server.token}")[0] == 200
    for path in ("/", "/?token=", "/?token=guess", f"/?token={server.token}x"):
        status, _, content = server.request(path)
        assert status == 403
        assert b"whole address" in content
    for token in ("", "guess"):
        assert server.request("/api/choices", headers={"X-Kronfield-Token": token})[0] == 403
        asked = server.request("/api/encode", "{}", headers={"X-Kronfield-Token": token})
        assert asked[0] == 403


def test_the_browser_is_opened_by_a_ticket_that_is_valid_once(monkeypatch, tmp_path):
    opened = tmp_path / "opened"
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > {opened}.part; mv {opened}.part {opened}\n')
    script.chmod(0o700)
    monkeypatch.setenv("BROWSER", f"{script} %s")
    served = Served(browser=True)
    end = time.monotonic() + 30
    while not opened.exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    address = opened.read_text().strip()
    assert served.token not in address
    path = address.removeprefix(f"http://127.0.0.1:{served.port}")
    foreign = served.request(path, headers={"Host": "evil.example"})
    assert foreign[0] == 403
    status, headers, _ = served.request(path)
    assert (status, headers["Location"]) == (303, served.address)
    assert served.request(path)[0] == 403
    assert served.request("/?ticket=")[0] == 403
    assert served.end() == ""


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost"])
@pytest.mark.parametrize("path", ["/", "/assets/main.js", "/api/choices"])
def test_other_hosts_are_refused(server, host, path):
    path = f"/?token={server.token}" if path == "/" else path
    assert server.request(path, headers={"Host": host})[0] == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1"])
def test_other_origins_are_refused(server, origin):
    assert server.request("/api/encode", "{}", headers={"Origin": origin})[0] == 403
    own = f"http://127.0.0.1:{server.port}"
    assert server.request("/api/choices", headers={"Origin": own})[0] == 200


@pytest.mark.parametrize("path", ["/?token={}", "/assets/main.js", "/", "/nowhere"])
def test_every_answer_says_what_a_browser_may_do(server, path):
    headers = server.request(path.format(server.token))[1]
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    "path", ["/assets/../server.py", "/assets/..%2fserver.py", "/assets/index.html", "/assets/%00"]
)
def test_only_the_assets_are_read(server, path):
    assert server.request(path)[0] == 404


# what is asked
# ------------------------------------------------------------------------------------------


def test_an_answer_is_that_of_the_library(server):
    state = {"a": "triangle", "as": 0.1, "n": 20}
    status, found = server.ask("encode", state)
    assert status == 200
    assert found == json.loads(json.dumps(plain(encode.answer(checked(ENCODE, state)))))


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 50000,
        json.dumps({"page": "a", "number": 1}),
        json.dumps({"page": "../a", "number": 1, "state": {}}),
        json.dumps({"page": "a", "number": "1", "state": {}}),
        json.dumps({"page": "a", "number": True, "state": {}}),
        "x" * (MOST_ASKED + 1),
        b"\xff\xfe",
    ],
)
@pytest.mark.parametrize("name", ["encode", "train", "save"])
def test_requests_that_are_none_are_refused(server, name, body):
    status, _, content = server.request(f"/api/{name}", body)
    assert status == 400
    assert json.loads(content)["refused"]


def test_a_wrong_state_is_a_sentence(server):
    status, found = server.ask("encode", {"k": 10**6})
    assert status == 422
    assert found["refused"].startswith("k: got 1000000; expected at most 256")
    assert server.ask("nothing", {})[0] == 404
    assert server.ask("save", {"tab": "encode"})[0] == 422
    assert server.ask("encode", {})[0] == 200


def test_of_two_requests_the_older_is_dropped(server):
    assert server.ask("encode", {}, page="two", number=5)[0] == 200
    assert server.ask("encode", {}, page="two", number=4)[1] == {"superseded": True}
    assert "embedders" in server.ask("encode", {}, page="other", number=4)[1]


def test_of_many_requests_at_once_the_newest_is_answered(server):
    with ThreadPoolExecutor(8) as pool:
        waiting = []
        for number in range(1, 9):
            state = {"picture": "waves", "side": 64, "seed": number}
            waiting.append(pool.submit(server.ask, "repair", state, "many", number))
            time.sleep(0.01)
        found = [one.result()[1] for one in waiting]
    assert "after" in found[-1]
    assert sum("superseded" in one for one in found) >= 3


def test_training_comes_in_lines_and_stops_when_the_page_leaves(server):
    state = {"picture": "waves", "side": 64, "epochs": 2000, "depth": 1}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = json.dumps({"page": "leaves", "number": 1, "state": state})
    connection.request("POST", "/api/train", body, {"X-Kronfield-Token": server.token})
    first = json.loads(connection.getresponse().readline())["part"]
    assert first["epoch"] == 0
    assert first["picture"].startswith("data:image/png;base64,")
    connection.close()
    start = time.monotonic()
    assert server.ask("encode", {}, page="leaves", number=2)[0] == 200
    assert time.monotonic() - start < 20  # it does not wait for all 2000 epochs


def test_a_slider_that_moves_ends_training(server):
    state = {"picture": "waves", "side": 64, "epochs": 2000, "depth": 1}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = json.dumps({"page": "moves", "number": 1, "state": state})
    connection.request("POST", "/api/train", body, {"X-Kronfield-Token": server.token})
    answer = connection.getresponse()
    answer.readline()
    assert server.ask("script", {"tab": "train", "state": state}, page="moves", number=2)[0] == 200
    small = {"picture": "waves", "side": 32}
    assert server.ask("reconstruct", small, page="moves", number=3)[0] == 200
    lines = answer.read().splitlines()
    assert json.loads(lines[-1])["done"]["stopped_by"] == "callback"
    connection.close()


def training(server, page, state):
    """Start training, and return the connection and its answer after the first line."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = json.dumps({"page": page, "number": 1, "state": state})
    connection.request("POST", "/api/train", body, {"X-Kronfield-Token": server.token})
    answer = connection.getresponse()
    assert "part" in json.loads(answer.readline())
    return connection, answer


ENDLESS = {"picture": "waves", "side": 64, "epochs": 2000, "depth": 4}


@pytest.mark.parametrize("how", ["send", "save"])
def test_what_comes_during_training_does_not_wait_for_its_end(server, how):
    connection, answer = training(server, how, ENDLESS)
    if how == "send":
        done = server.request("/api/send?page=send&name=a.png", picture_bytes())
    else:
        state = {"tab": "reconstruct", "state": {"picture": "waves", "side": 32}}
        body = json.dumps({"page": "save", "number": 2, "state": state})
        done = server.request("/api/save", body)
    assert done[0] == 200
    last = json.loads(answer.read().splitlines()[-1])
    connection.close()
    assert last.get("done", {}).get("stopped_by") == "callback" or "Ended" in last["refused"]


def test_training_of_one_page_leaves_a_process_to_the_others(server):
    connection, _ = training(server, "trains", ENDLESS)
    body = json.dumps({"page": "too", "number": 1, "state": ENDLESS})
    lines = server.request("/api/train", body)[2].splitlines()
    assert json.loads(lines[-1])["refused"].startswith("Another page trains")
    assert "embedders" in server.ask("encode", {}, page="too", number=2)[1]
    connection.close()


def test_a_page_that_does_not_read_is_sent_the_newest_part_alone():
    class Quiet(Playground):
        """Sends parts of 1 MB much faster than they are read."""

        async def _asking(self, page, name, given, part=None, left=None, seconds=0.0):
            for number in range(200):
                part({"number": number, "filling": "x" * (1 << 20)})
                await asyncio.sleep(0)
            return {"stopped_by": "epochs"}

    async def read():
        quiet = Quiet(port=0)
        quiet._training = asyncio.Semaphore(1)
        body = json.dumps({"page": "a", "number": 1, "state": {}}).encode()
        request = SimpleNamespace(stream=lambda: once(body))
        lines = []
        async for line in (await quiet._train(request)).body_iterator:
            await asyncio.sleep(0.05)
            lines.append(json.loads(line))
        quiet.close()
        return lines

    async def once(body):
        yield body

    lines = asyncio.run(read())
    assert lines[-1] == {"done": {"stopped_by": "epochs"}}
    assert lines[-2]["part"]["number"] == 199
    assert len(lines) < 50


# what is sent
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "bmp"])
def test_a_picture_is_sent_and_used(server, kind):
    content = picture_bytes(kind=kind.upper())
    status, _, found = server.request(f"/api/send?page=a&name=my%20picture.{kind}", content)
    found = json.loads(found)
    assert status == 200
    assert found["kind"] == "picture"
    assert found["shape"] == [40, 40, 3]
    done = server.ask("repair", {"picture": found["name"], "side": 32, "noise": 0}, "s", 1)
    assert done[0] == 200


def test_a_table_is_sent_and_used(server):
    rows = "x,y,value\n" + "\n".join(f"{i % 7},{i % 5},{i}" for i in range(35))
    status, _, found = server.request("/api/send?page=a&name=t.csv", rows)
    assert status == 200
    table = json.loads(found)["name"]
    status, found = server.ask("points", {"table": table}, "t", 1)
    assert status == 200
    assert found["box"] == [[0, 6], [0, 4]]


def bomb():
    buffer = io.BytesIO()
    Image.new("1", (12000, 12000)).save(buffer, format="PNG")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "status", "says"),
    [
        ("a.png", bomb(), 422, "12000 x 12000 pixels"),
        ("a.png", b"\x89PNG" + bytes(100), 422, "the file, which cannot be read"),
        ("a.png", b"", 422, "empty"),
        ("a.jpg", b"<svg onload=alert(1)>", 422, "cannot be read"),
        ("a.svg", b"<svg/>", 415, "The page takes"),
        ("a.field", b"x", 415, "The page takes"),
        ("../../a", b"x", 415, "The page takes"),
        ("a.csv", b"x,y\n1,2\n", 422, "coordinates"),
        ("a.csv", b"a,b,c\nx,y,z\n", 422, ""),
        ("a.png", bytes(MOST_SENT + 1), 413, "MB"),
    ],
    ids=["bomb", "damaged", "empty", "disguised", "svg", "field", "path", "two", "texts", "large"],
)
def test_what_cannot_be_used_is_refused_with_a_sentence(server, name, content, status, says):
    found = server.request(f"/api/send?page=a&name={name}", content)
    assert found[0] == status
    assert says in json.loads(found[2])["refused"]
    assert tempfile.gettempdir() not in json.loads(found[2])["refused"]
    assert server.ask("encode", {})[0] == 200


def test_a_table_is_no_picture_and_a_picture_no_table(server):
    table = server.request("/api/send?page=a&name=t.csv", "x,y,value\n1,2,3\n4,5,6\n7,1,2\n")[2]
    picture = server.request("/api/send?page=a&name=t.png", picture_bytes())[2]
    name = json.loads(table)["name"]
    status, found = server.ask("repair", {"picture": name, "side": 32}, "mixed", 1)
    assert (status, found["refused"][:8]) == (422, "picture:")
    status, found = server.ask("points", {"table": json.loads(picture)["name"]}, "mixed", 2)
    assert (status, found["refused"][:6]) == (422, "table:")


def test_half_a_request_harms_nobody():
    served = Served()
    for path in ("/api/encode", "/api/train", "/api/send?page=a&name=a.png"):
        with socket.create_connection(("127.0.0.1", served.port)) as half:
            half.sendall(
                f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n"
                f"X-Kronfield-Token: {served.token}\r\nContent-Length: 1000\r\n\r\nabc".encode()
            )
    with socket.create_connection(("127.0.0.1", served.port)) as endless:
        endless.sendall(b"GET / HTTP/1.1\r\n")
        with contextlib.suppress(OSError):
            for _ in range(64):  # 4 MB of headers
                endless.sendall(b"X-Filling: " + b"x" * (1 << 16) + b"\r\n")
            while endless.recv(1 << 16):
                pass
    assert served.ask("encode", {})[0] == 200
    assert served.end() == ""


def test_a_body_that_comes_too_slowly_is_refused(monkeypatch):
    async def slow():
        yield b"{"
        await asyncio.sleep(60)

    monkeypatch.setattr("kronfield.play.server.BODY_SECONDS", 0.1)
    assert "without a pause" in asyncio.run(_asked(SimpleNamespace(stream=slow)))


def test_a_file_needs_a_page(server):
    assert server.request("/api/send?name=a.png", picture_bytes())[0] == 400


# processes
# ------------------------------------------------------------------------------------------


def ask(worker, name, state, seconds=30.0, left=None, part=lambda found: None):
    return worker.ask(
        name,
        state,
        part=part,
        left=left or threading.Event(),
        seconds=seconds,
    )


LONG = {"picture": "waves", "side": 64, "epochs": 2000, "depth": 4}


def test_a_job_ends_at_its_limit_of_time(tmp_path):
    worker = Worker(str(tmp_path), None)
    assert "embedders" in ask(worker, "encode", {})
    with pytest.raises(WorkError, match=r"Ended after 0\.5 seconds"):
        ask(worker, "train", LONG, seconds=0.5)
    assert not worker.alive


def test_a_job_that_nobody_waits_for_stops(tmp_path):
    worker, left = Worker(str(tmp_path), None), threading.Event()
    quick = LONG | {"side": 32, "depth": 0}  # an epoch takes milliseconds
    done = ask(worker, "train", quick, left=left, part=lambda found: left.set())
    assert done["stopped_by"] == "callback"
    assert "embedders" in ask(worker, "encode", {})  # the word to stop is forgotten
    worker.end()


MOST = {"picture": "waves", "side": 256, "task": "random", "share": 0.9}


def test_a_job_ends_at_its_limit_of_memory(tmp_path):
    worker = Worker(str(tmp_path), None, memory=1 << 24)
    with pytest.raises(WorkError, match="memory"):
        ask(worker, "baselines", MOST)
    worker.end()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="there is no /proc here")
def test_a_process_that_was_killed_is_replaced(server):
    me = server.process.pid
    children = [
        int(child)
        for path in glob.glob(f"/proc/{me}/task/*/children")
        for child in Path(path).read_text().split()
    ]
    workers = [
        child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
    assert workers
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    found = [server.ask("encode", {}, "killed", number)[0] for number in (1, 2, 3, 4)]
    assert found[-1] == 200


# the command
# ------------------------------------------------------------------------------------------


def folders(process):
    """Return the folders of one server: others may run on this machine at the same time."""
    return glob.glob(os.path.join(tempfile.gettempdir(), f"kronfield-play-{process.pid}-*"))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_server_ends_without_a_trace(how, tmp_path):
    path = tmp_path / "photo.png"
    path.write_bytes(picture_bytes())
    served = Served(str(path))
    assert served.address.endswith("&tab=reconstruct&picture=file")
    state = {"picture": "file", "side": 32, "noise": 0}
    assert served.ask("repair", state)[0] == 200
    assert folders(served.process)
    served.process.send_signal(how)
    _, errors = served.process.communicate(timeout=20)
    assert "Traceback" not in errors
    assert not folders(served.process)


def test_ctrl_c_while_processes_start_leaves_no_trace(tmp_path):
    # processes that start inherit what is blocked: they do not die of Ctrl-C before they ignore it
    worker = Worker(str(tmp_path), None)
    os.kill(worker._process.pid, signal.SIGINT)
    assert worker.alive
    blocked = re.search(r"SigBlk:\s*(\w+)", Path(f"/proc/{worker._process.pid}/status").read_text())
    assert int(blocked[1], 16) >> (signal.SIGINT - 1) & 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    worker.kill()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_server_ends_during_training_without_a_trace(how):
    served = Served()
    connection, answer = training(served, "ends", ENDLESS)
    assert folders(served.process)
    served.process.send_signal(how)
    _, errors = served.process.communicate(timeout=20)
    assert errors == ""
    with contextlib.suppress(http.client.HTTPException):
        answer.read()
    connection.close()
    assert not folders(served.process)


def test_folders_of_no_process_do_not_matter(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"kronfield-play-{'9' * 30}-x").mkdir()
    (tmp_path / "kronfield-play-1x-x").mkdir()
    before = set(tmp_path.iterdir())
    Playground(port=0).close()
    assert set(tmp_path.iterdir()) == before


def test_a_server_that_was_killed_can_be_started_again():
    first = Served()
    first.process.kill()
    first.process.communicate()
    second = Served(port=first.port)
    try:
        assert second.port == first.port
        status, _, content = second.request(f"/?token={first.token}")
        assert status == 403
        assert b"whole address" in content
        assert second.request(f"/?token={second.token}")[0] == 200
    finally:
        second.end()
    assert not folders(first.process)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.png"], "a file that exists"),
        (["photo.tif"], "For other files use kronfield fit"),
        (["--port", "70000"], "70000"),
        (["two.csv"], "two columns of coordinates"),
    ],
)
def test_a_wrong_call_is_one_line(arguments, says, tmp_path):
    (tmp_path / "photo.tif").write_bytes(b"II*\0" + bytes(50))
    (tmp_path / "two.csv").write_text("a,b\n1,2\n3,4\n")
    done = subprocess.run(
        [*COMMAND, "play", "--no-browser", *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr


def test_a_port_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="a free port"):
            Playground(port=taken.getsockname()[1])


def test_without_a_port_the_first_free_one_is_taken():
    first, second = Playground(), Playground()
    try:
        assert first.port != second.port
        assert first.token != second.token
    finally:
        first.close()
        second.close()


def test_the_example_has_points():
    assert len(points.given_points({"points": points.example()}, None)) == 24
