"""What one Listen stream is told: the documents of its targets as they are, then every change to them.

A stream's targets move together. Each commit becomes one batch of changes that ends with a global snapshot (a
NO_CHANGE without target ids): up to there everything the client holds is consistent at that read time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from localcloud.firestore.changes import Change
from localcloud.firestore.engine import Engine
from localcloud.firestore.errors import FirestoreError, InvalidArgument
from localcloud.firestore.paths import DocumentName, parse_document, parse_parent
from localcloud.firestore.pb import Document, Message, micros, response_class, timestamp
from localcloud.firestore.query import Query, parse_query
from localcloud.firestore.scan import run
from localcloud.firestore.store import version
from localcloud.firestore.values import keep_only

_NO_CHANGE, _ADD, _REMOVE, _CURRENT, _RESET = range(5)
_TOKEN = struct.Struct(">Q")

Send: TypeAlias = Callable[[Message], None]
Answer: Message = response_class("Listen")


@dataclass(slots=True, kw_only=True)
class _Target:
    id: int
    query: Query | None = None
    names: tuple[DocumentName, ...] = ()
    members: dict[str, int | None] = field(default_factory=dict)
    """What the client holds: the version of each document, by name."""

    @property
    def has_window(self) -> bool:
        """Whether a change to one document can move others in or out."""
        return self.query is not None and (self.query.limit is not None or self.query.offset > 0)

    def covers(self, name: DocumentName) -> bool:
        return name in self.names if self.query is None else self.query.covers(name)

    def wants(self, document: Message | None) -> bool:
        return document is not None and (self.query is None or self.query.place(document) is not None)


@dataclass(slots=True, kw_only=True)
class _Told:
    """What is said of one document in one batch."""

    document: Message | None
    """Its version now; none if it doesn't exist."""
    into: list[int] = field(default_factory=list)
    out_of: list[int] = field(default_factory=list)


