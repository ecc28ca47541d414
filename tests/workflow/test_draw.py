"""Drawings: a listing, Mermaid and SVG, of small graphs and of enormous ones."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.ids import StepId
from penstock.workflow.draw import MARKS, mermaid, svg, tree
from penstock.workflow.graph import Graph, compile_graph
from penstock.workflow.spec import Check, Condition, Gate, Routing, Step, Workflow

SVG = "{http://www.w3.org/2000/svg}"


def step(name: str, *needs: str, **parts: Any) -> Step:
    return Step(
        id=StepId(name), uses=parts.pop("uses", f"py:flow:{name}"), needs=tuple(map(StepId, needs)), **parts
    )


def compiled(*steps: Step, name: str = "flow") -> Graph:
    return compile_graph(Workflow(name=name, steps=steps))


def triage() -> Graph:
    routing = Routing(
        conditions=(Condition(expr="output.verdict == 'VERIFIED'", target=StepId("publish")),),
        branches={"odd": StepId("human"), "stop": StepId("end")},
        loop_target=StepId("author"),
        max_iterations=3,
        next=StepId("publish"),
    )
    return compiled(
        step("list"),
        step(
            "parse",
            for_each="steps.list.output.files",
            with_={"path": "${ item }"},
            when="steps.list.output.ok",
        ),
        step("author", "parse", uses="agent:writer"),
        step("critic", "author", routing=routing, approval="always"),
        step("publish", gate=Gate(checks=(Check(expr="output.bytes > 0"),)), uses="files:write"),
        step("again", "list", routing=Routing(loop_target=StepId("again"), max_iterations=2)),
        name="triage & co",
    )


def fan(width: int) -> Graph:
    workers = [step(f"w{i}", "start") for i in range(width)]
    return compiled(step("start"), *workers, step("join", *(worker.id for worker in workers)))


def chain(length: int) -> Graph:
    return compiled(*(step(f"s{i}", *[f"s{i - 1}"][:i]) for i in range(length)))


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - we have just written it


def names_in(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text") if element.get("class") == "id"]


# -- the listing -------------------------------------------------------------------------------------


def test_the_listing_names_steps_calls_needs_and_routes_by_layer() -> None:
    assert tree(triage()) == (
        "triage & co · 6 steps · 5 layers\n"
        "\n"
        "0   ○ list     py:flow:list\n"
        "1 ┌ ○ parse    py:flow:parse   each  if  ← list\n"
        "  └ ◇ again    py:flow:again   ← list\n"
        "      ↺ again    up to 2×\n"
        "2   ○ author   agent:writer    ← parse\n"
        "3   ◇ critic   py:flow:critic  asks  ← author\n"
        "      ⇢ publish  output.verdict == 'VERIFIED'\n"
        "      ⇢ human    = odd\n"
        "      ⇢ end      = stop\n"
        "      ↺ author   up to 3×\n"
        "      ⇢ publish  else\n"
        "4   ◌ publish  files:write     gate\n"
    )


def test_states_are_shown_by_mark_and_word() -> None:
    states = {StepId("a"): "succeeded", StepId("b"): "failed", StepId("c"): "waiting"}
    lines = tree(compiled(step("a"), step("b", "a"), step("c", "b")), states).splitlines()

    assert lines[2] == "0   ✔ a  py:flow:a  succeeded"
    assert lines[3] == "1   ✘ b  py:flow:b  failed  ← a"
    assert lines[4] == "2   ○ c  py:flow:c  ← b"


def test_a_wide_layer_is_cut_short_but_never_where_something_failed() -> None:
    text = tree(fan(5_000), {StepId("w4321"): "failed", StepId("w77"): "running"}, limit=20)

    assert "✘ w4321" in text
    assert "◐ w77" in text
    assert "more steps" in text
    assert "← w0, w1, w2, w3, 4,996 more" in text
    assert len(text.splitlines()) < 30


def test_a_long_chain_is_cut_in_the_middle() -> None:
    lines = tree(chain(1_000)).splitlines()

    assert len(lines) < 60
    assert lines[-1].split()[:3] == ["999", "○", "s999"]
    assert any("… 968 more steps" in line for line in lines)


def test_nothing_is_cut_below_the_limit() -> None:
    assert "more" not in tree(chain(150))
    assert tree(chain(150)).count("○") == 150


# -- Mermaid -----------------------------------------------------------------------------------------


def test_mermaid_draws_needs_solid_and_routes_dotted() -> None:
    text = mermaid(triage(), {StepId("list"): "succeeded"})

    assert text.splitlines()[1] == "flowchart TD"
    assert "    n0 --> n1" in text
    assert "    n4 -.->|\"output.verdict == 'VERIFIED' / else\"| n5" in text
    assert '    n4 -.->|"up to 3×"| n3' in text
    assert "    class n0 succeeded" in text
    assert "    class n5 dormant" in text


def test_mermaid_cannot_be_broken_by_what_a_workflow_calls() -> None:
    graph = compiled(step("end_", uses='srv:a"]--><b>|{x};#`'), name='x"\nclick n0 "https://example.org"')
    text = mermaid(graph)

    assert 'srv:a#quot;]--#gt;#lt;b#gt;#124;#123;x#125;#59;#35;#96;"]' in text
    assert "\nclick" not in text


def test_a_large_graph_stays_small_enough_for_mermaid() -> None:
    edges = re.findall(r" --> ", mermaid(fan(5_000)))

    assert len(edges) < 500


# -- SVG ---------------------------------------------------------------------------------------------


def test_the_svg_is_well_formed_and_names_every_step() -> None:
    root = parsed(svg(triage()))

    assert root.tag == f"{SVG}svg"
    assert names_in(root) == ["list", "parse", "again", "author", "critic", "publish"]
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title") is not None


def test_the_svg_tells_each_step_and_line_in_words() -> None:
    root = parsed(svg(triage(), {StepId("author"): "running"}))
    titles = [element.text for element in root.iter(f"{SVG}title")]

    assert "triage & co · 6 steps · 5 layers" in titles
    assert "author: agent:writer; running; needs parse" in titles
    assert "list then parse" in titles
    assert "critic goes back to author: up to 3×" in titles
    assert "critic routes to human: = odd" in titles


def test_routes_and_loops_are_dashed_and_needs_are_not() -> None:
    text = svg(triage())
    kinds = {element.get("class") for element in parsed(text).iter(f"{SVG}path")}

    assert {"line need", "line route", "line loop"} <= kinds
    assert ".line.route,.line.loop,.line.detour{stroke-dasharray" in text


def test_the_svg_loads_and_runs_nothing() -> None:
    text = svg(triage())

    assert "<script" not in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "@import" not in text
    assert "prefers-color-scheme:dark" in text


def test_the_legend_explains_only_what_is_there() -> None:
    plain = svg(chain(2))
    keys = [e.text for e in parsed(plain).iter(f"{SVG}text") if e.get("class") == "key"]
    coloured = svg(chain(2), {StepId("s0"): "failed"})
    more = [e.text for e in parsed(coloured).iter(f"{SVG}text") if e.get("class") == "key"]

    assert keys == ["needs"]
    assert more == ["needs", "failed"]


@given(st.text(min_size=1), st.text())
def test_no_name_breaks_the_svg(name: str, call: str) -> None:
    graph = compiled(step("a", uses="srv:" + ("".join(call.split()) or "x")), name=f"x{name}")

    parsed(svg(graph, {StepId("a"): name}))
    assert "\x1b" not in tree(graph, {StepId("a"): name})


def test_boxes_of_a_row_do_not_overlap() -> None:
    spots = _spots(svg(fan(9)))

    for one in spots:
        for other in spots:
            assert one is other or abs(one[0] - other[0]) >= 112 or abs(one[1] - other[1]) >= 46


def test_everything_is_inside_the_page() -> None:
    for graph in (triage(), fan(9), chain(5)):
        text = svg(graph)
        root = parsed(text)
        width, height = float(root.get("width", "0")), float(root.get("height", "0"))
        shift = re.search(r'</text>\n<g transform="translate\(([-\d.]+) ([-\d.]+)\)">', text)
        assert shift is not None
        for x, y in _spots(text):
            assert 56 <= x + float(shift[1]) <= width - 56
            assert 23 <= y + float(shift[2]) <= height - 23


def _spots(text: str) -> list[tuple[float, float]]:
    """The centres of the boxes of steps."""
    found = re.findall(r'<g transform="translate\(([-\d.]+) ([-\d.]+)\)"><title>\w+: ', text)
    return [(float(x), float(y)) for x, y in found]


@pytest.mark.parametrize(("shape", "size"), [(chain, 100_000), (fan, 50_000)])
def test_enormous_graphs_are_drawn_in_moments(shape: Callable[[int], Graph], size: int) -> None:
    graph = shape(size)
    began = time.process_time()
    texts = [tree(graph), mermaid(graph), svg(graph)]

    assert all(len(text) < 400_000 for text in texts)
    assert time.process_time() - began < 10


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), max_size=3), min_size=1, max_size=30), st.integers(4, 40))
def test_any_graph_can_be_drawn_at_any_size(shape: list[list[int]], limit: int) -> None:
    steps = [
        step(f"s{i}", *(f"s{n}" for n in sorted({n % i for n in needs} if i else ())))
        for i, needs in enumerate(shape)
    ]
    graph = compiled(*steps)
    states = {StepId(f"s{i}"): state for i, state in enumerate(MARKS)}

    root = parsed(svg(graph, states, limit=limit))
    assert len(names_in(root)) <= max(limit, 4 * len(graph.ids))
    assert tree(graph, states, limit=limit)
    assert mermaid(graph, states, limit=limit)
