"""Penstock with all the tools that it offers: those of servers, built-ins, and functions of a file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from penstock.cli.exits import Refused

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.knowledge.embed import Embedder
    from penstock.planner.context import Budget
    from penstock.planner.finder import ToolFinder

T = TypeVar("T")
_NOTED: Final = "__penstock_tool__"

Servers = Annotated[
    str,
    typer.Option(
        "--servers",
        help="The file that names the MCP servers; else penstock.mcp.json or .mcp.json.",
        metavar="FILE",
    ),
]
Functions = Annotated[
    str, typer.Option("--tools", help="A Python file whose @tool functions are offered, too.", metavar="FILE")
]
Window = Annotated[
    int, typer.Option("--window", help="Tokens of the model's window.", metavar="N", min=1_000)
]
Share = Annotated[
    float, typer.Option("--share", help="The share of it that tools may take.", metavar="X", min=0, max=1)
]
WINDOW: Final = 200_000
SHARE: Final = 0.05


def opened(store: str, servers: str, functions: str) -> Penstock:
    from penstock import app, settings

    if servers and not Path(servers).is_file():
        raise Refused(f"there is no file {servers}")
    configuration = settings.read(store=store or None, mcp=servers or None)
    return app.Penstock(configuration, tools=marked(Path(functions)) if functions else ())


def with_tools(servers: str, functions: str, work: Callable[[Penstock], Awaitable[T]]) -> T:
    """Do something with all the tools, and leave nothing running."""
    import asyncio
    import gc

    gc.disable()  # the process ends with its answer: looking through ten thousand tools frees nothing

    async def go() -> T:
        penstock = opened("memory:", servers, functions)
        try:
            return await work(penstock)
        finally:
            await penstock.close()

    return asyncio.run(go())


def budget(window: int, share: float) -> Budget:
    """What is left for tools after what every client pays."""
    from penstock.gateway.definitions import plain
    from penstock.planner.context import Budget, cost_of, counter

    count, _ = counter()
    return Budget(window=window, share=share, used=sum(cost_of(one, count) for one in plain()))


def finder(penstock: Penstock, spend: Budget, **more: Any) -> ToolFinder:
    from penstock.planner.finder import ToolFinder

    configuration = penstock.settings

    def embedder() -> Embedder | None:
        from penstock.knowledge.embed import chosen

        return chosen(configuration.embedding, configuration.embedding_key)

    if configuration.embedding != "embedded":
        embedder()  # says at once what is not installed; a model is loaded by the first search
    kept = own_folder(penstock) / "vectors.npz"
    return ToolFinder(penstock.tools, budget=spend, embedder=embedder, kept=kept, **more)


def own_folder(penstock: Penstock) -> Path:
    """Where what belongs to a store is kept: beside it."""
    url = penstock.settings.store
    path = url.removeprefix("sqlite:///")
    return Path(path).parent if path != url else Path(".penstock")


def marked(path: Path) -> list[Callable[..., Any]]:
    """The functions of a file that say they are tools."""
    import importlib.util
    import sys

    spec = importlib.util.spec_from_file_location(f"penstock_tools_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise Refused(f"{path} is not a Python file")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Refused(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return [one for one in vars(module).values() if callable(one) and hasattr(one, _NOTED)]
