"""Values for all, for the known and for the novel classes."""

from collections.abc import Callable
from typing import Generic, Literal, Self, TypeVar, get_args

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

Group = Literal["all", "known", "novel"]
GROUPS: tuple[Group, ...] = ("all", "known", "novel")

Protocol = Literal["agnostic", "aware", "test_hungarian", "task_hungarian", "upper_bound"]
"""Evaluation protocols."""
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

Classes = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.floating]
NO_CLASS = -1
"""Class of a discovered category that matches none."""
T = TypeVar("T")


class Record(BaseModel):
    """Base of everything in results.json: immutable, and of the declared types without conversion."""

    model_config = ConfigDict(frozen=True, strict=True, ser_json_inf_nan="constants")


class ByGroup(Record, Generic[T]):
    """One value for each group of classes.

    >>> ByGroup[int](all=5, known=3, novel=2)["novel"]
    2
    """

    all: T
    known: T
    novel: T

    @classmethod
    def of(cls, value: Callable[[Group], T]) -> Self:
        """Compute the value of each group."""
        return cls(all=value("all"), known=value("known"), novel=value("novel"))

    def __getitem__(self, group: Group) -> T:
        return {"all": self.all, "known": self.known, "novel": self.novel}[group]


def group_masks(novel: npt.NDArray[np.bool_]) -> dict[Group, npt.NDArray[np.bool_]]:
    """Masks (n,) of the entries of each group, from the mask of the novel ones."""
    return {"all": np.ones_like(novel), "known": ~novel, "novel": novel}
