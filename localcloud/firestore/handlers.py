"""How each RPC of google.firestore.v1 is put to the engine: requests in, responses out, no decisions."""

from __future__ import annotations

import base64
import binascii
import itertools
import secrets
import string

from localcloud.firestore.aggregate import over_the_fields, parse_aggregations
from localcloud.firestore.changes import Read
from localcloud.firestore.engine import Engine
from localcloud.firestore.errors import FirestoreError, InvalidArgument, NotFound, Unimplemented
from localcloud.firestore.explain import plan_summary, stopwatch, with_stats
from localcloud.firestore.listing import collection_ids, document_names
from localcloud.firestore.partition import check_partitionable, cuts
from localcloud.firestore.paths import (
    NAME,
    DocumentName,
    FieldPath,
    check_database,
    check_id,
    parse_document,
    parse_field_path,
    parse_parent,
)
from localcloud.firestore.pb import (
    Document,
    Empty,
    Message,
    StructuredQuery,
    Write,
    micros,
    response_class,
    timestamp,
)
from localcloud.firestore.query import parse_query
from localcloud.firestore.transactions import Locking, Transaction
from localcloud.firestore.values import encode_reference, keep_only
from shared.clock import Clock

_DEFAULT_PAGE = 300
_LOCKING: dict[int, Locking] = {1: "optimistic", 2: "pessimistic"}
_ID_LETTERS = string.ascii_letters + string.digits


