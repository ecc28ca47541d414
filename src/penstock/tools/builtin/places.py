"""Where tools may read and write: folders that were allowed, and nothing that a path leads out of them.

A path is judged by where it ends after every link is followed. What is opened is opened from its
root downwards, folder by folder, never through a link, and only if it is an ordinary file; so it
does not help to put a link in its way between the two.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a file that is read into a result."""


class Outside(ValueError):
    """The path leads out of the allowed folders."""


class Places:
    """The allowed folders. A relative path starts in the first."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self.roots = tuple(Path(root).resolve() for root in roots)

    def resolve(self, path: str) -> Path:
        """The place that a path means, or `Outside`."""
        if "\0" in path:
            raise Outside("a path has no zero bytes")
        if not self.roots:
            raise Outside("no folder is allowed")
        try:
            found = (self.roots[0] / path).resolve()
        except (OSError, RuntimeError) as error:  # a circle of links
            raise Outside(f"{path}: {error}") from None
        if not any(found.is_relative_to(root) for root in self.roots):
            raise Outside(f"{path} is outside of the allowed folders")
        return found

    def read(self, path: str) -> bytes:
        """The contents of an ordinary file."""
        with self._file(path, os.O_RDONLY | os.O_NONBLOCK, "rb") as file:
            data: bytes = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise ValueError(f"{path} is larger than {LARGEST:,} bytes")
        return data

    def read_text(self, path: str) -> str:
        return as_text(self.read(path), path)

    def write(self, path: str, data: bytes) -> Path:
        """Put a whole file in its place at once; nobody ever sees half of it."""
        place = self.resolve(path)
        with _named(path), self._folder(place, make=True) as (folder, name):
            if _kind(name, folder) not in ("file", ""):
                raise Outside(f"{path} is not a file")
            draft = f".{secrets.token_hex(6)}.part"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            rights = _rights(name, folder)
            with os.fdopen(os.open(draft, flags, rights or 0o666, dir_fd=folder), "wb") as file:
                try:
                    if rights:  # who could not read the file before cannot now
                        os.fchmod(file.fileno(), rights)
                    file.write(data)
                    file.flush()
                    os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
                except BaseException:
                    os.unlink(draft, dir_fd=folder)
                    raise
        return place

    def append(self, path: str, data: bytes) -> int:
        """Add to the end of a file; its size afterwards."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        with self._file(path, flags, "ab", make=True) as file:
            file.write(data)
            size: int = file.tell()
        return size

    def delete(self, path: str) -> None:
        with _named(path), self._folder(self.resolve(path)) as (folder, name):
            if _kind(name, folder) not in ("file", ""):
                raise Outside(f"{path} is not a file")
            os.unlink(name, dir_fd=folder)

    @contextmanager
    def opened(self, path: str) -> Iterator[int]:
        """A folder, as a handle: what happens to its name meanwhile does not matter."""
        with _named(path), self._folder(self.resolve(path)) as (folder, name):
            handle = os.open(name, _FOLDER, dir_fd=folder)
            try:
                yield handle
            finally:
                os.close(handle)

    @contextmanager
    def _file(self, path: str, flags: int, mode: str, *, make: bool = False) -> Iterator[IO[Any]]:
        with _named(path), self._folder(self.resolve(path), make=make) as (folder, name):
            handle = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise Outside(f"{path} is not a file")
        with os.fdopen(handle, mode) as file:
            yield file

    @contextmanager
    def _folder(self, place: Path, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The folder that a place is in, as a handle, and the name of the place there.

        Every folder on the way is opened in the one before it, and none through a link: the place
        was judged with all links followed, so a link met here was put there since.
        """
        root = next(root for root in self.roots if place.is_relative_to(root))
        parts = place.relative_to(root).parts
        handle = os.open(root, _FOLDER)
        try:
            for part in parts[:-1]:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=handle)
                inner = _enter(part, handle, place)
                os.close(handle)
                handle = inner
            yield handle, parts[-1] if parts else "."
        finally:
            os.close(handle)


def as_text(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 (byte {error.start})") from None


_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _enter(part: str, folder: int, place: Path) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=folder)
    except NotADirectoryError:
        if _kind(part, folder) == "link":
            raise Outside(f"{place.name}: {part} has become a link on the way there") from None
        raise


@contextmanager
def _named(path: str) -> Iterator[None]:
    """What goes wrong is said of the path as it was given, not of a part of it."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise type(error)(error.errno, error.strerror, path) from None


def _rights(name: str, folder: int) -> int:
    """Who may do what with a file; nothing when there is none."""
    try:
        return stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) & 0o777
    except FileNotFoundError:
        return 0


def _kind(name: str, folder: int) -> str:
    """What stands under a name; empty when nothing does."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return ""
    if stat.S_ISLNK(mode):
        return "link"
    return "file" if stat.S_ISREG(mode) else "other"
