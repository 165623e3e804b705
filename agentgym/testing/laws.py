"""Laws that every world must obey, as functions for tests and for `agentgym check`.

Each law raises `BrokenLaw` with a line of Python that reproduces the error.
"""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from numbers import Integral
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

from agentgym.assemble import registry
from agentgym.oracles import NoisyPolicy, OraclePolicy, RandomPolicy
from agentgym.oracles.policies import ScriptedPolicy
from agentgym.oracles.reading import ParsedChat
from agentgym.play.env import clone, tool_env
from agentgym.play.policy import Policy
from agentgym.testing.campaign import Campaign
from agentgym.testing.checks import faults_of_result
from agentgym.text.messages import Chat, Messages
from agentgym.text.parsing import Dialect
from agentgym.training.rollout import rollout
from agentgym.world.world import World, has_hook, load_world

# the hooks that `OraclePolicy` needs to play from the chat
SCRIPTED = ("read_task", "read_result", "optimal_calls")
# Maximum number of replies before an episode counts as endless: ten times the longest budget.
MOST_REPLIES = 20_000
_NOISE = 0.3  # error rate of a scripted policy, low enough that most episodes are long
_IDLE = "I would rather not."
_INFO_KEYS = {"turn", "valid", "success", "detail"}
_PLAIN = (str, int, float, bytes, bool, type(None), dict, list, tuple)
_PLAIN_MODULES = ("agentgym.text.messages", "agentgym.text.tools")
# The script redirects stdout, because importing a world's module may print.
_DIGEST = """
import contextlib, importlib, sys
from agentgym.testing.laws import play_lines
with contextlib.redirect_stdout(sys.stderr):
    for module in sys.argv[1].split():
        importlib.import_module(module)
print(*(line for each in sys.argv[2:] for line in play_lines(each)), sep='\\n')
"""


class BrokenLaw(AssertionError):
    """A world violates a law; `line` is Python code that reproduces the violation."""

    def __init__(self, law: str, line: str) -> None:
        self.law, self.line = law, line
        super().__init__(f"{law}\n  reproduce with: {line}")


class EndlessEpisode(BrokenLaw):
    """Episodes of a world do not end, so laws that play whole episodes cannot be checked."""


def require(condition: object, law: str, line: str) -> None:
    """Raise `BrokenLaw` unless a condition holds."""
    if not condition:
        raise BrokenLaw(law, line)


def further_arguments(options: Mapping[str, Any]) -> str:
    """Write options as keyword arguments that follow another argument."""
    return "".join(f", {name}={value!r}" for name, value in options.items())


def make_line(env_id: str, seed: int | None = None, **options: Any) -> str:
    """Return Python code that makes an env, and resets it if a seed is given."""
    line = f"env = agentgym.make({env_id!r}{further_arguments(options)})"
    if seed is not None:
        line += f"; env.reset(seed={seed})"
    return line


def rollout_line(env_id: str, policy: str, seed: int, **options: Any) -> str:
    """Return Python code that plays an episode with a scripted policy."""
    return f"{make_line(env_id, **options)}; rollout({policy}, env, {seed})"


def world_of(env_id: str) -> type[World[Any]]:
    """Return the world class of an env id."""
    return load_world(gymnasium.spec(registry.resolve(env_id)).kwargs["world"])


def erring_policy(env_id: str, p: float = _NOISE) -> ScriptedPolicy:
    """Return a policy that sometimes errs, or a random policy if the world lacks hooks."""
    world = world_of(env_id)
    if all(has_hook(world, hook) for hook in (*SCRIPTED, "legal_calls")):
        return NoisyPolicy(env_id, p)
    return RandomPolicy(env_id)


def check_gymnasium(env_id: str) -> None:
    """Check that Gymnasium's `check_env` passes without a warning."""
    full = registry.resolve(env_id)
    line = f"check_env(agentgym.make({env_id!r}).unwrapped)"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # raised in a finalizer, this warning would print a traceback and nothing else
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            check_env(gymnasium.make(full).unwrapped)
        except (AssertionError, UserWarning, gymnasium.error.Error) as error:
            raise BrokenLaw(f"Gymnasium's check_env failed: {error}", line) from error


