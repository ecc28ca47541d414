from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DefinitionError, Problem
from penstock.workflow import durations, yaml
from penstock.workflow.keys import SECTIONS
from penstock.workflow.read import from_plain, load, loads, read
from penstock.workflow.spec import (
    Ail,
    Budget,
    Check,
    Condition,
    Config,
    Gate,
    Input,
    Retry,
    Routing,
    Rule,
    Step,
    Workflow,
    encode,
)

TRIAGE = Path(__file__).with_name("triage.yaml")
TOP = "name: x\nsteps: [{id: a, uses: s:t}]\n"
STEP = "name: x\nsteps:\n  - id: a\n    uses: s:t\n    "


def problems_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(DefinitionError) as caught:
        loads(text, "flow.yaml")
    return caught.value.problems


def step_of(text: str) -> Step:
    workflow, _ = read(yaml.parse(STEP + text))
    return workflow.steps[0]


def config_of(text: str) -> Config:
    workflow, _ = read(yaml.parse(f"{TOP}config: {text}"))
    return workflow.config


def test_the_example_of_the_design_loads_as_written() -> None:
    workflow = load(TRIAGE).workflow

    steps = {step.id: step for step in workflow.steps}
    rule = Rule(
        if_="steps.list.output.files.exists(f, f.endsWith('.xml'))",
        do="replan",
        requirement="parse XML files",
        feeds="author.notes",
    )
    assert workflow.name == "triage-folder"
    assert workflow.inputs == {"folder": Input(type="string", default="./inbox")}
    assert workflow.config == Config(
        checkpoints="per_task",
        budget=Budget(usd=0.5, tokens=200_000, wall=600.0),
        ail=Ail(after=("list",), rules=(rule,)),
    )
    assert steps["parse_json"] == Step(
        id="parse_json",
        uses="data:parse_json",
        for_each="steps.list.output.files.filter(f, f.endsWith('.json'))",
        with_={"path": "${ item }"},
        retry=Retry(max_attempts=3),
        timeout=30.0,
    )
    assert steps["critic"].routing == Routing(
        kind="loop",
        conditions=(Condition(expr="output.verdict == 'VERIFIED'", target="publish"),),
        loop_target="author",
        max_iterations=3,
        next="publish",
    )
    assert steps["publish"].gate == Gate(
        checks=(Check(expr="output.bytes > 0"), Check(run=("test", "-s", "${ output.path }"))),
        max_attempts=3,
    )
    assert workflow.outputs == {"report": "${ steps.publish.output.path }"}


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("timeout: 30s", "timeout", 30.0),
        ("timeout: 1m30s", "timeout", 90.0),
        ("timeout: 250ms", "timeout", 0.25),
        ("timeout: PT5M", "timeout", 300.0),
        ("timeout: 7", "timeout", 7.0),
        ("timeout: 0.5", "timeout", 0.5),
        ("estimate: 2h", "estimate", 7200.0),
        ("needs: b", "needs", ("b",)),
        ("needs: [b, c]", "needs", ("b", "c")),
        ("when: inputs.n > 3", "when", "inputs.n > 3"),
        ('when: "${ inputs.n > 3 }"', "when", "inputs.n > 3"),
        ("when: false", "when", "false"),
        ('for_each: "${ inputs.files }"', "for_each", "inputs.files"),
        ("for_each: [1, two]", "for_each", '[1,"two"]'),
        ("approval: true", "approval", "always"),
        ("approval: false", "approval", "never"),
        ("approval: critical_only", "approval", "critical_only"),
        ("retry: 4", "retry", Retry(max_attempts=4)),
        ("retry: {backoff: 0, jitter: true}", "retry", Retry(backoff=0.0, jitter=0.1)),
        ("retry: {jitter: false, on: timeout}", "retry", Retry(jitter=0.0, on=("timeout",))),
        ("retry: {jitter: 1}", "retry", Retry(jitter=1.0)),
        ("gate: [{expr: output.ok}]", "gate", Gate(checks=(Check(expr="output.ok"),))),
        ("gate: [{run: [head, -n, 5]}]", "gate", Gate(checks=(Check(run=("head", "-n", "5")),))),
        (
            "set: {n: 1, done: true, s: '${ output }'}",
            "set",
            {"n": "${ 1 }", "done": "${ true }", "s": "${ output }"},
        ),
        ("ail: false", "ail", False),
        ("ail: {at: on_error}", "ail", Ail(at="on_error")),
        ("on_error: continue", "on_error", "continue"),
        ("with: {a: [1, {b: null}]}", "with_", {"a": [1, {"b": None}]}),
        ("budget: {usd: 1, wall: 5m}", "budget", Budget(usd=1.0, wall=300.0)),
    ],
)
def test_each_way_of_writing_a_step_key_is_read(text: str, field: str, value: Any) -> None:
    read_value = getattr(step_of(text), field)

    assert (read_value, type(read_value)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("{checkpoints: off}", "checkpoints", "off"),
        ("{checkpoints: false}", "checkpoints", "off"),
        ("{approval: true}", "approval", "always"),
        ("{speculation: true}", "speculation", True),
        ("{speculation: {usd: 0.1}}", "speculation", {"usd": 0.1}),
        ("{timeout: 1h}", "timeout", 3600.0),
        ("{retry: 2}", "retry", Retry(max_attempts=2)),
    ],
)
def test_each_way_of_writing_a_config_key_is_read(text: str, field: str, value: Any) -> None:
    assert getattr(config_of(text), field) == value


