"""The server of the page: on this machine alone, with limits, one job at a time for each page."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from importlib.resources import files as resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kronfield._core.arrays import problem
from kronfield.play.states import choices
from kronfield.play.worker import (
    FIT_SECONDS,
    NOBODY_WAITS,
    TRAINING_SECONDS,
    Worker,
    WorkError,
)

HOST = "127.0.0.1"
# The port that is tried first, and how many after it, if none is given.
PORT, TRIED = 8421, 20
# Bytes of a request, and of a file that is sent; seconds in which they must come.
MOST_ASKED, MOST_SENT, BODY_SECONDS = 1 << 16, 20 << 20, 60.0
# Files that are received at the same time: each is in memory until it is complete.
MOST_RECEIVED = 3
# Processes that compute; a page uses one at a time. At most one of them trains, so that another
# page need not wait for minutes.
PROCESSES = 2
# Seconds for which a run waits for the end of another page's.
TRAINING_WAIT = 5.0
# Pages that are remembered, and files that are kept.
MOST_PAGES, MOST_FILES = 64, 16

# The folder of a server; the number of its process follows.
_FOLDER = "kronfield-play-"

_ASSETS = {
    "style.css": "text/css",
    "main.js": "text/javascript",
    "controls.js": "text/javascript",
    "drawing.js": "text/javascript",
    "encode.js": "text/javascript",
    "reconstruct.js": "text/javascript",
    "repair.js": "text/javascript",
    "points.js": "text/javascript",
}
_JOBS = ("encode", "match", "reconstruct", "baselines", "repair", "points", "script")
# Of these, those that fit nothing, so that they need not wait.
_QUICK = ("match", "script")
_PICTURES = {".png", ".jpg", ".jpeg", ".webp", ".bmp"}
_TABLES = {".csv", ".tsv"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class _Page:
    """What the server knows of a page: its newest requests, and the job that runs."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.newest: dict[str, int] = {}
        self.running: tuple[str, threading.Event] | None = None
        self.training: threading.Event | None = None  # of the newest run, which may still wait

    def end(self, name: str) -> None:
        """End the job of this name, which a newer request replaces; and training in any case."""
        if self.running is not None and self.running[0] == name:
            self.running[1].set()
        if self.training is not None:
            self.training.set()


