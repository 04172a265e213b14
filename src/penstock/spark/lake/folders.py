"""Directories and files on any file system that Hadoop supports."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class File(NamedTuple):
    path: str  # below the folder, with slashes
    size: int


class Folder:
    """A directory, accessed through the Hadoop classes that Spark ships."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        context: Any = spark.sparkContext
        self.path = located(path)
        self._path: Any = context._jvm.org.apache.hadoop.fs.Path
        self._files: Any = self._path(self.path).getFileSystem(context._jsc.hadoopConfiguration())
        # Hadoop would write a hidden checksum file beside each local file; Parquet has checksums.
        self._files.setWriteChecksum(False)
        self._files.setVerifyChecksum(False)
        self._jvm: Any = context._jvm

    def under(self, *names: str) -> str:
        return "/".join([self.path, *names])

    def _at(self, name: str) -> Any:
        return self._path(self.under(name) if name else self.path)

    def names(self) -> list[str]:
        """Entries of the directory; empty when it does not exist."""
        if not self._files.exists(self._at("")):
            return []
        return sorted(one.getPath().getName() for one in self._files.listStatus(self._at("")))

    def exists(self, name: str) -> bool:
        return bool(self._files.exists(self._at(name)))

    def list(self, name: str, suffix: str) -> list[File]:
        """All files below a directory with the given suffix, sorted."""
        if not self.exists(name):
            return []
        found, files = self._files.listFiles(self._at(name), True), []
        start = len(self._files.makeQualified(self._at("")).toUri().getPath().rstrip("/")) + 1
        while found.hasNext():
            status = found.next()
            path = status.getPath().toUri().getPath()
            if path.endswith(suffix) and not os.path.basename(path).startswith((".", "_")):
                files.append(File(path[start:], status.getLen()))
        return sorted(files)

    def move(self, source: str, target: str) -> None:
        """Idempotent: a run that died may already have moved it."""
        self._files.mkdirs(self._at(target).getParent())
        if self.exists(source) and not self.exists(target):
            self._files.rename(self._at(source), self._at(target))
        if not self.exists(target):
            raise FileNotFoundError(f"{self.under(source)} could not be moved to {self.under(target)}")

    def remove(self, name: str) -> None:
        """Delete recursively, along with parent directories that become empty. Idempotent."""
        self._files.delete(self._at(name), True)
        parent = os.path.dirname(name)
        while parent and self.exists(parent) and not self._files.listStatus(self._at(parent)):
            self._files.delete(self._at(parent), False)
            parent = os.path.dirname(parent)

    def read(self, name: str) -> bytes:
        stream = self._files.open(self._at(name))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, content: bytes) -> None:
        """Write atomically, by rename."""
        temporary = f"{name}.new"
        stream = self._files.create(self._at(temporary), True)
        try:
            stream.write(content)
        finally:
            stream.close()
        self._files.delete(self._at(name), False)
        self._files.rename(self._at(temporary), self._at(name))


def located(path: str) -> str:
    """A path without a scheme is local, whatever the cluster's default file system is."""
    if "://" in path or path.startswith("file:"):
        return path.rstrip("/")
    return f"file:{os.path.abspath(path)}"
