"""Leagues of policies that compete in teams, and their ratings."""

from agentgym.training.evaluation.leagues.league import (
    League,
    LeagueGame,
    league_ratings,
    league_tables,
    mean_points,
    play_league,
    seats_of,
)
from agentgym.training.evaluation.leagues.ratings import Outcome, ratings

__all__ = [
    "League",
    "LeagueGame",
    "Outcome",
    "league_ratings",
    "league_tables",
    "mean_points",
    "play_league",
    "ratings",
    "seats_of",
]
