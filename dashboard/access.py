"""Who gets in, and what may be done here: every request passes `Guard` before Streamlit sees it.

1. The dashboard listens on this machine only, unless told otherwise (.streamlit/config.toml).
2. Listening here, it answers to this machine's own names: a page elsewhere whose name leads here (DNS rebinding) gets
   nothing. Listening elsewhere, or told MANYEYES_TOKEN, it asks for the token, once a browser, as Jupyter does.
3. What a browser says to come from another page (Origin) is refused: no other page can talk to it, or frame it.
4. MANYEYES_READ_ONLY=1, the default wherever others get in: no process is started or stopped, no path is taken, no hub
   is asked; only the runs of the given folders are shown.
"""

from __future__ import annotations

import functools
import hmac
import os
import re
import secrets
import sys
from base64 import b64encode
from hashlib import sha256
from html import escape
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config

from dashboard.first_response import index

HERE = ("localhost", "127.0.0.1", "::1")
HEALTH = "/_stcore/health"
"""Says "ok" to anybody, so that a launcher knows when to open the page."""
POLICY = (
    "default-src 'self'; script-src 'self' blob: {inline}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data: blob:; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
"""Nothing is fetched from elsewhere or sent there, and no text on a page can run; {inline}: what is in Streamlit's own
page (components come as blobs)."""
ASK = """<!doctype html><meta charset="utf-8"><title>manyeyes</title>
<body style="font: 16px system-ui; margin: 15vh auto; max-width: 26rem"><h1 style="font-size: 1.2rem">manyeyes</h1>
<p>This dashboard asks for the token that was printed where it was started.</p>
<form method="get"><input name="token" type="password" autofocus aria-label="Token" style="font: inherit; width: 100%">
{kept}<button style="font: inherit; margin-top: .6rem">Enter</button></form>"""


@functools.cache
def headers() -> dict[str, str]:
    """What every answer says to the browser."""
    scripts = re.findall(r"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", index(), re.DOTALL)
    inline = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    return {
        "Content-Security-Policy": POLICY.format(inline=inline), "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }  # fmt: skip


def read_only() -> bool:
    """May nothing be started, stopped or opened from here?"""
    return os.environ.get("MANYEYES_READ_ONLY", "0") not in ("", "0")


def guard() -> Middleware:
    """The guard of the server that Streamlit is about to start, as its options say."""
    hosts = tuple(config.get_option("server.allowedHosts"))
    return Middleware(Guard, address=config.get_option("server.address"), hosts=hosts)


def allow(what: str) -> None:
    """A ValueError where nothing may be started, stopped or opened."""
    if read_only():
        raise ValueError(f"this dashboard is read-only, so nobody can {what} here; `manyeyes --no-read-only` allows it")


class Guard:
    """The rules above, around the server's app; `address` is where it listens, None: everywhere."""

    def __init__(self, app: ASGIApp, address: str | None, hosts: tuple[str, ...] = ()) -> None:
        self.app = app
        self.local = address in HERE
        self.hosts = {*HERE, *(host.lower() for host in hosts)}
        if not self.local:
            os.environ.setdefault("MANYEYES_READ_ONLY", "1")
        if read_only():
            os.environ["HF_HUB_OFFLINE"] = "1"
        self.token = os.environ.pop("MANYEYES_TOKEN", "")  # no process that is started from here knows it
        if not (self.token.isascii() and self.token.isprintable()):
            raise ValueError("MANYEYES_TOKEN must be of letters, digits and signs that a cookie can hold (ASCII)")
        if not self.local and not self.token:
            self.token = secrets.token_urlsafe(24)
            sys.stdout.write(f"\n  Others can reach this dashboard. It asks for this token: {self.token}\n")
            sys.stdout.flush()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        asked = HTTPConnection(scope)
        if why := self._why_not(asked.headers):
            return await self._refuse(scope, receive, send, PlainTextResponse(why, 403))
        if self.token and scope["path"] != HEALTH and not self._knows(asked.cookies.get(self._cookie(scope), "")):
            return await self._ask(asked, receive, send)
        return await self.app(scope, receive, _with_headers(send))

    def _why_not(self, headers: Headers) -> str:
        """Why a request gets no answer; empty where it gets one."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if self.local and _name(host) not in self.hosts:
            return f"manyeyes answers to localhost here, not to {_name(host)!r}; --server.allowedHosts allows others"
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return "another page asks: manyeyes answers its own page only"
        return ""

    async def _ask(self, asked: HTTPConnection, receive: Receive, send: Send) -> None:
        """Take the token from the address into a cookie, or ask for it."""
        query = parse_qs(asked.url.query)
        given = query.pop("token", [""])[0]
        kept = [(name, value) for name, values in query.items() for value in values]
        response: Response
        if asked.scope["type"] == "http" and self._knows(given):
            response = RedirectResponse(f"?{urlencode(kept)}", 303)
            response.set_cookie(self._cookie(asked.scope), given, httponly=True, samesite="lax")
        else:
            fields = "".join(f'<input type="hidden" name="{escape(n)}" value="{escape(v)}">' for n, v in kept)
            response = HTMLResponse(ASK.format(kept=fields), 401)
        await self._refuse(asked.scope, receive, send, response)

    def _knows(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    @staticmethod
    def _cookie(scope: Scope) -> str:
        """Of this server: a browser sends the cookies of a machine to all of its ports."""
        return f"manyeyes-{(scope.get('server') or ('', 0))[1]}"

    @staticmethod
    async def _refuse(scope: Scope, receive: Receive, send: Send, answer: Response) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})  # before it is accepted: the browser gets a 403
        else:
            await answer(scope, receive, _with_headers(send))


def _name(host: str) -> str:
    """localhost of localhost:8501, ::1 of [::1]:8501; empty where it is no name of a host."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            said = MutableHeaders(scope=message)
            for name, value in headers().items():
                said.setdefault(name, value)
        await send(message)

    return sending
