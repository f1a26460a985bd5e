"""Carries files for the commands of --fetch and --done, in one process: with one login and connections that stay
open, where a process for each file would take a second to start."""

from __future__ import annotations

import json
import os
import shlex
import socketserver
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from prepack.errors import Error, UsageError
from prepack.remote import ask
from prepack.remote.files import get
from prepack.remote.store import Store

class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        carrier: Carrier = self.server.carrier  # type: ignore[attr-defined]
        verb, name, path = json.loads(self.rfile.readline())
        code, text = 0, ""
        try:
            carrier.verbs[verb](name, path)
        except Error as error:
            code, text = error.exit_code, str(error)
        except Exception as error:  # of the libraries below it
            code, text = 4, f"{name}: {error!r}"
        self.wfile.write(json.dumps([code, text]).encode())


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


class Carrier:
    """`get` brings a file into a folder of headers; `put` takes one to the store."""

    def __init__(self, connections: int, store: Optional[Store] = None) -> None:
        self._stopped = threading.Event()
        self.verbs: Dict[str, Callable[[str, str], Any]] = {
            "get": lambda name, path: get(name, path, connections=connections, stopped=self._stopped.is_set),
        }
        if store is not None:
            self.verbs["put"] = lambda name, path: store.put(path, name)

    def __enter__(self) -> "Carrier":
        self._folder = tempfile.TemporaryDirectory(prefix="prepack-")  # for us alone, and with a short name
        self._socket = os.path.join(self._folder.name, "socket")
        try:
            self._server = _Server(self._socket, _Handler)
        except OSError as error:
            self._folder.cleanup()
            raise UsageError("no socket can be made there", where=self._socket, found=str(error),
                             hint="Name a shorter folder in TMPDIR") from error
        self._server.carrier = self  # type: ignore[attr-defined]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._folder.cleanup()

    def command(self, verb: str) -> str:
        """For --fetch or --done."""
        words = [sys.executable, "-S", "-E", str(Path(ask.__file__).resolve()), self._socket, verb]
        return " ".join(map(shlex.quote, words)) + " {file} {path}"
