"""Loops to be turned by tests: the author and critic of the design, and one that waits for its body."""

from __future__ import annotations

from typing import Any

from penstock.testing.puppet import Puppet, puppet, routing, step
from penstock.workflow.spec import Step


def critic(*needs: str, times: int = 3, **parts: Any) -> Step:
    given: dict[str, Any] = {"loop_target": "author", "max_iterations": times, "next": "publish"} | parts
    return step("critic", *(needs or ("author",)), routing=routing(("output.ok", "publish"), **given))


def microloop(**parts: Any) -> Puppet:
    """The author and critic of the design, with a mail step beside the loop."""
    return puppet(
        step("list"),
        step("author", "list"),
        critic(**parts),
        step("mail", "author"),
        step("publish", "author"),
    )


def rounds(p: Puppet, count: int, *, ok: bool = False) -> None:
    for n in range(count):
        p.returns("author", f"draft {p.iteration('author')} {n}")
        p.returns("critic", {"ok": ok})


def waiting_for_slow() -> Puppet:
    """The critic has gone back, and the loop waits for a step of its body that is still running."""
    p = puppet(
        step("author"),
        step("quick", "author"),
        step("slow", "author"),
        step("critic", "quick", "slow", join="any_success",
             routing=routing(loop_target="author", max_iterations=2, next="end")),
    )  # fmt: skip
    p.returns("author", 1)
    p.returns("quick")
    p.returns("critic", 1)
    return p
