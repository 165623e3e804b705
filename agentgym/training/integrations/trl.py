"""The worlds in TRL: as environments whose tools the GRPO trainer calls, and as a rollout function
that plays whole stacks.

With `environment_factory` the trainer keeps the history, reads the calls out of the replies in the
form of the model's own chat template, and shows the schemas of the tools. That is the usual way.
Strategies that edit the context need `rollout_func`: there the model sees the chat of the env.

Example:
    >>> options = {"items": 6, "removals": 2}
    >>> trainer = trl.GRPOTrainer(
    ...     "Qwen/Qwen3-0.6B",
    ...     environment_factory=environment_factory("ListWorld", **options),
    ...     train_dataset=prompts("ListWorld", range(1_000), **options),
    ... )
"""

from __future__ import annotations

import inspect
import json
import keyword
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Union

import datasets  # type: ignore[import-untyped]
import gymnasium
from gymnasium.envs.registration import EnvSpec

import agentgym.assemble.registry as registry
from agentgym.play.env import tool_env
from agentgym.play.policy import Reply
from agentgym.text.messages import SYSTEM_ID, Chat, ToolCall
from agentgym.text.parsing import render
from agentgym.text.prompts import document_tools
from agentgym.text.tools import Tool
from agentgym.text.validation import check_int
from agentgym.training.integrations.common import added, growing_spec, sampled_reply, seed_of
from agentgym.training.integrations.datasets import TokenRow, TrainingDict, to_training_dict
from agentgym.training.integrations.tool_template import with_tool_template
from agentgym.training.rollout import Episode, Renderer

__all__ = [
    "ToolEnvironment",
    "env_reward",
    "environment_factory",
    "prompts",
    "rollout_func",
    "with_tool_template",
]

_TYPES: dict[Any, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": None,
    "array": list,
    "object": dict,
}
_ENDED = "error: the episode has ended; this call was not run"


class ToolEnvironment:
    """Environment for TRL: `reset`, `get_reward` and one method for each tool, which
    `environment_factory` adds; no other public name.

    A call is played as a reply of its own (`env.step`), since TRL says neither which calls were in
    one reply nor what else it held. So each call takes a turn, failed calls count, hints and notes
    of wrappers come with the result, and the episode ends as it does in any other run; from then on
    calls are answered with an error. Errors are answers too, in the words that a model reads
    elsewhere, so TRL's `tools/failure_frequency` stays 0. Pictures are left out; MultimodalWorld
    can describe them in words with `render="scene"`.
    """

    _spec: ClassVar[EnvSpec]

    def __init__(self) -> None:
        self._env = gymnasium.make(self._spec)
        self._chat = Chat()
        self._over = True
        self._reward = 0.0
        self._invalid = False

    def reset(self, **row: Any) -> str:
        """Start the episode of a row.

        Args:
            **row: A row of the data set; `seed` says which instance is played.

        Returns:
            The task, which TRL puts at the end of the row's last message.

        Raises:
            ValueError: The row has no seed.
        """
        self._chat, _ = self._env.reset(seed=seed_of(row))
        self._over, self._reward, self._invalid = False, 0.0, False
        return str(self._chat.messages[-1].text)

    def get_reward(self) -> float | None:
        """The reward of the episode; None, which TRL leaves out of its statistics and advantages,
        if it says nothing about the policy (`StepInfo.invalid`).

        One that goes on ends now, with the score as it is: the policy has stopped calling.
        """
        if not self._over:
            _, self._reward, *_, info = tool_env(self._env).truncate("stopped")
            self._over, self._invalid = True, bool(info["detail"].invalid)
        return None if self._invalid else self._reward

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        if self._over:
            return _ENDED
        call = render(ToolCall(name, arguments), tool_env(self._env).dialect)
        before = self._chat
        self._chat, reward, terminated, truncated, info = self._env.step(call)
        self._reward += float(reward)
        self._over, self._invalid = terminated or truncated, bool(info["detail"].invalid)
        return "\n\n".join(message.text for message in added(before, self._chat))


