"""Folders of a web server that lists them: pages with links to what is in a folder, as nginx, Apache and Python write.

1. Only links to names right below the page count; each file's size and time come by HEAD.
2. Nothing is asked of any other address: a redirection is refused, and says where it leads.
3. No more is read than was asked for, whether or not the server knows ranges.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterable, Mapping
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from typing import Any, TypeVar
from urllib.parse import unquote, urljoin, urlsplit

import aiohttp  # of the extra `remote`
from fsspec.asyn import sync_wrapper
from fsspec.implementations.http import HTTPFileSystem

PAGE = 16 << 20
"""Bytes that are read of a page."""
MOST_PAGES, DEEPEST = 50_000, 12
"""Of one run."""
AT_ONCE = 6
"""Connections, as a browser opens to a server: of more, Python's own takes some after a second or never."""
NAME = re.compile(r"\w[\w.-]*/?", re.ASCII)
CHUNK = re.compile(r"(.*/c[/.])([0-9]+)([0-9/.]*)")
LISTS_NOTHING = (
    "{url}: this server does not list what is in a folder, so a run's files cannot be found. Let it (nginx: autoindex "
    "on; Apache: Options +Indexes; or python -m http.server), or copy the run here first"
)

T = TypeVar("T")


class WebServer(HTTPFileSystem):
    """Of a folder below which only what begins with one of `tops` is looked for."""

    def __init__(self, tops: tuple[str, ...] = (), **options: Any) -> None:
        super().__init__(block_size=0, get_client=_client, allow_redirects=False, **options)  # 0: streams, no ranges
        self.tops = tops

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        url = path.rstrip("/")
        names = await self._names(f"{url}/")
        kinds = {name: "directory" if name.endswith("/") else "file" for name in names}
        return [{"name": f"{url}/{name}", "type": kinds[name]} if detail else f"{url}/{name}" for name in names]

    ls = sync_wrapper(_ls)

    async def _find(  # pyrefly: ignore[bad-override]
        self, path: str, maxdepth: Any = None, withdirs: bool = False, *, known: Mapping[str, list[str]] | None = None,
        sure: Mapping[str, tuple[int, str]] | None = None, **_: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """Every file below, with its size and time. `known`: for folders that are not to be listed the files in them
        that are asked for, by their names from here on; of an array's chunks those that follow too. `sure`: size and
        mark of files that need not be asked for where a folder lists them."""
        url, pages, known = path.rstrip("/"), 0, known or {}
        folders, files = [f"{url}/"], []
        for _depth in range(DEEPEST):
            pages += len(folders)
            if pages > MOST_PAGES:
                raise OSError(f"{url} has more than {MOST_PAGES:,} folders: more than a run has")
            listed = await _together(self._names(folder, first=folder == f"{url}/") for folder in folders)
            found = [folder + name for folder, names in zip(folders, listed, strict=True) for name in names]
            if folders == [f"{url}/"]:
                found = [one for one in found if one.removeprefix(f"{url}/").rstrip("/") in self.tops]
            files += [one for one in found if not one.endswith("/")]
            folders = [one for one in found if one.endswith("/") and one.removeprefix(f"{url}/") not in known]
        if folders:
            raise OSError(f"{url} has folders more than {DEEPEST} deep ({folders[0]}): deeper than a run has")
        kept = {
            f"{url}/{name}": {"type": "file", "size": size, "ETag": mark} for name, (size, mark) in (sure or {}).items()
        }
        every: dict[str, Any] = {file: kept[file] for file in files if file in kept}
        files = [file for file in files if file not in kept]
        chunks = {f"{url}/{name}" for names in known.values() for name in names}
        files += chunks
        while files:
            infos = await _together(self._head(file) for file in files)
            every |= (there := {file: info for file, info in zip(files, infos, strict=True) if info is not None})
            if len(every) > MOST_PAGES:
                raise OSError(f"{url} has more than {MOST_PAGES:,} files: more than are asked for one by one")
            chunks = {_next(file, url) for file in chunks & set(there)} - set(every)
            files = [file for file in chunks if file]
        return every

    async def _exists(self, path: str, **_: Any) -> bool:  # pyrefly: ignore[bad-override]
        return await self._head(path) is not None

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        assert not start and end is not None
        return (await self._get(path, end))[0]

    async def _names(self, url: str, first: bool = True) -> list[str]:
        """What a page links to right below it; a folder that vanished meanwhile has nothing, the `first` must be."""
        try:
            page, kind = await self._get(url, PAGE)
        except (FileNotFoundError, PermissionError):
            if not first:
                return []
            if await self._head(f"{url}run.json") is not None:
                raise OSError(LISTS_NOTHING.format(url=url)) from None
            raise
        names = _below(url, page.decode(errors="replace")) if kind in ("text/html", "application/xhtml+xml") else []
        if not names and first:
            raise OSError(LISTS_NOTHING.format(url=url))
        return names

    async def _get(self, url: str, most: int) -> tuple[bytes, str]:  # pyrefly: ignore[bad-override]
        """The first bytes of an answer, and what it says it is."""
        session = await self.set_session()
        async with session.get(self.encode_url(url), **self.kwargs) as answer:
            self._raise_not_found_for_status(answer, url)
            parts, size = [], 0
            while size < most and (part := await answer.content.read(most - size)):
                parts.append(part)
                size += len(part)
            return b"".join(parts), answer.content_type

    async def _head(self, url: str) -> dict[str, Any] | None:
        session = await self.set_session()
        async with session.head(self.encode_url(url), **self.kwargs) as answer:
            try:
                self._raise_not_found_for_status(answer, url)
            except FileNotFoundError:  # gone since it was listed
                return None
            if answer.content_length is None:
                raise OSError(f"{url}: the server does not tell its size (Content-Length)")
            when = answer.headers.get("Last-Modified")
            return {
                "name": url, "type": "file", "size": answer.content_length, "ETag": answer.headers.get("ETag"),
                "mtime": parsedate_to_datetime(when) if when else None,
            }  # fmt: skip

    def _raise_not_found_for_status(self, response: Any, url: str) -> None:
        if 300 <= response.status < 400:
            there = response.headers.get("Location", "elsewhere")
            raise OSError(f"{url} leads to {there:.200}: nothing is followed to another address, name that one")
        if response.status in (401, 403):
            raise PermissionError(f"{url}: {response.status} {response.reason}")
        super()._raise_not_found_for_status(response, url)


def _next(file: str, url: str) -> str:
    """The chunk after this one along the first axis; empty where it is no chunk."""
    found = CHUNK.fullmatch(file.removeprefix(url))
    return f"{url}{found[1]}{int(found[2]) + 1}{found[3]}" if found else ""


async def _client(**options: Any) -> aiohttp.ClientSession:
    """Uncompressed, so that sizes are those of files; by the proxy of the environment, with no limit to a download."""
    wait = aiohttp.ClientTimeout(total=None, sock_connect=20, sock_read=60)
    few = aiohttp.TCPConnector(limit_per_host=AT_ONCE)
    plain = {"Accept-Encoding": "identity"}
    return aiohttp.ClientSession(trust_env=True, timeout=wait, connector=few, headers=plain, **options)


async def _together(asked: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The answers; the first error ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask) for ask in asked]
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None
    return [task.result() for task in tasks]


def _below(url: str, page: str) -> list[str]:
    """The names right below a folder that its page links to; those of folders end in "/"."""
    here, names = urlsplit(url), {}
    for link in _Links.of(page):
        try:
            there = urlsplit(urljoin(url, link))
        except ValueError:
            continue
        path, folder = unquote(there.path), unquote(here.path)
        name = path.removeprefix(folder)
        same = (there.scheme, there.netloc) == (here.scheme, here.netloc) and path.startswith(folder)
        if same and not there.query and not there.fragment and NAME.fullmatch(name):
            names[name] = None
    return list(names)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]

    @classmethod
    def of(cls, page: str) -> list[str]:
        links = cls()
        links.feed(page)
        return links.found
