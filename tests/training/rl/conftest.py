from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from tests.training.rl.echo_trainers import make_words_tokenizer  # noqa: PLC0415 - it loads torch, without which these tests are skipped

    return make_words_tokenizer()
