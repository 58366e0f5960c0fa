"""Another account of this machine asks for everything, in every way: it may learn that the dashboard runs, no more.

What it sends arrives from its own socket. Half of it lies: that a proxy passed it on from the owner's own connection,
by a cookie or a token that is guessed, from a connection that is closed before it is judged.
"""

from __future__ import annotations

import random
import re
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

from dashboard.access import HEALTH
from tests.attacks.sessions import APP, PAGES
from tests.attacks.table import Tally
from tests.browsing import served
from tests.strangers import Stranger

PATHS = (
    *(f"/{page}" for page in ("", "landing", *PAGES)), "/app/static/inter-latin.woff2", "/static/js/index.js",
    "/media/0123456789abcdef.png", "/_stcore/host-config", "/_stcore/upload_file/a/b", "/_stcore/metrics",
    "/_stcore/script-health-check", "/_stcore/stream", "/component/a/index.html", "/auth/login", "/nowhere", HEALTH,
)  # fmt: skip
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")


def attack(folder: Path, n: int, seed: int) -> Tally:
    """n requests: each gets the page that asks for the token (401) or a refusal (403); HEALTH says "ok" (or 405)."""
    tally, draw = Tally("request of another account"), random.Random(seed)
    folder.mkdir(parents=True)
    with served(APP, folder) as url, Stranger() as other:
        token = Path(re.findall(r"<code>cat (\S+)</code>", other.get(url)[1])[0]).read_text().strip()
        at = urlsplit(url)
        port = at.port or 0
        with socket.create_connection((at.hostname or "", port)) as ours:
            mine = f"127.0.0.1:{ours.getsockname()[1]}"
            for i in range(n):
                path, method = draw.choice(PATHS), draw.choice(METHODS)
                headers = _lies(draw, mine, url)
                shown = f"{method} {path} {headers}"
                if draw.random() < 0.1:  # judged once it is closed, if it comes to that; then it must go on
                    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                    asked = f"{method} {path} HTTP/1.1\r\nHost: localhost:{port}\r\n{head}\r\n".encode()
                    other.send(("127.0.0.1", port), asked, draw.choice(("close", "reset", "half")))
                began = time.monotonic()
                if draw.random() < 0.3:
                    problem = "a socket was opened" if other.opens(url, **headers) else ""
                else:
                    status, rest = other.get(url, path, method, **headers)
                    known = path == HEALTH and status in (200, 204, 405) or status in (401, 403)
                    problem = "" if known and token not in rest else f"{status}: {rest[:200]}"
                tally.case(f"{i} {shown}", *filter(None, [problem]), seconds=time.monotonic() - began)
    return tally


def _lies(draw: random.Random, mine: str, url: str) -> dict[str, str]:
    """Headers, some of which would make the sender somebody else if they were believed."""
    port = urlsplit(url).port
    offered = {
        "X-Forwarded-For": draw.choice((mine, mine, f"8.8.8.8, {mine}", "127.0.0.1", "")),
        "Forwarded": f'for="{mine}";host=localhost', "X-Real-IP": mine, "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "localhost", "X-Remote-User": "root", "Authorization": "token x",
        "Cookie": draw.choice((f"manyeyes-{port}=", f"manyeyes-{port}=x", f'manyeyes-{port}=""', "manyeyes-0=x")),
        "Origin": draw.choice((url, "null", "http://evil.example")), "Host": draw.choice((f"localhost:{port}", "evil")),
        "X-HTTP-Method-Override": "GET",
    }  # fmt: skip
    if draw.random() < 0.3:  # alone: with another lie it is refused for that one
        return {"X-Forwarded-For": offered["X-Forwarded-For"]}
    return {name: offered[name] for name in draw.sample(sorted(offered), draw.randrange(4))}
