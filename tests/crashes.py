"""Every state in which a power failure could leave a folder, from a recording of what was done to it.

`Recorder` watches a folder: whenever it is synced, or an entry is made, renamed or removed, the content of its files is
compared with what it was before. `states` rebuilds, for a failure after each of these operations, folders in which
content that was not synced, and entries whose folder was not synced, are there, missing, torn or zero.
"""

import hashlib
import io
import os
import random
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

LOCK = ".lock"
Tree = dict[str, bytes | None]
"""Content of each file by its path, and None for each folder."""


@dataclass
class File:
    synced: bytes = b""
    pending: list[bytes] = field(default_factory=list)
    """Contents since then, the last one is the present one."""

    def now(self) -> bytes:
        return self.pending[-1] if self.pending else self.synced


@dataclass
class Folder:
    synced: dict[str, int] = field(default_factory=dict)
    pending: list[dict[str, int | None]] = field(default_factory=list)
    """Changes of entries since then: the number of a file or folder, or None for a removed entry."""

    def now(self, count: int | None = None) -> dict[str, int]:
        return self.after(self.pending[:count])

    def after(self, changes: list[dict[str, int | None]]) -> dict[str, int]:
        entries: dict[str, int | None] = dict(self.synced)
        for change in changes:
            entries |= change
        return {name: node for name, node in entries.items() if node is not None}


Operation = tuple[Any, ...]


class Recorder:
    """Records what is done to the folder `root` inside the `with` block."""

    def __init__(self, root: Path) -> None:
        self.root, self.operations = root, list[Operation]()
        self._disk = Disk()
        self._patch = pytest.MonkeyPatch()
        self._looking = False

    def __enter__(self) -> Self:
        self.start: Tree = tree(self.root)
        self._disk = Disk.of(self.start)
        real = {
            name: getattr(os, name) for name in ("fsync", "replace", "rename", "unlink", "mkdir", "rmdir")
        }

        def fsync(handle: int) -> None:
            self._see()
            path = Path(f"/proc/self/fd/{handle}").readlink()
            if path.is_relative_to(self.root):
                self._do("sync", self._disk.find(self._inside(path)))

        def renamed(name: str) -> Callable[..., None]:
            def rename(source: Any, target: Any, **options: Any) -> None:
                self._see()
                real[name](source, target, **options)
                if Path(source).is_relative_to(self.root):
                    assert Path(source).parent == Path(target).parent
                    self._do("rename", self._folder(source), Path(source).name, Path(target).name)

            return rename

        def removed(name: str) -> Callable[..., None]:
            def remove(path: Any, *, dir_fd: int | None = None) -> None:
                self._see()
                whole = Path(path) if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}").readlink() / path
                real[name](path, dir_fd=dir_fd)
                if whole.is_relative_to(self.root) and whole.name != LOCK:
                    self._do("remove", self._folder(whole), whole.name)

            return remove

        def mkdir(path: Any, *arguments: Any, **options: Any) -> None:
            self._see()
            real["mkdir"](path, *arguments, **options)
            if Path(path).is_relative_to(self.root):
                self._do("folder", self._folder(path), Path(path).name)

        opened = io.open

        def open_(*arguments: Any, **options: Any) -> Any:
            if not self._looking:
                self._see()
            return opened(*arguments, **options)

        for name, replaced in (
            ("fsync", fsync), ("replace", renamed("replace")), ("rename", renamed("rename")),
            ("unlink", removed("unlink")), ("rmdir", removed("rmdir")), ("mkdir", mkdir),
        ):  # fmt: skip
            self._patch.setattr(os, name, replaced)
        self._patch.setattr(io, "open", open_)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()
        self._see()
        assert self._disk.tree() == tree(self.root), "something was done that was not recorded"

    def done(self, label: Any) -> None:
        """Note that what `label` stands for has been promised to be on disk."""
        self._see()
        self.operations.append(("done", label))

    def _inside(self, path: Path) -> str:
        return "" if path == self.root else str(path.relative_to(self.root))

    def _folder(self, path: Any) -> int:
        return self._disk.find(self._inside(Path(path).parent))

    def _do(self, *operation: Any) -> None:
        self.operations.append(operation)
        self._disk.do(operation)

    def _see(self) -> None:
        """Record new files, and new content of known ones."""
        known, self._looking = self._disk.tree(), True
        present, self._looking = tree(self.root), False
        for path, content in present.items():
            if content is None:
                continue
            if path not in known:
                parent, _, name = path.rpartition("/")
                self._do("file", self._disk.find(parent), name)
            if known.get(path, b"") != content:
                self._do("write", self._disk.find(path), content)