def play_lines(env_id: str) -> Iterator[str]:
    """Yield three episodes as JSON, with hints if the world supports hints."""
    world = world_of(env_id)
    hinted = all(has_hook(world, hook) for hook in ("state", "subtask", "read_state", *SCRIPTED))
    env = registry.make(env_id, oracles="SP" if hinted else "", labels=True)
    for seed in range(3):
        yield rollout(erring_policy(env_id, 0.2), env, seed).to_json()


def check_same_bytes(env_ids: Sequence[str]) -> None:
    """Check that episodes with the same seeds are byte-identical in any process."""
    expected = hashlib.sha256()
    for env_id in env_ids:
        for line in play_lines(env_id):
            expected.update(f"{line}\n".encode())
    modules = " ".join({world_of(env_id).__module__ for env_id in env_ids})
    path = os.pathsep.join(filter(None, sys.path))  # the world's module may be in any folder
    for hash_seed in ("0", "4242"):
        played = subprocess.run(
            [sys.executable, "-c", _DIGEST, modules, *env_ids],
            capture_output=True,
            check=False,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
        )
        error = played.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        line = f"list(play_lines({env_ids[0]!r}))  # under PYTHONHASHSEED={hash_seed}"
        require(not played.returncode, f"another process cannot play the world: {error}", line)
        shown = hashlib.sha256(played.stdout.replace(b"\r\n", b"\n"))
        same = shown.digest() == expected.digest()
        require(same, "with the same seeds, another process gives different bytes", line)


def check_global_generators(env_id: str, arms: Iterable[str] = ("",)) -> None:
    """Check that a world leaves the global random generators of Python and NumPy untouched."""
    before = random.getstate(), pickle.dumps(np.random.get_state())  # noqa: NPY002 - it is what must not change
    for arm in arms:
        rollout(erring_policy(env_id), registry.make(env_id, oracles=arm, labels=True), 1)
    registry.make(env_id).action_space.sample()
    after = random.getstate(), pickle.dumps(np.random.get_state())  # noqa: NPY002
    law = "the global generator of random or NumPy was used; draw from self.rng"
    require(after == before, law, rollout_line(env_id, "RandomPolicy(env.spec.id)", 1))


def check_spaces(env_id: str, seeds: Iterable[int] = range(5)) -> None:
    """Check that random play stays within the spaces and that only the last step earns a reward."""
    env, policy = registry.make(env_id), RandomPolicy(env_id)
    offers = has_hook(world_of(env_id), "legal_calls")
    env.action_space.seed(0)
    for value in (None, 3, b"x", ["x"]):
        contained = env.action_space.contains(value) or env.observation_space.contains(value)
        require(not contained, f"a space contains {value!r}", make_line(env_id))
    for seed in seeds:
        chat, info = env.reset(seed=seed)
        line = rollout_line(env_id, "RandomPolicy(env.spec.id)", seed)
        for fault in faults_of_result(env, Chat(), (chat, 0.0, False, False, info)):
            raise BrokenLaw(f"the reset is wrong: {fault}", line)
        turns = tool_env(env).world.max_turns
        whole = turns is None or isinstance(turns, Integral)
        require(whole, f"max_turns is {turns!r}; set it to an integer", line)
        for _ in range(MOST_REPLIES):
            sampled = seed % 2
            action = env.action_space.sample() if sampled else policy([chat])[0].text
            require(env.action_space.contains(action), "an action is not in its space", line)
            chat, paid, terminated, truncated, info = env.step(action)
            over, reward = terminated or truncated, float(paid)
            require(env.observation_space.contains(chat), "a chat is not in its space", line)
            accepted = sampled or not offers or info["valid"]
            require(accepted, f"legal_calls contains a call that is refused: {action}", line)
            for fault in info["detail"].faults:
                cause = f"{fault.exception}: {fault.message}"[:500]
                raise BrokenLaw(f"{fault.tool} raised {cause}", line)
            require(set(info) == _INFO_KEYS, f"info has the keys {sorted(info)}", line)
            if over:
                break
            require(reward == 0.0, "the reward is not 0 before the end", line)
        else:
            law = f"{MOST_REPLIES} replies with calls did not end the episode; set max_turns"
            raise EndlessEpisode(law, line)
        require(0.0 <= reward <= 1.0, f"the score is {reward}, not in [0, 1]", line)


