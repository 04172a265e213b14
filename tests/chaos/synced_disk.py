"""A disk that remembers what was synced: an APSW VFS that can show files as they were at their last sync.

A power cut loses what was written since. The files that it leaves are given out as copies; the store goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw


class SyncedDisk:
    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.syncs = 0

    def sync(self, path: str) -> None:
        self.syncs += 1
        self.contents[path] = Path(path).read_bytes()

    def cut_power(self, folder: Path) -> Path:
        """Copy the files to another folder as a power cut leaves them, with synced data only. Returns the path of the
        database."""
        folder.mkdir()
        for path, content in self.contents.items():
            (folder / Path(path).name).write_bytes(content)
        return next(path for path in folder.iterdir() if path.suffix == ".db")


class SyncedFile(apsw.VFSFile):
    def __init__(self, disk: SyncedDisk, ordinary: str, name: Any, flags: list[int]) -> None:
        super().__init__(ordinary, name, flags)
        self._disk = disk
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._disk.sync(self._path)


class SyncedVfs(apsw.VFS):
    def __init__(self, name: str, disk: SyncedDisk, ordinary: str) -> None:
        self._disk = disk
        self._ordinary = ordinary
        super().__init__(name, ordinary, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> SyncedFile:
        return SyncedFile(self._disk, self._ordinary, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self._disk.contents.pop(filename, None)


@contextmanager
def synced_disk() -> Iterator[SyncedDisk]:
    """Every database opened in this block uses this VFS."""
    ordinary = apsw.vfs_names()[0]
    disk = SyncedDisk()
    vfs = SyncedVfs(f"synced-{id(disk)}", disk, ordinary)
    try:
        yield disk
    finally:
        vfs.unregister()
        assert apsw.vfs_names()[0] == ordinary
