from pathlib import Path

from agentgym.training.rollout.models.pretrained import add_lora, save_model
from tests.project.features.small_model import make

model, tokenizer = make()
save_model(add_lora(model, 2, "base"), tokenizer, Path("adapter"))