def test_a_default_written_out_does_not_change_the_hash() -> None:
    text = """
        name: x
        version: ""
        config: {engine: auto, checkpoints: per_layer, approval: critical_only, max_parallel: 32}
        steps:
          - {id: a, uses: s:t, join: all_success, on_error: fail, critical: false, with: {}, needs: []}
          - {id: b, uses: s:t, retry: {max_attempts: 2, backoff: 1s, jitter: true}}
        outputs: {}
    """
    short = "{name: x, steps: [{id: a, uses: s:t}, {id: b, uses: s:t, retry: 2}]}"

    assert loads(text).workflow.hash == loads(short).workflow.hash


def test_a_version_may_be_a_whole_number() -> None:
    assert loads(TOP + "version: 3").workflow.version == "3"


def test_a_default_of_null_is_a_default() -> None:
    declared = loads(TOP + "inputs: {a: {default: null}, b: {}}").workflow.inputs

    assert not declared["a"].required
    assert declared["b"].required


TOP_LEVEL = [
    ("hello", (1, 1), "", "expected a map, found the text 'hello'", "start with 'name:'"),
    ("- a", (1, 1), "", "expected a map, found a list", "start with 'name:'"),
    ("name: x", (1, 1), "", "the key 'steps' is missing", "add 'steps'"),
    ("steps: [{id: a, uses: s:t}]", (1, 1), "", "the key 'name' is missing", "add 'name'"),
    ("name: ''\nsteps: [{id: a, uses: s:t}]", (1, 7), "name", "found empty text", ""),
    ("name: x\nsteps: []", (2, 1), "steps", "at least one step", ""),
    ("name: x\nsteps: {a: 1}", (2, 8), "steps", "expected a list, found a map", "- {id: name"),
    ("name: x\nsteps: [a]", (2, 9), "steps[0]", "expected a map, found the text 'a'", "{id: name"),
    ("name: x\nsteps: [{uses: s:t}]", (2, 9), "steps[0]", "the key 'id' is missing", "add 'id'"),
    ("name: x\nsteps: [{id: a}]", (2, 9), "steps.a", "the key 'uses' is missing", "server:tool"),
    ("name: x\nsteps: [{id: 3, uses: s:t}]", (2, 14), "steps[0].id", "found the number 3", "as text"),
    (TOP + "outpts: {}", (3, 1), "", "unknown key 'outpts'", "did you mean outputs?"),
    (TOP + "jobs: {}", (3, 1), "", "unknown key 'jobs'", "use 'steps'"),
    (TOP + "max_parallel: 3", (3, 1), "", "unknown key 'max_parallel'", "under 'config:'"),
    (TOP + "version: 1.10", (3, 10), "version", "expected text, found the number 1.1", "quotes"),
    (TOP + "inputs: {n: 3}", (3, 13), "inputs.n", "expected a map, found the number 3", "{type: string}"),
    (
        TOP + "inputs: {n: {type: int}}",
        (3, 20),
        "inputs.n.type",
        "'int' is not one of",
        "did you mean integer?",
    ),
    (
        TOP + "inputs: {n: {required: true}}",
        (3, 14),
        "inputs.n",
        "unknown key 'required'",
        "without 'default'",
    ),
    (TOP + "inputs: {n: {type: integer, default: x}}", (3, 38), "inputs.n.default", "not a whole number", ""),
    (TOP + "config: {max_parallel: 0}", (3, 24), "config.max_parallel", "0 is too small", "the least is 1"),
    (TOP + "config: {max_parallel: many}", (3, 24), "config.max_parallel", "expected a whole number", ""),
    (
        TOP + "config: {engine: temperal}",
        (3, 18),
        "config.engine",
        "not one of auto",
        "did you mean temporal?",
    ),
    (TOP + "config: {concurrency: 3}", (3, 10), "config", "unknown key 'concurrency'", "use 'max_parallel'"),
    (TOP + "config: {budget: {usd: -1}}", (3, 24), "config.budget.usd", "-1 is out of range", "at least 0"),
    (TOP + "templates: 3", (3, 12), "templates", "expected a map, found the number 3", "{name: [steps]}"),
]

