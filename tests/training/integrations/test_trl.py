from __future__ import annotations

import copy
import inspect
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import gymnasium
import pytest
import torch
from transformers import PreTrainedTokenizerFast
from transformers.utils import get_json_schema

import agentgym
from agentgym import ToolCall, World, render, tool, tool_env
from agentgym.training.integrations.trl import (
    env_reward,
    environment_factory,
    log_episodes,
    prompts,
    rollout_func,
)
from agentgym.training.rollout import Episode
from tests.training.integrations.trl_trainer import (
    FILTERS,
    call_optimally,
    logged,
    make_trl_tokenizer,
    trainer_for,
    weights,
)

pytestmark = FILTERS
SMALL: dict[str, Any] = {"items": 5, "removals": 2}


@dataclass(frozen=True)
class Config:
    word: str = "x"


class Typed(World[Config]):
    """World with every kind of tool argument."""

    Config = Config

    def generate(self) -> None:
        self.max_turns = 3

    def rules(self) -> str:
        return "Call."

    def task(self) -> str:
        return "Call now."

    def score(self) -> float:
        return 0.25

    @tool
    def simple(self, a: int, b: float, c: str, d: bool) -> str:
        """Take plain values. And
        say so.

        Args:
            a: A whole number, which
                may be negative: at least -9.
            b: A number.
            c: A text.
            d: A switch.
        """
        return f"{a} {b} {c} {d}"

    @tool
    def nested(
        self,
        way: Literal["up", "down"],
        numbers: list[int],
        table: dict[str, list[float]],
        free: dict[str, Any],
        either: int | str,
        maybe: str | None = None,
    ) -> str:
        """Take nested values.

        Args:
            way: Where to.
            numbers: Some.
            table: Rows.
            free: Anything.
            either: This or that.
            maybe: Or not.
        """
        return f"{way} {maybe}"

    @tool
    def shaped(self, config: Config, many: list[Config], undescribed: int = 1) -> str:
        """Take arguments whose types transformers cannot describe.

        Args:
            config: The shape.
            many: Several.
        """
        return f"{config.word} {len(many)} {undescribed}"


class Named(Typed):
    """World whose tool has a reserved name."""

    @tool(name="get_reward")
    def take(self) -> str:
        """Take."""
        return ""


@pytest.fixture
def typed() -> Iterator[None]:
    names = {
        f"{world.__name__}-v0": f"{world.__module__}:{world.__qualname__}"
        for world in (Typed, Named)
    }
    for name, world in names.items():
        gymnasium.register(
            name,
            entry_point="agentgym.play.env:ToolEnv",
            kwargs={"world": world},
            disable_env_checker=True,
        )
    yield
    for name in names:
        del gymnasium.registry[name]


def plain(schema: Any) -> Any:
    """Return a schema in transformers' format, which uses `nullable`."""
    if isinstance(schema, list):
        return [plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: plain(item)
        for key, item in schema.items()
        if (key, item) != ("additionalProperties", False)
    }
    if kept.get("type") == "object" and kept.get("additionalProperties") is True:
        del kept["additionalProperties"]
    options = kept.pop("anyOf", None)
    if options is not None:
        left = [item for item in options if item != {"type": "null"}]
        kept |= left[0] if len(left) == 1 else {"type": sorted(item["type"] for item in left)}
        kept |= {"nullable": True} if len(left) < len(options) else {}
    return kept


IDS = [entry.world.__name__ for entry in agentgym.worlds()]
WORLDS = [
    *((world, {}) for world in IDS),
    ("ListWorld", {"context": "memory"}),
    ("TreeWorld", {"context": "programmatic+memory"}),
]


def objects_in(schema: Any, top: bool = False) -> Iterator[list[str]]:
    if isinstance(schema, dict) and "properties" in schema and not top:
        yield list(schema["properties"])
    for each in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(each, (dict, list)):
            yield from objects_in(each)


@pytest.mark.parametrize(("world", "options"), WORLDS)
def test_the_tools_are_those_of_the_world(world: str, options: dict[str, Any]) -> None:
    environment = environment_factory(world, **options)()
    tools = tool_env(agentgym.make(world, **options)).tools
    public = {
        name
        for name, _ in inspect.getmembers(type(environment), inspect.isfunction)
        if not name.startswith("_")
    }
    assert all(getattr(environment, name).__name__ == name for name in public)
    assert public == {"reset", "get_reward", *(each.name for each in tools)}
    assert {name for name in dir(environment) if not name.startswith("_")} == public
    assert type(environment).__name__ == world
    for each in tools:
        shown = get_json_schema(getattr(environment, each.name))
        # Annotations cannot express nested types.
        fields = [field for shape in objects_in(each.parameters, top=True) for field in shape]
        told = plain(each.to_openai())
        for name, shape in list((shapes := told["function"]["parameters"]["properties"]).items()):
            text = " ".join(shape.get("description", f"The argument {name}.").split())
            if "default" in shape:
                text += f" Default: {json.dumps(shape.pop('default'))}"
            shapes["class_" if name == "class" else name] = {
                **shapes.pop(name),
                "description": text,
            }
        assert shown == told or (fields and all(field in str(shown) for field in fields))


