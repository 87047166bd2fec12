"""Transactions through Google's client: contention, locks, snapshots and expiry."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud.firestore_v1 import AsyncClient, AsyncTransaction, FieldFilter, async_transactional

from localcloud.firestore import RunningFirestore

Start = Callable[..., Awaitable[RunningFirestore]]
Connect = Callable[[int], AsyncClient]
LOCKINGS = pytest.mark.parametrize("locking", ["pessimistic", "optimistic"])


async def run(db: AsyncClient, body: Callable[..., Awaitable[Any]]) -> Any:
    """Retries as an application must: an ABORTED read is not retried by the client."""
    for attempt in range(200):
        try:
            return await async_transactional(body)(db.transaction(max_attempts=5))
        except exceptions.Aborted:
            pass
        except ValueError as error:
            if not isinstance(error.__cause__, exceptions.Aborted):
                raise
        await asyncio.sleep(random.uniform(0, min(0.2, 0.005 * 2**attempt)))
    raise AssertionError("never got through")


async def begun(db: AsyncClient, **options: Any) -> AsyncTransaction:
    transaction = db.transaction(**options)
    await transaction._begin()
    return transaction


@LOCKINGS
async def test_no_increment_of_40_at_once_is_lost(start: Start, connect: Connect, locking: str) -> None:
    db = connect((await start(locking=locking)).port)
    counter = db.document("counters/one")
    await counter.set({"n": 0})

    async def add(transaction: AsyncTransaction) -> None:
        snapshot = await counter.get(transaction=transaction)
        transaction.update(counter, {"n": snapshot.get("n") + 1})

    await asyncio.gather(*(run(db, add) for _ in range(40)))
    assert (await counter.get()).get("n") == 40


@LOCKINGS
async def test_a_query_in_a_transaction_sees_no_phantom(start: Start, connect: Connect, locking: str) -> None:
    db = connect((await start(locking=locking)).port)
    open_shots = db.collection("shots").where(filter=FieldFilter("open", "==", True))

    async def add_if_fewer_than_five(transaction: AsyncTransaction) -> None:
        found = [item async for item in open_shots.stream(transaction=transaction)]
        if len(found) < 5:
            transaction.create(db.collection("shots").document(), {"open": True})

    await asyncio.gather(*(run(db, add_if_fewer_than_five) for _ in range(12)))
    assert len(await open_shots.get()) == 5


async def test_a_write_outside_waits_for_the_transaction_that_read(db: AsyncClient) -> None:
    thing = db.document("things/one")
    await thing.set({"n": 1})
    transaction = await begun(db)
    await thing.get(transaction=transaction)
    outside = asyncio.create_task(thing.set({"n": 2}))
    await asyncio.sleep(0.05)
    assert not outside.done()
    assert (await thing.get()).get("n") == 1
    transaction.update(thing, {"inside": True})
    await transaction._commit()
    await outside
    assert (await thing.get()).to_dict() == {"n": 2}


async def test_waiting_for_a_lock_ends_with_aborted(start: Start, connect: Connect) -> None:
    db = connect((await start(lock_seconds=0.05)).port)
    thing = db.document("things/one")
    await thing.set({"n": 1})
    transaction = await begun(db)
    await thing.get(transaction=transaction)
    with pytest.raises(exceptions.Aborted):
        await thing.set({"n": 2})
    await transaction._rollback()
    await thing.set({"n": 3})


async def test_two_readers_that_both_want_to_write_end_one_of_them(db: AsyncClient) -> None:
    thing = db.document("things/one")
    await thing.set({"n": 1})
    rivals = [await begun(db), await begun(db)]
    for rival in rivals:
        await thing.get(transaction=rival)
        rival.update(thing, {"n": 2})
    answers = await asyncio.gather(*(rival._commit() for rival in rivals), return_exceptions=True)
    assert sum(isinstance(answer, exceptions.Aborted) for answer in answers) == 1


async def test_an_idle_transaction_expires_and_lets_go(start: Start, connect: Connect) -> None:
    db = connect((await start(idle_seconds=0.1)).port)
    thing = db.document("things/one")
    await thing.set({"n": 1})
    transaction = await begun(db)
    await thing.get(transaction=transaction)
    await thing.set({"n": 2})
    transaction.update(thing, {"n": 3})
    with pytest.raises(exceptions.InvalidArgument, match="expired"):
        await transaction._commit()


async def test_a_read_only_transaction_keeps_its_snapshot_and_blocks_nobody(db: AsyncClient) -> None:
    thing = db.document("things/one")
    await thing.set({"n": 1})
    transaction = await begun(db, read_only=True)
    await thing.set({"n": 2})
    await db.document("things/two").set({"n": 1})
    assert (await thing.get(transaction=transaction)).get("n") == 1
    found = [item.id async for item in db.collection("things").stream(transaction=transaction)]
    assert found == ["one"]
    await transaction._commit()


async def test_what_fails_inside_is_rolled_back_and_holds_no_lock(db: AsyncClient) -> None:
    thing = db.document("things/one")
    await thing.set({"n": 1})

    async def fail(transaction: AsyncTransaction) -> None:
        await thing.get(transaction=transaction)
        transaction.update(thing, {"n": 2})
        raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError):
        await async_transactional(fail)(db.transaction())
    await asyncio.wait_for(thing.set({"n": 3}), 5)
    assert (await thing.get()).get("n") == 3


async def test_an_unknown_transaction_is_an_invalid_argument(db: AsyncClient) -> None:
    request = {"database": db._database_string, "transaction": b"nobody"}
    with pytest.raises(exceptions.InvalidArgument):
        await db._firestore_api.rollback(request)
