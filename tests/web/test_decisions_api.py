"""Decisions over HTTP: what is asked, which answers count, and whoever drives the run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from surface import Server, served, server

DECIDER = Path(__file__).with_name("decider.py")


async def test_a_question_is_told_whole(folder: Path) -> None:
    async with served(folder) as api:
        run = await api.start("ship")
        [listed] = await api.asked(run)
        shown = await api.get(f"/api/decisions/{listed['id']}")

    assert shown == (200, listed)
    assert (listed["kind"], listed["step"], listed["run_id"]) == ("approval", "deploy", run)
    assert listed["call"] == {"uses": "py:acts:deploy", "args": {"env": "prod", "share": 100}}
    assert listed["options"] == ["approve", "reject", "edit", "skip", "abort"]
    arguments = {"env": {"type": "string"}, "share": {"type": "integer"}}
    assert listed["schema"] == {
        "edit": {"type": "object", "properties": arguments, "additionalProperties": False}
    }
    assert "Exact call: py:acts:deploy" in listed["summary"]
    assert (listed["deadline"], listed["open"], listed["answer"]) == (None, True, None)


async def test_a_decision_point_has_a_deadline(folder: Path) -> None:
    async with served(folder) as api:
        [asked] = await api.asked(await api.start("all"))

    assert asked["kind"] == "ail"
    assert asked["deadline"] > asked["asked"]


async def test_an_answer_is_on_record_with_who_and_why(folder: Path) -> None:
    async with served(folder) as api:
        run = await api.start("ship")
        [asked] = await api.asked(run)
        said = await api.answer(asked["id"], "edit", args={"env": "staging"}, by="robot 7", message="safer")
        shown = await api.ended(run)
        record = (await api.get(f"/api/decisions/{asked['id']}")).body

    assert said == (200, {"id": asked["id"], "run_id": run, "verb": "edit", "accepted": True})
    assert shown["outputs"]["where"] == "staging"
    assert record["open"] is False
    answer = {name: record["answer"][name] for name in ("verb", "args", "by", "message")}
    assert answer == {"verb": "edit", "args": {"env": "staging"}, "by": "robot 7", "message": "safer"}


async def test_what_is_no_answer_is_refused_and_the_question_stays_open(folder: Path) -> None:
    async with served(folder) as api:
        run = await api.start("ship")
        [asked] = await api.asked(run)
        wrong = [
            await api.answer(asked["id"], "yes"),
            await api.answer(asked["id"], "approve", args={"env": "x"}),  # did they mean edit?
            await api.answer(asked["id"], "edit"),
            await api.answer(asked["id"], "edit", args={"place": "x"}),
            await api.answer(asked["id"], "approve", digest="x"),
            await api.post(f"/api/decisions/{asked['id']}", {}),
        ]
        still = await api.asked(run)

    assert [one.status for one in wrong] == [422] * 6
    assert [one.error for one in wrong] == ["no_answer"] * 4 + ["invalid_request"] * 2
    assert "choose one of approve, reject" in wrong[0].body["error"]["message"]
    assert still == [asked]


async def test_a_question_that_nobody_asked_is_unknown(folder: Path) -> None:
    async with served(folder) as api:
        run = await api.start("ship")
        await api.asked(run)
        ids = [f"{run}:1", f"{run}:99", f"{run}:x", run, "no:5", "5", f"{run}:-1", f"{run}:{10**30}", "%00:1"]
        looks = [await api.get(f"/api/decisions/{id}") for id in ids]
        answers = [await api.answer(id, "approve") for id in ids]

    assert {(one.status, one.error) for one in [*looks, *answers]} == {(404, "unknown_decision")}


async def test_of_two_answers_at_once_one_counts_and_the_other_is_told(folder: Path) -> None:
    async with served(folder) as api:
        for _ in range(5):
            run = await api.start("ship")
            [asked] = await api.asked(run)
            said = await asyncio.gather(
                *(api.answer(asked["id"], "edit", args={"env": env}) for env in ("east", "west"))
            )
            won = [env for env, one in zip(("east", "west"), said, strict=True) if one.status == 200]
            shown = await api.ended(run)

            assert sorted(one.status for one in said) == [200, 409]
            assert [shown["outputs"]["where"]] == won


async def test_answers_that_come_while_a_run_is_let_go_of_are_not_lost_and_do_nothing_twice(
    folder: Path,
) -> None:
    async with served(folder) as api:
        run = await api.start("many")
        answered: set[str] = set()
        while (await api.get(f"/api/runs/{run}")).body["status"] != "succeeded":
            for asked in (await api.get("/api/decisions")).body["decisions"]:
                if asked["id"] not in answered:
                    answered.add(asked["id"])
                    await asyncio.sleep(len(answered) * 0.01)  # sooner or later than it is let go of
                    assert (await api.answer(asked["id"], "approve")).status == 200

    assert (folder / "deployed").read_text().split()[::2] == list("abcdefghijkl")


async def test_an_answer_that_is_sent_again_under_its_id_is_the_same_answer(folder: Path) -> None:
    async with served(folder) as api:
        run = await api.start("ship")
        [asked] = await api.asked(run)
        first = await api.answer(asked["id"], "approve", id="a1")
        await api.ended(run)
        again = await api.answer(asked["id"], "approve", id="a1")
        other = await api.answer(asked["id"], "approve")

    assert first == again
    assert (other.status, other.error) == (409, "command_rejected")
    assert (folder / "deployed").read_text() == "prod 100\n"


async def test_a_question_of_a_child_run_is_answered_by_its_own_id(folder: Path) -> None:
    async with served(folder) as api:
        run = await api.start("family")
        [asked] = await api.asked(run)
        await api.let_go()  # both wait, and nobody drives them
        shown = await api.get(f"/api/runs/{asked['run_id']}")
        said = await api.answer(asked["id"], "approve")
        ended = await api.ended(run)

    assert asked["run_id"].startswith(f"{run}/")
    assert (shown.status, said.status) == (200, 200)
    assert ended["outputs"] == {"where": "prod"}


async def test_a_run_of_another_process_is_answered_there(folder: Path) -> None:
    async with served(folder, looks=False) as api:
        store = f"sqlite:///{folder}/.penstock/penstock.db"
        line = [sys.executable, "-m", "penstock", "run", "busy.yaml", "--json", "--store", store]
        other = await asyncio.create_subprocess_exec(*line, stdout=subprocess.DEVNULL)
        [asked] = await api.asked()
        owner = (await api.get("/api/runs")).body["runs"][0]["owner"]
        said = await api.answer(asked["id"], "edit", args={"env": "elsewhere"})
        again = await api.answer(asked["id"], "approve")
        mine = asked["run_id"] in api.penstock.engine.live
        (folder / "go").touch()
        shown = await api.ended(asked["run_id"])

        assert await other.wait() == 0
    assert str(other.pid) in owner
    assert (said.status, again.status, mine) == (200, 409, False)
    assert shown["outputs"] == {"where": "elsewhere"}


async def test_a_program_with_nothing_but_the_standard_library_decides_everything_in_a_run(
    folder: Path,
) -> None:
    with server(folder) as there:
        shown, asked = await _decided(there)

    assert shown["status"] == "succeeded"
    assert shown["outputs"] == {"where": "prod"}
    assert sorted(asked) == ["ail approve", "approval approve", "budget raise", "gate accept"]


async def _decided(there: Server) -> tuple[dict[str, object], list[str]]:
    async with there.client() as api:
        run = await api.start("all")
        decider = await asyncio.create_subprocess_exec(
            sys.executable, "-S", str(DECIDER), there.url, there.token, run, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await decider.communicate()
        assert decider.returncode == 0
        return (await api.get(f"/api/runs/{run}")).body, said.decode().splitlines()


async def test_a_running_task_is_answered_and_what_does_not_fit_is_refused(folder: Path) -> None:
    async with served(folder) as api:
        run = await api.start("curious")
        [asked] = await api.asked(run)
        wrong = await api.answer(asked["id"], "respond", args={"n": "many"})
        still = await api.asked(run)
        await api.answer(asked["id"], "respond", args={"n": 3})
        shown = await api.ended(run)

    assert (asked["kind"], asked["options"]) == ("input", ["respond", "reject", "abort"])
    assert asked["schema"]["respond"]["required"] == ["n"]
    assert wrong.status == 422
    assert still == [asked]
    assert shown["outputs"] == {"said": 3}
