from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf, isinf, isnan, log10
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from agentgym.cli import app
from agentgym.play.policy import PolicyError
from agentgym.training.evaluation.leagues import (
    League,
    LeagueGame,
    Outcome,
    league_ratings,
    league_tables,
    mean_points,
    play_league,
    ratings,
)
from agentgym.training.evaluation.study_folder import log_of
from agentgym.training.rollout import OtherRunError, PolicyConfig

# Strengths in log-odds, number of instances, effect of instances, first-seat advantage, and draw
# width.
POPULATIONS = {
    "independent games": ((0, 0.5, 1, 1.5), 30, 0.0, 0.0, 0.0),
    "strong instances and draws": ((0, 0.5, 1, 1.5), 30, 1.0, 0.5, 0.7),
    "distant players": ((0, 1, 2, 3, 4), 20, 0.5, 1.0, 0.5),
    "few instances": ((0, 0.4), 12, 0.0, 0.0, 2.0),
}


def simulate(
    rng: np.random.Generator,
    strengths: Sequence[float],
    instances: int,
    effect: float,
    seat: float,
    width: float,
) -> Iterator[tuple[int, int, np.ndarray]]:
    shifts = rng.normal(0, effect, (instances, len(strengths)))
    for one, two in np.ndindex(len(strengths), len(strengths)):
        if one != two:
            gap = strengths[one] - strengths[two] + seat + rng.logistic(size=instances)
            gap += shifts[:, one] - shifts[:, two]
            yield one, two, np.where(np.abs(gap) <= width, 0.5, gap > 0)


def zermelo(points: np.ndarray, games: np.ndarray) -> np.ndarray:
    """Return Elo ratings from points per pair by Zermelo's (1929) fixed-point iteration, which
    shares no code with `ratings`.
    """
    strength = np.ones(len(points))
    for _ in range(5_000):
        strength = points.sum(1) / (games / (strength[:, None] + strength)).sum(1)
        strength = strength / strength[0]
    return np.array([400 * log10(each) for each in strength])


@pytest.mark.parametrize("name", POPULATIONS)
def test_95_of_100_intervals_contain_the_rating(name: str) -> None:
    strengths, instances, *rest = POPULATIONS[name]
    count = len(strengths)
    points = np.zeros((count, count))
    for one, two, scores in simulate(np.random.default_rng(99), strengths, 50_000, *rest):
        points[one, two] += scores.mean()
        points[two, one] += 1 - scores.mean()
    truth = zermelo(points, 2 * (1 - np.eye(count)))
    inside = []
    for seed in range(200):
        outcomes = [
            Outcome(one, two, score, str(number))
            for one, two, scores in simulate(
                np.random.default_rng(seed), strengths, instances, *rest
            )
            for number, score in enumerate(scores.tolist())
        ]
        rated = ratings(outcomes, count)[1:]
        inside += [
            each.low <= value <= each.high for each, value in zip(rated, truth[1:], strict=True)
        ]
    # The tolerance is four standard errors, counting each simulation as one observation.
    assert abs(np.mean(inside) - 0.95) < 4 * (0.95 * 0.05 / 200) ** 0.5


def test_the_ratings_are_those_of_zermelo_with_an_imaginary_draw_per_pair() -> None:
    rng = np.random.default_rng(1)
    outcomes = []
    points, games = np.zeros((4, 4)), np.zeros((4, 4))
    for number in range(40):
        one, two = rng.choice(4, 2, replace=False).tolist()
        score = float(rng.choice([0, 0.5, 1]))
        outcomes.append(Outcome(one, two, score, str(number)))
        points[one, two] += score
        points[two, one] += 1 - score
        games[one, two] += 1
        games[two, one] += 1
    met = games > 0
    expected = zermelo(points + met / 2, games + met)
    assert [each.value for each in ratings(outcomes, 4)] == pytest.approx(expected, abs=1e-3)


WINS = [Outcome(1, 0, 1.0, str(k)) for k in range(20)]


@pytest.mark.parametrize(
    ("outcomes", "bounded"),
    [
        (WINS, (True, False)),
        ([each._replace(score=0.0) for each in WINS], (False, True)),
        ([each._replace(score=0.5) for each in WINS], (True, True)),
        # Player 1 won all games against players 0 and 2, so player 1's rating has no upper bound.
        ([*WINS, *(Outcome(1, 2, 1.0, str(k)) for k in range(20))], (True, False)),
        ([*WINS, Outcome(0, 2, 1.0, "0"), Outcome(2, 1, 0.5, "1")], (True, True)),
        ([Outcome(2, 1, 1.0, str(k)) for k in range(20)], (False, False)),
        ([], (False, False)),
    ],
)
def test_a_side_is_bounded_if_a_chain_of_results_bounds_it(
    outcomes: list[Outcome], bounded: tuple[bool, bool]
) -> None:
    rated = ratings(outcomes, 3)[1]
    assert (not isinf(rated.low), not isinf(rated.high)) == bounded
    met = any(0 in each[:2] for each in outcomes)
    assert isnan(rated.value) != met
    if met:
        assert rated.low < rated.value < rated.high


@pytest.mark.parametrize("pair", [(0, 0), (0, 2), (-1, 0)])
def test_players_that_do_not_exist_or_meet_themselves_are_rejected(pair: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="two different player numbers from 0 to 1"):
        ratings([Outcome(*pair, 1.0, "0")], 2)


def test_one_instance_bounds_nothing() -> None:
    rated = ratings([Outcome(1, 0, 0.5, "same") for _ in range(50)], 2)[1]
    assert (rated.low, rated.value, rated.high) == (-inf, pytest.approx(0.0), inf)


STRENGTHS = ("noisy:p=0.9", "noisy:p=0.5", "noisy:p=0.2", "oracle")


