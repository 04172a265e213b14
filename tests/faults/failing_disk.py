"""A disk that fails on purpose: an APSW VFS under the store, whose n-th write or sync fails, or which has no room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw


class Disk:
    """The configured failures of file operations."""

    def __init__(self) -> None:
        self.operations = 0
        self.fail_at: int | None = None
        self.full = False
        self.failures = 0

    def operate(self, is_write: bool) -> None:
        self.operations += 1
        if self.full and is_write:
            self.failures += 1
            raise apsw.FullError("no room left on the device (on purpose)")
        if self.fail_at is not None and self.operations >= self.fail_at:
            self.failures += 1
            raise apsw.IOError("the disk failed (on purpose)")

    def arm(self, fail_at: int | None = None, full: bool = False) -> None:
        self.operations, self.failures = 0, 0
        self.fail_at, self.full = fail_at, full


class FailingFile(apsw.VFSFile):
    def __init__(self, disk: Disk, ordinary: str, name: Any, flags: list[int]) -> None:
        super().__init__(ordinary, name, flags)
        self.disk = disk

    def xWrite(self, data: bytes, offset: int) -> None:
        self.disk.operate(is_write=True)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self.disk.operate(is_write=False)
        super().xSync(flags)


class FailingVfs(apsw.VFS):
    def __init__(self, name: str, disk: Disk, ordinary: str) -> None:
        self.disk = disk
        self.ordinary = ordinary
        super().__init__(name, ordinary, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> FailingFile:
        return FailingFile(self.disk, self.ordinary, name, flags)


@contextmanager
def failing_disk() -> Iterator[Disk]:
    """Every database opened in this block lives on the failing disk."""
    ordinary = apsw.vfs_names()[0]
    disk = Disk()
    vfs = FailingVfs(f"failing-{id(disk)}", disk, ordinary)
    try:
        yield disk
    finally:
        disk.arm()
        vfs.unregister()
        assert apsw.vfs_names()[0] == ordinary
