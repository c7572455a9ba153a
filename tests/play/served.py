"""A server of the playground in a process of its own, and requests to it."""

import http.client
import json
import os
import subprocess
import sys
from urllib.parse import parse_qs, urlsplit

COMMAND = [sys.executable, "-c", "from kronfield.cli import main; main(prog_name='kronfield')"]


class Served:
    """`kronfield play`, as a person starts it."""

    def __init__(self, *arguments, port=0, browser=False):
        options = [] if browser else ["--no-browser"]
        self.process = subprocess.Popen(
            [*COMMAND, "play", *options, "--port", str(port), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        self.address = self.process.stdout.readline().strip()
        self.port = urlsplit(self.address).port
        self.token = (parse_qs(urlsplit(self.address).query).get("token") or [""])[0]

    def request(self, path, body=None, headers=None, method=None):
        """Return the status, the headers and the content of an answer."""
        with_token = {"X-Kronfield-Token": self.token}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            method = method or ("GET" if body is None else "POST")
            connection.request(method, path, body, with_token | (headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def ask(self, name, state, page="tests", number=1):
        """Return the status and the JSON of a request of a page."""
        body = json.dumps({"page": page, "number": number, "state": state})
        status, _, content = self.request(f"/api/{name}", body)
        return status, json.loads(content)

    def end(self):
        """End the server and return what it wrote to standard error."""
        self.process.terminate()
        return self.process.communicate(timeout=20)[1]
