from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import pytest

import agentgym
from agentgym.oracles import OraclePolicy
from agentgym.training.evaluation import Ablation
from agentgym.training.rl.trainer_config import TaskConfig
from agentgym.training.rollout import ModelOptions, PolicyConfig, rollout
from agentgym.wrappers import ContextBudget
from agentgym.wrappers import context as context_module
from tests.helpers import run_python

MAKERS: dict[str, Callable[..., object]] = {
    "make": lambda **options: agentgym.make("ListWorld", **options),
    "team": lambda **options: agentgym.make("ListWorld-team", **options),
    "gymnasium": lambda **options: gymnasium.make("agentgym/ListWorld-v0", **options),
    "vector": lambda **options: gymnasium.make_vec("agentgym/ListWorld-v0", **options),
}
BAD: dict[str, list[tuple[Any, str]]] = {
    "oracles": [
        (3, "oracles must be a string such as 'SP', or None, got 3"),
        (["S", "P"], "oracles must be a string"),
        ("sp", "got 'sp'; did you mean 'SP'"),
        ("X", "oracles may contain each of P"),
    ],
    "context": [
        (3, "context must name strategies"),
        ([3], "context must name strategies"),
        ({"compaction": {}}, "context must name strategies"),
        ("compacton", "did you mean 'compaction'"),
        ("memory+memory", "names a strategy twice"),
        (["clear_results", "compaction:kep=3"], "compaction has no option 'kep'"),
        ("compaction:keep", "sets 'keep' without a value; write compaction:keep=VALUE"),
    ],
    "context_options": [
        (["compaction"], "context_options must be a mapping of mappings"),
        ({"compaction": 3}, "context_options must be a mapping of mappings"),
        (0, "context_options must be a mapping of mappings"),
        ([], "context_options must be a mapping of mappings"),
        ({"trim": {"tarket": 0.5}}, "trim in context_options has no option 'tarket'; did you mean"),
        ({"trin": {}}, "not in the context '';.*did you mean 'trim'"),
        ({"trim": {"target": 0.5}}, "target must be a string such as '60k'.*got 0.5"),
    ],
    "oracle_options": [
        ("H", "oracle_options must be a mapping of mappings, such as {'H'"),
        ("", "oracle_options must be a mapping of mappings"),
        ({"H": {"keep": 1}}, "H .history. in oracle_options has no option 'keep'; .*options: "),
        ({"h": {}}, "oracle_options contains 'h', which is not an oracle; did you mean 'H'"),
    ],
    "labels": [("yes", "labels must be True or False, got 'yes'"), (1, "labels must be True")],
    "window": [
        ("many", "window must be a whole number, such as 60000 or 60k, got 'many'"),
        (1.5, "window must be an integer in"),
        ([8], "window must be an integer in"),
    ],
    "hint_scope": [("emphemeral", "did you mean 'ephemeral'"), (None, "hint_scope must be one of")],
    "shots": [("2", "shots must be an integer in")],
    "oracle": [("SP", "has no option 'oracle'; did you mean 'oracles'")],
    "contxt": [("memory", "has no option 'contxt'; did you mean 'context'")],
    "itmes": [(3, "has no option 'itmes'; did you mean 'items'")],
    "items": [("many", "items must be an integer in"), (None, "items must be an integer in")],
    "dialect": [("jsn", "did you mean 'json'"), (["json"], "dialect must be one of")],
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(
    ("option", "value", "text"),
    [(option, value, text) for option, cases in BAD.items() for value, text in cases],
)
def test_a_wrong_value_is_named_with_its_remedy(
    maker: str, option: str, value: Any, text: str
) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        MAKERS[maker](**{option: value})
    assert type(caught.value) is ValueError


@pytest.mark.parametrize("value", [3, [], {}, b"ansi", "ansy"])
def test_a_wrong_render_mode_is_named(value: Any) -> None:
    for env_id in ("ListWorld", "ListWorld-team"):
        with pytest.raises(ValueError, match="render_mode must be one of ansi"):
            agentgym.make(env_id, render_mode=value)


@pytest.mark.parametrize(
    ("make_it", "text"),
    [
        (lambda: PolicyConfig("nosy:p=1"), "no policy 'nosy'; did you mean 'noisy'"),
        *(
            (lambda value=value: agentgym.make(value), "an id must be a string such as")  # type: ignore[misc]
            for value in (None, 3, b"ListWorld", ["ListWorld"])
        ),
        (lambda: PolicyConfig("noisy:p"), "sets 'p' without a value; write noisy:p=VALUE"),
        *(
            (
                lambda value=value: agentgym.make("GridWorld").reset(options=value),
                "takes no options",
            )  # type: ignore[misc]
            for value in (5, [], "", {"size": 3})
        ),
        (lambda: PolicyConfig("noisy:q=1"), "noisy has no option 'q'; options: p=0.1, seed=0"),
        (lambda: PolicyConfig("noisy:p=2").make("ListWorld"), "p must be a number in .0.0, 1.0."),
        (lambda: PolicyConfig("random:seed=-1"), "seed must be a whole number"),
        (lambda: PolicyConfig("thinking").make("ListWorld-team"), "cannot play the team"),
        (lambda: PolicyConfig("nowhere:make").make("ListWorld"), "cannot be imported"),
        (lambda: PolicyConfig(f"{__name__}:play:dept=3").make("ListWorld"), "mean 'depth'"),
        (lambda: ModelOptions(max_new_tokens="8q"), "max_new_tokens must be an integer"),
        (lambda: ContextBudget("8q"), "window must be an integer in"),
        (lambda: Ablation(policy=PolicyConfig("oracle"), worlds=("Listworld",)), "'ListWorld'"),
        (lambda: TaskConfig(teacher="oracel"), "did you mean 'oracle'"),
        (lambda: agentgym.resolve("listworld-eazy"), "did you mean 'ListWorld-easy'"),
        (lambda: agentgym.make("CourseAssistant", length="8q"), "length must be an integer"),
        (lambda: agentgym.text.tokens.counter("heuristik"), "did you mean 'heuristic'"),
    ],
)
def test_a_wrong_name_or_number_elsewhere_too(make_it: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make_it()


def play(env_id: str, depth: int = 1, greedy: bool = False) -> OraclePolicy:
    policy = OraclePolicy(env_id)
    policy.given = depth, greedy  # type: ignore[attr-defined]
    return policy


def test_a_policy_of_a_user_s_takes_options_of_its_types() -> None:
    made: Any = PolicyConfig(f"{__name__}:play:depth=2k:greedy=true").make("ListWorld")
    assert made.given == (2_000, True)


def test_none_a_sequence_and_a_text_of_tokens_are_understood() -> None:
    spec = agentgym.spec
    assert spec("ListWorld", oracles=None) == spec("ListWorld")
    assert spec("ListWorld", context=None) == spec("ListWorld", context="none") == spec("ListWorld")
    joined = spec("ListWorld", context="clear_results:keep=2+compaction", window=32_000)
    assert spec("ListWorld", context=["clear_results:keep=2", "compaction"], window="32k") == joined
    assert spec("CourseAssistant", length="16k") == spec("CourseAssistant", length=16_000)
    assert ContextBudget("32k", "1k") == ContextBudget(32_000, 1_000)  # type: ignore[arg-type]
    assert ModelOptions(max_new_tokens="2k").max_new_tokens == 2_000  # type: ignore[arg-type]


@pytest.mark.parametrize("env_id", ["ListWorld", "ListWorld-team"])
def test_options_of_a_reset_are_refused(env_id: str) -> None:
    env: gymnasium.Env[Any, Any] = agentgym.make(env_id)
    env.reset(seed=1, options={})
    with pytest.raises(ValueError, match=r"got .*'nonsense': 3.*pass them to make: .*items"):
        env.reset(options={"items": 4, "nonsense": 3})


def test_a_missing_extra_is_named_whichever_module_is_imported() -> None:
    code = """
import importlib, sys
for name in ("torch", "transformers", "jinja2", "openai", "anthropic", "ray", "matplotlib", "mcp"):
    sys.modules[name] = None
modules = {"rl.grpo": "train", "rl.batches": "train",
    "rollout.openai_policy": "endpoint", "rollout.anthropic_policy": "anthropic",
    "rollout.models.sampler": "train", "rollout.engines.ray": "ray", "evaluation.plots": "cli",
    "integrations.mcp": "mcp"}
for module, extra in modules.items():
    try:
        importlib.import_module(f"agentgym.training.{module}")
        raise SystemExit(f"{module} could be imported")
    except ImportError as error:
        assert f"{module} needs its extra: pip install 'agentgym-suite[{extra}]'" in str(error), error
"""
    run = run_python("-c", code)
    assert run.returncode == 0, run.stderr


def test_a_strategy_that_cannot_act_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_module, "_IDLERS", set())
    policy = OraclePolicy("ListWorld")
    with pytest.warns(UserWarning, match=r"Compaction cannot act .*128,000 tokens.*give a smaller"):
        rollout(policy, agentgym.make("ListWorld", context="compaction"), 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rollout(policy, agentgym.make("ListWorld", context="compaction"), 0)
        rollout(policy, agentgym.make("ListWorld", context="compaction", window="2k"), 0)
        rollout(policy, agentgym.make("ListWorld", window="100k"), 0)
