"""A service on this machine that answers every request with the stream that its address names."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Iterator

STREAMS = Path(__file__).parents[2] / "crates/upstream/tests/it/streams"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        # `/chat/tool-calls/…`: what the client appends does not matter here.
        room, name = self.path.split("/")[1:3]
        stream = (STREAMS / room / f"{name}.sse").read_bytes()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.end_headers()
        self.wfile.write(stream)

    def log_message(self, *_: Any) -> None:
        """What came is seen by what the client made of it."""


@contextmanager
def service() -> Iterator[str]:
    """Its address, as long as it is needed."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def read_all(room: str, read: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """What a client makes of every stream of a room, by the stream's name. `read` is given the address to ask."""
    names = sorted(path.stem for path in (STREAMS / room).glob("*.sse"))
    with service() as url:
        return {f"{room}/{name}": read(f"{url}/{room}/{name}") for name in names}
