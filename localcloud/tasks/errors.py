"""How the engine refuses: types named after Google's status codes, so that the wire needs no judgement.

TasksError
├── InvalidArgument
├── NotFound
├── AlreadyExists
├── FailedPrecondition
└── Unimplemented      a feature of the real service that this one leaves out, always with its name

The sentences are the ones that the real service answers with, where they are known: programs look for them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HelpLink:
    """Where Google sends a caller to read more; a detail of the status."""

    description: str
    url: str


class TasksError(Exception):
    """The request cannot be carried out."""

    status: str = "INTERNAL"

    def __init__(self, message: str, *, link: HelpLink | None = None) -> None:
        super().__init__(message)
        self.link = link


class InvalidArgument(TasksError):
    status = "INVALID_ARGUMENT"


class NotFound(TasksError):
    status = "NOT_FOUND"


class AlreadyExists(TasksError):
    status = "ALREADY_EXISTS"


class FailedPrecondition(TasksError):
    status = "FAILED_PRECONDITION"


class Unimplemented(TasksError):
    status = "UNIMPLEMENTED"
