"""Predictions to a file, which are continued after an interruption.

    new.csv.unfinished              the rows so far; it is renamed to new.csv once it is complete
    new-unreadable.csv.unfinished   the list of unreadable files so far, if there are any
    new.csv.unfinished.json         the checkpoint: how much of both is on disk, and of which predictions

Every few seconds both files are synced, and then the checkpoint is replaced: it never counts rows that are not on disk.
What is behind it is cut off when the command is started again. It is at the end of a block of images, because images of
one block are predicted together. If the workspace, the settings or the images have changed since, the rows would be
others, and the predictions start again.

The file of the rows is locked while a process writes it.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Self

from camp.app.prediction.inputs import PredictionInput
from camp.app.prediction.keep_unknown import keep_with
from camp.app.prediction.model import Model
from camp.app.prediction.predict import (
    Format,
    Prediction,
    PredictionCounts,
    Row,
    Unreadable,
    block_size,
    csv_bytes,
    encode_header,
    encode_rows,
    predict,
)
from camp.app.workspace.kept_unknown import UnknownKeeper
from camp.core.abandoned import remove_abandoned
from camp.core.errors import CampError
from camp.core.files import FileMark, atomic_write, checksum_fits, make_folder, sync_folder, with_checksum
from camp.core.output_file import open_output
from camp.core.progress import Progress
from camp.core.types import FALSE_ALARMS
from camp.core.version import __version__

SYNC_SECONDS = 5.0
"""Seconds between two checkpoints."""
UNREADABLE_HEADER = ("file", "reason")
_CHUNK = 1 << 20


def unreadable_list(out: Path) -> Path:
    """Return the file beside `out` that lists unreadable files.

    >>> unreadable_list(Path("birds.jsonl"))
    PosixPath('birds-unreadable.csv')
    """
    return out.with_name(f"{out.stem}-unreadable.csv")


def unfinished_file(path: Path) -> Path:
    """Return the name of an output before it is complete.

    >>> unfinished_file(Path("birds.csv"))
    PosixPath('birds.csv.unfinished')
    """
    return path.with_name(f"{path.name}.unfinished")


def checkpoint_file(out: Path) -> Path:
    """Return the file that says how far the output `out` is.

    >>> checkpoint_file(Path("birds.csv"))
    PosixPath('birds.csv.unfinished.json')
    """
    return out.with_name(f"{out.name}.unfinished.json")


def written_files(out: Path) -> list[Path]:
    """Return every file that is written for the output `out`."""
    target, listed = _behind_link(out), unreadable_list(out)
    return [out, listed, unfinished_file(target), unfinished_file(listed), checkpoint_file(target)]


@dataclass(frozen=True)
class Question:
    """What determines the rows of a file; unfinished rows of another question are not continued."""

    format: Format
    false_alarms: float
    keeps_unknown: bool
    software: str
    model: str
    """Fingerprint of the model."""
    images: str
    """Identity of the input."""

    @classmethod
    def of(
        cls,
        model: Model,
        images: PredictionInput,
        format: Format,
        false_alarms: float = FALSE_ALARMS,
        keeps_unknown: bool = False,
    ) -> Self:
        """Describe the predictions of `images` by `model`."""
        libraries = ", ".join(
            f"{name} {version(name)}" for name in ("torch", "numpy", "pillow", "onnxruntime")
        )
        software = f"camp {__version__}, {libraries}, blocks of {block_size(model)}"
        return cls(format, false_alarms, keeps_unknown, software, model.fingerprint, images.identity)

    def difference(self, before: "Question") -> str | None:
        """Return in words why rows of the question `before` may not be those of this one; None if they are."""
        if before.images != self.images:
            return "it was begun with other pictures"
        if before.format != self.format:
            return f"it was begun with --format {before.format}"
        if before.false_alarms != self.false_alarms:
            return f"it was begun with --false-alarms {before.false_alarms:g}"
        if self.keeps_unknown and not before.keeps_unknown:
            return "it was begun without --keep-unknown"
        if before.software != self.software:
            return f"it was begun with other software ({before.software})"
        return None if before.model == self.model else "the workspace has changed since"


@dataclass(frozen=True)
class Content:
    """Size and hash of what has been written to a file."""

    size: int = 0
    hash: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def followed_by(self, data: bytes) -> "Content":
        """Return this content with `data` behind it."""
        longer = self.hash.copy()
        longer.update(data)
        return Content(self.size + len(data), longer)

    @property
    def mark(self) -> FileMark:
        """Size and checksum."""
        return FileMark(self.size, self.hash.hexdigest())

    @classmethod
    def read(cls, file: BinaryIO, size: int) -> "Content":
        """Read the first `size` bytes of a file, or all if there are fewer."""
        content = cls()
        file.seek(0)
        while chunk := file.read(min(_CHUNK, size - content.size)):
            content = content.followed_by(chunk)
        return content


@dataclass(frozen=True)
class Done:
    """What has been predicted and written."""

    images: int = 0
    """Number of images, those that cannot be read included."""
    marks: Content = field(default_factory=Content)
    """Of the keys of these images and what their files were."""
    rows: Content = field(default_factory=Content)
    unreadable: Content = field(default_factory=Content)
    counts: PredictionCounts = field(default_factory=PredictionCounts)


@dataclass(frozen=True)
class Checkpoint:
    """The content of `new.csv.unfinished.json`."""

    question: Question
    images: int
    marks: FileMark
    rows: FileMark
    unreadable: FileMark
    counts: PredictionCounts

    @classmethod
    def of(cls, question: Question, done: Done) -> Self:
        """Describe what is done of a question."""
        return cls(question, done.images, done.marks.mark, done.rows.mark, done.unreadable.mark, done.counts)

    def write(self, path: Path) -> None:
        """Replace the file `path`."""
        values = with_checksum(dataclasses.asdict(self))
        with atomic_write(path) as file:  # ASCII, as names of files need not be UTF-8
            file.write(f"{json.dumps(values, indent=2)}\n".encode())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file `path`; raise a `ValueError` if it is damaged."""
        values = json.loads(path.read_bytes())
        if not isinstance(values, dict) or "checksum" not in values or not checksum_fits(values):
            raise ValueError("it was changed since it was written")
        try:
            counts, first = values["counts"], values["counts"]["first_unreadable"]
            return cls(
                question=Question(**values["question"]),
                images=values["images"],
                marks=FileMark(**values["marks"]),
                rows=FileMark(**values["rows"]),
                unreadable=FileMark(**values["unreadable"]),
                counts=PredictionCounts(**{**counts, "first_unreadable": first and Unreadable(**first)}),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"it lacks {error}") from error