def check_oracle(
    env_id: str, arm: str = "", scope: str = "persistent", seeds: Iterable[int] = range(5)
) -> None:
    """Check that the oracle policy solves every instance with only optimal steps."""
    options: dict[str, Any] = {"oracles": arm, "hint_scope": scope, "labels": True}
    env = registry.make(env_id, **options)
    for seed in seeds:
        line = rollout_line(env_id, "OraclePolicy(env.spec.id)", seed, **options)
        played = rollout(OraclePolicy(env_id), env, seed)
        require(played.reward == 1.0, f"the oracle policy scores {played.reward}", line)
        require(played.terminated, "the oracle policy does not end the episode", line)
        for k, step in enumerate(played.steps):
            for name in ("optimal", "alive", "valid"):
                require(step.info[name], f"step {k} of the oracle policy is not {name}", line)


def check_dialect(env_id: str, dialect: Dialect) -> None:
    """Check that the oracle policy solves the world in a call dialect."""
    policy, env = OraclePolicy(env_id, dialect=dialect), registry.make(env_id, dialect=dialect)
    reward = rollout(policy, env, 0).reward
    made = f"OraclePolicy(env.spec.id, dialect={dialect!r})"
    line = rollout_line(env_id, made, 0, dialect=dialect)
    require(reward == 1.0, f"the oracle policy scores {reward} in dialect {dialect}", line)


def check_doing_nothing(env_id: str, seeds: Iterable[int] = range(3)) -> None:
    """Check that an agent that does nothing scores 0 and that the turn budget ends the episode."""
    env = registry.make(env_id)
    for seed in seeds:
        line = f"{make_line(env_id, seed)}; env.step({_IDLE!r})  # until it ends"
        env.reset(seed=seed)
        for _ in range(MOST_REPLIES):
            _, reward, terminated, truncated, _ = env.step(_IDLE)
            if terminated or truncated:
                break
        else:
            law = f"{MOST_REPLIES} replies without a call did not end the episode; set max_turns"
            raise BrokenLaw(law, line)
        require(reward == 0.0, f"doing nothing scores {reward}", line)
        require(truncated, "doing nothing must end in truncation by the turn budget", line)


