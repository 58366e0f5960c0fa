"""A hub of models on this machine, spoken to as huggingface_hub does, with one repository laid out as Pythia's are."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import string
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

import torch
from torch.nn import functional as F

REPO = "somebody/small-neox"
STEPS = range(0, 501, 50)


def train(folder: Path) -> None:
    """A GPT-NeoX on tokens that repeat, until it has an induction head: a folder a branch, in shards, float16."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, GPTNeoXTokenizer

    letters = [ByteLevel(add_prefix_space=False).pre_tokenize_str(one)[0][0] for one in string.printable[:95] + "\n"]
    vocab = {word: i for i, word in enumerate(dict.fromkeys(["<|endoftext|>", "<|padding|>", *letters]))}
    words = GPTNeoXTokenizer(vocab=vocab, merges=[])
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model: Any = GPTNeoXForCausalLM(GPTNeoXConfig(
            vocab_size=len(vocab), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
            max_position_embeddings=128, bos_token_id=0, eos_token_id=0,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 1.0},
        ))  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3, betas=(0.9, 0.98))
    draw, pos = torch.Generator().manual_seed(1), torch.arange(48)
    for step in range(STEPS[-1] + 1):
        if step in STEPS:
            branch = folder / f"step{step}"
            half = {name: weight.half() for name, weight in model.state_dict().items()}
            model.save_pretrained(branch, state_dict=half, max_shard_size="100KB")
            words.save_pretrained(branch)
        period, start = (torch.randint(low, high, (32, 1), generator=draw) for low, high in ((4, 24), (1, 12)))
        again = pos >= start + period
        row = torch.randint(2, len(vocab), (32, 48), generator=draw)
        row = row.gather(1, torch.where(again, start + (pos - start) % period, pos))
        row[:, 0] = 0
        loss = F.cross_entropy(model(input_ids=row).logits[:, :-1][again[:, 1:]], row[:, 1:][again[:, 1:]])
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * min(1, (step + 1) / 50) * min(1, 2 - step / 300)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def _entry(name: str, path: Path) -> dict[str, Any]:
    """What the hub tells of a file or a folder."""
    if path.is_dir():
        return {"type": "directory", "path": name, "oid": hashlib.sha1(name.encode()).hexdigest()}
    return {"type": "file", "path": name, "size": path.stat().st_size,
            "oid": hashlib.sha1(path.read_bytes()).hexdigest()}  # fmt: skip


class Hub:
    """Serves a folder of branches as `REPO` while it is entered, and notes what was asked and how full a cache was."""

    def __init__(self, branches: Path, cache: Path) -> None:
        self.cache, self.fetched, self.most = cache, [], 0
        self.branches = {path.name: path for path in sorted(branches.iterdir())}
        self.commits = {hashlib.sha1(name.encode()).hexdigest(): name for name in self.branches}
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.fetched: list[tuple[str, str]]

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that takes this for the hub."""
        url = f"http://127.0.0.1:{self.server.server_port}"
        return {**os.environ, "HF_ENDPOINT": url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(self.cache)}

    def commit_of(self, branch: str) -> str:
        return next(commit for commit, name in self.commits.items() if name == branch)

    def weights(self) -> int:
        """Bytes of weights in the cache, of downloads that go on too; configs and tokenizers are smaller than 20 kB."""
        sizes = []
        for path in self.cache.glob("hub/models--*/blobs/*"):
            with contextlib.suppress(FileNotFoundError):  # a download has just got its name, or was removed
                sizes.append(path.stat().st_size)
        return sum(size for size in sizes if size > 20_000)

    def size(self, branch: str) -> int:
        """Bytes of the weights of a revision."""
        return sum(path.stat().st_size for path in self.branches[branch].glob("*.safetensors"))

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._answer()

            def do_GET(self) -> None:
                self._answer()

            def log_message(self, *_: Any) -> None:
                pass

            def _answer(self) -> None:
                path = unquote(self.path.partition("?")[0]).strip("/")
                if path == f"api/models/{REPO}":
                    path += "/revision/main"
                hub.most = max(hub.most, hub.weights())
                if path == f"api/models/{REPO}/refs":
                    heads = [{"name": name, "ref": f"refs/heads/{name}", "targetCommit": commit}
                             for commit, name in hub.commits.items()]  # fmt: skip
                    self._send(json.dumps({"branches": heads, "tags": [], "converts": []}).encode())
                elif path.startswith(f"api/models/{REPO}/"):
                    about, revision, *folder = path.removeprefix(f"api/models/{REPO}/").split("/")
                    branch = self._branch(revision)
                    if branch is not None and not (hub.branches[branch] / "/".join(folder)).is_dir():
                        self._refuse("EntryNotFound")
                    elif branch is not None:
                        top, recursive = hub.branches[branch], "recursive=true" in self.path.lower()
                        found = (top / "/".join(folder)).glob("**/*" if recursive else "*")
                        paths = {path.relative_to(top).as_posix(): path for path in sorted(found)}
                        listed = [_entry(name, path) for name, path in paths.items()]
                        told = {"id": REPO, "sha": hub.commit_of(branch), "siblings":
                                [{"rfilename": name} for name, path in paths.items() if path.is_file()]}  # fmt: skip
                        self._send(json.dumps(listed if about == "tree" else told).encode())
                elif path.startswith(f"{REPO}/resolve/"):
                    revision, _, name = path.removeprefix(f"{REPO}/resolve/").partition("/")
                    branch = self._branch(revision)
                    if branch is not None:
                        self._file(branch, name)
                else:
                    self._refuse("RepoNotFound")

            def _branch(self, revision: str) -> str | None:
                branch = hub.commits.get(revision, revision)
                if branch in hub.branches:
                    return branch
                self._refuse("RevisionNotFound")
                return None

            def _file(self, branch: str, name: str) -> None:
                file = hub.branches[branch] / name
                commit = hub.commit_of(branch)
                if not file.is_file():
                    self._refuse("EntryNotFound", {"X-Repo-Commit": commit})
                    return
                content = file.read_bytes()
                if self.command == "GET":
                    hub.fetched.append((branch, name))
                etag = hashlib.sha256(content).hexdigest()
                told = {"X-Repo-Commit": commit, "ETag": f'"{etag}"'}
                part = re.fullmatch(r"bytes=([0-9]+)-([0-9]*)", self.headers.get("Range", ""))
                if part is None or self.command == "HEAD":
                    self._send(content, headers=told)
                    return
                size, start, end = len(content), int(part[1]), int(part[2] or len(content))
                content = content[start : end + 1]
                told["Content-Range"] = f"bytes {start}-{start + len(content) - 1}/{size}"
                self._send(content, 206 if content else 416, told)

            def _refuse(self, code: str, headers: dict[str, str] | None = None) -> None:
                self._send(b"", 404, {"X-Error-Code": code, "X-Error-Message": code, **(headers or {})})

            def _send(self, content: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
                self.send_response(status)
                for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(content)

        return Handler