IN_A_STEP = [
    ("depends_on: [b]", 5, "", "unknown key 'depends_on'", "use 'needs'"),
    ("if: x", 5, "", "unknown key 'if'", "use 'when'"),
    ("args: {}", 5, "", "unknown key 'args'", "use 'with'"),
    ("matrix: {}", 5, "", "unknown key 'matrix'", "use 'for_each'"),
    ("timeout-minutes: 3", 5, "", "unknown key 'timeout-minutes'", "use 'timeout'"),
    ("continue-on-error: true", 5, "", "unknown key 'continue-on-error'", "on_error: continue"),
    ("timeut: 3s", 5, "", "unknown key 'timeut'", "did you mean timeout?"),
    ("zzz: 1", 5, "", "unknown key 'zzz'", "the keys here are id, uses"),
    ("timeout: soon", 14, ".timeout", "expected a duration, found the text 'soon'", "1m30s"),
    ("timeout: 0", 14, ".timeout", "0 is too short", "more than 0"),
    ("timeout: -3s", 14, ".timeout", "expected a duration", "30s"),
    ("timeout: [1]", 14, ".timeout", "expected a duration, found a list", "30s"),
    ("timeout: 100000d", 14, ".timeout", "the text '100000d' is too long", "ten years"),
    ("retry: 0", 12, ".retry", "0 is too small", "the least is 1"),
    ("retry: {max_attempts: 0}", 27, ".retry.max_attempts", "0 is too small", "the least is 1"),
    ("retry: {backoff: -1}", 22, ".retry.backoff", "-1 is too short", "0 or more"),
    ("retry: {jitter: 2}", 21, ".retry.jitter", "2 is out of range", "0 to 1"),
    ("retry: {max_retries: 2}", 13, ".retry", "unknown key 'max_retries'", "the first time included"),
    ("retry: often", 12, ".retry", "expected a map, found the text 'often'", "max_attempts: 3"),
    ("max_parallel: 0", 19, ".max_parallel", "0 is too small", "the least is 1"),
    ("max_parallel: true", 19, ".max_parallel", "expected a whole number, found true", ""),
    ("needs: {b: 1}", 12, ".needs", "expected a list, found a map", "[first, second]"),
    ("needs: [3]", 13, ".needs[0]", "expected the id of a step, found the number 3", ""),
    ("needs: b", 12, ".needs[0]", "'b'", ""),
    ("needs: [a]", 13, ".needs[0]", "itself", ""),
    ("with: [1]", 11, ".with", "expected a map, found a list", "{name: value}"),
    ("with: {x: '${ steps.b.output }'}", 15, ".with.x", "'b'", ""),
    ("when:", 10, ".when", "expected an expression, found nothing", "remove the key"),
    ("when: 3", 11, ".when", "expected an expression, found the number 3", "as text"),
    ("when: '${ }'", 11, ".when", "expected an expression", ""),
    ("when: inputs.n >", 11, ".when", "", ""),
    ("join: all_sucess", 11, ".join", "'all_sucess' is not one of", "did you mean all_success?"),
    ("on_error: ignore", 15, ".on_error", "'ignore' is not one of", "did you mean continue?"),
    ("approval: maybe", 15, ".approval", "'maybe' is not one of always", ""),
    ("critical: yes", 15, ".critical", "expected true or false, found the text 'yes'", "write true"),
    ("for_each: ['${ a }']", 15, ".for_each", "cannot hold expressions", "${ [inputs.a"),
    ("set: {a: [1]}", 14, ".set.a", "expected an expression, found a list", "CEL"),
    ("for: {n: [1]}", 10, ".for", "'for' belongs to 'expand'", "for_each"),
    ("gate: [{}]", 12, ".gate[0]", "a check does nothing", "exactly one of"),
    ("gate: [{expr: x, tool: y:z}]", 12, ".gate[0]", "'expr' and 'tool'", "exactly one of"),
    ("gate: [{expr: x, with: {}}]", 22, ".gate[0]", "'with' belongs to a check by 'tool'", "remove it"),
    ("gate: [{run: ls}]", 18, ".gate[0].run", "expected a list, found the text 'ls'", "each argument"),
    ("gate: {checks: [], max_attempts: 0}", 38, ".gate.max_attempts", "0 is too small", "the least is 1"),
    (
        "routing: {loop_target: a, max_iterations: 0}",
        47,
        ".routing.max_iterations",
        "0 is too small",
        "least is 1",
    ),
    (
        "routing: {conditions: [{if: x, then: b}]}",
        29,
        ".routing.conditions[0]",
        "unknown key 'if'",
        "use 'expr'",
    ),
]


