"""GRPO with SkyRL on one GPU: a world as a SkyRL-Gym environment, with vLLM as the sampler.

Needs: pip install 'agentgym-suite[skyrl]'; to train also pip install 'skyrl[fsdp]==0.4.0', Python 3.12 and a GPU

Prints: the path of the data set, then SkyRL's log. Without --model the script only writes the
data set. Further arguments are passed to SkyRL: `python examples/grpo_skyrl.py --model
path/to/model trainer.logger=wandb`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentgym.training.integrations import skyrl

NAME, WORLD, OPTIONS = "lists", "ListWorld", {"items": 6, "removals": 2}
SETTINGS = """
environment.env_class=lists
trainer.algorithm.advantage_estimator=grpo
trainer.algorithm.use_kl_loss=false
trainer.policy.optimizer_config.lr=1e-6
trainer.placement.policy_num_gpus_per_node=1
trainer.train_batch_size=32
trainer.policy_mini_batch_size=32
trainer.micro_train_batch_size_per_gpu=8
trainer.micro_forward_batch_size_per_gpu=8
trainer.max_prompt_length=2048
trainer.eval_interval=-1
trainer.logger=console
generator.n_samples_per_prompt=8
generator.max_turns=8
generator.max_input_length=4096
generator.sampling_params.max_generate_length=64
generator.inference_engine.gpu_memory_utilization=0.4
"""


def main(arguments: Sequence[str] | None = None) -> list[str]:
    """Write the data set and train a model; return the SkyRL options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a folder or an id")
    parser.add_argument("--instances", type=int, default=1_000)
    parser.add_argument("--out", type=Path, default=Path("runs/skyrl"))
    parser.add_argument("settings", nargs="*", help="options of SkyRL as name=value")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    data = given.out.resolve() / "train.parquet"
    skyrl.register(NAME, WORLD, **OPTIONS)
    skyrl.prompts(NAME, range(given.instances)).to_parquet(data)
    print("wrote", data)
    settings = [*SETTINGS.split(), f"trainer.policy.model.path={given.model}"]
    settings += [f"data.train_data=['{data}']", f"trainer.ckpt_path={given.out}", *given.settings]
    if given.model:
        train(settings)
    return settings


def train(settings: list[str]) -> None:
    """Run SkyRL's trainer in a Ray task, in which the world is also registered."""
    import ray  # noqa: PLC0415 - only training needs it
    from skyrl.train.config import SkyRLTrainConfig  # noqa: PLC0415 - as above
    from skyrl.train.entrypoints.main_base import BasePPOExp  # noqa: PLC0415 - as above
    from skyrl.train.utils import initialize_ray, validate_cfg  # noqa: PLC0415 - as above

    def run(config: Any) -> None:
        skyrl.register(NAME, WORLD, **OPTIONS)
        BasePPOExp(config).run()

    config = SkyRLTrainConfig.from_cli_overrides(settings)
    validate_cfg(config)
    initialize_ray(config)
    ray.get(ray.remote(num_cpus=1)(run).remote(config))


if __name__ == "__main__":
    main()
