"""How the database says no: one type per canonical status, with no knowledge of gRPC."""

from __future__ import annotations

from typing import ClassVar

_NUMBERS = {
    "UNKNOWN": 2,
    "INVALID_ARGUMENT": 3,
    "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6,
    "FAILED_PRECONDITION": 9,
    "ABORTED": 10,
    "UNIMPLEMENTED": 12,
}


class FirestoreError(Exception):
    """A request that is answered with a status other than OK."""

    status: ClassVar[str] = "UNKNOWN"

    @property
    def number(self) -> int:
        """The status as google.rpc.Status carries it."""
        return _NUMBERS[self.status]


class InvalidArgument(FirestoreError):
    status = "INVALID_ARGUMENT"


class NotFound(FirestoreError):
    status = "NOT_FOUND"


class AlreadyExists(FirestoreError):
    status = "ALREADY_EXISTS"


class FailedPrecondition(FirestoreError):
    status = "FAILED_PRECONDITION"


class Aborted(FirestoreError):
    status = "ABORTED"


class Unimplemented(FirestoreError):
    status = "UNIMPLEMENTED"