@pytest.mark.parametrize(("text", "place", "where", "words", "hint"), TOP_LEVEL)
def test_a_mistake_in_a_file_is_one_message_with_its_place_and_a_hint(
    text: str, place: tuple[int, int], where: str, words: str, hint: str
) -> None:
    (problem,) = problems_of(text)

    assert (problem.file, problem.line, problem.column, problem.where) == ("flow.yaml", *place, where)
    assert words in problem.message
    assert hint in problem.hint


@pytest.mark.parametrize(("text", "column", "where", "words", "hint"), IN_A_STEP)
def test_a_mistake_in_a_step_is_told_with_its_place_and_a_hint(
    text: str, column: int, where: str, words: str, hint: str
) -> None:
    problem = problems_of(STEP + text)[0]

    assert (problem.file, problem.line, problem.column) == ("flow.yaml", 5, column)
    assert problem.where == f"steps.a{where}"
    assert words in problem.message
    assert hint in problem.hint


def test_a_foreign_word_for_a_required_key_is_one_problem_not_two() -> None:
    (problem,) = problems_of("name: x\nsteps: [{id: a, run: ls}]")

    assert str(problem) == "flow.yaml:2:17: steps.a: unknown key 'run' (use 'uses')"


def test_all_problems_are_told_in_the_order_of_the_file() -> None:
    text = "name: x\nsteps:\n  - {id: a, run: ls}\n  - {uses: s:t, retry: 0}\nconfig: {max_parallel: 0}\n"

    assert [(problem.line, problem.where) for problem in problems_of(text)] == [
        (3, "steps.a"),
        (4, "steps[1]"),
        (4, "steps[1].retry"),
        (5, "config.max_parallel"),
    ]


