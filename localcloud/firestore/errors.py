"""How the database says no: one type per canonical status, with no knowledge of gRPC."""

from __future__ import annotations

from typing import ClassVar


class FirestoreError(Exception):
    """A request that is answered with a status other than OK."""

    status: ClassVar[str] = "UNKNOWN"


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
