"""An embedded Firestore that Google's own client libraries talk to over the real gRPC wire."""

from __future__ import annotations

from localcloud.firestore.composite import Index, missing, read_indexes
from localcloud.firestore.server import RunningFirestore, start_firestore

__all__ = ["Index", "RunningFirestore", "missing", "read_indexes", "start_firestore"]