class Disk:
    """Files and folders by number, with what is synced and what is not; 0 is the root."""

    def __init__(self) -> None:
        self.nodes: dict[int, File | Folder] = {0: Folder()}

    @classmethod
    def of(cls, start: Tree) -> Self:
        """A disk on which everything is synced."""
        disk = cls()
        for path, content in sorted(start.items()):
            parent, _, name = path.rpartition("/")
            folder, number = disk.nodes[disk.find(parent)], len(disk.nodes)
            assert isinstance(folder, Folder)
            disk.nodes[number] = Folder() if content is None else File(content)
            folder.synced[name] = number
        return disk

    def find(self, path: str) -> int:
        """The number of a file or folder, as it is now."""
        number = 0
        for name in path.split("/") if path else ():
            folder = self.nodes[number]
            assert isinstance(folder, Folder)
            number = folder.now()[name]
        return number

    def do(self, operation: Operation) -> None:
        """Carry out an operation."""
        kind, number, *rest = operation
        node = self.nodes.get(number) if kind != "done" else None
        if kind == "write":
            assert isinstance(node, File)
            node.pending.append(rest[0])
        elif kind == "sync" and isinstance(node, File):
            node.synced, node.pending = node.now(), []
        elif kind == "sync":
            assert isinstance(node, Folder)
            node.synced, node.pending = node.now(), []
        elif kind in ("file", "folder"):
            assert isinstance(node, Folder)
            new = len(self.nodes)
            self.nodes[new] = File() if kind == "file" else Folder()
            node.pending.append({rest[0]: new})
        elif kind == "remove":
            assert isinstance(node, Folder)
            node.pending.append({rest[0]: None})
        elif kind == "rename":
            assert isinstance(node, Folder)
            node.pending.append({rest[0]: None, rest[1]: node.now()[rest[0]]})

    def tree(
        self,
        content: Callable[[File], bytes] = File.now,
        entries: Callable[[Folder], dict[str, int]] = Folder.now,
    ) -> Tree:
        """What is on the disk, by what is left of each file and folder."""
        found: Tree = {}

        def walk(number: int, path: str) -> None:
            node = self.nodes[number]
            if isinstance(node, File):
                found[path] = content(node)
                return
            if path:
                found[path] = None
            for name, inside in entries(node).items():
                walk(inside, f"{path}/{name}" if path else name)

        walk(0, "")
        return found


def tree(root: Path) -> Tree:
    """Everything below `root` but locks."""
    found: Tree = {}
    for path in root.rglob("*"):
        if path.name == LOCK:
            continue
        mode = path.lstat().st_mode
        found[str(path.relative_to(root))] = None if stat.S_ISDIR(mode) else path.read_bytes()
    return found


def _zero(file: File) -> bytes:
    """The size of the present content, of which only the beginning that was synced is there."""
    now = file.now()
    same = _appended_to(file)
    return now[:same] + bytes(len(now) - same)


def _appended_to(file: File) -> int:
    """Length of what was synced, if there has only been more since then."""
    return len(file.synced) if file.now().startswith(file.synced) else 0


def _torn(file: File, generator: random.Random) -> bytes:
    now = file.now()
    return now[: generator.randint(_appended_to(file), len(now))]


def _some(folder: Folder, generator: random.Random) -> dict[str, int]:
    return folder.after([change for change in folder.pending if generator.random() < 0.5])


def states(recorder: Recorder, variants: int = 4) -> Iterator[tuple[list[Any], Tree]]:
    """What may be left after a power failure at any time, each once, with the promises that were made by then."""
    disk, promised, seen = Disk.of(recorder.start), list[Any](), set[bytes]()
    for position, operation in enumerate([("start", 0), *recorder.operations]):
        if operation[0] == "done":
            promised = [*promised, operation[1]]
        else:
            disk.do(operation)
        generator = random.Random(position)
        choices: list[tuple[Callable[[File], bytes], Callable[[Folder], dict[str, int]]]] = [
            (File.now, Folder.now),
            (lambda file: file.synced, lambda folder: folder.synced),
            (lambda file: file.synced, Folder.now),
            (File.now, lambda folder: folder.synced),
            (_zero, Folder.now),
        ]

        def left(file: File, generator: random.Random = generator) -> bytes:
            ways = (File.now, _zero, lambda file: file.synced, lambda file: _torn(file, generator))
            return generator.choice(ways)(file)  # type: ignore[no-untyped-call]

        def found(folder: Folder, generator: random.Random = generator) -> dict[str, int]:
            return generator.choice(
                (Folder.now, lambda folder: folder.synced, lambda folder: _some(folder, generator))
            )(folder)  # type: ignore[no-any-return]

        choices += [(left, found)] * variants
        for content, entries in choices:
            state = disk.tree(content, entries)
            name = _name(promised, state)
            if name not in seen:
                seen.add(name)
                yield promised, state


def _name(promised: list[Any], state: Tree) -> bytes:
    """A hash of a state and the promises."""
    found = hashlib.sha1(repr(promised).encode(), usedforsecurity=False)
    for path, content in sorted(state.items()):
        found.update(f"{path} {content is None} {len(content or b'')} ".encode())
        found.update(content or b"")
    return found.digest()


def restore(state: Tree, root: Path) -> Path:
    """Write a state into the new folder `root`."""
    root.mkdir()
    for path, content in sorted(state.items()):
        if content is None:
            (root / path).mkdir(parents=True, exist_ok=True)
        else:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
    return root
