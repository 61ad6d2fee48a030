"""Values for all, for the known and for the novel classes."""

from typing import Generic, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict

Group = Literal["all", "known", "novel"]
GROUPS: tuple[Group, ...] = ("all", "known", "novel")

Protocol = Literal["agnostic", "aware", "test_hungarian", "task_hungarian", "upper_bound"]
"""Evaluation protocols."""
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

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

    def __getitem__(self, group: Group) -> T:
        return {"all": self.all, "known": self.known, "novel": self.novel}[group]