def league(*names: str, episodes: int = 12, **options: Any) -> League:
    return League(
        world="PursuitWorld-match",
        policies=[PolicyConfig(name) for name in names],
        episodes=episodes,
        options={"size": 4, **options},
    )


def test_a_league_ranks_scripted_strengths(tmp_path: Path) -> None:
    played = league(*STRENGTHS, episodes=16)
    rated = list(league_ratings(played, play_league(played, tmp_path)).values())
    assert [each.value for each in rated] == sorted(each.value for each in rated)
    for weaker, stronger in pairwise(rated):
        assert weaker.high < stronger.value


def test_a_killed_league_resumes_and_grows(tmp_path: Path) -> None:
    small, large = league(*STRENGTHS[:2], episodes=6), league(*STRENGTHS[:3], episodes=7)
    whole = play_league(large, tmp_path / "whole")
    count = 0

    def kill(games: int) -> None:
        nonlocal count
        count += games
        if count > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play_league(small, tmp_path / "cut", kill)
    begun = len(list(log_of(tmp_path / "cut")))
    assert 10 < begun + 1 < len(small.line_ups()) * small.episodes
    play_league(small, tmp_path / "cut")
    assert play_league(large, tmp_path / "cut") == whole
    assert len(list(log_of(tmp_path / "cut"))) == len(whole) == 9 * 7


@pytest.mark.parametrize(
    "other",
    [
        league("oracle", "random", catches=1),
        League(
            policies=[PolicyConfig("oracle"), PolicyConfig("noisy:p=0.1", label="random")],
            options={"size": 4},
        ),
    ],
)
def test_games_of_another_league_are_refused(tmp_path: Path, other: League) -> None:
    play_league(league("oracle", "random", episodes=1), tmp_path)
    with pytest.raises(OtherRunError, match="choose another folder"):
        play_league(other, tmp_path)


def test_a_seat_that_ends_a_match_by_nonsense_loses(tmp_path: Path) -> None:
    nonsense = f"{__name__}:mumble"
    played = league("oracle", nonsense, wall_density=0.0)
    games = play_league(played, tmp_path)
    points = []
    for game in games:
        if opponents := game.opponents():
            one, _, score = opponents
            points.append(score if one == "oracle" else 1 - score)
    # If every catch takes one move, the evader never moves and the match is a draw.
    assert min(points) >= 0.5 > 1 - fmean(points) > 0
    assert any(game.won == (True, False) for game in games)
    for trajectory in log_of(tmp_path):
        if trajectory.labels["line_up"] == ["oracle", nonsense] and trajectory.truncated:
            assert trajectory.outcomes() == {"pursuer_0": "won", "evader_0": "lost"}
    assert league_ratings(played, games)[nonsense].high < 0


def mumble(chat: Any) -> str:
    """Write no call."""
    return "hm"


@pytest.mark.parametrize(
    ("won", "scores"),
    [
        ((True, False), (1.0, 0.0)),
        ((True, True), (0.5, 0.5)),
        ((False, False), (0.5, 0.5)),
        ((True, False, True), (0.5, 0.0, 0.5)),
    ],
)
def test_several_winners_draw(won: tuple[bool, ...], scores: tuple[float, ...]) -> None:
    line_up = ("a", *"b" * (len(won) - 1))
    game = LeagueGame(line_up, 0, "", (0.0,) * len(won), won)
    assert tuple(map(game.score, range(len(won)))) == scores
    assert game.opponents() == ("a", "b", scores[0])
    assert game._replace(line_up=("a",) * len(won)).opponents() is None


def test_points_against_an_opponent_need_a_complete_game() -> None:
    def silent(chats: Sequence[Any]) -> list[str]:
        raise PolicyError("its server is down")

    with pytest.raises(RuntimeError, match=r"none of 2 episodes .* its server is down"):
        mean_points(silent, silent, "PursuitWorld-match", range(2))


def test_the_tables_show_each_seat(tmp_path: Path) -> None:
    played = league("noisy:p=0.5", "oracle", episodes=8)
    games = play_league(played, tmp_path)
    ranking, pursuer, evader = league_tables(played, games)
    assert [row[0] for row in ranking[2]] == ["oracle", "noisy:p=0.5"]
    assert pursuer[1] == ["pursuer_0", "vs noisy:p=0.5", "vs oracle"]
    # With perfect play, every game is a draw.
    assert pursuer[2][1][2] == evader[2][1][2] == "1.00 (0-8-0)"
    against = [game for game in games if game.line_up == ("noisy:p=0.5", "oracle")]
    lost = sum(game.rewards[0] < game.rewards[1] for game in against)
    assert evader[2][1][1].endswith(f"({lost}-{8 - lost}-0)")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "oracle"], "at least two policies"),
        (["--policy", "oracle", "--policy", "oracle"], "names two policies"),
        (["--world", "ListWorld"], "ListWorld has one agent"),
        (["--set", "size=99"], "size"),
    ],
)
def test_the_command_rejects(tmp_path: Path, arguments: list[str], message: str) -> None:
    shown = CliRunner().invoke(app, ["league", *arguments, "--out", str(tmp_path / "league")])
    assert shown.exit_code == 2
    assert message in shown.output
    assert not (tmp_path / "league").exists()


def test_the_command_prints_ratings_and_cross_play(tmp_path: Path) -> None:
    arguments = ["league", "--set", "size=3", "--episodes", "3", "--out", str(tmp_path)]
    first, second = (CliRunner().invoke(app, arguments) for _ in range(2))
    assert first.exit_code == 0
    assert "Elo points above random" in first.output
    assert "vs noisy:p=0.2" in first.output
    assert first.output.splitlines()[-20:] == second.output.splitlines()[-20:]