def check_copies(env_id: str, arms: Iterable[str] = ("",), shots: int = 0) -> None:
    """Check that snapshots, clones, deep copies and pickles continue identically."""
    policy = erring_policy(env_id)
    for arm in arms:
        env = registry.make(env_id, oracles=arm, shots=shots)
        chat, _ = env.reset(seed=6)
        chat, *_ = env.step(policy([chat])[0].text)
        inner = tool_env(env)
        if inner.over:
            continue
        line = f"{make_line(env_id, 6, oracles=arm)}; copy = agentgym.clone(env)"
        snapshot = inner.snapshot()
        copies = [env, clone(env), copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
        ends = [list(_play_on(each, policy, chat)) for each in copies]
        for name, end in zip(("clone", "deep copy", "pickle"), ends[1:], strict=True):
            require(end == ends[0], f"a {name} continues differently from the original", line)
        worlds = {id(tool_env(each).world) for each in copies}
        require(len(worlds) == len(copies), "a copy shares its world with the original", line)
        if not arm and not shots:
            inner.restore(snapshot)
            again = list(_play_on(env, policy, chat))[:-1]  # also restores the generator
            require(again == ends[0][:-1], "a restored snapshot continues differently", line)


def _play_on(env: gymnasium.Env[Any, Any], policy: Policy, chat: Chat) -> Iterator[Any]:
    over = False
    while not over:
        result = env.step(policy([chat])[0].text)
        chat, over = result[0], result[2] or result[3]
        yield result
    yield env.reset()


def check_plain_data(env_id: str, **options: Any) -> None:
    """Check that observations contain only plain data."""
    env = registry.make(env_id, labels=True, **options)
    line = rollout_line(env_id, "RandomPolicy(env.spec.id)", 2, **options)
    for step in rollout(erring_policy(env_id), env, 2).steps:
        for value in _reachable(step.chat):
            plain = isinstance(value, _PLAIN) or type(value).__module__ in _PLAIN_MODULES
            require(plain, f"a chat contains a {type(value).__name__}", line)
        again = pickle.loads(pickle.dumps(step.chat))
        require(again == step.chat, "a pickled chat differs from the original", line)


def _reachable(value: object) -> Iterator[object]:
    yield value
    children: Iterable[object] = ()
    if is_dataclass(value) and not isinstance(value, type):
        children = [getattr(value, item.name) for item in fields(value)]
    elif isinstance(value, dict):
        children = [*value, *value.values()]
    elif isinstance(value, (list, tuple, Messages)):
        children = list(value)
    for child in children:
        yield from _reachable(child)


def compare_hints(hidden: Any, seen: Any, line: str = "") -> None:
    """Check that a rebuilt world gives the same hints as the original."""
    require(seen.state() == hidden.state(), "state() depends on hidden information", line)
    for flag in (True, False):
        subtask = hidden.subtask(flag)
        require(seen.subtask(flag) == subtask, "subtask() depends on hidden information", line)
        call, best = seen.read_subtask(subtask), hidden.optimal_calls()
        right = call in best if best else call is None
        require(right, f"read_subtask() reads {call} from {subtask!r}", line)
    for name in ("optimal_calls", "legal_calls"):
        shown, actual = getattr(seen, name)() or (), getattr(hidden, name)() or ()
        require(list(shown) == list(actual), f"{name}() depends on hidden information", line)


def _hints_of(world: World[Any]) -> tuple[Any, ...]:
    return world.state(), world.subtask(with_state=True), list(world.optimal_calls() or ())


def check_hints(env_id: str, seeds: Iterable[int] = range(10)) -> int:
    """Check the hints of worlds rebuilt from the chat or `state()`; return the number of checks."""
    policy, compared = RandomPolicy(env_id), 0
    options: dict[str, Any] = {}
    if "budget_slack" in registry.config_schema(env_id)["properties"]:
        options["budget_slack"] = 5
    env = registry.make(env_id, **options)
    for seed in seeds:
        chat, _ = env.reset(seed=seed)
        line = rollout_line(env_id, f"NoisyPolicy(env.spec.id, 0.4, {seed})", seed, **options)
        mixed = NoisyPolicy(env_id, 0.4, seed)
        while not tool_env(env).over:
            hidden, parsed = tool_env(env).world, ParsedChat.of(chat)
            compare_hints(hidden, policy.recall(parsed), line)
            recalled = policy.recall(ParsedChat(parsed.task, {"state": hidden.state()}))
            same = _hints_of(recalled) == _hints_of(hidden)
            require(same, "read_state() loses information from state()", line)
            compared += 1
            unreadable = seed % 5 == 0 and compared % 3 == 0
            chat, *_ = env.step("hm" if unreadable else mixed([chat])[0].text)
    return compared


def check_hints_change_nothing(env_id: str) -> None:
    """Check that requesting hints leaves the world unchanged."""
    env = registry.make(env_id)
    env.reset(seed=4)
    world = tool_env(env).world
    asked: tuple[Callable[[], object], ...] = (
        world.state,
        lambda: world.subtask(with_state=True),
        lambda: world.subtask(with_state=False),
        world.legal_calls,
        lambda: list(world.optimal_calls() or ()),
    )
    before = pickle.dumps(world)
    for ask in asked * 2:
        ask()
    require(pickle.dumps(world) == before, "a hint changes the world", make_line(env_id, 4))


def check_hostile_replies(env_id: str, texts: int = 100, seed: int = 0) -> None:
    """Check that no hostile or random reply violates a law."""
    campaign = Campaign([env_id], texts=texts, seed=seed)
    campaign.run()
    line = f"agentgym fuzz {env_id} --texts {texts} --seed {seed}"
    for finding in campaign.findings:
        cause = finding.text.strip().rpartition("\n")[2]
        raise BrokenLaw(f"{finding.kind}: {cause}", line)


def check_spec(env_id: str, **options: Any) -> None:
    """Check that a JSON spec recreates the env."""
    env = registry.make(env_id, **options)
    line = f"{make_line(env_id, **options)}; EnvSpec.from_json(env.spec.to_json()).make()"
    assert env.spec is not None
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(str(env.spec.to_json())))
    same = again.spec == env.spec and str(again) == str(env)
    require(same, "the spec makes a different env", line)
    require(again.reset(seed=9) == env.reset(seed=9), "the spec makes a different instance", line)
