"""Leagues, in which each policy plays every seat of a team."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import isinf, isnan
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, NamedTuple
from zlib import crc32

from gymnasium.envs.registration import EnvSpec
from pydantic import Field

from agentgym.assemble.registry import is_team, resolve, spec
from agentgym.play.policy import Policy
from agentgym.training.evaluation.leagues.ratings import Outcome, ratings
from agentgym.training.evaluation.provenance import difference, provenance
from agentgym.training.evaluation.scoring import without_failures
from agentgym.training.evaluation.statistics import Interval
from agentgym.training.evaluation.study_folder import log_of
from agentgym.training.evaluation.tables import Table
from agentgym.training.rollout import (
    EnvLike,
    OtherRunError,
    PolicyConfig,
    PolicyLike,
    RunLock,
    Trajectory,
    collect,
)
from agentgym.training.rollout.engines.base import factory_of
from agentgym.training.rollout.seat_policies import agents_of
from agentgym.training.rollout.storage import check_settings, read_json, write_text
from agentgym.world.config import Config

SETTINGS = "league.json"
# Policy names by seat, in turn order.
LineUp = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class League(Config):
    """Settings of a league of at least two policies; ratings are relative to the first policy.

    Attributes:
        world: The id of a team.
        episodes: The number of instances; every line-up plays all of them.
        options: Keyword arguments of the team and its world.
    """

    world: str = "PursuitWorld-match"
    policies: Sequence[PolicyConfig] = field(
        default_factory=lambda: [PolicyConfig("random"), PolicyConfig("oracle")]
    )
    episodes: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.names
        if len(names) < 2 or len(set(names)) < len(names):
            raise ValueError(
                f"a league needs at least two policies with different names, got {', '.join(names)}"
            )
        if not is_team(resolve(self.world)):
            raise ValueError(f"{self.world} has one agent; name a team, such as RaceWorld-match")
        for policy in self.policies:
            if not policy.is_model:
                policy.make(self.world)

    @property
    def names(self) -> list[str]:
        """Return the policy names, as shown in tables."""
        return [policy.column for policy in self.policies]

    def spec(self) -> EnvSpec:
        """Return the env's spec."""
        return spec(self.world, **self.options)

    def seats(self) -> tuple[str, ...]:
        """Return the team's agents in turn order."""
        return seats_of(self.spec())

    def line_ups(self) -> list[LineUp]:
        """Return all line-ups with one policy in one seat and one policy in all others."""
        seats = len(self.seats())
        line_ups: dict[LineUp, None] = {}
        for seat, one, others in product(range(seats), self.names, self.names):
            line_up = [others] * seats
            line_up[seat] = one
            line_ups[tuple(line_up)] = None
        return list(line_ups)


class LeagueGame(NamedTuple):
    """The outcome of an episode, with each seat's policy, reward and result.

    Attributes:
        instance: The digest of the instance; seeds of small worlds may share an instance.
        won: Whether each seat won. If the team names no winners, the seats with the largest reward
            win.
    """

    line_up: LineUp
    seed: int
    instance: str
    rewards: tuple[float, ...]
    won: tuple[bool, ...]

    def score(self, seat: int) -> float:
        """Return 1 if only this seat wins, 0 if only others win, else 0.5."""
        others = any(self.won[:seat] + self.won[seat + 1 :])
        return (1 + self.won[seat] - others) / 2

    def opponents(self) -> tuple[str, str, float] | None:
        """Return two policies and the first policy's score; None if one policy plays all seats."""
        for seat, name in enumerate(self.line_up):
            if self.line_up.count(name) == 1:
                return name, self.line_up[seat - 1], self.score(seat)
        return None


def play_league(
    league: League, out: Path | str, on_progress: Callable[[int], None] = lambda games: None
) -> list[LeagueGame]:
    """Play the games that are missing from a folder, and return all games of the league.

    A killed run resumes. If policies or episodes are added, only the new games are
    played. The next run retries games in which a policy did not reply.

    Raises:
        CollectionError: Many consecutive episodes failed.
        OtherRunError: The folder contains another world's games, or a different policy with the
            same name.
        RunLockedError: Another process is writing to the folder.
    """
    out = Path(out)
    log, env_spec, seats = log_of(out), league.spec(), league.seats()
    policies = dict(zip(league.names, league.policies, strict=True))
    with RunLock(out), log.writing():
        _keep(league, out)
        games = {(game.line_up, game.seed): game for game in map(_game, log) if game}
        made: dict[str, Policy] = {}
        for line_up in league.line_ups():
            missing = [seed for seed in range(league.episodes) if (line_up, seed) not in games]
            on_progress(league.episodes - len(missing))
            if not missing:
                continue
            for name in made.keys() - set(line_up):
                del made[name]
            for name in line_up:
                if name not in made:  # several seats may share a policy object
                    made[name] = policies[name].make(league.world)
            players = {seat: made[name] for seat, name in zip(seats, line_up, strict=True)}
            for player in made.values():
                if hasattr(player, "reseed"):  # random choices must not depend on earlier games
                    player.reseed(crc32(repr(line_up).encode()))
            batch = min(policies[name].model.batch_size for name in line_up)
            labels = {"line_up": list(line_up)}
            for trajectory in collect(players, env_spec, missing, batch, labels=labels):
                log.append(trajectory.to_json())
                if game := _game(trajectory):
                    games[line_up, game.seed] = game
                on_progress(1)
    expected = product(league.line_ups(), range(league.episodes))
    return [games[key] for key in sorted(games.keys() & expected)]


