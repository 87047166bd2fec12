"""An embedded Firestore that Google's own client libraries talk to over the real gRPC wire."""

from __future__ import annotations

from localcloud.firestore.server import RunningFirestore, start_firestore

__all__ = ["RunningFirestore", "start_firestore"]