def environment_factory(env_id: str, **options: Any) -> type[ToolEnvironment]:
    """The `environment_factory` of `trl.GRPOTrainer` for a world.

    The class is named after the world, and TRL logs its rewards under that name. It owns the
    reward, so `reward_funcs` may be left out. TRL lists the tools by name, not in the order of the
    world.

    For a run over several worlds give TRL a dict of such classes, and the rows of `prompts` a
    column `environment` with its keys.

    Args:
        env_id: The id of a world.
        **options: Keyword arguments of `agentgym.make`, without strategies that edit the context.

    Raises:
        ValueError: The id or an option is not right, an option edits the context, or a tool has a
            name that TRL keeps for itself.
    """
    spec = growing_spec("TRL", "train with rollout_func", env_id, options)
    tools = tool_env(gymnasium.make(spec)).tools
    for tool in tools:
        if tool.name in ("reset", "get_reward") or tool.name.startswith("_"):
            raise ValueError(
                f"TRL cannot call a tool named {tool.name!r}: give it another name with "
                "@tool(name=...)"
            )
    name = registry.resolve(env_id).rpartition("/")[2].partition("-")[0]
    methods = {tool.name: _method(tool) for tool in tools}
    return type(
        name, (ToolEnvironment,), {"__doc__": ToolEnvironment.__doc__, "_spec": spec, **methods}
    )


def prompts(env_id: str, seeds: Iterable[int], **options: Any) -> datasets.Dataset:
    """Return the data set for either way of training: a prompt and a seed for each instance.

    A prompt is what comes before the task: the rules, the examples if there are any, and an empty
    user message, to which `ToolEnvironment.reset` adds the task. The rules do not say how to call
    tools, because chat templates do. `rollout_func` reads nothing but the seed, which the last
    message carries too, since TRL gives it no other column.

    Args:
        env_id: The id of a world.
        seeds: The seeds.
        **options: The options of the env that is to be trained on.

    Raises:
        ValueError: The id or an option is not right.
    """
    env = registry.make(env_id, **options)
    inner = tool_env(env)
    documentation = document_tools(inner.tools, inner.dialect, inner.most_calls)
    rows = []
    for seed in seeds:
        chat, _ = env.reset(seed=seed)
        messages = Chat(chat.messages[:-1]).to_openai(json_arguments=False)
        for message, original in zip(messages, chat.messages, strict=False):
            if original.id == SYSTEM_ID:
                message["content"] = message["content"].replace(f"\n\n{documentation}", "")
        rows.append(
            {"prompt": [*messages, {"role": "user", "content": "", "seed": seed}], "seed": seed}
        )
    # As structs, the arguments of all calls would be given the names of each other.
    features = datasets.Features(
        {"prompt": datasets.List(datasets.Json()), "seed": datasets.Value("int64")}
    )
    return datasets.Dataset.from_list(rows, features=features)


