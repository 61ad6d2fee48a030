"""A folder or URL of predictions as Parquet files, each written by the process that has made them.

    camp-predictions.json       what was predicted, in how many parts, with which model
    predictions/part-00000.parquet ...
    unreadable/part-00000.parquet ...   of the parts that have unreadable files

A file appears at once when it is complete, under a name that depends on nothing but the part: work that was interrupted
or repeated ends in the same files.
"""

import dataclasses
import hashlib
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from camp.app.inputs.urls import find_files, local_file, open_url, read_range, reason_of
from camp.app.prediction.model import Model
from camp.app.prediction.predict import Prediction, Row, Unreadable
from camp.core.abandoned import remove_abandoned
from camp.core.errors import CampError
from camp.core.extras import import_extra
from camp.core.files import atomic_write
from camp.core.parallel import threaded_map
from camp.data.images import UnreadableImageError

ABOUT = "camp-predictions.json"
FORMAT = 1
_COUNTS = b"camp"
"""Key of the counts in the metadata of a file of predictions."""
_TYPES = {"file": "string", "name": "string", "category": "int64", "confidence": "float64"} | {
    "runner_up": "int64",
    "runner_up_name": "string",
    "runner_up_confidence": "float64",
}
_PART = re.compile(r"part-[0-9]{5,}\.parquet")
_READING_THREADS = 16


@dataclass(frozen=True)
class PartCounts:
    """Numbers of predicted, unknown and unreadable images of a part."""

    predicted: int = 0
    """Rows written, including those of unknown images."""
    unknown: int = 0
    unreadable: int = 0

    def __add__(self, other: Self) -> "PartCounts":
        """Return the numbers of both."""
        return PartCounts(
            self.predicted + other.predicted,
            self.unknown + other.unknown,
            self.unreadable + other.unreadable,
        )


@dataclass(frozen=True)
class PredictionTask:
    """What is predicted: two equal tasks have equal files."""

    source: str
    """Identity of the source of the images."""
    inputs: str
    """Hash of the keys of all images, in their order."""
    images: int
    images_per_part: int
    model: str
    """Hash of all that determines the predictions."""

    @classmethod
    def of(cls, source: str, keys: Sequence[str], images_per_part: int, model: Model) -> Self:
        """Describe the prediction of the images `keys` of a source."""
        digest = hashlib.blake2b(digest_size=16)
        for key in keys:
            digest.update(key.encode("utf-8", "surrogateescape") + b"\0")
        return cls(source, digest.hexdigest(), len(keys), images_per_part, model.fingerprint)

    @property
    def parts(self) -> int:
        """Number of parts."""
        return -(-self.images // self.images_per_part)


@dataclass(frozen=True)
class PredictionFolder:
    """A folder of predictions, at a path or a URL."""

    url: str

    def begin(self, task: PredictionTask) -> dict[int, PartCounts]:
        """Prepare the folder for a task, and return what it holds of it; a folder with anything else is refused."""
        about = {"format": FORMAT, **dataclasses.asdict(task)}
        present = self._about()
        if present is None:
            if _is_used(self.url):
                raise CampError(f"{self.url} holds other files; choose a new folder.")
            self._write(ABOUT, (json.dumps(about, indent=2) + "\n").encode())
            return {}
        if present != about:
            raise CampError(
                f"{self.url} holds predictions of other pictures, or by another state of the workspace; choose another "
                "folder, or remove it."
            )
        folder = local_file(self.url)
        if folder is not None:
            remove_abandoned(folder)
        return self._present()

    def holds(self, task: PredictionTask) -> bool:
        """Return whether this process sees the folder of a task that was begun."""
        return self._about() == {"format": FORMAT, **dataclasses.asdict(task)}

    def write(self, part: int, rows: Sequence[Row]) -> PartCounts:
        """Write the results of a part; its file of predictions, which is written last, completes it."""
        unreadable = [row for row in rows if isinstance(row, Unreadable)]
        predictions = [row for row in rows if isinstance(row, Prediction)]
        counts = PartCounts(
            len(predictions), sum(row.category is None for row in predictions), len(unreadable)
        )
        if unreadable:
            self._write(f"unreadable/{_name(part)}", _table(Unreadable, unreadable, {}))
        metadata = {_COUNTS: json.dumps(dataclasses.asdict(counts)).encode()}
        self._write(f"predictions/{_name(part)}", _table(Prediction, predictions, metadata))
        return counts

    def _present(self) -> dict[int, PartCounts]:
        """Return the counts of the parts that are complete."""
        parquet = import_extra("pyarrow.parquet", "formats", "Writing Parquet files")
        names = [
            name for name in find_files(f"{self.url}/predictions", (".parquet",)) if _PART.fullmatch(name)
        ]

        def counts(name: str) -> PartCounts:
            file = f"{self.url}/predictions/{name}"
            try:
                system, path = open_url(file)
                with system.open(path, "rb") as stream:
                    values = json.loads(parquet.read_schema(stream).metadata[_COUNTS])
                return PartCounts(**values)
            except Exception as error:  # each file system raises errors of its own
                raise CampError(
                    f"{file} is damaged ({reason_of(error)}); remove it, and start the same command again."
                ) from error

        found = threaded_map(counts, names, threads=_READING_THREADS)
        return {int(name[5:-8]): one for name, one in zip(names, found)}

    def _about(self) -> dict[str, Any] | None:
        """Return the description of the task; None if there is none."""
        try:
            values = json.loads(read_range(f"{self.url}/{ABOUT}"))
        except UnreadableImageError:
            return None
        except ValueError as error:
            raise CampError(f"{self.url}/{ABOUT} is not valid JSON ({error}); remove the folder.") from error
        return values if isinstance(values, dict) else {}

    def _write(self, name: str, content: bytes) -> None:
        """Write a file, which appears when it is complete."""
        path = local_file(f"{self.url}/{name}")
        if path is not None:
            with atomic_write(path) as file:
                file.write(content)
            return
        system, place = open_url(f"{self.url}/{name}")
        try:  # an object store shows an object when all of it has arrived
            system.pipe_file(place, content)
        except Exception as error:  # each file system raises errors of its own
            raise CampError(f"Could not write {self.url}/{name}: {reason_of(error)}.") from error


def _is_used(url: str) -> bool:
    """Return whether there is anything at a URL but an empty folder."""
    system, path = open_url(url)
    try:
        return bool(system.exists(path)) and (not system.isdir(path) or bool(system.ls(path, detail=False)))
    except Exception as error:  # each file system raises errors of its own
        raise CampError(f"{url} cannot be read ({reason_of(error)}).") from error


def _name(part: int) -> str:
    return f"part-{part:05d}.parquet"


def _table(
    kind: type[Prediction] | type[Unreadable], rows: Sequence[Row], metadata: dict[bytes, bytes]
) -> bytes:
    """Return a Parquet file with a column for each field."""
    arrow = import_extra("pyarrow", "formats", "Writing Parquet files")
    parquet = import_extra("pyarrow.parquet", "formats", "Writing Parquet files")
    names = [field.name for field in dataclasses.fields(kind)]
    schema = arrow.schema([(name, _TYPES.get(name, "string")) for name in names], metadata=metadata)
    columns = [[getattr(row, name) for row in rows] for name in names]
    file = io.BytesIO()
    parquet.write_table(arrow.table(columns, schema=schema), file)
    return file.getvalue()