class Handlers:
    """One method for each RPC, by its name; those that stream return a list."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def GetDocument(self, request: Message) -> Message:
        name = parse_document(request.name)
        read, _ = self._read(request, name.database)
        bodies, _ = await self._engine.get([name], read)
        if bodies[0] is None:
            raise NotFound(f'Document "{name}" not found.')
        return _masked(Document.FromString(bodies[0]), request)

    async def BatchGetDocuments(self, request: Message) -> list[Message]:
        database = check_database(request.database)
        names = [_within(parse_document(name), database) for name in dict.fromkeys(request.documents)]
        read, new = self._read(request, database)
        bodies, read_time = await self._engine.get(names, read)
        answers = _first_with_transaction("BatchGetDocuments", new)
        answer_class, stamp = response_class("BatchGetDocuments"), timestamp(read_time)
        missing = []
        for name, body in zip(names, bodies, strict=True):
            if body is None:
                missing.append(answer_class(missing=str(name), read_time=stamp))
                continue
            answer = answer_class(read_time=stamp)
            answer.found.ParseFromString(body)
            _masked(answer.found, request)
            answers.append(answer)
        # The service tells of what is missing last.
        return answers + missing

    async def ListDocuments(self, request: Message) -> Message:
        parent = parse_parent(request.parent)
        size = _page_size(request)
        read, _ = self._read(request, parent.database)
        response = response_class("ListDocuments")()
        if request.show_missing:
            if request.order_by:
                raise InvalidArgument("show_missing cannot be combined with order_by.")
            check_id(request.collection_id)
            after = parse_document(_token(request)) if request.page_token else None
            at = self._engine.past(read)
            found = document_names(self._engine.store, parent, request.collection_id, after, at)
            names = list(itertools.islice(found, size + 1))
            bodies, _ = await self._engine.get(names[:size], read)
            for name, body in zip(names, bodies, strict=False):
                document = Document(name=str(name)) if body is None else Document.FromString(body)
                response.documents.append(_masked(document, request))
            if len(names) > size:
                response.next_page_token = _token_for(str(names[size - 1]))
            return response
        query = StructuredQuery()
        query.from_.add(collection_id=request.collection_id)
        _add_order(query, request.order_by)
        offset = int(_token(request)) if request.order_by and request.page_token else 0
        if not request.order_by:
            query.order_by.add(direction=1).field.field_path = "__name__"
        if request.page_token and not request.order_by:
            query.start_at.values.add(reference_value=_token(request))
        query.offset, query.limit.value = offset, size + 1
        documents, _, _ = await self._engine.run_query(parse_query(parent, query), read)
        response.documents.extend(_masked(document, request) for document in documents[:size])
        if len(documents) > size:
            last = str(offset + size) if request.order_by else documents[size - 1].name
            response.next_page_token = _token_for(last)
        return response

    async def ListCollectionIds(self, request: Message) -> Message:
        parent = parse_parent(request.parent)
        read = Read(at=micros(request.read_time)) if request.HasField("read_time") else Read()
        size = _page_size(request)
        after = _token(request) if request.page_token else ""
        found = collection_ids(self._engine.store, parent, after, self._engine.past(read))
        ids = list(itertools.islice(found, size + 1))
        response = response_class("ListCollectionIds")(collection_ids=ids[:size])
        if len(ids) > size:
            response.next_page_token = _token_for(ids[size - 1])
        return response

    async def CreateDocument(self, request: Message) -> Message:
        parent = parse_parent(request.parent)
        given = request.document_id or "".join(secrets.choice(_ID_LETTERS) for _ in range(20))
        name = f"{parent}/{check_id(request.collection_id)}/{check_id(given)}"
        write = Write()
        write.update.CopyFrom(request.document)
        write.update.name = name
        write.current_document.exists = False
        return await self._write_one(write, request)

    async def UpdateDocument(self, request: Message) -> Message:
        write = Write(update=request.document)
        if request.HasField("update_mask"):
            write.update_mask.CopyFrom(request.update_mask)
        write.current_document.CopyFrom(request.current_document)
        return await self._write_one(write, request)

    async def DeleteDocument(self, request: Message) -> Message:
        name = parse_document(request.name)
        write = Write(delete=request.name, current_document=request.current_document)
        await self._engine.commit(name.database, [write])
        return Empty()

    async def BeginTransaction(self, request: Message) -> Message:
        transaction = self._begin(check_database(request.database), request.options)
        return response_class("BeginTransaction")(transaction=transaction.id)

    async def Commit(self, request: Message) -> Message:
        database = check_database(request.database)
        transaction = self._engine.transaction(request.transaction, database) if request.transaction else None
        committed = await self._engine.commit(database, request.writes, transaction)
        return response_class("Commit")(
            write_results=committed.results, commit_time=timestamp(committed.time)
        )

    async def Rollback(self, request: Message) -> Message:
        if not request.transaction:
            raise InvalidArgument("Rollback needs a transaction.")
        self._engine.rollback(request.transaction, check_database(request.database))
        return Empty()

    async def BatchWrite(self, request: Message) -> Message:
        answers = await self._engine.batch_write(check_database(request.database), request.writes)
        response = response_class("BatchWrite")()
        for answer in answers:
            if isinstance(answer, FirestoreError):
                response.write_results.add()
                response.status.add(code=answer.number, message=str(answer))
            else:
                response.write_results.append(answer)
                response.status.add()
        return response

    async def RunQuery(self, request: Message) -> list[Message]:
        parent = parse_parent(request.parent)
        query = parse_query(parent, request.structured_query)
        answer_class = response_class("RunQuery")
        if _plans_only(request):
            return [answer_class(explain_metrics=plan_summary(query))]
        elapsed = stopwatch(self._clock.now)
        read, new = self._read(request, parent.database)
        documents, skipped, read_time = await self._engine.run_query(query, read)
        answers, stamp = _first_with_transaction("RunQuery", new), timestamp(read_time)
        if skipped or not documents:
            answers.append(answer_class(read_time=stamp, skipped_results=skipped))
        answers += [answer_class(document=document, read_time=stamp) for document in documents]
        if request.HasField("explain_options"):
            seen = len(documents) + skipped
            metrics = with_stats(
                plan_summary(query),
                results=len(documents),
                documents=seen,
                entries=seen,
                reads=max(1, seen),
                took=elapsed(),
            )
            # The metrics come with the last answer, not after it.
            answers[-1].explain_metrics.CopyFrom(metrics)
        return answers

    async def RunAggregationQuery(self, request: Message) -> list[Message]:
        parent = parse_parent(request.parent)
        wanted = request.structured_aggregation_query
        query = parse_query(parent, wanted.structured_query)
        aggregations = parse_aggregations(list(wanted.aggregations))
        answer_class = response_class("RunAggregationQuery")
        if _plans_only(request):
            return [answer_class(explain_metrics=plan_summary(over_the_fields(query, aggregations)))]
        elapsed = stopwatch(self._clock.now)
        read, new = self._read(request, parent.database)
        result, read_time = await self._engine.run_aggregation(query, aggregations, read)
        answers = _first_with_transaction("RunAggregationQuery", new)
        answer = answer_class(read_time=timestamp(read_time))
        answer.result.SetInParent()
        for alias, value in result.values.items():
            answer.result.aggregate_fields[alias].CopyFrom(value)
        answers.append(answer)
        if request.HasField("explain_options"):
            metrics = with_stats(
                plan_summary(over_the_fields(query, aggregations)),
                results=1,
                documents=0,
                entries=result.entries,
                reads=max(1, -(-result.entries // 1000)),
                took=elapsed(),
            )
            answers.append(answer_class(explain_metrics=metrics))
        return answers

    async def PartitionQuery(self, request: Message) -> Message:
        parent = parse_parent(request.parent)
        query = parse_query(parent, request.structured_query)
        check_partitionable(request, query)
        read = Read(at=micros(request.read_time)) if request.HasField("read_time") else Read()
        found = cuts(self._engine.store, query, request.partition_count, self._engine.past(read))
        if request.page_token:
            last = _token(request)
            found = [name for name in found if encode_reference(name) > encode_reference(last)]
        size = int(request.page_size) or len(found)
        response = response_class("PartitionQuery")()
        for name in found[:size]:
            response.partitions.add().values.add(reference_value=name)
        if len(found) > size:
            response.next_page_token = _token_for(found[size - 1])
        return response

    async def ExecutePipeline(self, request: Message) -> list[Message]:
        raise Unimplemented("google.firestore.v1.Firestore.ExecutePipeline is not implemented.")

    async def _write_one(self, write: Message, request: Message) -> Message:
        name = parse_document(write.update.name)
        committed = await self._engine.commit(name.database, [write])
        body = self._engine.store.get(name, committed.time)
        return _masked(Document.FromString(body or b""), request)

    def _begin(self, database: str, options: Message) -> Transaction:
        if options.WhichOneof("mode") == "read_only":
            stamped = options.read_only.HasField("read_time")
            at = micros(options.read_only.read_time) if stamped else None
            return self._engine.begin(database, read_only=True, at=at)
        locking = _LOCKING.get(options.read_write.concurrency_mode)
        return self._engine.begin(database, locking=locking, retry=options.read_write.retry_transaction)

    def _read(self, request: Message, database: str) -> tuple[Read, Transaction | None]:
        """What the request wants to see, and the transaction that it began, if it did."""
        selector = request.WhichOneof("consistency_selector")
        if selector == "transaction":
            return Read(transaction=self._engine.transaction(request.transaction, database)), None
        if selector == "new_transaction":
            transaction = self._begin(database, request.new_transaction)
            return Read(transaction=transaction), transaction
        if selector == "read_time":
            return Read(at=micros(request.read_time)), None
        return Read(), None


def _plans_only(request: Message) -> bool:
    return request.HasField("explain_options") and not request.explain_options.analyze


def _first_with_transaction(method: str, new: Transaction | None) -> list[Message]:
    return [] if new is None else [response_class(method)(transaction=new.id)]


def _within(name: DocumentName, database: str) -> DocumentName:
    if name.database != database:
        raise InvalidArgument(f"{name} is not in the database {database}.")
    return name


def _masked(document: Message, request: Message) -> Message:
    if request.HasField("mask"):
        paths: list[FieldPath] = [parse_field_path(path) for path in request.mask.field_paths]
        keep_only(document, tuple(path for path in paths if path != NAME))
    return document


def _page_size(request: Message) -> int:
    if request.page_size < 0:
        raise InvalidArgument("page_size must not be negative.")
    return int(request.page_size) or _DEFAULT_PAGE


def _token_for(place: str) -> str:
    return base64.urlsafe_b64encode(place.encode()).decode()


def _token(request: Message) -> str:
    try:
        return base64.urlsafe_b64decode(request.page_token.encode()).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise InvalidArgument("page_token is invalid.") from error


def _add_order(query: Message, order_by: str) -> None:
    for part in filter(None, (part.strip() for part in order_by.split(","))):
        path, _, direction = part.partition(" ")
        if direction.strip().lower() not in {"", "asc", "desc"}:
            raise InvalidArgument(f'order_by is invalid: "{part}".')
        order = query.order_by.add(direction=2 if direction.strip().lower() == "desc" else 1)
        order.field.field_path = path
