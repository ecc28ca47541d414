"""Events over HTTP: a stream that can be taken up again, and a list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surface import TOKEN, Api, served

JSON = {"Accept": "application/json"}


async def waits(api: Api) -> str:
    run = await api.start("ship")
    await api.asked(run)
    return run


async def test_a_stream_tells_every_event_in_order_and_then_that_it_is_over(folder: Path) -> None:
    async with served(folder) as api:
        run = await waits(api)
        [asked] = await api.asked(run)
        await api.answer(asked["id"], "approve")
        frames = [frame async for frame in api.frames(run)]
        listed = (await api.get(f"/api/runs/{run}/events", headers=JSON)).body

    assert [frame.id for frame in frames] == [str(n + 1) for n in range(len(listed))] + [""]
    assert [frame.data for frame in frames[:-1]] == listed
    assert [event["seq"] for event in listed] == list(range(1, len(listed) + 1))
    assert (listed[0]["type"], listed[-1]["type"]) == ("workflow_start", "workflow_complete")
    assert frames[-1].name == "end"


async def test_a_stream_goes_on_with_what_happens_while_it_is_open(folder: Path) -> None:
    async with served(folder) as api:
        run = await waits(api)
        seen: list[dict[str, Any]] = []
        async for frame in api.frames(run):
            seen.append(frame.data)
            if frame.data.get("type") == "decision_required":
                await api.let_go()  # whoever drives it then, the stream goes on
                await api.answer(frame.data["decision"], "approve")

    assert [event["type"] for event in seen if event][-1] == "workflow_complete"


async def test_a_broken_stream_is_taken_up_without_loss_or_repetition(folder: Path) -> None:
    async with served(folder) as api:
        run = await waits(api)
        seen: list[str] = []
        over = False
        while not over:
            last = {"Last-Event-ID": seen[-1]} if seen else {}
            async for frame in api.frames(run, **last):
                if frame.name == "end":
                    over = True
                    break
                seen.append(frame.id)
                if frame.data["type"] == "decision_required":
                    await api.answer(frame.data["decision"], "approve")
                if int(frame.id) % 2:
                    break  # the connection is lost after every other event
        total = (await api.get("/api/runs")).body["runs"][0]["events"]

    assert seen == [str(n) for n in range(1, total + 1)]


async def test_who_has_seen_the_end_is_told_not_to_come_back(folder: Path) -> None:
    async with served(folder) as api:
        run = await waits(api)
        await api.post(f"/api/runs/{run}/commands", {"command": "abort"})
        await api.ended(run)
        last = (await api.get("/api/runs")).body["runs"][0]["events"]
        again = await api.get(f"/api/runs/{run}/events", headers={"Last-Event-ID": str(last)})

    assert again == (204, None)


async def test_a_browser_may_send_the_token_in_the_address_of_a_stream_and_nowhere_else(
    folder: Path,
) -> None:
    async with served(folder) as api:
        run = await waits(api)
        api.http.headers.clear()
        streamed = await anext(api.frames(run, query=f"?token={TOKEN}"))
        wrong = await api.get(f"/api/runs/{run}/events?token=wrong")
        elsewhere = await api.get(f"/api/runs/{run}?token={TOKEN}")

    assert streamed.id == "1"
    assert (wrong.status, elsewhere.status) == (401, 401)


async def test_a_list_goes_on_after_an_event_and_is_cut(folder: Path) -> None:
    async with served(folder) as api:
        run = await waits(api)
        every = (await api.get(f"/api/runs/{run}/events", headers=JSON)).body
        some = (await api.get(f"/api/runs/{run}/events?after=1&limit=2", headers=JSON)).body
        unknown = await api.get("/api/runs/nix/events", headers=JSON)

    assert some == every[1:3]
    assert (unknown.status, unknown.error) == (404, "unknown_run")


async def test_streams_end_in_good_order_when_the_server_stops(folder: Path) -> None:
    async with served(folder) as api:
        run = await waits(api)
        frames = api.frames(run)
        await anext(frames)
        api.desk.stop.set()
        rest = [frame.data["type"] async for frame in frames]  # one that is cut off would raise

    assert rest[-1] == "decision_required"
