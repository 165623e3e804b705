"""Compare the CPU times of steps and resets in agentgym and other libraries: `python
benchmarks/peers.py`.

Each library plays the same game (empty a list of 20 numbers in 20 turns) with the same texts,
through its own interface and in its own process. The table shows the best of several alternating
rounds. If libraries have conflicting dependencies, repeat `--python PATH`: the first interpreter
that can import a library plays the game.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TURNS = 20
# The library verifiers plays only a twentieth as many episodes, because its server is slow.
EPISODES = 100
ROUNDS = 8
ENVS = 8

Texts = dict[str, str]
Episode = Callable[[int], tuple[float, float, int]]
"""Play a seeded episode; return the CPU seconds of its reset and steps, and the number of steps."""

_NUMBER = re.compile(r'"id": (\d+)')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="append", default=[sys.executable], metavar="PATH")
    parser.add_argument("--play", choices=list(PEERS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.play:
        serve(options.play)
        return
    players = {name: player for name in PEERS if (player := start(name, options.python))}
    best: dict[str, tuple[float, float]] = {}
    for _ in range(ROUNDS):
        for name, player in players.items():
            reset, step = ask(player, "round")
            least = best.get(name, (reset, step))
            best[name] = min(reset, least[0]), min(step, least[1])
    base = best["agentgym"]
    print("| library | reset, µs | step, µs | reset | step | what a step includes |")
    print("|---|---|---|---|---|---|")
    for name, (reset, step) in best.items():
        figures = f"{reset * 1e6:,.1f} | {step * 1e6:,.1f}" if step else f"{reset * 1e6:,.1f} | -"
        ratios = f"{reset / base[0]:.2f} | {step / base[1]:.2f}" if step else "- | -"
        version = importlib_version(players[name])
        print(f"| {name} {version} | {figures} | {ratios} | {PEERS[name][2]} |")
    for player in players.values():
        player.stdin.close()
        player.wait()


def start(name: str, interpreters: list[str]) -> Any:
    reasons = []
    for python in dict.fromkeys(reversed(interpreters)):
        command = [python, str(Path(__file__)), "--play", name]
        player = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        answer = player.stdout.readline() if player.stdout else ""
        if answer:
            player.version = json.loads(answer)  # type: ignore[attr-defined]
            return player
        error = player.communicate()[1].strip().rpartition("\n")[2]
        reasons.append(error)
    print(f"{name} is left out: {reasons[-1]} (pip install {PEERS[name][0]})", file=sys.stderr)
    return None


def importlib_version(player: Any) -> str:
    return str(player.version)


def ask(player: Any, word: str) -> tuple[float, float]:
    player.stdin.write(word + "\n")
    player.stdin.flush()
    reset, step = json.loads(player.stdout.readline())
    return reset, step


def serve(name: str) -> None:
    package, make, _ = PEERS[name]
    episode = make(texts())
    output = sys.stdout
    sys.stdout = sys.stderr  # some libraries print
    print(json.dumps(importlib.metadata.version(package)), file=output, flush=True)
    count = max(1, EPISODES // (20 if name == "verifiers" else 1))
    episode(0)
    for number, _ in enumerate(sys.stdin):
        played = [episode(1 + number * count + k) for k in range(count)]
        resets, steps, turns = (sum(column) for column in zip(*played, strict=True))
        figures = resets / count, steps / turns if turns else 0.0
        print(json.dumps(figures), file=output, flush=True)


def texts() -> Texts:
    return {
        "opening": (
            "You edit a list of integers, one command per turn, until it equals a target list. "
            "Remove elements with pop, which takes an index into the list as it is now.\n" * 6
        ),
        "reply": '<tool_call>\n{"name": "pop", "arguments": {"id": 0}}\n</tool_call>',
        "answer": "The element has been removed.",
    }


def timed(
    reset: Callable[[int], Any],
    step: Callable[[Any], Any],
    reply: Any,
    clock: Callable[[], float] = time.process_time,
) -> Episode:
    def play(seed: int) -> tuple[float, float, int]:
        start = clock()
        reset(seed)
        middle = clock()
        for _ in range(TURNS):
            step(reply)
        return middle - start, clock() - middle, TURNS

    return play


class Game:
    def __init__(self, said: Texts) -> None:
        self.said = said
        self.items: list[int] = []

    def begin(self, seed: int | None) -> str:
        import random  # noqa: PLC0415 - agentgym has its own

        generator = random.Random(seed)
        self.items = generator.sample(range(10, 100), TURNS)
        return f"{self.said['opening']}{self.items}"

    def play(self, reply: str) -> str:
        match = _NUMBER.search(reply)
        if match is None or int(match[1]) >= len(self.items):
            return "error: the list has no such index"
        del self.items[int(match[1])]
        return self.said["answer"]


def agentgym(said: Texts) -> Episode:
    import gymnasium  # noqa: PLC0415

    importlib.import_module("agentgym")
    env = gymnasium.make("agentgym/ListWorld-v0", items=TURNS, removals=TURNS)
    return timed(lambda seed: env.reset(seed=seed), env.step, said["reply"])


def gem(said: Texts) -> Episode:
    from gem.core import Env  # type: ignore[import-not-found]  # noqa: PLC0415
    from gem.wrappers.wrapper_factory import (  # type: ignore[import-not-found]  # noqa: PLC0415
        WRAPPER_FACTORY,
    )

    class ListGame(Env):  # type: ignore[misc]
        def __init__(self) -> None:
            self.game = Game(said)

        def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
            super().reset(seed)
            return self.game.begin(seed), {}

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            return self.game.play(action), 0.0, False, False, {}

    env = WRAPPER_FACTORY["concat_with_action"](ListGame())
    return timed(lambda seed: env.reset(seed=seed), env.step, said["reply"])


def textarena(said: Texts) -> Episode:
    import textarena as ta  # type: ignore[import-not-found]  # noqa: PLC0415

    class ListGame(ta.Env):  # type: ignore[misc]
        def __init__(self) -> None:
            self.game = Game(said)

        def reset(self, num_players: int, seed: int | None = None) -> None:
            self.state = ta.SinglePlayerState(num_players=num_players, seed=seed, max_turns=100)
            opening = self.game.begin(seed)
            self.state.reset(
                game_state={}, player_prompt_function=lambda player_id, game_state: opening
            )

        def step(self, action: str) -> Any:
            kinds = ta.ObservationType
            self.state.add_observation(
                from_id=0, to_id=-1, message=action, observation_type=kinds.PLAYER_ACTION
            )
            answer = self.game.play(action)
            self.state.add_observation(message=answer, observation_type=kinds.GAME_MESSAGE)
            return self.state.step()

    env = ta.wrappers.LLMObservationWrapper(ListGame())

    def reset(seed: int) -> None:
        env.reset(num_players=1, seed=seed)
        env.full_observations = {}  # the wrapper keeps observations of earlier episodes
        env.get_observation()

    def step(action: str) -> None:
        env.step(action=action)
        env.get_observation()

    return timed(reset, step, said["reply"])


def openenv(said: Texts) -> Episode:
    from openenv.core.env_server import (  # type: ignore[import-not-found]  # noqa: PLC0415
        Action,
        Environment,
        Observation,
        State,
    )

    class Reply(Action):  # type: ignore[misc]
        text: str

    class Shown(Observation):  # type: ignore[misc]
        messages: list[dict[str, str]]

    class ListGame(Environment):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.game = Game(said)

        def reset(self, seed: int | None = None, **_: Any) -> Shown:
            self.count = 0
            self.messages = [{"role": "user", "content": self.game.begin(seed)}]
            return Shown(messages=list(self.messages))

        def step(self, action: Reply, **_: Any) -> Shown:
            self.count += 1
            answer = self.game.play(action.text)
            self.messages.append({"role": "assistant", "content": action.text})
            self.messages.append({"role": "user", "content": answer})
            return Shown(messages=list(self.messages), reward=0.0)

        @property
        def state(self) -> State:
            return State(step_count=self.count)

    env = ListGame()
    return timed(
        lambda seed: env.reset(seed=seed), lambda text: env.step(Reply(text=text)), said["reply"]
    )


def gymnasium_vector(mode: str) -> Callable[[Texts], Episode]:
    def make(said: Texts) -> Episode:
        import gymnasium as gym  # noqa: PLC0415

        class ListGame(gym.Env[str, str]):
            observation_space = action_space = gym.spaces.Text(10**6)

            def __init__(self) -> None:
                self.game = Game(said)

            def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
                super().reset(seed=seed)
                self.text = self.game.begin(seed)
                return self.text, {}

            def step(self, action: str) -> Any:
                self.text = f"{self.text}\n{action}\n{self.game.play(action)}"
                return self.text, 0.0, False, False, {}

        extra = {"shared_memory": False} if mode == "AsyncVectorEnv" else {}
        envs = getattr(gym.vector, mode)([ListGame] * ENVS, **extra)
        # The CPU time of other processes is unknown here, so async envs are measured in wall time.
        clock = time.perf_counter if mode == "AsyncVectorEnv" else time.process_time
        replies = [said["reply"]] * ENVS
        episode = timed(lambda seed: envs.reset(seed=seed), envs.step, replies, clock)

        def play(seed: int) -> tuple[float, float, int]:
            reset, steps, turns = episode(seed)
            return reset / ENVS, steps, turns * ENVS

        return play

    return make


def reasoning_gym(said: Texts) -> Episode:
    import reasoning_gym as rg  # type: ignore[import-not-found]  # noqa: PLC0415

    dataset = rg.create_dataset("basic_arithmetic", seed=1, size=10**6)

    def play(seed: int) -> tuple[float, float, int]:
        start = time.process_time()
        item = dataset[seed]
        middle = time.process_time()
        dataset.score_answer("17", item)
        return middle - start, time.process_time() - middle, 1

    return play


def verifiers(said: Texts) -> Episode:
    import asyncio  # noqa: PLC0415
    import threading  # noqa: PLC0415
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # noqa: PLC0415

    import verifiers.v1 as vf  # type: ignore[import-not-found]  # noqa: PLC0415

    from agentgym.training.integrations.verifiers import load_environment  # noqa: PLC0415

    message = {"role": "assistant", "content": said["reply"]}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    choices = [{"index": 0, "finish_reason": "stop", "message": message}]
    answer = json.dumps({**body, "choices": choices}).encode()

    class Model(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    client = vf.EvalClientConfig(base_url=url, api_key_var="AGENTGYM_BENCH_KEY")
    # The player never calls `done`, so the turn budget (removals plus one) ends the episode.
    size = TURNS - 1
    options: dict[str, Any] = {"items": size, "removals": size, "budget_factor": 1.0}
    options["budget_slack"] = 0

    async def rollout(seed: int) -> Any:
        env = load_environment("ListWorld", range(seed, seed + 1), **options)
        async with env.serving():
            model = vf.ModelContext(model="m", client=client)
            (slot,) = [slot for task in env.taskset.take(1) for slot in env.slots(task, 1)]
            start = time.process_time()
            episode = await env.run_slot(slot, model)
            return time.process_time() - start, episode.traces[0]

    def play(seed: int) -> tuple[float, float, int]:
        start = time.process_time()
        seconds, trace = asyncio.run(rollout(seed))
        if not trace.ok:
            raise RuntimeError(f"the verifiers rollout failed: {trace.errors}")
        return time.process_time() - start - seconds, seconds, TURNS

    return play


_HISTORY = "regular expression, history as one text"
# Each library's package, player and description of a step.
PEERS: dict[str, tuple[str, Callable[[Texts], Episode], str]] = {
    "agentgym": (
        "agentgym",
        agentgym,
        "calls parsed and checked against schemas, chat of messages",
    ),
    "gem": ("gem-llm", gem, _HISTORY),
    "TextArena": ("textarena", textarena, _HISTORY),
    "OpenEnv": ("openenv", openenv, "pydantic action and observation, list of messages; no server"),
    "Gymnasium SyncVectorEnv": ("gymnasium", gymnasium_vector("SyncVectorEnv"), _HISTORY),
    "Gymnasium AsyncVectorEnv": (
        "gymnasium",
        gymnasium_vector("AsyncVectorEnv"),
        f"{_HISTORY}; in processes, wall time",
    ),
    "reasoning-gym": ("reasoning-gym", reasoning_gym, "one turn: item drawn, answer scored"),
    "verifiers": (
        "verifiers",
        verifiers,
        "ListWorld in a rollout over HTTP, model server included",
    ),
}


if __name__ == "__main__":
    main()
