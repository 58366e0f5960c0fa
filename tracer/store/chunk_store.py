"""What `zarr` writes a run's arrays through: files beside their place, that get their names together."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import LocalStore

from tracer.files.disk import Batch
from tracer.store.chunks import ChunkFiles


class ChunkStore(LocalStore):
    """Writes have their names only after `commit`."""

    def __init__(self, root: Path | str, *, read_only: bool = False, shared: ChunkStore | None = None) -> None:
        super().__init__(root, read_only=read_only)
        there = Path(root)
        self.batch: Batch = shared.batch if shared else Batch(next(x for x in (there, *there.parents) if x.exists()))
        self.files: ChunkFiles = shared.files if shared else ChunkFiles(there, self.batch.staged)
        self.failed: list[OSError] = shared.failed if shared else []
        """Why chunks could not be written since the last commit."""

    def with_read_only(self, read_only: bool = False) -> ChunkStore:
        return ChunkStore(self.root, read_only=read_only, shared=self)

    def commit(self) -> None:
        """Errors: the OSError of a chunk that could not be written; then none of the others has its name either."""
        failed = self.failed[:1]
        self.failed.clear()
        self.batch.commit(*failed)

    async def _open(self, *, mode: Any = None) -> None:
        self._ensure_open_sync()

    def _ensure_open_sync(self) -> None:
        """zarr's own makes all folders above its root, too, where the run was moved away meanwhile."""
        if not self.read_only:
            self.batch.make(self.root)
        self._is_open = True

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:  # fmt: skip
        return await asyncio.to_thread(self.get_sync, key, prototype=prototype, byte_range=byte_range)

    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:  # fmt: skip
        assert byte_range is None, "chunks are read whole"
        content = self.files.read(key)
        return None if content is None else (prototype or default_buffer_prototype()).buffer.from_bytes(content)

    async def set(self, key: str, value: Buffer) -> None:
        await asyncio.to_thread(self.set_sync, key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        if self.batch.staged(self.root / key) is None and not (self.root / key).exists():
            await self.set(key, value)

    def set_sync(self, key: str, value: Buffer) -> None:
        self._check_writable()
        try:
            self.batch.stage(self.root / key, value.as_buffer_like())
        except OSError as error:
            if key.endswith("zarr.json"):  # which zarr reads again at once
                raise
            self.failed.append(error)  # raised here, zarr would leave the tasks beside this one to complain at exit
