"""A web server for tests that serves folders by ranges, counts what it sends, and fails as it is told."""

import hashlib
import http.server
import json
import pathlib
import re
import socket
import struct
import threading
import urllib.parse


class RangeServer(http.server.ThreadingHTTPServer):
    """Serves the files below `folder`. A fault is a function that gets the handler, the file's path and
    size and the range, and returns whether it has answered; it is for the next GET of the file with
    that name, and `always` ones for every GET."""

    daemon_threads = True

    def __init__(self, folder, hub=None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = pathlib.Path(folder)
        self.hub = hub  # name → commit, for what asks as huggingface_hub does
        self.faults, self.always, self.versions = {}, {}, {}
        self.lock = threading.Lock()
        self.connections = 0
        self.forget()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def forget(self):
        self.sent, self.requests = 0, []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def stop(self):
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        pass  # clients that have seen enough

    def version(self, path):
        stat = path.stat()
        text = f"{path.name} {stat.st_size} {stat.st_mtime_ns} {self.versions.get(path.name, 0)}"
        return f'"{hashlib.sha1(text.encode()).hexdigest()}"'


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        with self.server.lock:
            self.server.connections += 1

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = urllib.parse.unquote(self.path.partition("?")[0]).strip("/")
        with self.server.lock:
            self.server.requests.append((self.command, path, self.headers.get("Range")))
        if path.startswith("api/models/"):
            self.answer_as_hub(path.removeprefix("api/models/"))
            return
        if "/resolve/" in path:  # ORG/NAME/resolve/COMMIT/FILE
            name, _, rest = path.partition("/resolve/")
            path = f"{name}/{rest.partition('/')[2]}"
        file = self.server.folder / path
        if not file.is_file():
            self.empty(404)
            return
        size = file.stat().st_size
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        begin, end = (int(match[1]), min(int(match[2]) + 1, size)) if match else (0, size)
        if self.command == "GET":
            with self.server.lock:
                waiting = self.server.faults.get(file.name) or []
                fault = waiting.pop(0) if waiting else self.server.always.get(file.name)
            if fault is not None and fault(self, file, size, begin, end):
                return
        self.send_range(file, size, begin, end, 206 if match and self.command == "GET" else 200)

    def empty(self, status, **headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": "0"}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def send_range(self, file, size, begin, end, status, *, length=None, content_range=None, most=None,
                   **headers):
        self.send_response(status)
        self.send_header("ETag", self.server.version(file))
        length = end - begin if length is None else length
        if length >= 0:
            self.send_header("Content-Length", str(length))
        if status == 206:
            self.send_header("Content-Range", content_range or f"bytes {begin}-{end - 1}/{size}")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "HEAD":
            return
        with open(file, "rb") as data:
            data.seek(begin)
            left = min(end - begin, end if most is None else most)
            while left > 0:
                piece = data.read(min(left, 1 << 16))
                self.wfile.write(piece)
                left -= len(piece)
                with self.server.lock:
                    self.server.sent += len(piece)

    def answer_as_hub(self, rest):
        name = next(name for name in self.server.hub if rest == name or rest.startswith(name + "/"))
        commit = self.server.hub[name]
        if rest.removeprefix(name).startswith("/tree/"):
            body = [self.listed(path) for path in sorted((self.server.folder / name).iterdir())]
        else:
            body = {"id": name, "modelId": name, "sha": commit, "private": False, "tags": [],
                    "downloads": 0, "likes": 0, "siblings": []}
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def listed(self, path):
        size = path.stat().st_size
        if path.suffix != ".safetensors":
            return {"type": "file", "path": path.name, "size": size,
                    "oid": hashlib.sha1(path.read_bytes()).hexdigest()}
        # Of large files nobody waits for a hash here.
        digest = hashlib.sha256(path.read_bytes() if size < 1 << 24 else path.name.encode()).hexdigest()
        return {"type": "file", "path": path.name, "size": size, "oid": "0" * 40,
                "lfs": {"oid": digest, "size": size, "pointerSize": 134}}


# Faults.

def reset(handler, file, size, begin, end):
    """The connection breaks in the middle."""
    handler.send_range(file, size, begin, end, 206, most=(end - begin) // 2)
    handler.wfile.flush()
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True
    return True


def short(handler, file, size, begin, end):
    """Fewer bytes than the range has, and the server says so."""
    handler.send_range(file, size, begin, end, 206, length=(end - begin) // 2, most=(end - begin) // 2)
    return True


def busy(status, retry_after=None):
    def fault(handler, file, size, begin, end):
        handler.empty(status, **({} if retry_after is None else {"Retry_After": retry_after}))
        return True
    return fault


def another_range(handler, file, size, begin, end):
    handler.send_range(file, size, begin + 1, end + 1, 206)
    return True


def no_content_range(handler, file, size, begin, end):
    handler.send_range(file, size, begin, end, 206, content_range="bytes */*")
    return True


def another_total(handler, file, size, begin, end):
    handler.send_range(file, size, begin, end, 206, content_range=f"bytes {begin}-{end - 1}/{size + 1}")
    return True


def whole(handler, file, size, begin, end):
    """Ignores the range."""
    handler.send_range(file, size, 0, size, 200)
    return True


def zipped(handler, file, size, begin, end):
    handler.send_range(file, size, begin, end, 206, Content_Encoding="gzip")
    return True


def changes(handler, file, size, begin, end):
    """Answers, and is another file from then on."""
    handler.send_range(file, size, begin, end, 206)
    handler.server.versions[file.name] = handler.server.versions.get(file.name, 0) + 1
    return True


def redirect(url):
    def fault(handler, file, size, begin, end):
        handler.empty(302, Location=url)
        return True
    return fault
