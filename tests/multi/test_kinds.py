from __future__ import annotations

from typing import Any

import pytest

from agentgym import aec_env, make
from agentgym.envs.agentlongbench.hosting import object_to, reply_to, write_question
from agentgym.multi.game import Game
from agentgym.oracles import OraclePolicy, TeamPolicy
from agentgym.oracles.teams import _TeamReading
from agentgym.training.rollout import rollout
from tests.multi.team_checks import call, cycle, newest


def test_a_sub_task_begins_with_a_clean_context_and_the_manager_reads_the_report_only() -> None:
    env = make("DocumentWorld-manager").unwrapped
    env.reset(seed=0)
    game = env.game
    assert game.due == ["manager_0"]
    length = len(game.chats["manager_0"].messages)
    start = game.chats["manager_0"].messages[1].text.partition(": ")[2].split(".")[0].split(", ")[0]
    for number in range(3):
        cycle(game, call("delegate", task=f"Sub-task {number}: read {start}"))
        assert game.due == ["worker_0"]
        assert [m.role for m in game.chats["worker_0"].messages] == ["system", "user"]
        assert game.chats["worker_0"].messages[1].text == f"Sub-task {number}: read {start}"
        for _ in range(2):
            cycle(game, call("read_document", file_id=start))
            assert game.due == ["worker_0"]
        assert len(game.chats["manager_0"].messages) == length + 2, "the call and its answer"
        cycle(game, call("report", text=f"Report {number}"))
        assert game.due == ["manager_0"]
        length += 3
        assert len(game.chats["manager_0"].messages) == length
        assert newest(game, "manager_0") == f"worker_0 reports (8 characters):\nReport {number}"
    assert game.team.worlds["manager_0"].turn == 6, "delegating and reporting take no turn"


def test_the_contexts_of_a_managed_team_stay_short() -> None:
    options = {"operations": 40}
    alone = rollout(TeamPolicy("DocumentWorld"), make("DocumentWorld", **options), 0)
    led = rollout(TeamPolicy("DocumentWorld-manager"), make("DocumentWorld-manager", **options), 0)
    assert alone.reward == led.reward == 1.0
    longest = max(len(step.chat.messages) for step in led.steps if step.info["agent"] == "worker_0")
    assert longest <= 2 + 2 * 8 < len(alone.last.messages) / 4


def test_several_workers_take_sub_tasks_and_more_are_refused() -> None:
    env = make(
        "DocumentWorld-manager",
        max_calls_per_turn=16,
        roles={"manager": ["submit"], "worker_0": ["read_document"], "worker_1": ["read_document"]},
    )
    env.reset(seed=0)
    game = env.unwrapped.game
    cycle(game, "".join(call("delegate", task=task) for task in ("one", "two", "three")))
    told = [m.text for m in game.chats["manager_0"].messages[-3:]]
    assert told[:2] == ["worker_0 works on it.", "worker_1 works on it."]
    assert told[2] == "error: no worker is free; wait for a report"
    assert game.due == ["worker_0", "worker_1"]
    cycle(game, call("report", text="done"), call("read_document", file_id="x"))
    assert game.due == ["manager_0", "worker_1"], "the manager may go on while the other works"
    for text, error in (
        ("", "the sub-task is empty"),
        ("x" * 16_385, "a sub-task may have at most 16384 characters, got 16385"),
    ):
        game.play("manager_0", call("delegate", task=text))
        assert error in newest(game, "manager_0")
        game.play("worker_1", call("wait"))
        game.end_cycle()


def hosted(seed: int = 0, **options: Any) -> Game:
    env = make("PuzzleWorld-host", **{"items": 20, "hidden": 1, **options}).unwrapped
    env.reset(seed=seed)
    game: Game = env.game
    return game


def profile(world: Any, place: int) -> dict[str, tuple[Any, ...]]:
    names = [section.name for section in world.table.sections]
    return {name: column[place] for name, column in zip(names, world.table.columns, strict=True)}


def verdicts(world: Any, guess: int, target: int) -> str:
    # Compute the correct answer from the table.
    lines = []
    mine, theirs = profile(world, guess), profile(world, target)
    for section in world.table.sections:
        told = []
        for value in mine[section.name]:
            mark = "correct" if value in theirs[section.name] else "wrong"
            if section.numeric and mark == "wrong":
                mark += ", too low" if value < theirs[section.name][0] else ", too high"
            told.append(f"{value} ({mark})")
        lines.append(f"  - {section.name}: {'; '.join(told)}")
    return "\n".join(lines)


