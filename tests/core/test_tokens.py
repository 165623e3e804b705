"""Token counters: exact where they say so, additive, and incremental without a difference."""

from __future__ import annotations

import copy
import pickle

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from agentgym import Chat, Message, TokenCounter, ToolCall, make
from agentgym.oracles import OraclePolicy
from agentgym.tokens import MESSAGE_OVERHEAD, cl100k, counter, heuristic, huggingface

# Counts of the GPT-4 vocabulary, as OpenAI's own tokenizer gives them.
KNOWN = {
    "": 0,
    "hello world": 2,
    "tiktoken is great!": 6,
    "antidisestablishmentarianism": 6,
    "2 + 2 = 4": 7,
    "お誕生日おめでとう": 9,
}


def words() -> TokenCounter:
    vocabulary = {word: k for k, word in enumerate(["[UNK]", "<|im_end|>", "a", "b"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return huggingface(
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>"), "words"
    )


COUNTERS = [heuristic, cl100k, words]


def test_the_gpt_4_vocabulary_is_exact() -> None:
    assert {
        text: cl100k().count(Message("user", text)) - MESSAGE_OVERHEAD for text in KNOWN
    } == KNOWN


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


@pytest.mark.parametrize("make_counter", COUNTERS)
def test_counting_looks_at_new_messages_only(make_counter: type[TokenCounter]) -> None:
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


def test_counters_have_names() -> None:
    assert [counter().name for counter in COUNTERS] == ["heuristic", "cl100k_base", "words"]


def shouting() -> TokenCounter:
    return TokenCounter("tests.core.test_tokens:shouting", lambda text: len(text.upper().split()))


def test_counters_are_known_by_name_and_pickle_as_it() -> None:
    mine = counter("tests.core.test_tokens:shouting")
    assert mine.length("one two three") == 3
    assert pickle.loads(pickle.dumps(mine)) is mine
    assert copy.deepcopy(mine) is mine
    assert counter("cl100k_base") is counter("cl100k_base")
    assert counter("heuristic").name == "heuristic"
    for name, message in {
        "gpt2": "there is no token counter 'gpt2'.*write cl100k_base, heuristic or package.module:factory",
        "no_module:make": "no_module:make.*No module named",
        "tests.core.test_tokens:words": "'tests.core.test_tokens:words' calls itself 'words'; give it the name",
    }.items():
        with pytest.raises(ValueError, match=message):
            counter(name)
