"""The README of the embedded Firestore tells the truth about what is served and what is missing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud.firestore_v1 import AsyncClient, Client
from google.cloud.firestore_v1.types import firestore

pytest_plugins = ["localcloud.firestore.fixture"]
README = Path(__file__).parents[3] / "localcloud" / "firestore" / "README.md"
METHODS = sorted(name.removesuffix("Request") for name in vars(firestore) if name.endswith("Request"))


def section(title: str) -> str:
    text = README.read_text(encoding="utf-8")
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]


def first_cells(title: str) -> str:
    return " ".join(line.split("|")[1] for line in section(title).splitlines() if line.startswith("|"))


def test_every_rpc_is_in_exactly_one_of_the_two_tables() -> None:
    served = set(re.findall(r"[A-Z]\w+", first_cells("What is served"))) & set(METHODS)
    missing = set(re.findall(r"[A-Z]\w+", first_cells("What is missing"))) & set(METHODS)
    assert len(METHODS) == 17
    assert served | missing == set(METHODS)
    assert not served & missing


async def test_what_is_said_to_be_missing_is_unimplemented_and_the_rest_is_not(db: AsyncClient) -> None:
    missing = first_cells("What is missing")
    transport: Any = db._firestore_api.transport
    for method in METHODS:
        kind = {"Listen": "stream_stream", "Write": "stream_stream"}.get(method, "unary_stream")
        request = getattr(firestore, f"{method}Request")
        call = getattr(transport.grpc_channel, kind)(
            f"/google.firestore.v1.Firestore/{method}", request_serializer=request.serialize
        )
        asked = request(database="nonsense") if "database" in request.meta.fields else request()
        stream = call(iter([asked])) if kind == "stream_stream" else call(asked)
        code = await stream.code()
        is_missing = re.search(rf"\b{method}\b", missing) is not None
        assert (code.name == "UNIMPLEMENTED") == is_missing, f"{method}: {code.name}"


def test_the_fixture_of_the_readme_works(firestore_emulator: Any) -> None:
    client = Client(project="demo", credentials=AnonymousCredentials())
    client.document("things/one").set({"n": 1})
    firestore_emulator.reset()
    assert not client.document("things/one").get().exists
    with pytest.raises(exceptions.NotFound):
        client.document("things/one").update({"n": 2})
    client.close()
