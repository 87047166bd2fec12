"""What hangs below a place: the collections of a document, the documents of a collection, missing ones too.

A document that was never written but has documents below it is listed as missing, so the listing follows
keys, not rows: it finds the next key, then leaps over everything below it.
"""

from __future__ import annotations

from collections.abc import Iterator

from localcloud.firestore.paths import DocumentName, after_prefix, decode_segments, encode_segments
from localcloud.firestore.store import Span, Store


def collection_ids(
    store: Store, parent: DocumentName, after: str = "", at: int | None = None
) -> Iterator[str]:
    """The ids of the collections below a document or the root, in order, after the one named."""
    start = (*parent.segments, after) if after else None
    for segments in _children(store, parent.database, parent.segments, start, at):
        yield segments[-1]


def document_names(
    store: Store,
    parent: DocumentName,
    collection: str,
    after: DocumentName | None = None,
    at: int | None = None,
) -> Iterator[DocumentName]:
    """The names of all documents of a collection, those without a version of their own too."""
    within = (*parent.segments, collection)
    for segments in _children(store, parent.database, within, after.segments if after else None, at):
        yield DocumentName(database=parent.database, segments=segments)


def _children(
    store: Store, database: str, within: tuple[str, ...], after: tuple[str, ...] | None, at: int | None
) -> Iterator[tuple[str, ...]]:
    prefix = encode_segments(within)
    high = after_prefix(prefix) if prefix else None
    # The document itself has the prefix as its key; what is below it has a longer one.
    low: bytes | None = after_prefix(encode_segments(after)) if after else prefix + b"\x00"
    if at is not None and low is not None:
        keys = store.keys_at(database, Span(low=low, high=high), at)
        yield from dict.fromkeys(decode_segments(key)[: len(within) + 1] for key in keys)
        return
    while low is not None:
        key = store.next_key(database, Span(low=low, high=high))
        if key is None:
            return
        child = decode_segments(key)[: len(within) + 1]
        yield child
        low = after_prefix(encode_segments(child))
