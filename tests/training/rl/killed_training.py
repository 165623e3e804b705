"""Program that forks a process for each training run; each run kills itself."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from agentgym.training.rl import LearnConfig, Learning, cloning, trainer
from agentgym.training.rollout import LocalPolicy, storage

TINY = LearnConfig(
    horizons=(1,),
    arms=("", "SP"),
    window=900,
    width=16,
    layers=1,
    heads=2,
    context=1_024,
    max_new_tokens=4,
    cloning_steps=4,
    hint_steps=2,
    rl_steps=2,
    groups=2,
    evaluations=1,
    episodes=2,
)


class Clock:
    """Counter of a run's events, which kills the run at event number `last`."""

    def __init__(self, last: int) -> None:
        self.now, self.last = 0, last

    def tick(self) -> None:
        self.now += 1
        if self.now == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self.tick()
            return function(*args, **options)

        return counted

    def install(self) -> None:
        """Count reply batches, optimizer steps, and the stages of each file write."""
        for policy in (LocalPolicy, cloning.Tokenized):
            policy.__call__ = self.around(policy.__call__)  # type: ignore[attr-defined]
        torch.optim.AdamW.step = self.around(torch.optim.AdamW.step)  # type: ignore[method-assign]
        os.replace, os.fsync = self.around(os.replace), self.around(os.fsync)
        torch.save = self.saving(torch.save)
        trainer.append_text = self.torn(storage.append_text)

    def saving(self, save: Callable[..., Any]) -> Callable[..., Any]:
        def in_two_parts(state: Any, file: Any) -> None:
            whole = io.BytesIO()
            save(state, whole)
            data = whole.getvalue()
            self.tick()
            file.write(data[: len(data) // 2])
            file.flush()
            self.tick()
            file.write(data[len(data) // 2 :])

        return in_two_parts

    def torn(self, append: Callable[..., Any]) -> Callable[..., Any]:
        def in_two_parts(path: Path, text: str, **options: Any) -> None:
            append(path, text[:7], **options)
            self.tick()
            append(path, text[7:], **options)

        return in_two_parts


def main() -> None:
    """Read a folder and an event number from each line; print the exit status and event count."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        folder, last = line.rsplit(maxsplit=1)
        counts, child_end = os.pipe()
        if (child := os.fork()) == 0:
            clock = Clock(int(last))
            clock.install()
            Learning(TINY, Path(folder)).run()
            os.write(child_end, str(clock.now).encode())
            os._exit(0)
        os.close(child_end)
        status = os.waitpid(child, 0)[1]
        print(status, os.read(counts, 20).decode() or 0, flush=True)
        os.close(counts)


if __name__ == "__main__":
    main()