@pytest.mark.parametrize("knowledge", ["free", "intensive"])
@pytest.mark.parametrize("source", ["species", "synthetic"])
def test_the_referee_takes_the_right_verdicts_and_no_others(knowledge: str, source: str) -> None:
    world: Any = hosted(knowledge=knowledge, source=source, items=30).team.worlds["guesser_0"]
    for guess in range(len(world.table)):
        right = verdicts(world, guess, world.target)
        named = {"name": world.table.names[guess]}
        assert reply_to(write_question(world.table, world.target, "guess", named)) == right
        result = f"Round 2: Guess x\nSections:\n{world.table.feedback(guess, world.target)}\nResult: wrong\nRemaining rounds: 3"
        lines = right.split("\n")
        assert object_to(right, result) == object_to("\n".join(lines[::-1]), result) == ""
        others = [verdicts(world, guess, other) for other in range(0, len(world.table), 7)]
        spoilt = ["", "yes", right.replace("correct", "right"), "\n".join(lines[1:])]
        for text in (*others, *spoilt, f"{right}\n  - Extra: 1 (wrong)"):
            assert bool(object_to(text, result)) == (text != right)


def test_the_host_sees_the_question_and_not_the_task_and_the_guesser_no_profile() -> None:
    game = hosted()
    world: Any = game.team.worlds["guesser_0"]
    target = world.table.names[world.target]
    assert [tool.name for tool in game.chats["guesser_0"].tools] == ["query_items", "guess", "ask"]
    assert [tool.name for tool in game.chats["host_0"].tools] == ["answer"]
    assert game.due == ["guesser_0"]
    guess = next(k for k in range(20) if k != world.target)
    cycle(game, call("guess", name=world.table.names[guess]))
    assert newest(game, "guesser_0") == "host_0 is asked."
    assert game.due == ["host_0"]
    assert [m.role for m in game.chats["host_0"].messages] == ["system", "user"]
    assert "Puzzle 1 of" not in game.chats["host_0"].to_text()
    cycle(game, call("answer", text=verdicts(world, guess, world.target)))
    assert newest(game, "guesser_0").startswith("host_0 answers:\nRound 2: Guess ")
    assert "Sections of the hidden item" not in game.chats["guesser_0"].to_text()
    assert game.due == ["guesser_0"]
    assert world.turn == 1, "the answer takes no turn"
    cycle(game, call("guess", name=target))
    assert not game.over, "the host has to answer first"
    cycle(game, call("answer", text=verdicts(world, world.target, world.target)))
    assert game.over
    assert game.terminated
    assert game.rewards == {"guesser_0": 1.0, "host_0": 1.0}


def test_a_wrong_answer_is_not_passed_on_and_costs_the_host_its_reward() -> None:
    game = hosted()
    world: Any = game.team.worlds["guesser_0"]
    cycle(game, call("guess", name=world.table.names[world.target]))
    length = len(game.chats["guesser_0"].messages)
    cycle(game, call("answer", text="  - nonsense"))
    assert newest(game, "host_0").startswith("The referee: there is no line on section ")
    assert newest(game, "host_0").endswith(" Fault 1 of 3.")
    assert (len(game.chats["guesser_0"].messages), game.due) == (length, ["host_0"])
    cycle(game, call("answer", text=verdicts(world, world.target, world.target)))
    assert game.over
    assert game.rewards == {"guesser_0": 1.0, "host_0": 0.0}
    assert game.infos["host_0"]["detail"].report["team"]["faults"] == 1


def test_the_third_wrong_answer_ends_the_episode() -> None:
    game = hosted()
    world: Any = game.team.worlds["guesser_0"]
    section = next(section.name for section in world.table.sections if not section.numeric)
    values = [profile(world, world.target)[section][0]]
    cycle(game, call("ask", condition={"type": "value", "section": section, "values": values}))
    answers = {"no": "the answer to the question is wrong", "perhaps": "yes or no", "No.": "wrong"}
    for number, (said, told) in enumerate(answers.items(), 1):
        assert not game.over
        cycle(game, call("answer", text=said))
        assert told in newest(game, "host_0")
        assert newest(game, "host_0").endswith(f"Fault {number} of 3.")
    assert game.over
    assert game.terminated
    assert game.infos["guesser_0"]["detail"].ended == "referee"
    assert game.rewards == {"guesser_0": 0.0, "host_0": 0.0}


