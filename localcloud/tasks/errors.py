"""How the engine refuses: types named after Google's status codes, so that the wire needs no judgement.

TasksError
├── InvalidArgument
├── NotFound
├── AlreadyExists
└── Unimplemented      a feature of the real service that this one leaves out, always with its name
"""

from __future__ import annotations

from typing import ClassVar


class TasksError(Exception):
    """The request cannot be carried out."""

    status: ClassVar[str] = "INTERNAL"


class InvalidArgument(TasksError):
    status = "INVALID_ARGUMENT"


class NotFound(TasksError):
    status = "NOT_FOUND"


class AlreadyExists(TasksError):
    status = "ALREADY_EXISTS"


class Unimplemented(TasksError):
    status = "UNIMPLEMENTED"
