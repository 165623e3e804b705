"""Search over texts: BM25 by default, or any function that embeds texts.

Documents with equal scores are ordered by index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from agentgym.text.imports import UntrustedModule, import_function
from agentgym.text.requirements import install_command

Embed = Callable[[list[str]], NDArray[np.floating[Any]]]
"""Function that embeds texts as float vectors of shape `(texts, dimensions)`."""

_TOKEN = re.compile(r"[a-z0-9]+")
_BATCH = 1024  # limits the memory use for large document collections


class Lexical:
    """BM25 (bm25s; Lucene's variant, k1 = 1.5, b = 0.75) over lower-case words."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @classmethod
    def of(cls, texts: Iterable[str]) -> Lexical:
        vocabulary: dict[str, int] = {}
        ids = []
        for text in texts:
            words = _TOKEN.findall(text.lower())
            ids.append([vocabulary.setdefault(word, len(vocabulary)) for word in words])
        # bm25s is imported here, because it loads scipy, which would slow the import of agentgym.
        model = import_module("bm25s").BM25()
        model.index((ids, vocabulary), create_empty_token=False, show_progress=False)
        return cls(model)

    def best(self, query: str, count: int) -> tuple[int, ...]:
        """Return at most `count` documents that share a word with a query."""
        vocabulary = self.model.vocab_dict
        ids = [vocabulary[word] for word in _TOKEN.findall(query.lower()) if word in vocabulary]
        if not ids:
            return ()
        return rank(self.model.get_scores_from_ids(ids), count, positive=True)


class Dense:
    """Cosine similarity.

    Args:
        vectors: The documents' unit vectors; float32, shape `(documents, dimensions)`.
        embed: Embeds a query.
    """

    def __init__(self, vectors: NDArray[np.float32], embed: Embed) -> None:
        self.vectors, self.embed = vectors, embed

    @classmethod
    def of(cls, texts: Sequence[str], embed: Embed) -> Dense:
        parts = []
        for start in range(0, len(texts), _BATCH):
            parts.append(unit(embed(list(texts[start : start + _BATCH]))))
        return cls(np.concatenate(parts), embed)

    def best(self, query: str, count: int) -> tuple[int, ...]:
        """Return the `count` documents nearest to a query."""
        return rank(self.vectors @ unit(self.embed([query]))[0], count, positive=False)


def rank(scores: NDArray[np.float32], count: int, positive: bool) -> tuple[int, ...]:
    """Return the indices of the `count` highest scores; `positive` drops scores of 0 or less."""
    count = min(count, len(scores))
    if count == 0:
        return ()
    # Sort only the best scores, so that a search takes linear time.
    below = len(scores) - count
    chosen = scores >= np.partition(scores, below)[below]
    if positive:
        chosen &= scores > 0
    places = np.flatnonzero(chosen)
    order = np.lexsort((places, -scores[places]))[:count]
    return tuple(map(int, places[order]))


def unit(vectors: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Scale vectors to length 1; zero vectors stay zero."""
    array = np.asarray(vectors, np.float32)
    lengths = np.linalg.norm(array, axis=1, keepdims=True)
    # Avoid division by zero.
    return cast("NDArray[np.float32]", array / np.where(lengths > 0, lengths, 1))


def load_embed(name: str) -> Embed:
    """Load the embedding function `wordllama` or `package.module:function`, or raise ValueError."""
    if name == "wordllama":
        return _wordllama()
    module, _, attribute = name.partition(":")
    try:
        embed = import_function(module, attribute)
    except UntrustedModule as error:
        raise ValueError(str(error)) from None
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"embed {name!r} cannot be imported ({error}); write 'wordllama' or "
            "'package.module:function'"
        ) from error
    return cast("Embed", embed)


def _wordllama() -> Embed:
    try:
        package = import_module("wordllama")
    except ImportError as error:
        raise ValueError(
            f"embed 'wordllama' needs its extra: {install_command('embed')}"
        ) from error
    # The package folder serves as the cache, so wordllama does not download the files.
    model = package.WordLlama.load(
        cache_dir=Path(str(package.__file__)).parent, disable_download=True
    )
    return cast("Embed", model.embed)
