"""The agentic reasoning graph (Zhu et al., section 4.2): searches as a path over document clusters.

A step explores (a new node), exploits (the previous step's node) or revisits (any other visited
node). Ratios omit the first step, as the paper's tables do. Needs the extra `graph`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib import import_module
from math import isnan, nan, sqrt
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentgym.envs.gsm_agent.database import DatabaseOptions, get_database
from agentgym.text.search import Embed, load_embed, unit
from agentgym.text.validation import check_int
from agentgym.training.evaluation import Table
from agentgym.training.extras import needs_extra
from agentgym.training.rollout import Trajectory

KINDS = ("exploration", "exploitation", "revisit")
# The number of graph nodes scales with the square root of the number of documents.
FULL_NODES, FULL_DOCUMENTS = 250, 30_000

_ITERATIONS = 25
_DIMENSIONS = 128


@dataclass(frozen=True, slots=True)
class Path:
    """The searches of one episode as a path; each step has one of the `KINDS`."""

    nodes: tuple[int, ...]
    kinds: tuple[str, ...]

    @classmethod
    def of(cls, nodes: Sequence[int]) -> Path:
        """Label the steps of a path."""
        kinds = []
        for step, node in enumerate(nodes):
            if node not in nodes[:step]:
                kinds.append("exploration")
            elif node == nodes[step - 1]:
                kinds.append("exploitation")
            else:
                kinds.append("revisit")
        return cls(tuple(nodes), tuple(kinds))

    @property
    def visited(self) -> int:
        """The number of distinct nodes, V."""
        return len(set(self.nodes))

    def ratio(self, kind: str) -> float:
        """Return the share of steps of one kind, excluding the first step; NaN if none remain."""
        kinds = self.kinds[1:]
        if not kinds:
            return nan
        return kinds.count(kind) / len(kinds)


class ReasoningGraph:
    """Clusters of documents (k-means with k-means++ and a fixed seed).

    Without `embed`, the texts are embedded by latent semantic analysis, which needs no weights.
    """

    def __init__(
        self, texts: Sequence[str], embed: Embed | None = None, nodes: int | None = None
    ) -> None:
        if nodes is None:
            nodes = max(1, round(FULL_NODES * sqrt(len(texts) / FULL_DOCUMENTS)))
        check_int("nodes", nodes, 1, len(texts))
        self._embed = embed or semantic(texts)
        vectors = unit(self._embed(list(texts)))
        model = _sklearn("cluster").KMeans(
            nodes, init="k-means++", n_init=1, max_iter=_ITERATIONS, random_state=0
        )
        self.documents: NDArray[np.int64] = np.asarray(model.fit_predict(vectors), np.int64)
        self.centroids: NDArray[np.float32] = np.asarray(model.cluster_centers_, np.float32)

    def node(self, query: str) -> int:
        """Return the node with the centroid nearest to a query."""
        (vector,) = unit(self._embed([query]))
        distances = np.linalg.norm(self.centroids - vector, axis=1)
        return int(np.argmin(distances))

    def path(self, log: Sequence[Mapping[str, Any]]) -> Path:
        """Return the path of an episode's searches; requests for further pages stay at the previous
        node.
        """
        nodes: list[int] = []
        for entry in log:
            nodes.append(nodes[-1] if entry["tool"] == "next_page" else self.node(entry["query"]))
        return Path.of(nodes)


def figures(paths: Sequence[Path]) -> dict[str, float]:
    """Return means over paths with at least one search, named as in the paper's tables.

    Returns:
        V: Distinct nodes.
        hasRvst: The share of episodes with at least one revisit.
        Expl: The exploration ratio; `Expt` is the exploitation ratio and `Rvst` the revisit ratio.
    """
    walked = [path for path in paths if path.nodes]
    means = {
        "V": mean([path.visited for path in walked]),
        "hasRvst": mean(["revisit" in path.kinds for path in walked]),
    }
    for name, kind in zip(("Expl", "Expt", "Rvst"), KINDS, strict=True):
        ratios = [path.ratio(kind) for path in walked]
        means[name] = mean([ratio for ratio in ratios if not isnan(ratio)])
    return means


def mean(values: Sequence[float]) -> float:
    """Return the mean; NaN without values."""
    return fmean(values) if values else nan


def search_report(trajectory: Trajectory) -> Mapping[str, Any]:
    """Return the report of SearchWorld at the end of an episode."""
    report: Mapping[str, Any] = {}
    if trajectory.steps:
        report = trajectory.steps[-1].info["detail"].get("report") or {}
    if "oracle_documents" not in report:
        raise ValueError(
            f"the trajectory of seed {trajectory.seed} does not end with a report of SearchWorld"
        )
    return dict(report)


def graph_of(trajectory: Trajectory, embed: str = "", nodes: int | None = None) -> ReasoningGraph:
    """Return the graph of an episode's database.

    `embed` is `wordllama`, `package.module:function`, or empty for latent semantic analysis.
    """
    kwargs = json.loads(trajectory.spec).get("kwargs", {})
    names = {item.name for item in fields(DatabaseOptions)}
    options = {name: value for name, value in kwargs.items() if name in names}
    return _graph(DatabaseOptions(**options), embed, nodes)


@lru_cache(maxsize=4)
def _graph(options: DatabaseOptions, embed: str, nodes: int | None) -> ReasoningGraph:
    texts = [document.content for document in get_database(options).documents]
    return ReasoningGraph(texts, load_embed(embed) if embed else None, nodes)


def paths_of(
    trajectories: Sequence[Trajectory], embed: str = "", nodes: int | None = None
) -> list[Path]:
    """Return each episode's path over the graph of its database."""
    paths = []
    for trajectory in trajectories:
        graph = graph_of(trajectory, embed, nodes)
        paths.append(graph.path(search_report(trajectory)["searches"]))
    return paths


def graph_summary(settings: Mapping[str, Sequence[Path]]) -> Table:
    """Return the paper's table (appendix C.1)."""
    means = {setting: figures(paths) for setting, paths in settings.items()}
    return means_table("Agentic reasoning graph", means, shares=("hasRvst", "Expl", "Expt", "Rvst"))


def means_table(
    title: str, means: Mapping[str, Mapping[str, float]], shares: Collection[str]
) -> Table:
    """Return a table of means per setting; `shares` names the values to show in %."""
    names = list(next(iter(means.values()), {}))
    rows = []
    for setting, row in means.items():
        rows.append([setting, *(_format(row[name], share=name in shares) for name in names)])
    return title, ["setting", *names], rows


def _format(value: float, *, share: bool) -> str:
    if isnan(value):
        return ""
    if share:
        return f"{100 * value:.2f}%"
    return f"{value:.2f}"


def semantic(texts: Sequence[str]) -> Embed:
    """Return an embedding by latent semantic analysis: TF-IDF in at most 128 dimensions."""
    words = _sklearn("feature_extraction.text").TfidfVectorizer(sublinear_tf=True)
    table = words.fit_transform(texts)
    size = min(_DIMENSIONS, len(texts) - 1, table.shape[1] - 1)
    reduce = _sklearn("decomposition").TruncatedSVD(max(1, size), random_state=0).fit(table)

    def embed(some: list[str]) -> NDArray[np.floating[Any]]:
        return np.asarray(reduce.transform(words.transform(some)))

    return embed


def _sklearn(module: str) -> Any:
    with needs_extra("the reasoning graph", "graph"):
        return import_module(f"sklearn.{module}")