@pytest.mark.usefixtures("typed")
def test_types_come_out_as_they_are_or_in_words() -> None:
    environment: Any = environment_factory("Typed-v0")()
    schemas = {each.name: each.to_openai() for each in tool_env(environment._env).tools}
    assert get_json_schema(environment.nested) == plain(schemas["nested"])
    assert inspect.signature(environment.nested).parameters["numbers"].annotation == list[int]
    simple = get_json_schema(environment.simple)["function"]
    assert simple["description"] == "Take plain values. And\nsay so."
    properties = simple["parameters"]["properties"]
    assert properties["a"]["description"] == "A whole number, which may be negative: at least -9."
    types = [item["type"] for item in properties.values()]
    assert types == ["integer", "number", "string", "boolean"]
    shaped = get_json_schema(environment.shaped)["function"]["parameters"]
    assert shaped["required"] == ["config", "many"]
    text = shaped["properties"]["config"]["description"]
    assert text.startswith('The shape. JSON Schema: {"$ref": "#/$defs/Config", "$defs": {')
    assert shaped["properties"]["many"]["type"] == "array"
    undescribed = "The argument undescribed. Default: 1"
    assert shaped["properties"]["undescribed"]["description"] == undescribed
    environment.reset(seed=0)
    assert environment.shaped(config={"word": "w"}, many=[{}, {}]) == "w 2 1"


@pytest.mark.usefixtures("typed")
def test_each_call_takes_a_turn_and_errors_are_answers() -> None:
    environment: Any = environment_factory("Typed-v0")()
    ended = "error: the episode has ended; this call was not run"
    right = {"a": 1, "b": 2.5, "c": "</tool_call>é\n", "d": True}
    assert environment.get_reward() == 0.0
    assert environment.simple(a=1) == ended
    assert environment.reset(seed=0, prompt=[], other=1) == "Call now."
    assert environment.simple(**{**right, "c": "\ud83d"}).startswith("error: ")
    missing = "error: simple: argument 'b' is missing; arguments: a, b, c, d"
    assert environment.simple(a=1, self=2) == missing
    assert environment.simple(**right) == "1 2.5 </tool_call>é\n True"
    assert environment.simple(**right) == ended
    assert [environment.get_reward(), environment.get_reward()] == [0.25, 0.25]
    environment.reset(seed=0)
    assert environment.get_reward() == 0.25, "an episode that is left has the score it has"
    assert environment.simple(**right) == ended


@pytest.mark.family(world=IDS)
def test_optimal_calls_earn_the_reward(world: str) -> None:
    environment: Any = environment_factory(world, dialect="python")()
    for seed in range(5):
        environment.reset(seed=seed)
        while calls := tool_env(environment._env).world.optimal_calls():
            result = getattr(environment, calls[0].name)(**calls[0].arguments)
            assert not str(result).startswith("error:")
        assert environment.get_reward() == 1.0


@pytest.mark.usefixtures("typed")
def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(ValueError, match=r"so compaction cannot be used; .* rollout_func"):
        environment_factory("ListWorld", context="memory+compaction")
    with pytest.raises(ValueError, match="TRL cannot call a tool named 'get_reward'"):
        environment_factory("Named-v0")
    with pytest.raises(ValueError, match="a row needs an integer 'seed', got None"):
        environment_factory("ListWorld")().reset(prompt=[])
    with pytest.raises(ValueError, match="a row needs an integer 'seed', got None"):
        rollout_func(agentgym.spec("ListWorld"))([[{"role": "user", "content": ""}]], None)


@pytest.mark.parametrize("options", [{}, {"shots": 2}, {"context": "programmatic+memory"}])
def test_prompts_hold_all_but_the_task(options: dict[str, Any]) -> None:
    environment = environment_factory("TreeWorld", **options)()
    rows = list(prompts("TreeWorld", range(3, 6), **options))
    assert [row["seed"] for row in rows] == [3, 4, 5]
    for row in rows:
        system, *examples, last = row["prompt"]
        chat, _ = agentgym.make("TreeWorld", **options).reset(seed=row["seed"])
        assert last == {"role": "user", "content": "", "seed": row["seed"]}
        assert environment.reset(**row) == chat.messages[-1].text
        assert "How to reply" not in system["content"]
        assert chat.messages[0].text.startswith(system["content"].split("\n\n")[0])
        assert examples == chat.to_openai(json_arguments=False)[1:-1]
        assert ("# Memory" in system["content"]) == ("context" in options)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return make_trl_tokenizer()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.rotation
