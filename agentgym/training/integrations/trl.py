"""TRL adapter: environments whose tools the GRPO trainer calls, and rollouts of envs with all
wrappers.

With `environment_factory`, the usual way, the trainer keeps the history, parses calls in the
model's own format, and shows the tool schemas. Strategies that edit the context need
`rollout_func`, in which the model sees the env's chat.

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
from io import BytesIO
from statistics import fmean
from typing import Any, ClassVar, Literal, Union

import datasets  # type: ignore[import-untyped]
import gymnasium
from gymnasium.envs.registration import EnvSpec

import agentgym.assemble.registry as registry
from agentgym.play.env import tool_env
from agentgym.play.policy import Reply
from agentgym.text.messages import SYSTEM_ID, Chat, Message, ToolCall, pillow
from agentgym.text.parsing import render
from agentgym.text.prompts import document_tools
from agentgym.text.tools import Tool
from agentgym.text.validation import check_int
from agentgym.training.integrations.common import (
    added,
    growing_spec,
    refuse_images,
    sampled_reply,
    seed_of,
    truncate,
)
from agentgym.training.integrations.datasets import TokenRow, TrainingDict, to_training_dict
from agentgym.training.rollout import Episode, Renderer

__all__ = [
    "ToolEnvironment",
    "env_reward",
    "environment_factory",
    "log_episodes",
    "prompts",
    "remote_environment",
    "rollout_func",
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
_ROLLOUT = "TRL's rollout_func"
_FACTS = ("success", "turns", "truncated")


class ToolEnvironment:
    """Environment for TRL; `environment_factory` adds one method per tool.

    Each call is sent as a separate reply (`env.step`), because TRL does not expose the calls or
    the other text of a reply. Each call therefore takes a turn, results include hints and notes,
    and calls after the episode's end return an error. Images reach the model's processor as content
    blocks.
    """

    _make: ClassVar[Callable[[], gymnasium.Env[Chat, str]]]

    def __init__(self) -> None:
        self._env: Any = type(self)._make()
        self._chat = Chat()
        self._over = True
        self._reward = 0.0
        self._facts: dict[str, float] = {}
        self._invalid = False

    def reset(self, **row: Any) -> str | list[dict[str, Any]]:
        """Start the episode of a row; the row's `seed` selects the instance.

        Returns:
            The task, which TRL appends to the row's last message; content blocks if the task has
            images.
        """
        self._chat, _ = self._env.reset(seed=seed_of(row))
        self._over, self._reward, self._invalid = False, 0.0, False
        self._facts = dict.fromkeys(_FACTS, 0.0)
        return _content(self._chat.messages[-1:])

    def get_reward(self) -> float | None:
        """Return the episode's reward; None if the episode is invalid (`StepInfo.invalid`).

        If the episode is still running, this method ends the episode with its current score.
        """
        if not self._over:
            self._take(truncate(self._env, "stopped"))
        return None if self._invalid else self._reward

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str | list[dict[str, Any]]:
        if self._over:
            return _ENDED
        before = self._chat
        self._facts["turns"] += 1
        reply = render(ToolCall(name, arguments), self._env.unwrapped.dialect)
        self._take(self._env.step(reply))
        return _content(added(before, self._chat))

    def _take(self, outcome: tuple[Chat, float, bool, bool, Mapping[str, Any]]) -> None:
        self._chat, reward, terminated, truncated, info = outcome
        self._reward += float(reward)
        self._facts |= {"success": float(info["success"]), "truncated": float(truncated)}
        self._over = terminated or truncated
        self._invalid = bool(info["detail"].invalid)


def _content(messages: Sequence[Message]) -> str | list[dict[str, Any]]:
    text = "\n\n".join(message.text for message in messages)
    blocks: list[dict[str, Any]] = []
    for message in messages:
        for image in message.images:
            opened = pillow("PIL.Image").open(BytesIO(image.png))
            blocks.append({"type": "image", "image": opened.convert("RGB")})
    if not blocks:
        return text
    return [*blocks, {"type": "text", "text": text}]


def environment_factory(env_id: str, **options: Any) -> type[ToolEnvironment]:
    """Return the `environment_factory` of `trl.GRPOTrainer` for a world.

    The class has the world's name, which TRL logs. The class also provides the reward, so omit
    `reward_funcs`, or set it to `[log_episodes]`. To train on several worlds, give TRL a dict of
    these classes, and add a column `environment` with the dict's keys to the rows of `prompts`.
    """
    spec = growing_spec("TRL", "train with rollout_func", env_id, options)
    name = registry.resolve(env_id).rpartition("/")[2].partition("-")[0]
    return _environment(name, tool_env(gymnasium.make(spec)).tools, lambda: gymnasium.make(spec))


def log_episodes(
    *, environments: Sequence[ToolEnvironment], log_metric: Callable[[str, float], None], **_: Any
) -> list[float | None]:
    """Reward function that logs success, turns and truncation, and adds no reward."""
    rewards = [environment.get_reward() for environment in environments]
    _log_facts(log_metric, rewards, [environment._facts for environment in environments])
    # Return None for invalid episodes, because TRL treats the sum of None and 0 as 0.
    return [None if reward is None else 0.0 for reward in rewards]


def _log_facts(
    log_metric: Callable[[str, float], None],
    rewards: Sequence[float | None],
    facts: Sequence[Mapping[str, float]],
) -> None:
    measured = [each for each, reward in zip(facts, rewards, strict=True) if reward is not None]
    if not measured:
        return
    for name in measured[0]:
        log_metric(name, fmean(each[name] for each in measured))


def remote_environment(
    base_url: str, token: str = "", **reset_options: Any
) -> type[ToolEnvironment]:
    """Return an `environment_factory` whose environments are sessions of an OpenEnv server.

    `reset_options`, such as `split`, are passed to each reset. A tool name that TRL
    reserves raises `ValueError`.
    """
    from agentgym.training.integrations.openenv import RemoteEnv  # noqa: PLC0415 - an extra

    def make() -> RemoteEnv:
        return RemoteEnv(base_url, token, reset_options)

    env = make()
    chat, _ = env.reset(seed=0)
    env.close()
    return _environment("OpenEnvEnvironment", chat.tools, make)


def _environment(
    name: str, tools: Sequence[Tool], make: Callable[[], gymnasium.Env[Chat, str]]
) -> type[ToolEnvironment]:
    for tool in tools:
        if tool.name in ("reset", "get_reward") or tool.name.startswith("_"):
            raise ValueError(
                f"TRL cannot call a tool named {tool.name!r}: rename it with @tool(name=...)"
            )
    methods = {tool.name: _method(tool) for tool in tools}
    attributes = {"__doc__": ToolEnvironment.__doc__, "_make": staticmethod(make), **methods}
    return type(name, (ToolEnvironment,), attributes)


def prompts(env_id: str, seeds: Iterable[int], **options: Any) -> datasets.Dataset:
    """Return the dataset for `environment_factory` or `rollout_func`, with prompts and seeds.

    A prompt ends with an empty user message, to which `ToolEnvironment.reset` adds the task. The
    system message omits the rules for calls, which chat templates explain. The last message repeats
    the seed, because TRL passes `rollout_func` no other column.
    """
    env = registry.make(env_id, **options)
    inner = tool_env(env)
    documentation = document_tools(inner.tools, inner.dialect, inner.most_calls)
    rows = []
    for seed in seeds:
        chat, _ = env.reset(seed=seed)
        # `reset` returns the task's images; TRL's prompts cannot contain earlier messages' images.
        earlier = chat.messages[:-1]
        if any(message.images for message in earlier):
            raise ValueError(
                f"TRL's prompts carry only text, and {inner.world_class.__name__} shows an image "
                "before its task; remove shots, or use verifiers, OpenEnv or Inspect"
            )
        messages = Chat(earlier).to_openai(json_arguments=False)
        for message, original in zip(messages, chat.messages, strict=False):
            if original.id == SYSTEM_ID:
                message["content"] = message["content"].replace(f"\n\n{documentation}", "")
        rows.append(
            {"prompt": [*messages, {"role": "user", "content": "", "seed": seed}], "seed": seed}
        )
    # If arguments were Arrow structs, all calls would have the same argument names.
    features = datasets.Features(
        {"prompt": datasets.List(datasets.Json()), "seed": datasets.Value("int64")}
    )
    return datasets.Dataset.from_list(rows, features=features)


def rollout_func(
    spec: EnvSpec, seed: int = 0, rows_per_episode: int = 1
) -> Callable[[list[Any], Any], dict[str, Any]]:
    """Return the `rollout_func` of `trl.GRPOTrainer` that plays an env with all wrappers.

    TRL takes exactly one prompt and completion for each of the `num_generations` in a group. With
    `rows_per_episode=k` (at most 1,000), k generations contain the token rows of one episode, so
    `num_generations=n * k` plays n episodes of an instance and trains each sampled token once.
    Unused rows contain one masked token; longer episodes are subsampled to k rows uniformly, and
    `env_reward` logs the omitted share as `rows_left_out`. All k rows have the episode's reward;
    docs/finetuning.md describes the effect on TRL's losses.

    Train with `reward_funcs=env_reward`. Sampling uses the trainer's own engine; without vLLM,
    `logprobs` is None. The trainer's `max_completion_length` applies to each reply; the spec's
    window bounds the episode.

    Raises:
        ValueError: `rows_per_episode` is out of range, or the world shows images. The returned
            function raises `ValueError` unless an episode's k prompts are consecutive in one process.
    """
    check_int("rows_per_episode", rows_per_episode, 1, 1_000)
    refuse_images(_ROLLOUT, gymnasium.make(spec))
    draw = random.Random(seed)
    envs: list[gymnasium.Env[Any, Any]] = []

    def play(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        seeds = _episode_seeds(prompts, rows_per_episode)
        envs.extend(gymnasium.make(spec) for _ in range(len(seeds) - len(envs)))
        episodes = [Episode(env, seed) for env, seed in zip(envs, seeds, strict=False)]
        _play_together(episodes, _TrainerPolicy(trainer))
        rows: list[TokenRow] = []
        rewards: list[float | None] = []
        facts: list[dict[str, float]] = []
        for episode in episodes:
            trajectory = episode.trajectory()
            played = to_training_dict(trajectory)
            left_out = max(0.0, 1 - rows_per_episode / len(played["rows"]))
            own = {
                "success": float(trajectory.steps[-1].info["success"]),
                "turns": float(len(trajectory.steps)),
                "truncated": float(trajectory.truncated),
                "rows_left_out": left_out,
            }
            rows += _fill(played, rows_per_episode, draw)
            reward = None if played["failure"] else played["reward"]
            rewards += [reward] * rows_per_episode
            facts += [own] * rows_per_episode
        return {**_as_output(rows), "env_reward": rewards, "env_facts": facts}

    return play


def _play_together(episodes: Sequence[Episode], policy: _TrainerPolicy) -> None:
    while going := [episode for episode in episodes if not episode.over]:
        for episode in going:
            refuse_images(_ROLLOUT, episode.env, episode.chat.messages)
        replies = policy([episode.chat for episode in going])
        for episode, reply in zip(going, replies, strict=True):
            episode.play(reply)


def env_reward(
    *,
    env_reward: Sequence[float | None],
    env_facts: Sequence[Mapping[str, float]],
    log_metric: Callable[[str, float], None],
    **_: Any,
) -> list[float | None]:
    """Return the rewards for `rollout_func`; TRL skips invalid episodes, whose reward is None."""
    _log_facts(log_metric, env_reward, env_facts)
    return list(env_reward)


def _episode_seeds(prompts: Sequence[Any], rows_per_episode: int) -> list[int]:
    seeds = [seed_of(prompt[-1]) for prompt in prompts]
    distinct = seeds[::rows_per_episode]
    if any(seeds[k::rows_per_episode] != distinct for k in range(rows_per_episode)):
        raise ValueError(
            f"a process must receive each seed in rows_per_episode={rows_per_episode} consecutive "
            f"prompts, got the seeds {seeds[:20]}; make num_generations and the batch sizes for "
            "training and evaluation multiples of rows_per_episode"
        )
    return distinct


def _fill(episode: TrainingDict, count: int, draw: random.Random) -> list[TokenRow]:
    """Return `count` rows of an episode: a subsample, or all rows followed by masked rows."""
    rows = episode["rows"]
    chosen = draw.sample(range(len(rows)), min(count, len(rows)))
    filled = [rows[k] for k in sorted(chosen)]
    filled += [_shortened(rows[0])] * (count - len(filled))
    if episode["failure"]:
        return list(map(_masked, filled))
    return filled


def _shortened(row: TokenRow) -> TokenRow:
    """Return a masked row of two tokens: the first as the prompt, the last as the completion."""
    ends = [row["input_ids"][0], row["input_ids"][-1]]
    logprobs = None if row["logprobs"] is None else [0.0, 0.0]
    return {**row, "input_ids": ends, "loss_mask": [0, 0], "logprobs": logprobs, "prompt_length": 1}


def _masked(row: TokenRow) -> TokenRow:
    return {**row, "loss_mask": [0] * len(row["loss_mask"])}


def _method(tool: Tool) -> Callable[..., str | list[dict[str, Any]]]:
    """Return a method from which transformers' `get_json_schema` derives the tool's schema."""
    properties = tool.parameters["properties"]
    # Python keywords get a trailing underscore.
    names = {name + "_" * keyword.iskeyword(name): name for name in properties}

    def method(self: ToolEnvironment, /, **arguments: Any) -> str | list[dict[str, Any]]:
        given = {names.get(key, key): value for key, value in arguments.items()}
        return self._call(tool.name, given)

    required = tool.parameters.get("required", ())
    definitions = tool.parameters.get("$defs", {})
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
    if texts:
        texts = ["", "Args:", *texts]
    method.__doc__ = "\n".join([tool.description, *texts])
    method.__annotations__ = hints  # a return annotation would change the schema
    vars(method)["__signature__"] = inspect.Signature(parameters)
    return method


def _annotation(
    name: str, schema: Mapping[str, Any], definitions: Mapping[str, Any]
) -> tuple[Any, str]:
    plain = {key: value for key, value in schema.items() if key not in ("description", "default")}
    # Transformers parses description lines of the form `name: text` as arguments, and requires
    # such a line for every argument.
    text = " ".join(schema.get("description", f"The argument {name}.").split())
    if "default" in schema:  # transformers has no field for default values
        text += f" Default: {json.dumps(schema['default'], ensure_ascii=False)}"
    try:
        return _hint(plain), text
    except KeyError:
        whole = plain
        if "$ref" in json.dumps(plain):
            whole = {**plain, "$defs": definitions}
        text += f" JSON Schema: {json.dumps(whole, ensure_ascii=False)}"
        return _TYPES.get(plain.get("type"), Any), text


def _hint(schema: Mapping[str, Any]) -> Any:
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
    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.renderer = Renderer(
            trainer.processing_class, trainer.eos_token_ids, trainer.chat_template_kwargs
        )

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        prompts = [self.renderer.ids(chat) for chat in chats]
        # TRL's only function that sends token ids to every engine is private.
        sampled, logprobs = self.trainer._generate_single_turn(
            [list(ids) for ids in prompts], None, {}, 1
        )
        replies = []
        for k, (chat, prompt, ids) in enumerate(zip(chats, prompts, sampled, strict=True)):
            known = logprobs[k] if logprobs else ()
            replies.append(sampled_reply(self.renderer, chat, prompt, ids, known))
        return replies


def _as_output(rows: Sequence[TokenRow]) -> dict[str, Any]:
    """Convert a row to TRL's format, in which everything before the first sampled id is the
    prompt.
    """
    output: dict[str, Any] = {"prompt_ids": [], "completion_ids": [], "env_mask": []}
    logprobs = []
    for row in rows:
        start = row["prompt_length"]
        output["prompt_ids"].append(row["input_ids"][:start])
        output["completion_ids"].append(row["input_ids"][start:])
        output["env_mask"].append(row["loss_mask"][start:])
        if row["logprobs"] is not None:
            logprobs.append(row["logprobs"][start:])
    return {**output, "logprobs": logprobs if len(logprobs) == len(rows) else None}
