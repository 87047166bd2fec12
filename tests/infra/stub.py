"""A google provider that knows the real one's schema and nothing else, for a terraform that has no registry.

terraform is told through TF_REATTACH_PROVIDERS that the provider runs already; it then checks every resource,
argument, block, type and reference against the schema itself. What would reach the cloud is UNIMPLEMENTED.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

_QUIET = (
    "ValidateProviderConfig",
    "ValidateResourceConfig",
    "ValidateDataResourceConfig",
    "ConfigureProvider",
    "StopProvider",
)
"""Calls whose empty answer means: no complaints."""


@contextmanager
def google_stub(schema: bytes, socket: Path) -> Iterator[dict[str, str]]:
    """Serves while the block runs; yields the environment that makes terraform use it."""
    replies = {"GetProviderSchema": schema, **dict.fromkeys(_QUIET, b"")}
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(lambda request, context, reply=reply: reply)
        for name, reply in replies.items()
    }
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(4), options=options)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("tfplugin6.Provider", handlers),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    provider = {
        "Protocol": "grpc",
        "ProtocolVersion": 6,
        "Pid": os.getpid(),
        "Test": True,
        "Addr": {"Network": "unix", "String": str(socket)},
    }
    try:
        yield {"TF_REATTACH_PROVIDERS": json.dumps({"hashicorp/google": provider})}
    finally:
        server.stop(grace=None).wait()
