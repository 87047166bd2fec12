"""The service over gRPC; every method that it doesn't have is UNIMPLEMENTED by name.

What is missing is listed in the README; a test reads it against Google's own list of methods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from localcloud.tasks.errors import TasksError
from localcloud.tasks.service import Method, Service, status_of

if TYPE_CHECKING:  # generic in the stubs alone
    _GenericRpcHandler = grpc.GenericRpcHandler[Any, Any]
else:
    _GenericRpcHandler = grpc.GenericRpcHandler


def handlers(service: Service) -> list[_GenericRpcHandler]:
    served: list[_GenericRpcHandler] = [
        grpc.method_handlers_generic_handler(
            name,
            {
                method.name: grpc.unary_unary_rpc_method_handler(
                    _served(service, method),
                    request_deserializer=method.request.FromString,
                    response_serializer=method.response.SerializeToString,
                )
                for method in methods.values()
            },
        )
        for name, methods in service.methods.items()
    ]
    return [*served, _Unimplemented()]


def _served(service: Service, method: Method) -> Callable[[Any, Any], Awaitable[Any]]:
    async def serve(request: Any, context: Any) -> Any:
        try:
            return await service.call(method, request)
        except TasksError as error:
            refusal = error
        code = grpc.StatusCode[refusal.status]
        details = (("grpc-status-details-bin", status_of(refusal).SerializeToString()),)
        return await context.abort(code, str(refusal), details if refusal.link else ())

    return serve


class _Unimplemented(_GenericRpcHandler):
    """Takes every call that nothing before it took."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        name = str(handler_call_details.method)

        async def refuse(request: bytes, context: Any) -> None:
            await context.abort(
                grpc.StatusCode.UNIMPLEMENTED, f"{name.lstrip('/')} is not implemented by localcloud."
            )

        return grpc.unary_unary_rpc_method_handler(refuse)
