"""Who gets in, and what may be done here: every request passes `Guard` before Streamlit sees it.

1. The dashboard listens on this machine only, unless told otherwise (.streamlit/config.toml).
2. Listening here, it answers to this machine's own names: a page elsewhere whose name leads here (DNS rebinding) gets
   nothing. Its own account and root get in as they are; a connection of another account is asked for a token
   (`accounts`), where the system says whose a connection is. Listening elsewhere, or told MANYEYES_TOKEN, it asks
   everybody, once a browser, as Jupyter does.
3. What a browser says to come from another page (Origin) is refused: no other page can talk to it, or frame it.
4. MANYEYES_READ_ONLY=1, the default wherever others get in: no process is started or stopped, no path is taken, no hub
   is asked; only the runs of the given folders are shown.
5. The token is shown in a terminal or in a file that only its owner can read. No log, no list of processes and no
   address that stays in a browser holds it.
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
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config

from dashboard import accounts
from dashboard.first_response import index
from tracer.files import private

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
FORWARDED = ("x-forwarded-for", "forwarded", "x-real-ip")
"""Headers of a request that a proxy passes on. From this machine the server takes the first for the client's address,
so whoever sends it can name any connection as theirs."""
ASK = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Token · manyeyes</title><style>
:root {{ color-scheme: light dark; --page: #f4f6f9; --card: #ffffff; --text: #111622; --soft: #565f6e; --line: #dfe3ea;
  --edge: #7d8796; --key: #111622; --wrong: #b3261e }}
@media (prefers-color-scheme: dark) {{ :root {{ --page: #0f1218; --card: #181c25; --text: #e8ecf4; --soft: #a9b4c4;
  --line: #2a303c; --edge: #77849a; --key: #66738a; --wrong: #ff8a80 }} }}
* {{ box-sizing: border-box }}
body {{ margin: 0; padding: min(14vh, 8rem) 1rem 2rem; background: var(--page); color: var(--text);
  font: 16px/1.5 Inter, system-ui, sans-serif }}
main {{ max-width: 29rem; margin: auto; padding: 1.75rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px }}
h1 {{ margin: 0 0 .75rem; font-size: 1.25rem }} p {{ margin: 0 0 .75rem }} .soft {{ color: var(--soft) }}
code {{ display: block; margin-top: .35rem; padding: .5rem .7rem; border-radius: 6px; background: var(--page);
  color: var(--text); font: .875rem/1.5 ui-monospace, monospace; overflow-wrap: anywhere }}
label {{ display: block; margin: 1.25rem 0 .35rem; font-weight: 600 }}
.wrong {{ margin: .75rem 0 0; color: var(--wrong); font-weight: 600 }}
input, button {{ width: 100%; min-height: 2.75rem; padding: .5rem .75rem; border-radius: 6px; font: inherit }}
input {{ border: 1px solid var(--edge); background: var(--card); color: var(--text) }}
button {{ margin-top: .75rem; border: 0; background: var(--key); color: #fff; font-weight: 600; cursor: pointer }}
:focus-visible {{ outline: 3px solid var(--key); outline-offset: 2px }}
</style><main><h1>manyeyes asks for a token</h1>{why}<form method="get"><label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="off" required autofocus>
{kept}{wrong}<button>Enter</button></form></main></html>"""
OTHERS = """<p>This dashboard was started by another account of its machine than the one you connect from.</p>
<p class="soft">Only its owner can read the token, there:<code>cat {path}</code></p>"""
ANYBODYS = "<p>Ask whoever started it: the token, or the file that holds it, was printed there.</p>"
WRONG = '<p class="wrong" role="alert">That was not the token.</p>'


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
        self.asks_all = bool(self.token) or not self.local
        self.whose = None if self.asks_all or address is None else accounts.asking(address)
        self.file: Path | None = None
        if self.asks_all and not self.token:
            self._make_token()
            told = f"this token: {self.token}" if sys.stdout.isatty() else f"the token in {self._keep()}"
            _say(f"Others can reach this dashboard. It asks for {told}")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            try:
                return await self.app(scope, receive, send)
            finally:  # the server ends
                if self.file:
                    private.forget(self.file)
        asked = HTTPConnection(scope)
        if why := self._why_not(asked.headers):
            return await self._refuse(scope, receive, send, PlainTextResponse(why, 403))
        if scope["type"] == "http" and (kept := self._without_token(asked)) is not None:
            return await self._let_in(kept, scope, receive, send)
        if self._is_asked(asked) and not self._knows(asked.cookies.get(self._cookie(scope), "")):
            return await self._ask(asked, receive, send)
        return await self.app(scope, receive, _with_headers(send))

    def _is_asked(self, asked: HTTPConnection) -> bool:
        """Does this request need the token? OSError, as of a process out of descriptors, is no answer: it does."""
        if asked.scope["path"] == HEALTH:
            return False
        if self.asks_all or self.whose is None:
            return self.asks_all
        client, server = asked.scope.get("client"), asked.scope.get("server")
        if not client or not server or any(name in asked.headers for name in FORWARDED):
            return True
        try:
            return not accounts.is_ours(self.whose((client[0], client[1]), (server[0], server[1])))
        except OSError:
            return True

    def _why_not(self, headers: Headers) -> str:
        """Why a request gets no answer; empty where it gets one."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if self.local and _name(host) not in self.hosts:
            return f"manyeyes answers to localhost here, not to {_name(host)!r}; --server.allowedHosts allows others"
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return "another page asks: manyeyes answers its own page only"
        return ""

    def _without_token(self, asked: HTTPConnection) -> str | None:
        """The query of an address without the token that it carries; None where it carries none.

        A link carries the held token of a prompt under the same name.
        """
        query = parse_qsl(asked.url.query, keep_blank_values=True)
        kept = [(name, value) for name, value in query if name != "token" or not self._knows(value)]
        return urlencode(kept) if len(kept) < len(query) else None

    async def _let_in(self, kept: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Take the token from the address into a cookie: Share, a reload and the browser's history lack it."""
        response = RedirectResponse(f"?{kept}", 303)
        response.set_cookie(self._cookie(scope), self.token, httponly=True, samesite="lax")
        await self._refuse(scope, receive, send, response)

    async def _ask(self, asked: HTTPConnection, receive: Receive, send: Send) -> None:
        """The page that asks for the token; it keeps what else the address says."""
        if not self.asks_all and not (self.file and self.file.exists()):
            self._make_token()
            _say(f"Another account of this machine asks for this dashboard. The token is in {self._keep()}")
        query = parse_qsl(asked.url.query, keep_blank_values=True)
        held = [(name, value) for name, value in query if name != "token" or value.isdecimal()]
        fields = "".join(f'<input type="hidden" name="{escape(n)}" value="{escape(v)}">' for n, v in held)
        why = ANYBODYS if self.asks_all else OTHERS.format(path=escape(str(self.file)))
        page = ASK.format(why=why, kept=fields, wrong=WRONG if len(held) < len(query) else "")
        await self._refuse(asked.scope, receive, send, HTMLResponse(page, 401))

    def _make_token(self) -> None:
        self.token = self.token or secrets.token_urlsafe(24)

    def _keep(self) -> Path:
        self.file = private.keep(self.token)
        return self.file

    def _knows(self, given: str) -> bool:
        return bool(self.token) and hmac.compare_digest(given.encode(), self.token.encode())

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


def _say(line: str) -> None:
    sys.stdout.write(f"\n  {line}\n")
    sys.stdout.flush()


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
