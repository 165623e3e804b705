from __future__ import annotations

import json
from typing import Any

import gymnasium
import pytest

import agentgym
from agentgym.assemble import wrapper_stack as stacks
from agentgym.assemble.context_options import split_context
from agentgym.assemble.wrapper_stack import check_context, register_strategy
from agentgym.text.validation import parse_count
from agentgym.training.integrations.common import growing_spec
from agentgym.wrappers import AnyOf, ClearToolResults, Tokens, ToolUses, Turns, WindowFraction
from agentgym.wrappers.budget import read_trigger


@pytest.mark.parametrize(
    ("text", "count"), [("0", 0), ("8k", 8_000), ("1.5k", 1_500), ("0.25M", 250_000), ("1.0", 1)]
)
def test_counts_have_suffixes(text: str, count: int) -> None:
    assert parse_count("window", text) == count


@pytest.mark.parametrize(
    "text", ["", "k", "-1", "1.5", "8q", "1.0005k", "８k", "1e3", "8 k", "1_0"]
)
def test_anything_else_is_no_count(text: str) -> None:
    with pytest.raises(
        ValueError, match="window must be a whole number, such as 60000 or 60k, got"
    ):
        parse_count("window", text)


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("60k", Tokens(60_000)),
        ("700", Tokens(700)),
        ("0.75", WindowFraction(0.75)),
        ("75%", WindowFraction(0.75)),
        ("1.0", WindowFraction(1.0)),
        ("20uses", ToolUses(20)),
        ("20 uses", ToolUses(20)),
        ("10turns", Turns(10)),
        ("0.5|20uses", AnyOf((WindowFraction(0.5), ToolUses(20)))),
    ],
)
def test_triggers_have_a_text(text: str, trigger: Any) -> None:
    assert read_trigger("trigger", text) == trigger