@pytest.mark.parametrize("broken", [False, True])
def test_what_earns_a_reward_is_learnt_from(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    """Every second episode is played optimally in TRL's tool loop; the others end immediately.

    Invalid episodes change no weight and do not lower the mean reward; episodes with score 0 would.
    """
    trainer = trainer_for(
        tokenizer,
        tmp_path,
        environment_factory=environment_factory("ListWorld", **SMALL),
        train_dataset=prompts("ListWorld", range(4), **SMALL),
        reward_funcs=[log_episodes],
        longest=512,
    )
    shown: list[str] = []

    def generate(prompt_ids: list[list[int]], *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        shown.append(tokenizer.decode(prompt_ids[0]))
        if broken:
            world = tool_env(trainer.environments[1]._env).world
            monkeypatch.setattr(world, "score", lambda: math.nan)
        replies = [call_optimally(trainer.environments[0]), "I give up."][: len(prompt_ids)]
        return [tokenizer.encode(f"{reply}<|im_end|>") for reply in replies], None

    monkeypatch.setattr(trainer, "_generate_single_turn", generate)
    before = weights(trainer)
    trainer.train()
    mean = [1.0, 1.0] if broken else [0.5, 0.5]
    assert logged(trainer, "rewards/ListWorld/mean") == logged(trainer, "success") == mean
    assert torch.equal(before, weights(trainer)) is broken
    if not broken:
        assert logged(trainer, "turns") == [1.5, 1.5]
        assert logged(trainer, "truncated") == [0.5, 0.5]
        assert logged(trainer, "tools/call_frequency") == [1.5, 1.5], "two pops and done, by one"
        assert logged(trainer, "tools/failure_frequency") == [0.0, 0.0]
    assert '"name": "pop"' in shown[0]
    assert "Initial list:" in shown[0]
    assert "The element has been removed." in shown[1]
    assert "The task is finished." in shown[3]


def check(output: dict[str, Any]) -> None:
    for ids, mask in zip(output["completion_ids"], output["env_mask"], strict=True):
        assert len(ids) == len(mask)
        assert mask[0] == mask[-1] == 1


class Engine:
    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, policy: Callable[[Any], str], end: str = ""
    ) -> None:
        self.processing_class, self.policy = tokenizer, policy
        self.end = end or str(tokenizer.eos_token)
        self.eos_token_ids = tokenizer.convert_tokens_to_ids([tokenizer.eos_token, self.end])
        self.chat_template_kwargs: dict[str, Any] = {}
        self.sampled: list[list[int]] = []

    def _generate_single_turn(
        self, prompts: list[list[int]], *_: Any
    ) -> tuple[list[list[int]], list[list[float]]]:
        made = [self.processing_class.encode(self.policy(each) + self.end) for each in prompts]
        self.sampled += made
        return made, [[-0.5] * len(ids) for ids in made]


@pytest.mark.parametrize("end", ["", "<|stop|>"])
def test_a_rollout_gives_the_sampled_ids_and_their_logprobs(
    tokenizer: PreTrainedTokenizerFast, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any of the model's end tokens ends a reply. Prompts use the trainer's template variables."""
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|stop|>"]})
    tokenizer.chat_template = "{{ opening }}" + str(tokenizer.chat_template)
    spec = agentgym.spec("ListWorld", **SMALL)
    twin = tool_env(agentgym.make("ListWorld", **SMALL))
    twin.reset(seed=7)

    def optimal(_: Any) -> str:
        call = twin.world.optimal_calls()[0]
        twin.step(render(call))
        return render(call)

    texts: list[str] = []
    play = Episode.play

    def spied(episode: Episode, reply: Any) -> None:
        texts.append(reply.text)
        play(episode, reply)

    monkeypatch.setattr(Episode, "play", spied)
    engine = Engine(tokenizer, optimal, end)
    engine.chat_template_kwargs = {"opening": "Now:"}
    output = rollout_func(spec)([[{"role": "user", "content": "", "seed": 7}]], engine)
    logged: dict[str, float] = {}
    assert env_reward(prompts=[], log_metric=logged.__setitem__, **output) == [1.0]
    assert tokenizer.decode(output["prompt_ids"][0]).startswith("Now:")
    assert [tokenizer.decode(ids) for ids in engine.sampled] == [
        text + engine.end for text in texts
    ]
    assert logged == {"success": 1.0, "turns": 3.0, "truncated": 0.0, "rows_left_out": 0.0}
    (ids,), (mask,), (logprobs,) = output["completion_ids"], output["env_mask"], output["logprobs"]
    assert [k for k, m in zip(ids, mask, strict=True) if m] == list(chain(*engine.sampled))
    assert logprobs == [-0.5 if m else 0.0 for m in mask]
    assert tokenizer.decode(ids).count("The element has been removed.") == 2


def test_of_an_edited_episode_every_segment_is_drawn_at_some_time(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    spec = agentgym.spec("ListWorld", oracles="S", hint_scope="ephemeral", **SMALL)
    drawn = set()
    play = rollout_func(spec, seed=1)
    for _ in range(40):
        output = play(
            [[{"role": "user", "seed": 7}]],
            Engine(tokenizer, lambda _: render(ToolCall("pop", {"id": 4}))),
        )
        check(output)
        drawn.add(tuple(output["prompt_ids"][0]))
    assert len(drawn) > 3