class UnfinishedOutput:
    """An output of predictions that is not complete yet; the lock of its file is held.

    Args:
        out: The output.
        question: What is predicted.
        keeper: Keeps unknown images.
    """

    def __init__(self, out: Path, question: Question, keeper: UnknownKeeper | None = None) -> None:
        self.out, self.question, self.keeper = out, question, keeper
        self.target = _behind_link(out)
        _, self.list, self.rows_file, self.list_file, self.checkpoint = written_files(out)
        self._header = encode_header(question.format)
        self.done = Done()
        self.saved = 0
        """Number of images in the checkpoint."""
        self.finished = False
        self._is_new, self._saved_at = False, time.monotonic()
        self._waiting: deque[str] = deque()  # marks of the images that are being predicted
        self._list: BinaryIO | None = None
        with self._writing():
            make_folder(self.target.parent)
            self._rows = _open_locked(self.rows_file, f"Another process writes {self.rows_file}")
        for path in (self.target, self.list, self.checkpoint):
            remove_abandoned(path.parent, path.name)

    def close(self) -> None:
        """Release the lock; new files without a single image are removed."""
        if self._is_new and not self.saved and not self.finished:
            with contextlib.suppress(OSError):
                self._rows.truncate(0)
                self._remove_others()
                self.rows_file.unlink()  # last, as its lock protects the others
        for file in (self._rows, self._list):
            with contextlib.suppress(OSError):
                if file is not None:
                    file.close()

    def begin(self, images: PredictionInput, progress: Progress) -> None:
        """Continue behind the rows that there are, if they are of the same images and the same question."""
        with self._writing():
            try:
                checkpoint = self._read_checkpoint()
                if checkpoint is not None and checkpoint.images:
                    self.done = self._verified(checkpoint, images, progress)
            except _NotContinuedError as error:
                progress.note(f"{self.rows_file} is not continued, as {error}; the predictions start again.")
            self.saved = self.done.images
            if self.done.images:
                number = f"{self.done.images:,} of {len(images.keys):,} pictures"
                progress.note(f"{self.rows_file} is continued behind {number}.")
            self.save()
            self._rows.truncate(self.done.rows.size)
            if self.list_file.exists():
                self._open_list().truncate(self.done.unreadable.size)
            if not self.done.images:
                self._is_new = True
                self._rows.write(self._header)
                self.done = Done(rows=Content().followed_by(self._header))

    def remaining(self, images: PredictionInput) -> Iterator[str]:
        """Yield the keys of the images that are not done."""
        for key in islice(images.keys, self.done.images, None):
            self._waiting.append(_marked(images, key))
            yield key

    def write(self, block: Sequence[Row]) -> None:
        """Write the rows of the next images."""
        marks = "".join(self._waiting.popleft() for _ in block)
        rows = encode_rows((row for row in block if isinstance(row, Prediction)), self.question.format)
        faults = [(row.file, row.reason) for row in block if isinstance(row, Unreadable)]
        done, counts = self.done, dataclasses.replace(self.done.counts)
        counts.add(block)
        unreadable = b""
        with self._writing():
            self._rows.write(rows)
            if faults:
                unreadable = csv_bytes(faults if done.unreadable.size else [UNREADABLE_HEADER, *faults])
                self._open_list().write(unreadable)
        # At once, so that an interruption finds either what was done before or all of it.
        self.done = Done(
            done.images + len(block),
            done.marks.followed_by(_encoded(marks)),
            done.rows.followed_by(rows),
            done.unreadable.followed_by(unreadable),
            counts,
        )

    def save(self) -> None:
        """Write to the disk what is done, so that it is continued after a power failure."""
        with self._writing():
            self._sync()
            Checkpoint.of(self.question, self.done).write(self.checkpoint)
        self.saved, self._saved_at = self.done.images, time.monotonic()

    def is_due(self) -> bool:
        """Return whether it is time for a checkpoint."""
        return time.monotonic() - self._saved_at >= SYNC_SECONDS

    def finish(self) -> None:
        """Give the complete files their names."""
        with self._writing():
            self._sync()
            if self.done.unreadable.size:
                # A copy, as the list is continued too if this is interrupted.
                with self.list_file.open("rb") as file, open_output(self.list) as copy:
                    shutil.copyfileobj(file, copy)
            elif _is_unreadable_list(self.list):
                self.list.unlink()  # of an earlier run
            self.rows_file.replace(self.target)
            self.finished = True
            sync_folder(self.target.parent)
            self._remove_others()

    def leave(self, block: int, total: int) -> str | None:
        """Save what is done when it is interrupted, and return what is kept in words; None if it is nothing.

        Args:
            block: Number of images that are predicted together.
            total: Number of all images.
        """
        if self.finished:
            return f"{self.out} is complete."
        if self.done.images > self.saved and self.done.images % block == 0:
            with contextlib.suppress(CampError):
                self.save()
        number = f"{self.saved:,} of {total:,} pictures"
        return (
            f"{number} are in {self.rows_file}, and the same command continues there." if self.saved else None
        )

    def _sync(self) -> None:
        """Write rows to the disk, and before them the unknown images that are kept."""
        if self.keeper is not None:
            self.keeper.flush()
        for file in (self._rows, self._list):
            if file is not None:
                file.flush()
                os.fsync(file.fileno())

    def _remove_others(self) -> None:
        """Remove what is beside the rows."""
        with contextlib.suppress(OSError):
            for path in (self.list_file, self.checkpoint):
                path.unlink(missing_ok=True)

    def _read_checkpoint(self) -> Checkpoint | None:
        """Read the checkpoint, if there is one."""
        self._rows.seek(0)
        begun = self._rows.read(len(self._header) + 1)
        if not begun:  # it is new, or was removed in order to start again
            return None
        try:
            return Checkpoint.read(self.checkpoint)
        except FileNotFoundError:
            if self._header.startswith(begun):
                return None
            raise CampError(
                f"{self.rows_file} is there without {self.checkpoint.name}, so that it cannot be continued; "
                "remove it, and try again."
            ) from None
        except (ValueError, RecursionError):
            raise _NotContinuedError(f"{self.checkpoint.name} is damaged") from None

    def _verified(self, checkpoint: Checkpoint, images: PredictionInput, progress: Progress) -> Done:
        """Compare the rows, the settings and the images with the checkpoint."""
        if (difference := self.question.difference(checkpoint.question)) is not None:
            raise _NotContinuedError(difference)
        rows, unreadable = Content.read(self._rows, checkpoint.rows.size), Content()
        if checkpoint.unreadable.size and self.list_file.exists():
            unreadable = Content.read(self._open_list(), checkpoint.unreadable.size)
        if (rows.mark, unreadable.mark) != (checkpoint.rows, checkpoint.unreadable):
            raise _NotContinuedError("it was changed since it was written")
        marks = Content()
        with progress.track("Comparing pictures", checkpoint.images) as bar:
            keys = islice(images.keys, checkpoint.images)
            while part := list(islice(keys, 1000)):
                marks = marks.followed_by(_encoded("".join(_marked(images, key) for key in part)))
                bar.advance(len(part))
        if marks.mark != checkpoint.marks:
            raise _NotContinuedError("pictures in it were added, changed or removed since")
        return Done(checkpoint.images, marks, rows, unreadable, checkpoint.counts)

    def _open_list(self) -> BinaryIO:
        if self._list is None:
            self._list = self.list_file.open("ab+")
        return self._list

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CampError(f"Could not write {self.out}: {error.strerror or error}.") from error


