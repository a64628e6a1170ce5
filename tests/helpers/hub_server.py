"""A small stand-in for the hub on localhost, so that its real client is what the tests run."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubHandler(BaseHTTPRequestHandler):
    """Serves `repositories` (name -> file -> content), but for the `refusals` (name -> status, code)."""

    repositories: ClassVar[dict[str, dict[str, bytes]]] = {}
    refusals: ClassVar[dict[str, tuple[int, str]]] = {}
    served: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0].strip("/")
        is_api = path.startswith("api/models/")
        org, name, *rest = path.removeprefix("api/models/").split("/")
        repo = f"{org}/{name}"
        if repo in self.refusals:
            status, code = self.refusals[repo]
            self._send(status, b"{}", {"X-Error-Code": code}, with_body=with_body)
        elif repo not in self.repositories:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, with_body=with_body)
        elif is_api:
            self._send(200, json.dumps(self._about(repo, rest)).encode(), {}, with_body=with_body)
        else:
            self._send_file(repo, "/".join(rest[2:]), with_body=with_body)

    def _about(self, repo: str, rest: list[str]) -> object:
        files = self.repositories[repo]
        if rest[:1] == ["tree"]:
            return [
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in files.items()
            ]
        return {"id": repo, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}

    def _send_file(self, repo: str, file: str, *, with_body: bool) -> None:
        content = self.repositories[repo].get(file)
        if content is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"}, with_body=with_body)
            return
        if with_body:
            self.served.append(file)
        headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        self._send(200, content, headers, with_body=with_body)

    def _send(self, status: int, content: bytes, headers: dict[str, str], *, with_body: bool) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing on stderr."""


@contextmanager
def hub_server(
    repositories: dict[str, dict[str, bytes]], refusals: dict[str, tuple[int, str]]
) -> Iterator[tuple[str, list[str]]]:
    """Serve repositories; yields the address and the list of files that were fetched so far."""
    HubHandler.repositories, HubHandler.refusals, HubHandler.served = repositories, refusals, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), HubHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", HubHandler.served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