class Playground:
    """The server of the page.

    Parameters
    ----------
    file : str, optional
        A picture or table that the page starts with.
    port : int, optional
        The port; by default the first that is free from `PORT` on. 0 is any free port.
    """

    def __init__(self, file: str | None = None, port: int | None = None) -> None:
        for name in ("starlette", "uvicorn"):
            if find_spec(name) is None:
                raise problem(
                    "play",
                    f"a Python without {name}",
                    name,
                    "Install it with: pip install 'kronfield[play]'",
                )
        self.file = file
        self.token = secrets.token_urlsafe(24)
        self._ticket = secrets.token_urlsafe(24)
        self._socket = _bound(port)
        self.port = int(self._socket.getsockname()[1])
        _sweep()
        self._folder = tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-")
        self._pages: dict[str, _Page] = {}
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._runs: set[asyncio.Task[Any]] = set()
        self._ending = False
        self._file_kind = ""
        try:
            if file is not None:
                self._read_file(Path(file))
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """The address of the page, with its token."""
        tab = {"picture": "&tab=reconstruct&picture=file", "table": "&tab=points&table=file"}
        return f"http://{HOST}:{self.port}/?token={self.token}{tab.get(self._file_kind, '')}"

    @property
    def ticket_address(self) -> str:
        """An address that leads to `address` once, for the command line of a browser.

        All users of a machine can read command lines, so the token must not be in one.
        """
        return f"http://{HOST}:{self.port}/?ticket={self._ticket}"

    def run(self) -> None:
        """Serve until interrupted, by Ctrl-C or by the signal to terminate."""
        import uvicorn

        playground = self

        class Server(uvicorn.Server):
            async def shutdown(self, sockets: Any = None) -> None:
                playground._end_jobs()  # otherwise it would wait for them
                await super().shutdown(sockets)

        config = uvicorn.Config(
            self.app(),
            http="h11",  # it limits the length of headers
            ws="none",
            log_level="error",
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=5,
        )
        server = Server(config)
        if threading.current_thread() is threading.main_thread():  # so that `close` runs
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            if hasattr(signal, "SIGHUP"):  # the terminal is closed
                signal.signal(signal.SIGHUP, server.handle_exit)
        try:
            with contextlib.suppress(KeyboardInterrupt):
                server.run(sockets=[self._socket])
        finally:
            self.close()

    def close(self) -> None:
        """End all processes and remove what was sent."""
        for worker in [*self._idle, *self._busy]:
            worker.end()
        self._idle, self._busy = [], set()
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def app(self) -> Any:
        """Return the application, for a server of the ASGI standard."""
        from starlette.applications import Starlette
        from starlette.routing import Route

        @contextlib.asynccontextmanager
        async def life(app: Any) -> AsyncIterator[None]:
            self._free = asyncio.Semaphore(PROCESSES)
            self._training = asyncio.Semaphore(PROCESSES - 1)
            self._receiving = asyncio.Semaphore(MOST_RECEIVED)
            self._idle.append(self._worker())  # ready when the page has loaded
            yield

        routes = [
            Route("/", self._index),
            Route("/assets/{name}", self._asset),
            Route("/api/choices", self._choices),
            Route("/api/train", self._train, methods=["POST"]),
            Route("/api/send", self._send, methods=["POST"]),
            Route("/api/save", self._save, methods=["POST"]),
            Route("/api/{name}", self._answer, methods=["POST"]),
        ]
        application = Starlette(routes=routes, lifespan=life)
        return _Guard(application, self.token, self._ticket, self.address)

    # the page
    # --------------------------------------------------------------------------------------

    async def _index(self, request: Any) -> Any:
        from starlette.responses import HTMLResponse

        return HTMLResponse(_asset_bytes("index.html"))

    async def _asset(self, request: Any) -> Any:
        from starlette.responses import PlainTextResponse, Response

        name = request.path_params["name"]
        if name not in _ASSETS:
            return PlainTextResponse("There is no such file.", 404)
        return Response(_asset_bytes(name), media_type=_ASSETS[name])

    async def _choices(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        from kronfield.play.points import example

        known = choices()
        known["torch"] = find_spec("torch") is not None
        known["photograph"] = find_spec("skimage") is not None
        known["file"] = self._file_kind
        known["example"] = example()
        return JSONResponse(known)

    # requests
    # --------------------------------------------------------------------------------------

    async def _answer(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        name = request.path_params["name"]
        if name not in _JOBS:
            return _sentence("There is no such request.", 404)
        asked = await _asked(request)
        if isinstance(asked, str):
            return _sentence(asked, 400)
        page, number = self._page(asked["page"]), asked["number"]
        page.newest[name] = max(page.newest.get(name, 0), number)
        if name not in _QUICK:
            page.end(name)
        async with contextlib.nullcontext() if name in _QUICK else page.lock:
            if number < page.newest[name]:
                return JSONResponse({"superseded": True})
            try:
                found = await self._asking(page, name, asked["state"])
            except WorkError as error:
                if number < page.newest[name]:
                    return JSONResponse({"superseded": True})
                return _sentence(str(error), 422)
        return JSONResponse(found)

    async def _save(self, request: Any) -> Any:
        from starlette.responses import Response

        asked = await _asked(request)
        if isinstance(asked, str):
            return _sentence(asked, 400)
        page = self._page(asked["page"])
        page.end("save")
        async with page.lock:
            try:
                found = await self._asking(page, "save", asked["state"])
            except WorkError as error:
                return _sentence(str(error), 422)
        return Response(found, media_type="application/octet-stream")

    async def _train(self, request: Any) -> Any:
        from starlette.responses import StreamingResponse

        asked = await _asked(request)
        if isinstance(asked, str):
            return _sentence(asked, 400)
        page = self._page(asked["page"])
        page.end("train")
        left = page.training = threading.Event()

        async def lines() -> AsyncIterator[bytes]:
            # only the newest part is kept for a page that reads slowly, or not at all
            parts: list[Any] = []
            came = asyncio.Event()
            loop = asyncio.get_running_loop()

            def keep(found: Any) -> None:
                parts[:] = [found]
                came.set()

            def part(found: Any) -> None:
                loop.call_soon_threadsafe(keep, found)

            # A task of its own, so that the page is locked until the job has ended, not only until
            # the page has left.
            job = asyncio.create_task(self._run(page, asked["state"], part, left))
            self._runs.add(job)
            job.add_done_callback(self._runs.discard)
            job.add_done_callback(lambda _: came.set())
            try:
                while not job.done() or parts:
                    await came.wait()
                    came.clear()
                    while parts:
                        yield _line({"part": parts.pop()})
                yield _line(job.result())
            finally:  # also when the page has left
                left.set()

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def _run(
        self, page: _Page, state: Any, part: Callable[[Any], None], left: threading.Event
    ) -> dict[str, Any]:
        """Train a network, and return the last line for the page."""
        async with page.lock:
            try:
                await asyncio.wait_for(self._training.acquire(), TRAINING_WAIT)
            except TimeoutError:
                return {"refused": "Another page trains a network. Stop it there, or wait."}
            try:
                return {
                    "done": await self._asking(page, "train", state, part, left, TRAINING_SECONDS)
                }
            except WorkError as error:
                return {"refused": str(error)}
            finally:
                self._training.release()

    async def _send(self, request: Any) -> Any:
        """Keep a file that is dropped on the page, under a name of the server's own."""
        from starlette.responses import JSONResponse

        ending = Path(request.query_params.get("name", "")).suffix.lower()
        kind = "picture" if ending in _PICTURES else "table" if ending in _TABLES else ""
        if not kind:
            known = ", ".join(sorted(_PICTURES | _TABLES))
            return _sentence(f"The page takes {known} files. Convert it to one of them.", 415)
        sender = request.query_params.get("page", "")
        if not _is_page(sender):
            return _sentence("A request has a page.", 400)
        name = f"sent-{secrets.token_hex(8)}"
        path = Path(self._folder) / f"{name}{ending}"
        async with self._receiving:
            content = await _body(request, MOST_SENT)
            if content is None:
                text = f"The file has more than {MOST_SENT >> 20} MB, or comes too slowly."
                return _sentence(f"{text} Use the command line.", 413)
            if not content:
                return _sentence("The file is empty.", 422)
            await asyncio.to_thread(path.write_bytes, content)
            del content
        page = self._page(sender)
        page.end("send")
        try:
            async with page.lock:
                found = await self._asking(page, kind, str(path))
        except WorkError as error:
            # the name on the page is the user's own, not the server's
            return _sentence(str(error).replace(str(path), "the file"), 422)
        finally:
            path.unlink(missing_ok=True)
        self._forget_files()
        return JSONResponse({"name": name, "kind": kind, **found})

    # work
    # --------------------------------------------------------------------------------------

    async def _asking(
        self,
        page: _Page,
        name: str,
        given: Any,
        part: Callable[[Any], None] = lambda found: None,
        left: threading.Event | None = None,
        seconds: float = FIT_SECONDS,
    ) -> Any:
        """Return the answer of a free process to a request."""
        left = left or threading.Event()
        if name not in _QUICK:
            page.running = (name, left)
        try:
            async with self._free:
                if left.is_set() or self._ending:
                    raise WorkError(NOBODY_WAITS)
                worker = self._idle.pop() if self._idle else self._worker()
                if not worker.alive:
                    worker = self._worker()
                self._busy.add(worker)
                try:
                    return await asyncio.to_thread(
                        worker.ask, name, given, part=part, left=left, seconds=seconds
                    )
                finally:
                    self._busy.discard(worker)
                    if worker.alive:
                        self._idle.append(worker)
        finally:
            if page.running == (name, left):
                page.running = None

    def _end_jobs(self) -> None:
        """End all jobs, so that their requests are answered; no others start."""
        self._ending = True
        for worker in self._busy:
            worker.kill()

    def _worker(self) -> Worker:
        return Worker(self._folder, self.file)

    def _page(self, name: str) -> _Page:
        """Return what is known of a page; the pages that were silent longest are forgotten."""
        page = self._pages.pop(name, None) or _Page()
        for other in list(self._pages)[: max(0, len(self._pages) - MOST_PAGES + 1)]:
            if not self._pages[other].lock.locked():
                del self._pages[other]
        self._pages[name] = page
        return page

    def _forget_files(self) -> None:
        kept = sorted(Path(self._folder).glob("sent-*.npy"), key=lambda path: path.stat().st_mtime)
        for path in kept[:-MOST_FILES]:
            path.unlink(missing_ok=True)

    def _read_file(self, path: Path) -> None:
        """Read the file on the command line, as if it had been dropped on the page."""
        import numpy as np

        from kronfield.files.guard import check_source
        from kronfield.play.jobs import MOST_PIXELS
        from kronfield.play.pictures import read_picture
        from kronfield.play.points import read_points

        check_source(path)
        ending = path.suffix.lower()
        if ending not in _PICTURES | _TABLES:
            known = ", ".join(sorted(_PICTURES | _TABLES))
            raise problem("file", path.name, known, "For other files use kronfield fit.")
        is_picture = ending in _PICTURES
        values = read_picture(path, MOST_PIXELS) if is_picture else read_points(path)
        np.save(Path(self._folder) / "file.npy", values)
        self._file_kind = "picture" if is_picture else "table"


class _Guard:
    """Refuses what does not come from the page: other hosts, other origins, no token."""

    def __init__(self, app: Any, token: str, ticket: str, address: str) -> None:
        self._app, self._token, self._address = app, token, address
        self._ticket: str | None = ticket
        port = urlsplit(address).port
        self._hosts = {f"{name}:{port}" for name in (HOST, "localhost")}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *[(key.lower().encode(), value.encode()) for key, value in _HEADERS.items()],
                ]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)

    def _refusal(self, scope: Any) -> Any:
        """Return the answer to a request that goes no further, or None."""
        from starlette.requests import Request
        from starlette.responses import RedirectResponse

        request = Request(scope)
        headers = request.headers
        if headers.get("host") not in self._hosts:
            return _sentence("This page is served to its own machine alone.", 403)
        origin = headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in self._hosts}:
            return _sentence("Requests of other pages are refused.", 403)
        if scope["path"].startswith("/assets/"):
            return None
        in_query = scope["path"] == "/"
        if in_query and _same(request.query_params.get("ticket"), self._ticket):
            self._ticket = None  # it is valid once
            return RedirectResponse(self._address, 303)
        token = request.query_params.get("token") if in_query else headers.get("x-kronfield-token")
        if not _same(token, self._token):
            return _sentence(
                "Open the whole address that `kronfield play` has printed, with its token.", 403
            )
        return None