class Watch:
    def __init__(self, *, engine: Engine, database: str, send: Send) -> None:
        self._engine = engine
        self._database = database
        self._send = send
        self._targets: dict[int, _Target] = {}

    def handle(self, request: Message) -> None:
        kind = request.WhichOneof("target_change")
        if kind == "add_target":
            self._add(request.add_target)
        elif kind == "remove_target":
            if self._targets.pop(request.remove_target, None) is not None:
                self._target_change(_REMOVE, [request.remove_target])
        else:
            raise InvalidArgument("A ListenRequest must add or remove a target.")

    def committed(self, database: str, at: int, changes: Sequence[Change]) -> None:
        if database != self._database or not self._targets:
            return
        told: dict[str, _Told] = {}
        for target in self._targets.values():
            if target.has_window:
                if any(target.covers(change.name) for change in changes):
                    self._rerun(target, told)
                continue
            for change in changes:
                if target.covers(change.name):
                    self._note(target, str(change.name), change.new, told)
        if told:
            self._tell(told, at)
            self._snapshot(at)

    def cleared(self, database: str, at: int) -> None:
        if database != self._database:
            return
        told: dict[str, _Told] = {}
        for target in self._targets.values():
            for name in list(target.members):
                self._note(target, name, None, told)
        if told:
            self._tell(told, at)
            self._snapshot(at)

    def heartbeat(self) -> None:
        if self._targets:
            self._snapshot(self._engine.now())

    def _add(self, message: Message) -> None:
        number = message.target_id or next(
            n for n in range(1, len(self._targets) + 2) if n not in self._targets
        )
        if number in self._targets:
            raise InvalidArgument(f"Target id {number} is in use on this stream already.")
        try:
            target = self._parse(number, message)
            since = _since(message)
            if since is not None and since > self._engine.now():
                raise InvalidArgument("The resume token or read time of a target is in the future.")
        except FirestoreError as error:
            self._target_change(_REMOVE, [number], cause=error)
            return
        self._targets[number] = target
        self._target_change(_ADD, [number])
        at = self._engine.now()
        told: dict[str, _Told] = {}
        if since is not None and self._engine.remembers(self._database, since):
            target.members = self._then(target, since)
        elif since is not None:
            self._target_change(_RESET, [number])
        self._rerun(target, told)
        for name in target.names:
            if since is None and str(name) not in target.members:
                told[str(name)] = _Told(document=None, out_of=[number])
        self._tell(told, at)
        if since is not None:
            answer = Answer()
            answer.filter.target_id = number
            answer.filter.count = len(target.members)
            self._send(answer)
        self._target_change(_CURRENT, [number], at=at)
        self._snapshot(at)
        if message.once:
            del self._targets[number]
            self._target_change(_REMOVE, [number])

    def _parse(self, number: int, message: Message) -> _Target:
        kind = message.WhichOneof("target_type")
        if kind == "documents":
            names = tuple(parse_document(name) for name in dict.fromkeys(message.documents.documents))
            if any(name.database != self._database for name in names):
                raise InvalidArgument(f"A document of target {number} is not in the stream's database.")
            return _Target(id=number, names=names)
        if kind == "query":
            parent = parse_parent(message.query.parent)
            if parent.database != self._database:
                raise InvalidArgument(f"The query of target {number} is not in the stream's database.")
            query = parse_query(parent, message.query.structured_query)
            if query.nearest is not None:
                raise InvalidArgument(f"The query of target {number} must not have find_nearest.")
            return _Target(id=number, query=query)
        raise InvalidArgument(f"Target {number} needs documents or a query.")

    def _then(self, target: _Target, at: int) -> dict[str, int | None]:
        """What the target held at a time."""
        if target.query is not None:
            documents, _, _ = run(self._engine.store, target.query, at)
            return {document.name: version(document) for document in documents}
        bodies = {str(name): self._engine.store.get(name, at) for name in target.names}
        return {name: version(Document.FromString(body)) for name, body in bodies.items() if body is not None}

    def _rerun(self, target: _Target, told: dict[str, _Told]) -> None:
        """Compares what the target holds with what it should, and notes the differences."""
        if target.query is not None:
            documents, _, _ = run(self._engine.store, target.query)
        else:
            bodies = [self._engine.store.get(name) for name in target.names]
            documents = [Document.FromString(body) for body in bodies if body is not None]
        now = {document.name: document for document in documents}
        for name in [name for name in target.members if name not in now]:
            target.members.pop(name)
            entry = self._entry(name, told)
            entry.out_of.append(target.id)
        for name, document in now.items():
            if name not in target.members or target.members[name] != version(document):
                self._note(target, name, document, told)

    def _note(self, target: _Target, name: str, document: Message | None, told: dict[str, _Told]) -> None:
        entry = told.setdefault(name, _Told(document=document))
        if document is not None and target.wants(document):
            target.members[name] = version(document)
            entry.into.append(target.id)
        elif target.members.pop(name, None) is not None or (document is None and target.query is None):
            entry.out_of.append(target.id)
        elif not (entry.into or entry.out_of):
            del told[name]

    def _entry(self, name: str, told: dict[str, _Told]) -> _Told:
        if name not in told:
            body = self._engine.store.get(parse_document(name))
            told[name] = _Told(document=None if body is None else Document.FromString(body))
        return told[name]

    def _tell(self, told: dict[str, _Told], at: int) -> None:
        for name, entry in told.items():
            answer = Answer()
            if entry.into and entry.document is not None:
                self._engine.counts.read(parse_document(name).collection)
                answer.document_change.document.CopyFrom(self._shown(entry))
                answer.document_change.target_ids.extend(entry.into)
                answer.document_change.removed_target_ids.extend(entry.out_of)
            else:
                kind = "document_delete" if entry.document is None else "document_remove"
                gone = getattr(answer, kind)
                gone.document = name
                gone.removed_target_ids.extend(entry.out_of)
                gone.read_time.CopyFrom(timestamp(at))
            self._send(answer)

    def _shown(self, entry: _Told) -> Message:
        queries = [self._targets[number].query for number in entry.into]
        projections = [query.projection for query in queries if query is not None]
        if len(projections) < len(entry.into) or None in projections:
            return entry.document
        shown = Document()
        shown.CopyFrom(entry.document)
        keep_only(shown, tuple(path for projection in projections for path in projection or ()))
        return shown

    def _snapshot(self, at: int) -> None:
        self._target_change(_NO_CHANGE, [], at=at)

    def _target_change(
        self, kind: int, targets: list[int], *, at: int | None = None, cause: FirestoreError | None = None
    ) -> None:
        answer = Answer()
        change = answer.target_change
        change.target_change_type = kind
        change.target_ids.extend(targets)
        if at is not None:
            change.read_time.CopyFrom(timestamp(at))
            change.resume_token = _TOKEN.pack(at)
        if cause is not None:
            change.cause.code = cause.number
            change.cause.message = str(cause)
        self._send(answer)


def _since(message: Message) -> int | None:
    """The time from which a target is taken up again."""
    kind = message.WhichOneof("resume_type")
    if kind == "resume_token":
        if len(message.resume_token) != _TOKEN.size:
            raise InvalidArgument(f"The resume token of target {message.target_id} is invalid.")
        (at,) = _TOKEN.unpack(message.resume_token)
        return int(at)
    return micros(message.read_time) if kind == "read_time" else None
