"""The gateway over streamable HTTP: on this machine only, and only for who has the token."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final

from penstock.listening import Admission, Guarded, Hosts, serve

if TYPE_CHECKING:
    from penstock.gateway.server import Gateway

PATH: Final = "/mcp"


async def serve_http(gateway: Gateway, *, at: socket.socket, token: str, stop: asyncio.Event) -> None:
    """Serve clients until `stop` is set. Runs go on whoever comes or goes."""
    from mcp.server.transport_security import TransportSecuritySettings

    checked = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # at the door already
    app: Any = gateway.server.streamable_http_app(streamable_http_path=PATH, transport_security=checked)
    admission = Admission(token=token, hosts=Hosts(), said_by="penstock mcp --http")
    async with asyncio.TaskGroup() as group:
        taking = group.create_task(gateway.runs.take_up(), name="penstock-take-up")
        await serve(Guarded(app, admission), at=at, stop=stop)
        taking.cancel()
