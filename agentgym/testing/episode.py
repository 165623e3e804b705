"""Play one episode and check every law that holds for any world."""

from __future__ import annotations

import re
import sysconfig
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from agentgym.assemble.registry import is_team, make
from agentgym.multi.gym import TeamEnv
from agentgym.oracles import OraclePolicy, TeamPolicy
from agentgym.play.env import ToolEnv, tool_env
from agentgym.testing.cases import Case, Finding, Report, draw_options
from agentgym.testing.checks import (
    StepResult,
    faults_of_result,
    hash_of,
    is_refused,
    parting,
)
from agentgym.testing.probes import compare_copy, copy_for, differences, state_of
from agentgym.testing.replies import ReplyGenerator
from agentgym.text.messages import Chat, ToolCall
from agentgym.world.world import MissingHook, World, has_hook

# one in this many steps is also played in a copy of the env
_COPY_EVERY = 10
# State size in bytes above which only some refused replies are checked for changes.
_STATE_BYTES = 300_000
# maximum number of suggested calls per hook, since a world may suggest thousands
_SUGGESTED = 50
_HERE = Path(__file__).parent
_LIBRARIES = tuple(map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))


class _Stop(Exception):
    """Raised when a finding ends the episode."""


def play(case: Case) -> Report:
    """Play a case and return the report."""
    options = draw_options(case) if case.options is None else dict(case.options)
    player = _Player(replace(case, options=options, env_seed=case.instance))
    player.play()
    return player.report