def _keep(league: League, out: Path) -> None:
    env_spec: Any = json.loads(league.spec().to_json())
    kept = read_json(out / SETTINGS, _check_settings) or {"spec": env_spec, "policies": {}}
    if kept["spec"] != env_spec:
        raise OtherRunError(
            f"{out} contains games with another world or other options (see {SETTINGS}); choose "
            "another folder"
        )
    for policy in league.policies:
        facts = provenance(policy, [league.world])
        known = kept["policies"].setdefault(policy.column, facts)
        if found := difference(known, facts):
            raise OtherRunError(
                f"{out} contains games by another policy named {policy.column!r}: {found}; set "
                f"another name (NAME={policy.name}), or choose another folder"
            )
    write_text(out / SETTINGS, json.dumps(kept, indent=1) + "\n")


def _check_settings(data: Any) -> dict[str, Any]:
    settings = check_settings(data, {"spec": {}, "policies": {}})
    if not all(isinstance(facts, dict) for facts in settings["policies"].values()):
        raise ValueError("each policy must have a provenance, a JSON object")
    return settings


def _game(trajectory: Trajectory) -> LeagueGame | None:
    rewards = trajectory.seat_rewards()
    if trajectory.failure or not rewards:
        return None
    detail = trajectory.steps[-1].info["detail"]
    best = max(rewards.values())
    winners = detail["report"]["team"].get("winners")
    if winners is None:  # a cooperative team
        winners = [agent for agent, reward in rewards.items() if reward == best]
    return LeagueGame(
        tuple(trajectory.labels["line_up"]),
        trajectory.seed,
        detail["instance"] or str(trajectory.seed),
        tuple(rewards.values()),
        tuple(agent in winners for agent in rewards),
    )


def seats_of(env: EnvLike) -> tuple[str, ...]:
    """Return the agents of a team in turn order."""
    made = factory_of(env)()
    made.close()
    return agents_of(made)


def mean_points(
    policy: PolicyLike, opponent: PolicyLike, env: EnvLike, seeds: Sequence[int]
) -> float:
    """Return a policy's mean score against an opponent over all seats; a draw counts half.

    Raises:
        RuntimeError: Every game of a seat has a `failure`.
    """
    seats = seats_of(env)
    scores = []
    for seat, agent in enumerate(seats):
        players = {**dict.fromkeys(seats, opponent), agent: policy}
        played = collect(players, env, seeds, len(seeds), labels={"line_up": list(seats)})
        for trajectory in without_failures(played):
            if game := _game(trajectory):
                scores.append(game.score(seat))
    return fmean(scores)


def league_ratings(league: League, games: Sequence[LeagueGame]) -> dict[str, Interval]:
    """Return each policy's Elo points above the first policy."""
    names = league.names
    outcomes = []
    for game in games:
        if opponents := game.opponents():
            one, other, score = opponents
            outcomes.append(Outcome(names.index(one), names.index(other), score, game.instance))
    return dict(zip(names, ratings(outcomes, len(names)), strict=True))


def league_tables(league: League, games: Sequence[LeagueGame]) -> list[Table]:
    """Return the ratings and the cross-play table of each seat."""
    tables = [_rating_table(league, games)]
    for seat, agent in enumerate(league.seats()):
        header = [agent, *(f"vs {name}" for name in league.names)]
        rows = []
        for one in league.names:
            cells = [_cross_play(games, seat, one, other) for other in league.names]
            rows.append([one, *cells])
        title = f"{agent}: mean reward, and wins-draws-losses"
        tables.append((title, header, rows))
    return tables


def _cross_play(games: Sequence[LeagueGame], seat: int, one: str, others: str) -> str:
    rewards, scores = [], []
    for game in games:
        rest = {*game.line_up[:seat], *game.line_up[seat + 1 :]}
        if game.line_up[seat] == one and rest == {others}:
            rewards.append(game.rewards[seat])
            scores.append(game.score(seat))
    if not rewards:
        return "no data"
    return f"{fmean(rewards):.2f} ({_record(scores)})"


def _record(scores: Sequence[float]) -> str:
    return f"{scores.count(1.0)}-{scores.count(0.5)}-{scores.count(0.0)}"


def _rating_table(league: League, games: Sequence[LeagueGame]) -> Table:
    rated = league_ratings(league, games)
    rows = []
    for name in sorted(rated, key=lambda name: (isnan(rated[name].value), -rated[name].value)):
        scores = list(_scores_of(name, games))
        rows.append([name, _points(rated[name]), _record(scores)])
    title = f"Elo points above {league.names[0]}, with 95% intervals; {league.episodes} instances"
    return title, ["policy", "rating", "wins-draws-losses"], rows


def _scores_of(name: str, games: Sequence[LeagueGame]) -> Iterator[float]:
    for game in games:
        if opponents := game.opponents():
            one, other, score = opponents
            if name in (one, other):
                yield score if name == one else 1 - score


def _points(rating: Interval) -> str:
    if isnan(rating.value):
        return "no data"
    low = "-∞" if isinf(rating.low) else f"{rating.low:+.0f}"
    high = "+∞" if isinf(rating.high) else f"{rating.high:+.0f}"
    return f"{rating.value:+.0f} [{low}, {high}]"