def rollout_func(
    spec: EnvSpec, seed: int = 0, rows_per_episode: int = 1
) -> Callable[[list[Any], Any], dict[str, Any]]:
    """The `rollout_func` of `trl.GRPOTrainer` that plays a whole stack, in which the chat of the
    env is all that the model sees.

    An episode whose context was edited has several token rows (`to_training_dict`), and TRL takes
    exactly one prompt and one completion for each of the `num_generations` of a group. With
    `rows_per_episode=k`, k of these hold one episode: `num_generations=n * k` plays n episodes of
    an instance, and all tokens that the policy sampled in at most k rows are trained, each once. A
    row that an episode does not need is one masked token. All k carry the reward of the episode, so
    the mean of a group is that of its episodes. TRL's standard deviation counts each episode k
    times, which makes it smaller by at most 1 / n; `scale_rewards="none"` does without. The losses
    `dapo` (the default), `bnpo` and `cispo` divide by tokens, so masked rows change nothing; others divide
    by rows. Of an episode with more than k rows k are drawn, each with the same probability, and
    `env_reward` logs the share of rows that were left out as `rows_left_out`.

    What the env said within a completion is masked. The reward comes as `env_reward`: train with
    `reward_funcs=env_reward`. Sampling goes through the trainer's own engine. Without vLLM TRL
    gives no log-probabilities, and `logprobs` is None.

    `max_completion_length` of the trainer holds for each reply, not for the episode; the window of
    the spec bounds that.

    Args:
        spec: The spec of the env, as `agentgym.assemble.registry.spec` makes it.
        seed: Seeds the draws.
        rows_per_episode: How many generations of TRL hold one episode, at most 1,000.

    Raises:
        ValueError: The number is out of range. The function raises it too if the prompts of a
            process are not whole episodes.
    """
    check_int("rows_per_episode", rows_per_episode, 1, 1_000)
    draw = random.Random(seed)
    envs: list[gymnasium.Env[Any, Any]] = []

    def play(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        seeds = _episode_seeds(prompts, rows_per_episode)
        envs.extend(gymnasium.make(spec) for _ in range(len(seeds) - len(envs)))
        episodes = [Episode(env, seed) for env, seed in zip(envs, seeds, strict=False)]
        policy = _TrainerPolicy(trainer)
        while going := [episode for episode in episodes if not episode.over]:
            for episode, reply in zip(
                going, policy([episode.chat for episode in going]), strict=True
            ):
                episode.play(reply)
        played = [to_training_dict(episode.trajectory()) for episode in episodes]
        slots = [(each, row) for each in played for row in _fill(each, rows_per_episode, draw)]
        return {
            **_as_output([row for _, row in slots]),
            "env_reward": [None if each["failure"] else each["reward"] for each, _ in slots],
            "rows_left_out": [
                max(0.0, 1 - rows_per_episode / len(each["rows"])) for each, _ in slots
            ],
        }

    return play


def env_reward(
    *,
    env_reward: Sequence[float | None],
    rows_left_out: Sequence[float] = (),
    log_metric: Callable[[str, float], None] = lambda name, value: None,
    **_: Any,
) -> list[float | None]:
    """The reward function for `rollout_func`.

    An episode that says nothing about the policy has None, which TRL leaves out of its statistics
    and advantages.
    """
    if rows_left_out:
        log_metric("rows_left_out", sum(rows_left_out) / len(rows_left_out))
    return list(env_reward)


def _episode_seeds(prompts: Sequence[Any], rows_per_episode: int) -> list[int]:
    """Return the seed of each episode; the prompts of one follow each other."""
    seeds = [_seed_of(prompt) for prompt in prompts]
    groups = [seeds[k : k + rows_per_episode] for k in range(0, len(seeds), rows_per_episode)]
    if any(group != [group[0]] * rows_per_episode for group in groups):
        raise ValueError(
            f"an episode takes rows_per_episode={rows_per_episode} prompts, but these are the seeds "
            f"of a process: {seeds[:20]}; let num_generations and per_device_train_batch_size (and "
            "those of the evaluation) be multiples of it"
        )
    return [group[0] for group in groups]


def _fill(episode: TrainingDict, count: int, draw: random.Random) -> list[TokenRow]:
    """Return exactly so many rows of an episode: all, or as many as there is room for, and masked
    ones for the rest; all are masked if the episode says nothing about the policy.
    """
    rows = episode["rows"]
    filled = [rows[k] for k in sorted(draw.sample(range(len(rows)), min(count, len(rows))))]
    filled += [_masked(_shortened(rows[0]))] * (count - len(filled))
    return [_masked(row) for row in filled] if episode["failure"] else filled


def _shortened(row: TokenRow) -> TokenRow:
    """Return a row of two tokens: the first one, and the last one as its completion."""
    ends = [row["input_ids"][0], row["input_ids"][-1]]
    logprobs = None if row["logprobs"] is None else [0.0, 0.0]
    return {**row, "input_ids": ends, "loss_mask": [0, 0], "logprobs": logprobs, "prompt_length": 1}


def _masked(row: TokenRow) -> TokenRow:
    return {**row, "loss_mask": [0] * len(row["loss_mask"])}


def _method(tool: Tool) -> Callable[..., str]:
    """A method for a tool, which transformers' `get_json_schema` turns into the schema of the
    tool.
    """
    properties = tool.parameters["properties"]
    # What is a word of Python is shown with an underscore.
    names = {name + "_" * keyword.iskeyword(name): name for name in properties}

    def method(self: ToolEnvironment, /, **arguments: Any) -> str:
        return self._call(
            tool.name, {names.get(key, key): value for key, value in arguments.items()}
        )

    required, definitions = tool.parameters.get("required", ()), tool.parameters.get("$defs", {})
    hints, texts = {}, []
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
    for python_name, name in names.items():
        hints[python_name], text = _annotation(name, properties[name], definitions)
        texts.append(f"    {python_name}: {text}")
        parameters.append(
            inspect.Parameter(
                python_name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=hints[python_name],
                default=inspect.Parameter.empty if name in required else ...,
            )
        )
    method.__name__ = method.__qualname__ = tool.name
    method.__doc__ = "\n".join([tool.description, *(["", "Args:", *texts] if texts else [])])
    method.__annotations__ = hints  # a return annotation would add to the schema
    vars(method)["__signature__"] = inspect.Signature(parameters)
    return method


def _annotation(
    name: str, schema: Mapping[str, Any], definitions: Mapping[str, Any]
) -> tuple[Any, str]:
    """The type and the description of an argument; the description holds the schema if no type says
    the same.
    """
    plain = {key: value for key, value in schema.items() if key not in ("description", "default")}
    # Transformers reads the lines of a description that look like `name: text` as arguments, and
    # needs one for every argument.
    text = " ".join(schema.get("description", f"The argument {name}.").split())
    if "default" in schema:  # which transformers has no place for
        text += f" Default: {json.dumps(schema['default'], ensure_ascii=False)}"
    try:
        return _hint(plain), text
    except KeyError:
        whole = {**plain, "$defs": definitions} if "$ref" in json.dumps(plain) else plain
        return _TYPES.get(
            plain.get("type"), Any
        ), f"{text} JSON Schema: {json.dumps(whole, ensure_ascii=False)}"


def _hint(schema: Mapping[str, Any]) -> Any:
    """The type whose JSON schema this is; `KeyError` if there is none that transformers reads
    so.
    """
    keys = schema.keys() - {"type"}
    if keys in ({"enum"}, {"const"}):
        return Literal[tuple(schema.get("enum", [schema.get("const")]))]
    if keys == {"anyOf"}:
        return Union[tuple(_hint(item) for item in schema["anyOf"])]  # noqa: UP007 - the members are computed
    if keys == {"items"}:
        return list[_hint(schema["items"])]  # type: ignore[misc]
    if keys == {"additionalProperties"} and isinstance(schema["additionalProperties"], dict):
        return dict[str, _hint(schema["additionalProperties"])]  # type: ignore[misc]
    if keys and schema != {"type": "object", "additionalProperties": True}:
        raise KeyError(*keys)
    return _TYPES[schema["type"]] if schema else Any


class _TrainerPolicy:
    """Replies with what the model under training samples."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.renderer = Renderer(trainer.processing_class)

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        prompts = [self.renderer.ids(chat) for chat in chats]
        # The only way into all of TRL's engines (transformers, vLLM, sharded models) that takes
        # token ids is not public.
        sampled, logprobs = self.trainer._generate_single_turn(
            [list(ids) for ids in prompts], None, {}, 1
        )
        return [
            sampled_reply(self.renderer, chat, prompt, ids, logprobs[k] if logprobs else ())
            for k, (chat, prompt, ids) in enumerate(zip(chats, prompts, sampled, strict=True))
        ]


def _seed_of(prompt: Any) -> int:
    seed = (
        prompt[-1].get("seed")
        if isinstance(prompt, list) and prompt and isinstance(prompt[-1], dict)
        else None
    )
    if not isinstance(seed, int):
        raise ValueError(
            f"the last message of a prompt must carry its seed, got {seed!r}; make the data set "
            "with training.trl.prompts"
        )
    return seed


def _as_output(rows: Sequence[TokenRow]) -> dict[str, Any]:
    """Token rows in TRL's form: what comes before the first sampled id is the prompt."""
    cut = [(row, row["prompt_length"]) for row in rows]
    logprobs = [row["logprobs"][start:] for row, start in cut if row["logprobs"] is not None]
    return {
        "prompt_ids": [row["input_ids"][:start] for row, start in cut],
        "completion_ids": [row["input_ids"][start:] for row, start in cut],
        "env_mask": [row["loss_mask"][start:] for row, start in cut],
        "logprobs": logprobs if len(logprobs) == len(rows) else None,
    }