class _Player:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.thorough = case.actions is not None
        self._rng = np.random.default_rng((zlib.crc32(case.id.encode()), case.seed, case.index))
        self._options = case.options or {}
        self.report = Report()

    def find(self, kind: str, text: str, mark: str) -> None:
        case = replace(self.case, actions=list(self.report.actions))
        self.report.findings.append(Finding(kind, text, mark, case))

    def play(self) -> None:
        env: gymnasium.Env[Any, Any] | None = None
        try:
            with self._watch("raise"):
                env = make(self.case.id, **self._options)
            self._play(env)
            self._end(env)
            if self.thorough or self.case.index % 2 == 0:
                self._repeat(env)
        except _Stop:
            pass
        finally:
            if env is not None:
                with suppress(_Stop), self._watch("raise"):
                    env.close()
        self.report.texts = len(self.report.actions)

    @contextmanager
    def _watch(self, kind: str, what: str = "") -> Iterator[None]:
        try:
            yield
        except _Stop:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any exception is a finding
            text = "".join(traceback.format_exception(error, limit=-12))
            self.find(kind, f"{what}{text[-3_000:]}", _place_of(text))
            raise _Stop from None

    def _play(self, env: gymnasium.Env[Any, Any]) -> None:
        case = self.case
        generator = ReplyGenerator(self._rng, self._options.get("dialect", "auto"), case.index)
        prefix, oracle = 0, None
        if case.index % 4 == 3:
            prefix = int(self._rng.geometric(0.05))
            oracle = _oracle(case.id, generator.dialect)
        with self._watch("raise"):
            chat, info = env.reset(seed=case.env_seed)
        result: StepResult = (chat, 0.0, False, False, info)
        self._check_result(env, Chat(), result)
        self.report.marks.append(hash_of(Chat(), result))
        read = Chat()
        state = b""
        count = case.texts if case.actions is None else len(case.actions)
        for k in range(count):
            if case.actions is not None:
                action = case.actions[k]
            else:
                for message in chat.messages[max(1, chat.shared_prefix(read)) :]:
                    generator.vocabulary.read(message.text)
                read = chat
                action = self._next_action(env, chat, generator, oracle if k < prefix else None)
            result, state = self._step(env, chat, action, state)
            chat = result[0]
            if result[2] or result[3]:
                break

    def _next_action(
        self,
        env: gymnasium.Env[Any, Any],
        chat: Chat,
        generator: ReplyGenerator,
        oracle: Callable[[Sequence[Chat]], Any] | None,
    ) -> str:
        if oracle is not None:
            with self._watch("oracle", "the scripted policy: "):
                return str(oracle([chat])[0].text)

        def suggest() -> Sequence[ToolCall]:
            with self._watch("oracle", "the hooks of the world: "):
                return _suggested(env)

        return generator.write(chat.tools, suggest)

    def _step(
        self, env: gymnasium.Env[Any, Any], chat: Chat, action: str, state: bytes
    ) -> tuple[StepResult, bytes]:
        self.report.actions.append(action)
        state = state or state_of(env)
        # Always draw three values, so that optional checks never change later replies.
        draws = self._rng.random(3)
        share = min(1.0, _STATE_BYTES / len(state))
        copies = [0, 1, 2] if self.thorough else [int(draws[1] * 3)]
        twins = []
        if self.thorough or draws[0] * _COPY_EVERY < share:
            for k in copies:
                with self._watch("copy"):
                    twins.append(copy_for(env, k))
        with self._watch("raise"):
            result: StepResult = env.step(action)
        self._check_result(env, chat, result)
        self.report.marks.append(hash_of(chat, result))
        self.report.calls += result[4]["detail"].calls
        for twin in twins:
            with self._watch("copy", "a copy raised: "):
                if text := compare_copy(env, twin, chat, action, result):
                    self.find("copy", text, "copy")
        if not is_refused(result[4]):
            return result, b""
        if not self.thorough and draws[2] > share:
            return result, b""
        after = state_of(env)
        if changes := differences(state, after):
            text = f"a refused reply changed the state: {'; '.join(changes)}"
            path, _, _ = changes[0].partition(": ")
            self.find("state", text, re.sub(r"\d+", "#", path))
        return result, after

    def _check_result(self, env: gymnasium.Env[Any, Any], before: Chat, result: StepResult) -> None:
        with self._watch("result", "the result of the step cannot be read: "):
            faults = list(faults_of_result(env, before, result))
        if faults:
            self.find("result", "; ".join(faults), _mark_of(faults[0]))
            raise _Stop
        reported = getattr(result[4]["detail"], "faults", ())
        for fault in reported:
            text = f"{fault.tool} failed: {fault.traceback}"
            self.find("raise", text, _place_of(fault.traceback))
        if reported:
            raise _Stop

    def _end(self, env: gymnasium.Env[Any, Any]) -> None:
        inner = env.unwrapped
        if isinstance(inner, ToolEnv) and not inner.over:
            before = inner.chat
            with self._watch("raise", "scoring: "):
                result = inner.truncate("fuzz")
            self._check_result(inner, before, result)
            self.report.marks.append(hash_of(before, result))

    def _repeat(self, env: gymnasium.Env[Any, Any]) -> None:
        again: list[str] = []
        with self._watch("repeat", "the episode played again: "):
            chat, info = env.reset(seed=self.case.env_seed)
            again.append(hash_of(Chat(), (chat, 0.0, False, False, info)))
            for action in self.report.actions:
                result = env.step(action)
                again.append(hash_of(chat, result))
                chat = result[0]
        if when := parting(self.report.marks, again):
            self.find("repeat", f"the same episode played again differs after {when}", "repeat")


def _oracle(env_id: str, dialect: Any) -> Callable[[Sequence[Chat]], Any] | None:
    try:
        policy = TeamPolicy if is_team(env_id) else OraclePolicy
        return policy(env_id, dialect=dialect)
    except MissingHook:
        return None


def _suggested(env: gymnasium.Env[Any, Any]) -> Sequence[ToolCall]:
    inner = env.unwrapped
    if isinstance(inner, TeamEnv):
        world: World[Any] = inner.game.team.worlds[inner.agent]
    else:
        world = tool_env(env).world
    calls: list[ToolCall] = []
    for hook in ("legal_calls", "optimal_calls"):
        if has_hook(type(world), hook):
            calls += islice(getattr(world, hook)() or (), _SUGGESTED)
    return calls


def _place_of(text: str) -> str:
    frames = re.findall(r'File "([^"]*)", line \d+, in (\w+)', text)
    own = [frame for frame in frames if not _is_library(frame[0])]
    file, function = (own or frames or [("?", "?")])[-1]
    error = re.findall(r"^[\w.]*", text.strip().splitlines()[-1])[0]
    return f"{error} in {Path(file).name}:{function}"


def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or "site-packages" in file or Path(file).parent == _HERE


def _mark_of(text: str) -> str:
    return re.sub(r"\d+", "#", re.sub(r"'[^']*'", "'…'", text))[:120]