def test_no_more_than_fifty_problems_are_listed() -> None:
    found = problems_of(
        "name: x\nsteps:\n" + "".join(f"  - {{id: s{n}, uses: s:t, x: 1}}\n" for n in range(80))
    )

    assert len(found) == 51
    assert found[-1].message == "and 30 more problems"


def test_duplicate_ids_are_told_with_the_place_of_the_second() -> None:
    (problem,) = problems_of("name: x\nsteps:\n  - {id: a, uses: s:t}\n  - {id: a, uses: s:t}\n")

    assert (problem.line, problem.column) == (4, 10)


def test_a_cycle_is_told_with_a_place() -> None:
    text = "name: x\nsteps:\n  - {id: a, uses: s:t, needs: [b]}\n  - {id: b, uses: s:t, needs: [a]}\n"

    (problem,) = problems_of(text)

    assert "a -> b -> a" in problem.message
    assert problem.line in (3, 4)


def test_fifty_megabytes_are_refused_without_being_read(tmp_path: Path) -> None:
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as handle:
        handle.truncate(50 * 2**20)

    with pytest.raises(DefinitionError) as caught:
        load(huge)

    (problem,) = caught.value.problems
    assert str(problem).startswith(f"{huge}: the file is larger than 10 MB")


def test_a_file_that_is_not_there_is_a_problem_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"none\.yaml: cannot read the file: No such file"):
        load(tmp_path / "none.yaml")


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="cannot read the file"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("path", "spot"),
    [
        (("name",), (1, 7)),
        (("steps", 0), (3, 5)),
        (("steps", 0, "id"), (3, 9)),
        (("steps", 0, "retry"), (5, 5)),
        (("steps", 0, "retry", "max_attempts"), (6, 21)),
        (("steps", 0, "retry", "nothing"), (5, 5)),
        (("steps", 1, "needs", 0), (9, 12)),
        (("steps", 1, "gate", "checks", 0, "expr"), (10, 19)),
        (("steps", 7), (2, 1)),
        (("outputs", "x"), (1, 1)),
    ],
)
def test_a_part_of_the_definition_is_found_in_the_text(
    path: tuple[str | int, ...], spot: tuple[int, int]
) -> None:
    source = loads(
        "name: x\nsteps:\n  - id: a\n    uses: s:t\n    retry:\n      max_attempts: 3\n"
        "  - id: b\n    uses: s:t\n    needs: a\n    gate: [{expr: output.ok}]\n"
    )

    assert source.locate(path) == spot


def test_data_in_the_shape_of_a_file_is_the_same_workflow() -> None:
    data = yaml.parse(TRIAGE.read_text()).plain()

    assert from_plain(data).workflow.hash == load(TRIAGE).workflow.hash


def test_data_that_is_wrong_is_told_without_a_line() -> None:
    with pytest.raises(DefinitionError) as caught:
        from_plain({"name": "x", "steps": [{"id": "a", "uses": "s:t", "retry": {"backof": 1}}]})

    (problem,) = caught.value.problems
    assert str(problem) == "steps.a.retry: unknown key 'backof' (did you mean backoff?)"


def test_a_message_repeats_only_the_beginning_of_a_long_text() -> None:
    found = problems_of(f"{STEP}timeout: {'9' * 5000}s\n    ? {'k' * 5000}\n    : 1\n")

    assert len(found) == 2
    assert all(len(str(problem)) < 600 for problem in found)


def test_a_message_holds_no_control_characters_of_the_file() -> None:
    (problem,) = problems_of('name: x\nsteps: [{id: "a\\e[31m", uses: s:t, "b\\e[0m": 1}]')

    assert "\x1b" not in str(problem)


def test_the_stored_form_of_a_definition_reads_back_as_itself() -> None:
    workflow = load(TRIAGE).workflow

    assert from_plain(json.loads(encode(workflow))).workflow == workflow