def predict_to_file(
    model: Model,
    images: PredictionInput,
    out: Path,
    question: Question,
    progress: Progress,
    keeper: UnknownKeeper | None = None,
) -> PredictionCounts:
    """Predict the category of all images and write them to the file `out`, which is replaced once it is complete.

    Files that could not be read have no row. They are listed in a second CSV file, `unreadable_list(out)`.

    Args:
        model: The model.
        images: Images or vectors.
        out: The file, not a device or FIFO.
        question: What is predicted; rows of the same question that an interrupted process left are continued.
        progress: Shows how many images are done.
        keeper: Keeps unknown images.
    """
    keep = keep_with(keeper, model) if keeper else None
    size, output = block_size(model), UnfinishedOutput(out, question, keeper)
    with contextlib.closing(output):
        try:
            output.begin(images, progress)
            with progress.track("Pictures", len(images.keys)) as bar:
                bar.skip(output.done.images)
                rows = predict(model, images.reader, output.remaining(images), bar, keep)
                while block := list(islice(rows, size)):
                    output.write(block)
                    if len(block) == size and output.is_due():
                        output.save()
            output.finish()
        except BaseException as error:
            state = output.leave(size, len(images.keys))
            if state is not None and isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt(state, *error.args) from error
            if state is not None and isinstance(error, CampError):
                raise CampError(f"{str(error).rstrip('.')}; {state}") from error
            raise
    return output.done.counts


class _NotContinuedError(Exception):
    """The unfinished rows are not those that are wanted; the message is the reason."""


def _open_locked(path: Path, taken: str) -> BinaryIO:
    """Open a file for reading and appending, and lock it."""
    while True:
        file = path.open("ab+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise CampError(f"{taken}; wait until it is done, or choose another output.") from None
        except OSError:  # a file system without locks
            return file
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()  # another process has renamed or removed it before it was locked


def _marked(images: PredictionInput, key: str) -> str:
    """Return a line with a key and what its file is."""
    return f"{key} {images.mark(key)}\n"


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _behind_link(out: Path) -> Path:
    """Return the file that is replaced: a symbolic link stays one."""
    with contextlib.suppress(OSError):  # of a name that is too long, which is said when it is opened
        if out.is_symlink():
            return Path(os.path.realpath(out))
    return out


def _is_unreadable_list(path: Path) -> bool:
    """Return whether an earlier run wrote the file."""
    if not path.is_file():
        return False
    header = csv_bytes([UNREADABLE_HEADER])
    with path.open("rb") as file:
        return file.read(len(header)) == header
