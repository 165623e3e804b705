"""verl adapter: an agent loop that plays an episode with the trainer's engine.

The model sees the env's chat through the plain chat template. An episode with an edited context has
several rows (`datasets.to_training_dict`), each with the episode's advantage; verl's old workers
(`trainer.use_v1=false`) accept only one row.

The file at `actor_rollout_ref.rollout.agent.agent_loop_config_path` names agent loops:

    - name: my_lists
      _target_: agentgym.training.integrations.verl.WorldAgentLoop
      env_id: ListWorld
      options: {items: 6, removals: 2}

Example:
    >>> prompts("my_lists", "ListWorld", range(1_000), items=6, removals=2).to_parquet("train.parquet")
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import datasets  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf  # type: ignore[import-not-found,unused-ignore]
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput  # type: ignore[import-not-found,unused-ignore]
from verl.utils.fs import copy_to_local  # type: ignore[import-not-found,unused-ignore]
from verl.utils.model import get_generation_config  # type: ignore[import-not-found,unused-ignore]
from verl.utils.profiler import simple_timer  # type: ignore[import-not-found,unused-ignore]

from agentgym.assemble.registry import make, resolve
from agentgym.training.integrations.common import (
    refuse_images,
    sampled_reply,
    seed_of,
    text_messages,
    truncate,
)
from agentgym.training.integrations.datasets import TokenRow, to_training_dict
from agentgym.training.rollout import Episode, Renderer
from agentgym.training.rollout.models.renderer import list_ids


class WorldAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """Plays one episode of a world for a row of the dataset.

    An episode is truncated with its current score if a prompt exceeds `rollout.prompt_length`, or
    if the rest of a row exceeds `rollout.response_length`. verl sees truncation only in
    `reward_extra_info`. `options` are keyword arguments of `agentgym.make`.
    """

    def __init__(
        self,
        *args: Any,
        env_id: str,
        options: Mapping[str, Any] | DictConfig | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.env_id = env_id
        if isinstance(options, DictConfig):
            plain: Any = OmegaConf.to_container(options)
        else:
            plain = dict(options or {})
        self.options = plain
        refuse_images("verl", make(env_id, **plain))
        model = self.config.actor_rollout_ref.model
        stops = _stop_ids(model.get("hf_config_path") or model.path)
        self.renderer = Renderer(self.tokenizer, stops, self.apply_chat_template_kwargs)

    async def run(
        self, sampling_params: dict[str, Any], **row: Any
    ) -> AgentLoopOutput | list[AgentLoopOutput]:
        """Play the episode of a row; the row's `seed` selects the instance.

        Returns:
            The rows of the episode, oldest first. A single row is returned without a list.

        Raises:
            ValueError: The row has no seed, or the first prompt is too long.
            RuntimeError: The episode is invalid; the trainer omits its prompt.
        """
        seed = seed_of(row)
        env = await asyncio.to_thread(make, self.env_id, **self.options)
        metrics: dict[str, Any] = {}
        try:
            episode = await asyncio.to_thread(Episode, env, seed)
            extra = await self._play(episode, sampling_params, self._request_id(row), metrics)
            trajectory = episode.trajectory()
            reward, truncated, invalid = trajectory.reward, trajectory.truncated, trajectory.failure
            if not episode.over:
                _, reward, _, truncated, info = truncate(env, "length")
                invalid = info["detail"].invalid
            if invalid:
                raise RuntimeError(f"the episode of seed {seed} is invalid: {invalid}")
        finally:
            env.close()
        ends = {
            "success": float(reward >= 1.0),
            "truncated": float(truncated),
            "turns": float(len(trajectory.steps)),
        }
        outputs = []
        for each in to_training_dict(trajectory)["rows"]:
            fields = {**extra, "reward_extra_info": ends}
            outputs.append(self._output(each, reward, metrics, fields))
        return outputs if len(outputs) > 1 else outputs[0]

    async def _play(
        self,
        episode: Episode,
        sampling_params: dict[str, Any],
        request_id: str,
        metrics: dict[str, Any],
    ) -> dict[str, Any]:
        """Play until the episode ends or exceeds a limit; return the engine's weight versions."""
        extra: dict[str, Any] = {}
        row: Sequence[int] = ()
        start, limits = 0, self.rollout_config
        while not episode.over:
            refuse_images("verl", episode.env, episode.chat.messages)
            prompt = self.renderer.ids(episode.chat)
            if not row or prompt[: len(row)] != row:
                start = len(prompt)
            if start > limits.prompt_length and not row:
                raise ValueError(
                    f"the first prompt of seed {episode.seed} has {start} tokens, more than "
                    f"rollout.prompt_length={limits.prompt_length}; raise that limit"
                )
            if start > limits.prompt_length or len(prompt) - start >= limits.response_length:
                break
            with simple_timer("generate_sequences", metrics):
                sampled = await self.server_manager.generate(
                    request_id=request_id,
                    prompt_ids=list(prompt),
                    sampling_params=dict(sampling_params),
                )
            reply = sampled_reply(
                self.renderer, episode.chat, prompt, sampled.token_ids, sampled.log_probs or ()
            )
            with simple_timer("tool_calls", metrics):
                await asyncio.to_thread(episode.play, reply)
            row = reply.prompt_ids + reply.ids
            # Keep the first turn's extra fields, but the newest weight version.
            extra = sampled.extra_fields | extra
            if "max_global_steps" in sampled.extra_fields:
                extra["max_global_steps"] = sampled.extra_fields["max_global_steps"]
        return extra

    def _request_id(self, row: Mapping[str, Any]) -> str:
        if self.rollout_config.get("full_determinism"):
            return f"det-{row.get('priority', 0)}"
        return uuid.uuid4().hex

    def _output(
        self, row: TokenRow, reward: float, metrics: dict[str, Any], extra: dict[str, Any]
    ) -> AgentLoopOutput:
        start = row["prompt_length"]
        end = start + self.rollout_config.response_length
        return AgentLoopOutput(
            prompt_ids=row["input_ids"][:start],
            response_ids=row["input_ids"][start:end],
            response_mask=row["loss_mask"][start:end],
            response_logprobs=None if row["logprobs"] is None else row["logprobs"][start:end],
            reward_score=reward,
            num_turns=2 * len(row["steps"]),
            metrics=AgentLoopMetrics(**metrics),
            extra_fields=extra,
        )


@lru_cache  # verl makes an agent loop for each episode
def _stop_ids(model: str) -> list[int]:
    config = get_generation_config(copy_to_local(model))
    return list_ids(getattr(config, "eos_token_id", None))


def prompts(agent_name: str, env_id: str, seeds: Iterable[int], **options: Any) -> datasets.Dataset:
    """Return a dataset with each instance's seed and prompt; verl uses only the prompt's length."""
    env = make(env_id, **options)
    fixed = {
        "data_source": resolve(env_id),
        "agent_name": agent_name,
        "reward_model": {"style": "rule", "ground_truth": ""},
    }
    rows = []
    for k, seed in enumerate(seeds):
        chat, _ = env.reset(seed=seed)
        prompt = text_messages("verl", env, chat.messages)
        rows.append({"prompt": prompt, "seed": seed, "extra_info": {"index": k}, **fixed})
    return datasets.Dataset.from_list(rows)
