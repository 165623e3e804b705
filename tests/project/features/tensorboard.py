from pathlib import Path

from tests.project.features.small_model import clone

clone(tensorboard=True)
assert list(Path("run").rglob("events.*"))
