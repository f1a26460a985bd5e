"""Ranges of bytes over HTTP, from servers that may say anything.

What a server says of size, range and version is compared with what was asked and with what it said
before. One that sends the whole file is read to the end of the range and no further.
"""

from __future__ import annotations

import http.client
import re
import time
import urllib.error
import urllib.request
from email.utils import parsedate_to_datetime
from time import sleep
from typing import Any, Mapping, Optional, Tuple
from urllib.parse import urlsplit

from prepack.errors import Error, MalformedError, SystemFailedError
from prepack.remote.entry import Entry
from prepack.remote.kept_connections import KeptHttp, KeptHttps

# Of these answers another attempt may be different.
_BUSY = (429, 500, 502, 503, 504)
# These say something of the file.
_FOR_CALLERS = (404, 405, 410, 412, 416, 501)
_ATTEMPTS = 5
_FIRST_PAUSE = 0.5  # seconds; twice as long after each attempt
_LONGEST_PAUSE = 120.0  # a server that asks for more is one that says no
_TIMEOUT = 60.0  # without a byte
_PIECE = 1 << 16
# A range behind so many bytes is not worth reading them.
_MOST_SKIPPED = 128 << 20
_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """What was meant for one server is not for another to which it sends us."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme not in ("http", "https") or (old.scheme == "https" and new.scheme == "http"):
            raise MalformedError("the server leads to another protocol", where=req.full_url, found=newurl)
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None:
            request.method = req.get_method()
            if old.netloc != new.netloc:
                request.remove_header("Authorization")
                request.remove_header("Cookie")
        return request


_OPENER = urllib.request.build_opener(_Redirects, KeptHttp, KeptHttps)


class _TryAgain(Exception):
    def __init__(self, what: str, pause: Optional[float] = None) -> None:
        super().__init__(what)
        self.pause = pause


def _asked_pause(headers: Any) -> Optional[float]:
    """Retry-After: seconds, or a date."""
    value = (headers.get("Retry-After") or "").strip()
    if re.fullmatch(r"\d{1,9}", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None


def _size_of(text: Optional[str], url: str) -> int:
    if text is None or not re.fullmatch(r"\d{1,18}", text):
        raise MalformedError("the server does not say how large the file is", where=url, found=text)
    return int(text)


class HttpFiles:
    """Requests to one server. Safe from any thread."""

    def __init__(self, headers: Optional[Mapping[str, str]] = None) -> None:
        self._headers = {"User-Agent": "prepack-remote", **(headers or {}), "Accept-Encoding": "identity"}

    def look(self, url: str) -> Optional[Entry]:
        """Size and version of a file; None if there is no such file."""
        return self._attempts(url, lambda: self._look(url))  # type: ignore[no-any-return]

    def read(self, url: str, begin: int, end: int, entry: Entry) -> bytes:
        """Bytes [begin, end) of a file of which `entry` is known."""
        if begin == end:
            return b""
        return self._attempts(url, lambda: self._read(url, begin, end, entry))  # type: ignore[no-any-return]

    def _attempts(self, url: str, work: Any) -> Any:
        pause = _FIRST_PAUSE
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return work()
            except (_TryAgain, http.client.HTTPException, OSError) as error:
                if isinstance(error, Error):
                    raise
                asked = error.pause if isinstance(error, _TryAgain) else None
                if attempt == _ATTEMPTS or (asked or 0.0) > _LONGEST_PAUSE:
                    hint = f"It asks to come back in {asked:.0f} seconds" if asked else "Try again later"
                    raise SystemFailedError(
                        "the server does not deliver", where=url, found=str(error) or type(error).__name__,
                        expected=f"an answer within {attempt} attempts", hint=hint,
                    ) from error
                sleep(pause if asked is None else asked)
                pause *= 2

    def _open(self, url: str, method: str, extra: Mapping[str, str]) -> Any:
        request = urllib.request.Request(url, method=method, headers={**self._headers, **extra})
        try:
            return _OPENER.open(request, timeout=_TIMEOUT)
        except urllib.error.HTTPError as error:
            if error.code in _FOR_CALLERS:
                return error
            error.close()
            if error.code in _BUSY:
                raise _TryAgain(f"status {error.code}", _asked_pause(error.headers)) from None
            hint = "Is a login or a token needed?" if error.code in (401, 403) else None
            raise SystemFailedError("the server refuses", where=url, found=f"status {error.code}",
                                    hint=hint) from None

    def _look(self, url: str) -> Optional[Entry]:
        answer = self._open(url, "HEAD", {})
        with answer:
            if answer.status in (404, 410):
                return None
            if answer.status in (405, 501):
                raise SystemFailedError("the server answers no HEAD requests", where=url,
                                        found=f"status {answer.status}")
            size = _size_of(answer.headers.get("Content-Length"), url)
            version = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
            return Entry(size, version, sent=version)

    def _read(self, url: str, begin: int, end: int, entry: Entry) -> bytes:
        extra = {"Range": f"bytes={begin}-{end - 1}"}
        answer = self._open(url, "GET", extra)
        with answer:
            skip = self._check(answer, url, begin, end, entry)
            if skip > _MOST_SKIPPED:
                raise SystemFailedError("the server ignores ranges and sends the whole file", where=url,
                                        hint="Download the model, and ask the folder")
            return _read_exactly(answer, skip, end - begin)

    def _check(self, answer: Any, url: str, begin: int, end: int, entry: Entry) -> int:
        """How many bytes come before the range."""
        encoding = answer.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise MalformedError("the server sends another encoding than was asked for", where=url,
                                 found=encoding, expected="identity")
        version = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        first, total = begin, None
        if answer.status == 206:
            first, last, total = _range_of(answer.headers.get("Content-Range"), url)
            if (first, last) != (begin, end - 1):
                raise MalformedError("the server sends another range than was asked for", where=url,
                                     found=f"bytes {first}-{last}", expected=f"bytes {begin}-{end - 1}")
        elif answer.status == 200:
            first = 0
            total = _size_of(answer.headers.get("Content-Length"), url)
        elif answer.status not in (404, 410, 412, 416):
            raise MalformedError("not an answer to a request for a range", where=url,
                                 found=f"status {answer.status}", expected="status 206")
        changed = total != entry.size or (entry.sent is not None and version != entry.sent)
        if changed:
            raise changed_error(url, f"{total} bytes, version {version}",
                                f"{entry.size} bytes, version {entry.sent}")
        return begin - first


def changed_error(where: str, found: str, expected: str) -> MalformedError:
    return MalformedError("the file has changed since it was listed", where=where, found=found,
                          expected=expected, hint="Try again; a fixed revision does not change")


def _range_of(text: Optional[str], url: str) -> Tuple[int, int, int]:
    match = _CONTENT_RANGE.fullmatch(text or "")
    if match is None:
        raise MalformedError("the server does not say which range it sends", where=url,
                             found=text, expected="Content-Range: bytes FIRST-LAST/SIZE")
    return int(match[1]), int(match[2]), int(match[3])


def _read_exactly(answer: Any, skip: int, wanted: int) -> bytes:
    """What ends early is asked for again."""
    parts = []
    while skip + wanted > 0:
        piece = answer.read(min(_PIECE, skip + wanted))
        if not piece:
            raise _TryAgain(f"the answer ended {wanted + skip} bytes early")
        dropped = min(skip, len(piece))
        skip -= dropped
        piece = piece[dropped:]
        wanted -= len(piece)
        parts.append(piece)
    return b"".join(parts)