letters = st.text("abc", min_size=1, max_size=4)
lengths = st.integers(1, 10**6).map(float)
retries = st.builds(
    Retry, max_attempts=st.integers(1, 9), backoff=lengths, jitter=st.floats(0, 1), on=st.tuples(letters)
)
checks = st.builds(Check, name=letters, expr=st.just("output.ok"), timeout=lengths)
budgets = st.builds(Budget, usd=st.none() | lengths, tokens=st.integers(0, 99), wall=lengths)
steps = st.builds(
    Step,
    id=letters,
    uses=st.just("s:t"),
    with_=st.dictionaries(
        letters, st.integers(-(2**63), 2**63 - 1) | letters | st.lists(letters, max_size=2), max_size=3
    ),
    when=st.just("") | st.just("inputs.n > 1"),
    for_each=st.just("") | st.just("inputs.list"),
    retry=st.none() | retries,
    timeout=st.none() | lengths,
    gate=st.none() | st.builds(Gate, checks=st.tuples(checks), max_attempts=st.integers(1, 5)),
    approval=st.sampled_from([None, "always", "never", "critical_only"]),
    budget=st.none() | budgets,
    ail=st.none() | st.booleans() | st.builds(Ail, at=st.sampled_from(["per_layer", "on_error"])),
    set=st.dictionaries(letters, letters, max_size=2),
    critical=st.booleans(),
)


@given(st.lists(steps, max_size=4, unique_by=lambda step: step.id))
def test_reading_inverts_encoding(made: list[Step]) -> None:
    workflow = Workflow(name="x", steps=tuple(made), config=Config(timeout=5.0, max_parallel=3))

    again, _ = read(yaml.parse(encode(workflow).decode()))

    assert again == workflow


KEYS = sorted({key for section in SECTIONS for key in section.keys})
ODDITIES = [
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "x",
    "${",
    "${ n }",
    "30s",
    "end",
    [],
    {},
    [1],
    {"a": 1},
    [[]],
    [{}],
    {"n": [1]},
]
oddities = st.sampled_from(ODDITIES)
sections = st.dictionaries(
    st.sampled_from(KEYS), oddities | st.dictionaries(st.sampled_from(KEYS), oddities), max_size=6
)


@given(st.lists(sections, max_size=3), sections, sections)
def test_any_data_at_all_is_read_or_refused_with_a_message(
    made: list[dict[str, Any]], config: dict[str, Any], top: dict[str, Any]
) -> None:
    with contextlib.suppress(DefinitionError):
        from_plain(
            {
                **top,
                "name": "x",
                "steps": [{"id": "a", "uses": "s:t", **step} for step in made],
                "config": config,
            }
        )


@given(st.integers(0, 30), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_durations_add_up(days: int, hours: int, minutes: int, secs: int, millis: int) -> None:
    expected = ((days * 24 + hours) * 60 + minutes) * 60 + secs

    assert durations.seconds(f"{days}d{hours}h{minutes}m{secs}s{millis}ms") == pytest.approx(
        expected + millis / 1000
    )
    assert durations.seconds(f"P{days}DT{hours}H{minutes}M{secs}S") == expected


@pytest.mark.parametrize(
    "text", ["", "s", "5", "5x", "1h 30m", "P", "PT", "P5M", "-3s", "30s1m", "1.s", "PT5", "٣s"]
)
def test_texts_that_only_look_like_durations_are_none(text: str) -> None:
    assert durations.seconds(text) is None


@pytest.mark.slow
def test_a_chain_of_100_000_steps_is_read_in_a_few_seconds() -> None:
    lines = ["name: chain", "steps:", '  - {id: s0, uses: "local:noop"}']
    lines += [f'  - {{id: s{n}, uses: "local:noop", needs: [s{n - 1}]}}' for n in range(1, 100_000)]
    text = "\n".join(lines)

    started = time.process_time()
    workflow, _ = read(yaml.parse(text))

    assert len(workflow.steps) == 100_000
    assert time.process_time() - started < 10