@pytest.mark.parametrize(
    "text", ["", "|", "x", "1.5", "150%", "0", "0uses", "uses", "3 cats", "0.5|"]
)
def test_anything_else_is_no_trigger(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        read_trigger("trigger", text)


def test_names_and_values_may_hold_colons() -> None:
    text = "pack.mod:Mine:keep=3:how=pack.mod:f:last=x+none:window=8k"
    assert split_context(text) == [
        ("pack.mod:Mine", {"keep": "3", "how": "pack.mod:f", "last": "x"}),
        ("none", {"window": "8k"}),
    ]
    assert check_context("compaction:trigger=8k+memory") == ("compaction", "memory")
    assert check_context("none:window=8k") == ()


def wrappers(context: str, **options: Any) -> dict[str, Any]:
    env_spec = agentgym.spec("ListWorld", context=context, **options)
    gymnasium.make(env_spec, disable_env_checker=True).close()
    read_back = json.loads(str(env_spec.to_json()))["additional_wrappers"]
    return {each["name"]: each["kwargs"] for each in read_back}


def test_the_text_gives_wrappers_their_arguments() -> None:
    context = (
        "clear_results:trigger=60k|20uses:keep=2:exclude=pop|peek:clear_inputs=true:ratio=0.5+"
        "clear_thinking:keep=all+compaction:trigger=80%:max_summary=2k:summarizer=rules:window=96k+"
        "memory:max_files=3"
    )
    assert wrappers(context) == {
        "MemoryTool": {"max_files": 3},
        "ClearThinking": {"keep": "all", "budget": {"window": 96_000}},
        "ClearToolResults": {
            "trigger": "60k|20uses",
            "keep": 2,
            "exclude": ["pop", "peek"],
            "clear_inputs": True,
            "ratio": 0.5,
        },
        "Compaction": {"trigger": "80%", "max_summary": 2_000, "summarizer": "rules"},
        "Trim": {},
    }
    env = agentgym.make("ListWorld", context="clear_results:trigger=60k:target=0.25")
    layer: Any = env
    while not isinstance(layer, ClearToolResults):
        layer = layer.env
    assert (layer.trigger, layer.target) == (Tokens(60_000), WindowFraction(0.25))


def test_the_window_of_a_context_wins_over_that_of_the_run() -> None:
    assert wrappers("none:window=2k:target=50%", window=9_000) == {
        "Trim": {"target": "50%", "budget": {"window": 2_000}}
    }
    assert wrappers("compaction:reserve_output=500", window=9_000)["Compaction"] == {
        "budget": {"reserve_output": 500, "window": 9_000}
    }
    options = {"compaction": {"keep_last_turns": 4}}
    assert wrappers("compaction:trigger=1k", context_options=options)["Compaction"] == {
        "keep_last_turns": 4,
        "trigger": "1k",
        "budget": {"window": 128_000},
    }


class Doubling(ClearToolResults):
    """A context strategy defined in another package."""


def test_a_strategy_from_outside_takes_arguments_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_strategies", dict(stacks._strategies))
    register_strategy("doubling", Doubling)
    assert wrappers(f"{__name__}:doubling:keep=7")["Doubling"]["keep"] == 7


@pytest.mark.parametrize(
    ("context", "message"),
    [
        (
            "clear_results:kep=3",
            "clear_results has no option 'kep'; did you mean 'keep'\\? options: trigger=0.75, target=none, ratio=none, keep=3",
        ),
        (
            "none:keep=3",
            "trim has no option 'keep'; options: target=0.75, window, reserve_output, counter",
        ),
        ("clear_results:keep=3.5", "keep must be a whole number, such as 60000 or 60k, got '3.5'"),
        ("clear_results:keep=-1", "keep must be a whole number"),
        ("clear_results:ratio=half", "ratio must be a number, got 'half'"),
        ("clear_results:clear_inputs=1", "clear_inputs must be true or false, got '1'"),
        ("clear_results:trigger=soon", "trigger must be a number of tokens"),
        ("clear_results:keep=1:keep=2", "sets keep twice"),
        ("clear_results:window=0", "window must be an integer in"),
        ("clear_results:window=1k+compaction:window=2k", "window of budget is set twice"),
        ("clear_thinking:keep=some", "keep must be"),
        ("none+compaction", "no context strategy 'none'"),
        ("clear_results::", "sets ':' without a value; write clear_results:name=VALUE"),
    ],
)
def test_bad_text_is_one_clear_error(context: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrappers(context)


def test_an_argument_is_given_in_one_place() -> None:
    with pytest.raises(ValueError, match="keep of clear_results is set twice"):
        wrappers("clear_results:keep=1", context_options={"clear_results": {"keep": 2}})


EDITING = [
    name for name in stacks.strategies() if name not in ("awareness", "memory", "programmatic")
]


@pytest.mark.parametrize(
    ("own", "what"),
    [
        *(({"context": name}, name) for name in EDITING),
        ({"context": ["memory", "compaction"]}, "compaction"),
        ({"context": "none:window=2k"}, "window"),
        ({"context": "memory:window=2k"}, "window"),
        ({"context": "memory", "context_options": {"budget": {"window": 2_000}}}, "window"),
        ({"context": "awareness:latest_only=true"}, "latest_only"),
        ({"oracles": "SH"}, "oracle H"),
        ({"oracles": "S", "hint_scope": "ephemeral"}, "hint_scope=ephemeral"),
    ],
)
def test_a_trainer_that_keeps_the_history_refuses_every_edit(own: Any, what: str) -> None:
    with pytest.raises(ValueError, match=f"so {what} cannot be used"):
        growing_spec("X", "y", "ListWorld", own)
    with pytest.raises(ValueError, match=f"so {what} cannot be used"):
        growing_spec("X", "y", "ListWorld-team", {"agents": {"closer_0": own}})


@pytest.mark.parametrize("context", [None, "", "awareness", ["memory", "programmatic"]])
def test_a_trainer_that_keeps_the_history_takes_other_strategies(context: Any) -> None:
    growing_spec("X", "y", "ListWorld", {"context": context, "oracles": "SP"})