async def _asked(request: Any) -> dict[str, Any] | str:
    """Return what a page asks for, or the sentence that says what is wrong with it."""
    content = await _body(request, MOST_ASKED)
    if content is None:
        return f"A request has at most {MOST_ASKED} bytes, which come without a pause."
    try:
        asked = json.loads(content)
    except (ValueError, RecursionError):
        return "A request is JSON."
    valid = (
        isinstance(asked, dict)
        and _is_page(asked.get("page"))
        and type(asked.get("number")) is int
        and isinstance(asked.get("state"), dict)
    )
    return asked if valid else "A request has a page, a number and a state."


async def _body(request: Any, most: int) -> bytearray | None:
    """Return what a request holds; None if it is too long, too slow, or its page has left."""
    from starlette.requests import ClientDisconnect

    content = bytearray()
    with contextlib.suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(BODY_SECONDS):
            async for block in request.stream():
                content += block
                if len(content) > most:
                    return None
            return content
    return None


def _same(given: str | None, secret: str | None) -> bool:
    """Return whether a secret was given, in a time that does not tell how much of it."""
    if given is None or secret is None:
        return False
    return secrets.compare_digest(given.encode(), secret.encode())


def _is_page(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[0-9a-z]{1,32}", name) is not None


def _sentence(text: str, status: int) -> Any:
    from starlette.responses import JSONResponse

    return JSONResponse({"refused": text}, status)


def _line(content: Any) -> bytes:
    return json.dumps(content).encode() + b"\n"


def _asset_bytes(name: str) -> bytes:
    return (resources("kronfield.play") / "assets" / name).read_bytes()


def _sweep() -> None:
    """Remove the folders of servers that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}[0-9]*-*"):
        number = folder.name[len(_FOLDER) :].partition("-")[0]
        try:
            os.kill(int(number), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except (ValueError, OverflowError, OSError):
            continue


def _bound(port: int | None) -> socket.socket:
    """Return a socket on a port of this machine."""
    tried = [port] if port is not None else [*range(PORT, PORT + TRIED), 0]
    for one in tried:
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((HOST, one))
            bound.listen(64)
        except (OSError, OverflowError) as error:
            bound.close()
            failure = error
            continue
        return bound
    raise problem("port", port, "a free port", "Choose another, or leave it out.") from failure
