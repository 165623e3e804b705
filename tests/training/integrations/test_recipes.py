"""Checks of the recipes in `examples/` against the configuration schemas of other trainers."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import make_model, make_tokenizer
from agentgym.training.rollout.models.pretrained import save_model

EXAMPLES = Path(__file__).parents[3] / "examples"
REASON = "{} is not installed; it needs an environment of its own: make adapters"


@pytest.fixture
def skyrl(tmp_path: Path) -> Iterator[list[str]]:
    """Run the script without a model; the data set is written to `tmp_path`."""
    pytest.importorskip("datasets", reason="needs the extra skyrl")
    gym = pytest.importorskip("skyrl_gym", reason="needs the extra skyrl")
    script = importlib.import_module("examples.grpo_skyrl")
    yield script.main(["--instances", "3", "--out", str(tmp_path), "trainer.logger=wandb"])
    del gym.registry[script.NAME]


def test_grpo_skyrl(skyrl: list[str], tmp_path: Path) -> None:
    import datasets  # noqa: PLC0415 - an extra
    import skyrl_gym  # noqa: PLC0415 - as above

    rows = list(datasets.Dataset.from_parquet(str(tmp_path / "train.parquet")))
    assert [row["seed"] for row in rows] == [0, 1, 2]
    assert f"environment.env_class={rows[0]['env_class']}" in skyrl
    turns = int(next(text for text in skyrl if "max_turns" in text).partition("=")[2])
    row = rows[1]
    env = skyrl_gym.make(row["env_class"], extras={"seed": row["seed"], "max_turns": turns})
    prompt, _ = env.init(row["prompt"])
    assert prompt == row["prompt"]
    oracle = OraclePolicy("ListWorld")
    done = False
    while not done:
        played = env.step(oracle([env._chat])[0].text)
        done = played["done"]
    assert played["reward"] == 1.0


def test_skyrl_accepts_the_settings(skyrl: list[str]) -> None:
    """SkyRL 0.4 requires Python 3.12 and GPU packages, so no test environment includes it."""
    config = pytest.importorskip("skyrl.train.config", reason="skyrl is not installed")
    given = config.SkyRLTrainConfig.from_cli_overrides(skyrl)
    assert (given.trainer.logger, given.generator.max_turns) == ("wandb", 8)
    importlib.import_module("skyrl.train.utils").validate_cfg(given)


@pytest.mark.filterwarnings("ignore")  # verl and Ray cause warnings
def test_verl_accepts_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("verl", reason=REASON.format("verl"))
    from hydra import compose, initialize_config_dir  # noqa: PLC0415 - needs verl
    from omegaconf import OmegaConf  # noqa: PLC0415 - as above
    from verl.trainer.ppo.utils import need_critic, need_reference_policy  # noqa: PLC0415 - as above
    from verl.utils.config import omega_conf_to_dataclass, validate_config  # noqa: PLC0415 - as above
    from verl.utils.dataset.rl_dataset import RLHFDataset  # noqa: PLC0415 - as above

    text = (EXAMPLES / "grpo_verl.yaml").read_text(encoding="utf-8")
    (code,) = re.findall(r'python -c "(.*?)"', text.replace("\\\n#", ""), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(code.replace("1_000", "4"))
    chat, _ = agentgym.make("ListWorld").reset(seed=0)
    tokenizer = make_tokenizer([chat.to_text()], 400)
    save_model(make_model(tokenizer, width=16, layers=1, heads=2), tokenizer, tmp_path / "model")
    overrides = [
        "hydra.searchpath=[pkg://verl.trainer.config]",
        f"actor_rollout_ref.model.path={tmp_path / 'model'}",
        "trainer.logger=[console,wandb]",
    ]
    with initialize_config_dir(str(EXAMPLES), version_base=None):
        config = compose("grpo_verl", overrides)
    validate_config(config, need_reference_policy(config), need_critic(config))
    assert not need_critic(config)
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    assert (rollout.n, config.trainer.logger) == (8, ["console", "wandb"])
    data = RLHFDataset("lists.parquet", tokenizer, config.data)
    (loop,) = OmegaConf.load(EXAMPLES.parent / rollout.agent.agent_loop_config_path)
    assert len(data) == 4
    assert {data[k]["agent_name"] for k in range(4)} == {loop.name}
    env = agentgym.make(loop.env_id, **loop.options)
    assert data[3]["raw_prompt"] == env.reset(seed=data[3]["seed"])[0].to_openai()


def test_prime_rl_names_an_environment_of_verifiers() -> None:
    """prime-rl is not on PyPI, but verifiers reads the `env` blocks of prime-rl's files."""
    vf: Any = pytest.importorskip("verifiers.v1", reason=REASON.format("verifiers"))
    file = tomllib.loads((EXAMPLES / "grpo_prime_rl.toml").read_text(encoding="utf-8"))
    (source,) = file["orchestrator"]["train"]["source"]
    env = vf.load_environment(vf.resolve_env_config(source["env"]))
    (task,) = env.taskset.take(1)
    chat, _ = agentgym.make("ListWorld", items=6, removals=2).reset(seed=0)
    shown = [{"role": message.role, "content": message.content} for message in task.data.prompt]
    assert shown == chat.to_openai()
