"""Connections that stay open for the next request to the same server: for urllib, which closes each.

What is left unread of an answer ends its connection, and so does a server that wants it closed.
"""

from __future__ import annotations

import http.client
import threading
import urllib.request
from typing import Any, Dict, List, Optional, Tuple

# (kind, host, proxy) → connections, each with the last answer that came over it.
_Server = Tuple[Any, ...]
_Kept = Tuple[http.client.HTTPConnection, http.client.HTTPResponse]
_KEPT: Dict[_Server, List[_Kept]] = {}
_LOCK = threading.Lock()


def _take(server: _Server) -> Optional[http.client.HTTPConnection]:
    """A connection whose last answer has been read to its end: what is left of one would be taken for the next."""
    with _LOCK:
        busy: List[_Kept] = []
        found = None
        for connection, answer in _KEPT.pop(server, ()):
            is_read = answer.length == 0 and not answer.will_close and connection.sock is not None
            if is_read and found is None:
                found = connection
            elif is_read or not answer.isclosed():
                busy.append((connection, answer))
            else:
                connection.close()
        _KEPT[server] = busy
        return found


def _keep(server: _Server, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> None:
    with _LOCK:
        _KEPT.setdefault(server, []).append((connection, answer))


def _headers_of(request: Any) -> Dict[str, str]:
    headers = dict(request.unredirected_hdrs)
    headers.update({name: value for name, value in request.headers.items() if name not in headers})
    return {name.title(): value for name, value in headers.items()}


def _ask(connection: http.client.HTTPConnection, request: Any, headers: Dict[str, str]) -> http.client.HTTPResponse:
    try:
        connection.request(request.get_method(), request.selector, None, headers)
        return connection.getresponse()
    except BaseException:
        connection.close()
        raise


class _Opener(urllib.request.AbstractHTTPHandler):
    """What do_open of urllib does, but for `Connection: close`."""

    def do_open(self, http_class: Any, req: Any, **more: Any) -> Any:
        headers = _headers_of(req)
        tunnel = getattr(req, "_tunnel_host", None)
        server = (http_class, req.host, tunnel)
        connection = _take(server)
        answer = None
        if connection is not None:
            try:
                answer = _ask(connection, req, headers)
            except (OSError, http.client.HTTPException):
                pass  # the server has closed it meanwhile: that is no failure
        if answer is None:
            connection = http_class(req.host, timeout=req.timeout, **more)
            assert connection is not None
            if tunnel:
                proxy = {"Proxy-Authorization": headers.pop(name) for name in list(headers)
                         if name == "Proxy-Authorization"}
                connection.set_tunnel(tunnel, headers=proxy)
            answer = _ask(connection, req, headers)
        assert connection is not None
        _keep(server, connection, answer)
        answer.url = req.get_full_url()
        answer.msg = answer.reason  # type: ignore[assignment]
        return answer


class KeptHttp(_Opener, urllib.request.HTTPHandler):
    """To be given to urllib.request.build_opener."""


class KeptHttps(_Opener, urllib.request.HTTPSHandler):
    """The same for https."""
