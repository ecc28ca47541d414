"""Write the golden histories: `python tests/histories/golden.py`.

Each is a run of today, kept for good: a line with the definition, a line for each event, a line
with the state they come to. Whatever changes later, these must still fold to the same state; so
add new ones, and do not write old ones again without a very good reason (`--all` does).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

import penstock as ps
from penstock.engines.base import Result, step_results
from penstock.ids import CommandId, RunId, StepId
from penstock.run.commands import Decide
from penstock.run.events import Event, TaskFailed, encode
from penstock.run.state import Run
from penstock.testing import clock
from penstock.testing.rig import Rig
from penstock.tools.base import Inquiry
from penstock.workflow import spec

HERE = Path(__file__).parent


@ps.tool(id="demo:say", effect="read")
async def say(value: Any = None, seconds: float = 0.0) -> Any:
    if seconds:
        await asyncio.sleep(seconds)
    return value


@ps.tool(id="demo:fail", effect="read")
async def fail(message: str = "no", seconds: float = 0.0) -> None:
    await asyncio.sleep(seconds)
    raise ValueError(message)


@ps.tool(id="demo:shaky", effect="idempotent")
async def shaky(task: ps.Task, until: int, seconds: float = 0.0) -> int:
    """Fails until the attempt of this number."""
    await asyncio.sleep(seconds)
    if task.attempt < until:
        raise ConnectionError(f"attempt {task.attempt}")
    return task.attempt


@ps.tool(id="demo:odd", effect="read")
async def odd(n: int) -> int:
    await asyncio.sleep(n)
    if n % 2 == 0:
        raise ValueError(f"{n} is even")
    return n


@ps.tool(id="demo:ask", effect="read")
async def ask(task: ps.Task) -> str:
    wanted = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    try:
        async with asyncio.timeout(20):
            said = await task.ask(Inquiry("How many?", wanted, by="demo:ask"))
    except TimeoutError:
        return "nobody said"
    return f"{said.action} {said.content}"


async def chain(rig: Rig, id: str) -> None:
    flow = ps.Workflow("chain", version="1")
    flow.input("name", str, default="world")
    last = flow.step("s0", "demo:say", value="${ inputs.name }")
    for n in range(1, 5):
        last = flow.step(f"s{n}", "demo:say", value=last, seconds=1)
    flow.output("greeting", f"hello {last}")
    await rig.run(flow, {"name": "you"}, id=id)


async def joins(rig: Rig, id: str) -> None:
    flow = ps.Workflow("joins")
    flow.step("good", "demo:say", value=1, seconds=2)
    flow.step("bad", "demo:fail", message="as planned", seconds=1)
    flow.step("off", "demo:say", when="1 > 2")
    flow.step("forgiven", "demo:fail", on_error="continue")
    needs = ["good", "bad", "off", "forgiven"]
    for join in ("all_success", "none_failed", "any_success", "all_done"):
        flow.step(join, "demo:say", value=join, needs=needs, join=join)
        flow.step(f"after_{join}", "demo:say", needs=join)
    flow.output("done", "${ steps.all_done.output }")
    await rig.run(flow, id=id)


async def skips(rig: Rig, id: str) -> None:
    flow = ps.Workflow("skips")
    flow.input("deep", bool, default=False)
    flow.step("look", "demo:say", value={"files": ["a", "b"], "kind": "text"})
    flow.step("parse", "demo:say", when="steps.look.output.kind == 'xml'")
    flow.step(
        "count", "demo:say", value="${ size(steps.look.output.files) }", needs="parse", join="none_failed"
    )
    flow.step("refine", "demo:say", needs="parse")
    flow.step("publish", "demo:say", needs=["refine"], when="inputs.deep")
    flow.output("count", "${ steps.count.output }")
    flow.output("refined", "${ steps.refine.output }")
    await rig.run(flow, id=id)


async def maps(rig: Rig, id: str) -> None:
    flow = ps.Workflow("maps", max_parallel=4)
    flow.step("list", "demo:say", value=[1, 2, 3, 4, 5])
    flow.step(
        "kept",
        "demo:odd",
        for_each="${ steps.list.output }",
        n="${ item }",
        on_item_error="keep",
        max_parallel=2,
    )
    flow.step("strict", "demo:odd", for_each="${ steps.list.output }", n="${ item }", on_error="continue")
    flow.step("empty", "demo:odd", for_each=[], n="${ item }")
    flow.step(
        "again", "demo:shaky", for_each=[1, 3, 2], until="${ item }", retry={"max_attempts": 3, "backoff": 1}
    )
    flow.step("if_any", "demo:say", when="size(steps.kept.output) > 2")
    flow.output("kept", "${ steps.kept.output }")
    flow.output("again", "${ steps.again.output }")
    await rig.run(flow, id=id)


async def retries(rig: Rig, id: str) -> None:
    flow = ps.Workflow("retries", retry={"max_attempts": 2, "backoff": "2s"})
    flow.step("third", "demo:shaky", until=3, retry={"max_attempts": 5, "backoff": "1s", "jitter": 0.5})
    flow.step("never", "demo:shaky", until=9)
    flow.step("slow", "demo:say", seconds=100, timeout=3)
    flow.step("slow_write", "demo:say", seconds=100, timeout=3, effect="write", retry=5)
    flow.step("after", "demo:say", needs=["third", "never"])
    flow.output("third", "${ steps.third.output }")
    await rig.run(flow, id=id)


async def aborted(rig: Rig, id: str) -> None:
    flow = ps.Workflow("aborted", max_parallel=3)
    flow.step("quick", "demo:say", value=1)
    flow.step("slow", "demo:say", seconds=20)
    flow.step("waits", "demo:shaky", until=9, retry={"max_attempts": 9, "backoff": "10s"})
    flow.step("map", "demo:say", for_each=[1, 2, 3], seconds=20)
    flow.step("after", "demo:say", needs="slow")
    handle = await rig.start(flow, id=id)
    await asyncio.sleep(5)
    await handle.send(ps.Abort(id=CommandId("stop"), by="tests", reason="seen enough"))
    await handle.result()


async def steered(rig: Rig, id: str) -> None:
    flow = ps.Workflow("steered", max_parallel=2)
    flow.step("first", "demo:say", seconds=5)
    flow.step("second", "demo:say", value="old", needs="first")
    flow.step("third", "demo:say", needs="first", seconds=1)
    flow.step("last", "demo:say", value="${ steps.second.output }", join="all_done", needs="third")
    flow.output("said", "${ steps.last.output }")
    handle = await rig.start(flow, id=id)
    await handle.send(ps.Message(id=CommandId("m"), text="careful", role="human", by="ada"))
    await handle.send(ps.ModifyArgs(id=CommandId("a"), step=StepId("second"), args={"value": "new"}))
    await _refused(handle, ps.Resume(id=CommandId("r0")))
    await handle.send(ps.Pause(id=CommandId("p"), reason="lunch"))
    await asyncio.sleep(60)
    await handle.send(ps.SkipStep(id=CommandId("s"), step=StepId("third"), reason="not needed"))
    await handle.send(ps.Resume(id=CommandId("r1")))
    await _refused(handle, ps.SkipLayer(id=CommandId("l"), layer=9))
    await handle.result()


async def grown(rig: Rig, id: str) -> None:
    flow = ps.Workflow("grown")
    flow.step("a", "demo:shaky", until=2, seconds=1)
    flow.step("b", "demo:say", needs="a")
    flow.step("busy", "demo:say", value={"kind": "xml"}, seconds=10)
    handle = await rig.start(flow, id=id)
    await asyncio.sleep(2)
    extra = (
        ps.Step(id=StepId("x"), uses="demo:say", with_={"value": "${ steps.busy.output.kind }"}),
        ps.Step(id=StepId("y"), uses="demo:say", needs=(StepId("x"), StepId("a")), join="all_done"),
    )
    await handle.send(ps.InjectTasks(id=CommandId("i"), steps=extra, by="planner"))
    await handle.send(ps.RetryStep(id=CommandId("t"), step=StepId("a")))
    await handle.result()


async def state(rig: Rig, id: str) -> None:
    flow = ps.Workflow("state", reducers={"total": "sum", "seen": "append", "best": "max", "facts": "merge"})
    for n, value in enumerate((3, 1, 2)):
        update = {
            "total": "${ output }",
            "seen": "${ output }",
            "best": "${ output }",
            "latest": "${ output }",
        }
        flow.step(f"s{n}", "demo:say", value=value, seconds=n, set=update)
    flow.step("facts", "demo:say", value={"a": 1}, set={"facts": "${ output }"})
    flow.step("wrong", "demo:say", value="many", seconds=9, set={"total": "${ output }", "latest": "lost"})
    flow.output("facts", "${ context.facts }")
    await rig.run(flow, id=id)


async def late(rig: Rig, id: str) -> None:
    flow = ps.Workflow("late", timeout=10)
    flow.output("quick", flow.step("quick", "demo:say", value="in time", seconds=1))
    flow.step("slow", "demo:say", seconds=20)
    flow.step("after", "demo:say", needs="slow")
    await rig.run(flow, id=id)


async def family(rig: Rig, id: str) -> None:
    child = ps.Workflow("child")
    n = child.input("n", int)
    child.output("odd", child.step("odd", "demo:odd", n=n))
    flow = ps.Workflow("family")
    flow.step("one", child, n=1)
    flow.step("each", child, for_each=[1, 2, 3], n="${ item }", on_item_error="keep")
    flow.output("all", "${ steps.each.output }")
    await rig.run(flow, id=id)


async def rounds(rig: Rig, id: str) -> None:
    """An author and a critic: two rounds, then a branch, and a target that was not chosen."""
    flow = ps.Workflow("rounds")
    flow.step("draft", "demo:say", value="${ iteration }", seconds=1)
    back = {
        "kind": "loop",
        "conditions": [{"expr": "output >= 2", "target": "publish"}],
        "loop_target": "draft",
        "max_iterations": 3,
        "next": "give_up",
    }
    flow.step("judge", "demo:say", value="${ steps.draft.output }", routing=back)
    flow.step("publish", "demo:say", value="${ steps.draft.output }")
    flow.step("give_up", "demo:say")
    flow.output("published", "${ steps.publish.output }")
    await rig.run(flow, id=id)


async def gated(rig: Rig, id: str) -> None:
    """A gate that gives up: a person allows one more set of attempts, then takes what there is."""
    flow = ps.Workflow("gated")
    gate = {"checks": [{"expr": "output > 9"}, {"expr": "output > 0"}], "max_attempts": 2}
    flow.step("build", "demo:shaky", until=1, gate=gate)
    flow.step("beside", "demo:say", value="goes on")
    flow.output("built", "${ steps.build.output }")
    handle = await rig.start(flow, id=id)
    for n, verb in enumerate(("retry", "accept")):
        await _answer(handle, f"d{n}", verb, by="ada", message="as you like")
    await handle.result()


async def approved(rig: Rig, id: str) -> None:
    """Approvals: one superseded by other arguments, one edited, items answered out of order."""
    flow = ps.Workflow("approved")
    flow.step("deploy", "demo:say", value="prod", approval=True)
    flow.step("each", "demo:say", for_each=["x", "y"], value="${ item }", approval=True, needs="deploy")
    flow.output("where", "${ steps.deploy.output }")
    handle = await rig.start(flow, id=id)
    await asyncio.sleep(5)
    await handle.send(ps.ModifyArgs(id=CommandId("m"), step=StepId("deploy"), args={"value": "stage"}))
    await _answer(handle, "d0", "edit", args={"value": "${ not evaluated }"}, by="ada")
    await asyncio.sleep(5)
    second, first = [asked.decision for asked in handle.state.decisions.values()][::-1]
    await handle.send(Decide(id=CommandId("d1"), decision=second, verb="approve", by="ada"))
    await handle.send(Decide(id=CommandId("d2"), decision=first, verb="skip", message="not this one"))
    await handle.result()


async def discovery(rig: Rig, id: str) -> None:
    """Between waves a rule adds a step that feeds a later one; then an agent is asked, and is late."""
    task = {"id": "xml", "uses": "demo:say", "with": {"value": "${ steps.look.output.xml }"}}
    rule = {"if": "size(steps.look.output.xml) > 0", "do": "inject", "tasks": [task], "feeds": "report.value"}
    flow = ps.Workflow("discovery", ail={"at": "per_layer", "decider": "policy", "rules": [rule]})
    flow.step("look", "demo:say", value={"json": ["a"], "xml": ["b"]})
    flow.step("json", "demo:say", value="${ steps.look.output.json }", ail={"decider": "external"})
    flow.step("report", "demo:say", value="${ steps.json.output }")
    flow.output("report", "${ steps.report.output }")
    await rig.run(flow, id=id)


async def asked(rig: Rig, id: str) -> None:
    """Running tasks ask: one is answered at the second try, one is declined, one gives up waiting."""
    flow = ps.Workflow("asked")
    flow.step("count", "demo:ask")
    flow.step("guess", "demo:ask", needs="count")
    flow.step("late", "demo:ask", needs="guess")
    flow.output("count", "${ steps.count.output }")
    handle = await rig.start(flow, id=id)
    await asyncio.sleep(5)
    (question,) = handle.state.decisions.values()
    bad = Decide(id=CommandId("a0"), decision=question.decision, verb="respond", args={"n": "many"})
    await _refused(handle, bad)
    await _answer(handle, "a1", "respond", args={"n": 3}, by="ada")
    await _answer(handle, "a2", "reject")
    await handle.result()


async def _answer(handle: ps.RunHandle, id: str, verb: str, **more: Any) -> None:
    """Answer the only question there is, as soon as there is one."""
    await asyncio.sleep(5)
    (asked,) = handle.state.decisions.values()
    await handle.send(Decide(id=CommandId(id), decision=asked.decision, verb=verb, **more))


async def _refused(handle: ps.RunHandle, command: Any) -> None:
    try:
        await handle.send(command)
    except ps.CommandRejected:
        return
    raise AssertionError(f"{command} was accepted")


SCENES: dict[str, Callable[[Rig, str], Awaitable[Result | None]]] = {
    scene.__name__: scene
    for scene in (
        chain,
        joins,
        skips,
        maps,
        retries,
        aborted,
        steered,
        grown,
        state,
        late,
        family,
        rounds,
        gated,
        approved,
        discovery,
        asked,
    )
}
"""A run each; `family` also leaves its children, as histories of their own."""


def written(name: str) -> dict[str, bytes]:
    """File name to content, for the run of a scene and its children."""

    async def main() -> dict[str, bytes]:
        async with Rig(say, fail, shaky, odd, ask) as rig:
            await SCENES[name](rig, name)
            return {_file(id): _history(rig, id) for id in rig.store.journals}

    return clock.run(main())


def _file(id: RunId) -> str:
    return id.replace("/", "--") + ".jsonl"


def _history(rig: Rig, id: RunId) -> bytes:
    definition = msgspec.Raw(spec.encode(rig.store.journals[id].new.workflow))
    lines = [msgspec.json.encode({"run": id, "definition": definition})]
    lines += [encode(_untraced(event)) for event in rig.events(id)]
    lines.append(msgspec.json.encode({"state": view(rig.replayed(id))}))
    return b"\n".join(lines) + b"\n"


def view(run: Run) -> dict[str, Any]:
    """What a run comes to, in words that will last: the layout of its memory may change, this may not."""
    steps = {step: msgspec.to_builtins(result) for step, result in step_results(run).items()}
    counters = {
        name: getattr(run, name) for name in ("seq", "open", "running", "timers", "openings", "layer")
    }
    return {
        "status": run.status,
        "reason": run.reason,
        "inputs": run.inputs,
        "outputs": run.outputs,
        "seconds": run.at - run.started_at,
        "steps": steps,
        "kinds": {run.graph.ids[i]: kind for i, (kind, _) in sorted(run.reasons.items())},
        "counters": counters,
        "context": run.context,
        "keys": run.keys,
        "messages": list(run.messages),
        "commands": sorted(run.commands),
    }


def _untraced(event: Event) -> Event:
    """Without the places in files where errors were raised: they differ from one machine to the next."""
    return msgspec.structs.replace(event, trace="") if isinstance(event, TaskFailed) else event


def main() -> None:
    for name in SCENES:
        for file, content in written(name).items():
            path = HERE / file
            if "--all" in sys.argv or not path.exists():
                path.write_bytes(content)
                print(path.name, len(content.splitlines()), "lines")  # noqa: T201


if __name__ == "__main__":
    main()
