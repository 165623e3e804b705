"""Training runs in several phases, with a learning curve on held-out episodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from agentgym.training.evaluation import wilson
from agentgym.training.evaluation.registry import figure_style
from agentgym.training.rl.trainer_config import TaskConfig
from agentgym.training.rollout.storage import (
    DamagedFileError,
    RunLock,
    append_text,
    keep_settings,
    read_settings,
    whole_lines,
    write_text,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from agentgym.training.rl.trainer import Trainer

CURVE = "curve.jsonl"
# Phases in the order of a run: random legal play, the teacher, then the model's phases.
PHASES = ("chance", "teacher", "cloning", "hints", "rl")

_BANDS = {"cloning": ("cloning", 0.15), "hints": ("with hints", 0.3), "rl": ("RL", 0.0)}
_SAMPLING = {
    "greedy": ("most probable tokens", "#0072B2", "o"),
    "sampled": ("sampled, temperature 1", "#D55E00", "s"),
}
_LEVELS = {"chance": ("random legal play", "#777777", ":"), "teacher": ("teacher", "#009E73", "--")}


@dataclass(frozen=True, slots=True)
class Point:
    """An evaluation on held-out episodes; `greedy` and `sampled` are shares of solved episodes.

    Attributes:
        episodes: Training episodes so far, over all phases.
        seconds: CPU seconds of training so far, without evaluations.
        sampled: The share at temperature 1; None if not measured.
        trials: The number of held-out episodes; 0 if not recorded.
    """

    phase: str
    step: int
    episodes: int
    seconds: float
    greedy: float
    sampled: float | None
    trials: int = 0


def _line(point: Point) -> str:
    return json.dumps(asdict(point)) + "\n"


class Curve:
    """The learning curve of a run in a JSONL file; the file need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.points = [self._read(number, line) for number, line in whole_lines(path)]

    def _read(self, number: int, line: bytes) -> Point:
        try:
            point = Point(**json.loads(line))
            PHASES.index(point.phase)
        except (RecursionError, TypeError, ValueError) as error:
            raise DamagedFileError(
                self.path, f"it is not a point of a curve ({error!r})", number
            ) from None
        return point

    def add(self, point: Point) -> None:
        """Append a point."""
        self.points.append(point)
        append_text(self.path, _line(point), sync=True)

    def truncate_after(self, phase: str, step: int) -> None:
        """Remove the points after the given phase and step."""
        # A resumed run repeats the steps after its last checkpoint.
        end = PHASES.index(phase), step
        self.points = [p for p in self.points if (PHASES.index(p.phase), p.step) <= end]
        write_text(self.path, "".join(map(_line, self.points)))

    def last(self, phase: str) -> Point | None:
        """Return a phase's newest point."""
        return next((point for point in reversed(self.points) if point.phase == phase), None)


# Called with the phase, the current step and the number of steps.
OnProgress = Callable[[str, int, int], None]
ConfigT = TypeVar("ConfigT", bound=TaskConfig)


class PhasedRun(Generic[ConfigT]):
    """Trains a model in phases and writes one learning curve. Subclasses implement `_run`."""

    settings: ClassVar[str]
    config_type: ClassVar[type[TaskConfig]]

    def __init__(self, config: ConfigT, out: Path) -> None:
        self.config, self.out = config, out
        with RunLock(out):
            keep_settings(out / self.settings, _plain(config), self.load_settings(out))
            self.curve = Curve(out / CURVE)

    @classmethod
    def load_settings(cls, out: Path) -> dict[str, Any] | None:
        """Return a run's settings as plain data; None if there are none."""
        return read_settings(out / cls.settings, _plain(cls.config_type()))

    def run(self, on_progress: OnProgress = lambda phase, step, steps: None) -> list[Point]:
        """Train to the end, save the model and return the learning curve.

        Raises:
            RunLockedError: Another process is writing to the folder.
            DamagedFileError: A checkpoint or a log is unreadable.
            ValueError: The teacher solves no task, or an optional dependency is missing.
        """
        with RunLock(self.out):
            self._run(on_progress)
        return self.curve.points

    def _run(self, on_progress: OnProgress) -> None:
        raise NotImplementedError

    def _train(
        self,
        phase: str,
        trainer: Trainer[Any],
        each: int,
        success: Callable[[], tuple[float, float | None, int]],
        on_progress: OnProgress,
    ) -> None:
        steps = trainer.config.steps
        every = max(1, steps // self.config.evaluations)
        on_progress(phase, trainer.step, steps)
        if trainer.step >= steps:
            return
        self.curve.truncate_after(phase, trainer.step)
        if not self.curve.last("cloning") and not self.curve.last("rl"):
            self.curve.add(Point(phase, 0, 0, 0.0, *success()))
        start = [p for p in self.curve.points if p.phase != phase or not p.step][-1]

        def after(step: int, metrics: Mapping[str, float]) -> None:
            if step % every == 0 or step == steps:
                episodes = start.episodes + each * step
                seconds = start.seconds + trainer.seconds
                self.curve.add(Point(phase, step, episodes, seconds, *success()))
            on_progress(phase, step, steps)

        trainer.train(after)


def _plain(config: TaskConfig) -> dict[str, Any]:
    return dict(json.loads(json.dumps(asdict(config))))


@figure_style()
def learning_figure(points: Sequence[Point]) -> Figure:
    """Plot success on held-out episodes against CPU seconds of training."""
    from agentgym.training.evaluation import drawing  # noqa: PLC0415 - matplotlib is slow to import, and an extra

    figure = drawing.new_figure(drawing.COLUMN, 2.2)
    panel = figure.subplots()
    model = [point for point in points if point.phase in _BANDS]
    for shift, (name, (label, colour, marker)) in zip((-1, 1), _SAMPLING.items(), strict=True):
        tried = [point for point in model if getattr(point, name) is not None]
        if not tried:
            continue
        times = [point.seconds for point in tried]
        shares = [getattr(point, name) for point in tried]
        trials = [point.trials for point in tried]
        style: dict[str, Any] = {"color": colour, "marker": marker, "label": label}
        if all(trials):
            bounds = [wilson(share * n, n) for share, n in zip(shares, trials, strict=True)]
            drawing.draw_line(panel, times, bounds, style, shift=shift * drawing.SHIFT)
        else:
            panel.plot(times, [100 * share for share in shares], **style)
    for point in points:
        if point.phase in _LEVELS:
            label, colour, dashes = _LEVELS[point.phase]
            panel.axhline(100 * point.greedy, color=colour, linestyle=dashes, label=label)
    end = 0.0
    for phase, (name, alpha) in _BANDS.items():
        start, end = end, max((p.seconds for p in model if p.phase == phase), default=end)
        if end > start and alpha:
            panel.axvspan(start, end, color="#888888", alpha=alpha, linewidth=0, label=name)
    panel.set(xlabel="CPU seconds of training", ylabel="success (%)", ylim=(-3, 103))
    panel.set_xlim(0, max([*(point.seconds for point in model), 1e-3]))
    panel.grid()
    drawing.add_legend(figure, panel.get_legend_handles_labels()[0])
    counted = "held-out instances"
    if most := max((point.trials for point in model), default=0):
        counted = f"{most} held-out instances; 95% intervals"
    drawing.add_note(figure, f"success on {counted}")
    return figure