def test_questions_are_answered_and_believed() -> None:
    # Test every condition on every section against a scan of the table.
    policy = TeamPolicy("PuzzleWorld-host")
    for seed in range(4):
        game = hosted(seed, budget_slack=400, max_cycles=10_000)
        world: Any = game.team.worlds["guesser_0"]
        own = profile(world, world.target)
        conditions: list[tuple[dict[str, Any], bool]] = []
        for section in world.table.sections:
            name, mine = section.name, own[section.name]
            values = {value for k in range(len(world.table)) for value in profile(world, k)[name]}
            for value in sorted(values)[:4]:
                if section.numeric:
                    base = {"type": "numeric", "section": name, "threshold": value}
                    signs = {">": mine[0] > value, "<": mine[0] < value, "==": mine[0] == value}
                    conditions += [({**base, "comparator": s}, true) for s, true in signs.items()]
                else:
                    base = {"type": "value", "section": name, "values": [value]}
                    conditions.append((base, value in mine))
                    conditions.append(({**base, "exclude": True}, value not in mine))
        for condition, true in conditions:
            cycle(game, call("ask", condition=condition))
            assert reply_to(game.chats["host_0"].messages[1].text) == ("yes" if true else "no")
            cycle(game, policy([game.chats["host_0"]])[0].text)
            assert newest(game, "guesser_0") == f"host_0 answers:\n{'yes' if true else 'no'}"
            view = _TeamReading(game.chats["guesser_0"])
            view.read(game.chats["guesser_0"])
            seen = policy.player.recall(view.parsed(game.chats["guesser_0"]))
            assert seen.state() == world.state()
        assert world.table.meet([a for c in world.belief.conditions() for a in _atoms(c)])[
            world.target
        ], "what is believed is true"
        while not game.over:
            for agent in list(game.due):
                game.play(agent, policy([game.chats[agent]])[0].text)
            game.end_cycle()
        assert game.score == 1.0


def _atoms(condition: dict[str, Any]) -> list[Any]:
    if condition["type"] == "numeric":
        return [(condition["section"], condition["comparator"], condition["threshold"])]
    return [
        (condition["section"], "lacks" if condition.get("exclude") else "has", value)
        for value in condition["values"]
    ]


@pytest.mark.parametrize(
    "condition",
    [
        {},
        3,
        {"type": "value"},
        {"type": "value", "section": "x", "values": ["y"]},
        {"type": "numeric", "section": []},
        {"type": "value", "section": "Type", "values": [3]},
        {"type": "value", "section": "Type", "values": [{}]},
    ],
)
def test_malformed_questions_are_refused(condition: Any) -> None:
    game = hosted()
    game.play("guesser_0", call("ask", condition=condition))
    assert newest(game, "guesser_0").startswith("error: ")
    assert game.team.question == ""
    game.end_cycle()
    assert game.due == ["guesser_0"]


def test_a_host_speaks_when_asked_and_only_hosted_worlds_have_one() -> None:
    game = hosted()
    game.team.idle.discard("host_0")
    game.end_cycle()
    game.play("host_0", call("answer", text="yes"))
    assert newest(game, "host_0") == "error: there is no open question to answer"
    with pytest.raises(ValueError, match=r"ListWorld cannot be hosted: it must implement agentgym"):
        Game("agentgym.envs.lumina.list_world:ListWorld", team="host")
    with pytest.raises(
        ValueError, match="the roles of a hosted game are fixed: guesser_0 and host"
    ):
        make("PuzzleWorld-host", roles={"a": [], "b": []})


def test_a_long_hosted_game_goes_from_puzzle_to_puzzle() -> None:
    trajectory = rollout(
        TeamPolicy("PuzzleWorld-host"), make("PuzzleWorld-host", items=12, hidden=2, puzzles=2), 3
    )
    assert trajectory.reward == 1.0
    assert trajectory.terminated


def test_a_duel_is_on_equal_instances_and_the_quicker_one_wins() -> None:
    for winner in ("player_0", "player_1"):
        env = aec_env("PuzzleWorld-duel", items=20)
        env.reset(seed=3)
        worlds = env.game.team.worlds
        one, two = worlds["player_0"], worlds["player_1"]
        assert one is not two
        assert (one.table.names, one.target) == (two.table.names, two.target)
        assert one.task() == two.task()
        policy, earned = OraclePolicy("PuzzleWorld"), {}
        for agent in env.agent_iter():
            chat, reward, terminated, truncated, info = env.last()
            earned[agent] = reward
            late = agent != winner and len(chat.messages) == 2
            env.step(None if terminated or truncated else "hm" if late else policy([chat])[0].text)
        assert earned == {agent: float(agent == winner) for agent in worlds}
        assert info["detail"].ended == "world"
        assert one.turn == two.turn, "both were asked in the last cycle"


def test_rivals_that_are_equal_share_and_one_that_is_out_is_asked_no_more() -> None:
    env = make("PuzzleWorld-duel")
    assert rollout(OraclePolicy("PuzzleWorld"), env, 0).reward == 1.0
    assert env.unwrapped.game.rewards == {"player_0": 0.5, "player_1": 0.5}
    env = make("PuzzleWorld-duel", items=20, hidden=1, rounds=2).unwrapped
    env.reset(seed=0)
    game = env.game
    world: Any = game.team.worlds["player_0"]
    wrong = [name for name in world.table.names if name != world.table.names[world.target]]
    cycle(game, call("guess", name=wrong[0]), "hm")
    assert world.done
    assert game.due == ["player_1"]
    cycle(game, call("guess", name=world.table.names[world.target]))
    assert game.rewards == {"player_0": 0.0, "player_1": 1.0}
    assert game.score == 1.0
