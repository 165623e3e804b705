from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import random
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import (
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

from agentgym import Chat, Image, Message, Tool, ToolCall
from agentgym.oracles import NoisyPolicy
from agentgym.play.shared_chats import SharedChats
from agentgym.play.spaces import ChatSpace
from tests.helpers import calls_of

TOOLS = (Tool("look", "Look.", {"type": "object", "properties": {}}),)
ODD = "\x00\ud800 \U0001f600\r\n" + "é" * 70_000  # longer than a pipe's buffer


def writer_of(chats: SharedChats) -> SharedChats:
    # A forked process shares the file but not the memory.
    return SharedChats(len(chats), os.dup(chats._file))


def random_chats(seed: int) -> Iterator[Chat]:
    """Yield chats that grow, shrink, change and restart, like chats edited by wrappers."""
    draw = random.Random(seed)
    chat = Chat()
    for k in range(60):
        message = Message("user", f"{k} {ODD[: draw.choice((3, 9, 80_000))]}", id=f"{k}:0")
        match draw.randrange(6):
            case 0:
                chat = Chat((message,), TOOLS[: k % 2])
            case 1 if chat.messages:
                chat = chat.without_last().with_last(message)
            case 2:
                kept = list(chat.messages)
                chat = Chat(tuple(kept[: len(kept) // 2]), chat.tools).add(message)
            case 3:
                call = ToolCall("look", {"a": [1, None, {"b": ODD[:4]}]}, f"call_{k}_0")
                chat = chat.add(Message("assistant", calls=(call,), raw=ODD[:5]))
            case 4:
                chat = chat.add(Message("tool", images=(Image(b"\x89PNG\x00", "a picture"),)))
            case _:
                chat = chat.add(message, message)
        yield chat


@pytest.mark.parametrize("seed", range(4))
def test_what_is_written_is_read_however_often(seed: int) -> None:
    space, draw = ChatSpace(), random.Random(seed)
    chats = create_shared_memory(space, n=3)
    view, other = read_from_shared_memory(space, chats, n=3), writer_of(chats)
    for chat in random_chats(seed):
        write_to_shared_memory(space, 1, chat, other)
        if draw.random() < 0.6:  # a reader may skip some chats
            assert view[1] == chat
            assert view[1].tools == chat.tools
            assert copy.deepcopy(view) == (Chat(), chat, Chat())
    assert view[1] == chat
    assert view[0] == view[-1] == Chat()


def _pass_on(writer: SharedChats, reader: SharedChats, chat: Chat) -> None:
    writer.write(0, chat)
    reader[0]


def test_a_step_costs_what_is_new() -> None:
    chats = SharedChats(1)
    other, chat, work, written = writer_of(chats), Chat(), [], []
    for k in range(400):
        chat = chat.add(*(Message("user", f"message {k + j}") for j in range(2)))
        work.append(calls_of(_pass_on, other, chats, chat))
        written.append(int.from_bytes(os.pread(chats._file, 8, 8), "little"))
    assert max(work[1:]) <= min(work[1:]) + 4
    assert max(written[1:]) <= min(written[1:]) + 40


def test_a_chat_that_cannot_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym.play.shared_chats._SLOT", 10_000)
    with pytest.raises(ValueError, match=r"does not fit into shared memory; use shared_memory=F"):
        SharedChats(1).write(0, Chat((Message("user", "x" * 10_000),)))


def test_where_files_are_not_handed_on_gymnasium_names_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(ValueError, match="shared_memory=False"):
        gymnasium.make_vec("agentgym/ListWorld-v0", num_envs=1, vectorization_mode="async")


def test_the_memory_goes_with_its_last_owner() -> None:
    chats = SharedChats(2)
    file, twin = chats._file, writer_of(chats)
    del chats
    gc.collect()
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(file)
    # the file has no directory entry, so a killed process leaves no file behind
    assert os.fstat(twin._file).st_nlink == 0


STARTS = [
    m for m in ("fork", "spawn", "forkserver") if m in multiprocessing.get_all_start_methods()
]


def vector(
    mode: str, autoreset: AutoresetMode = AutoresetMode.NEXT_STEP, **vector_kwargs: Any
) -> Any:
    return gymnasium.make_vec(
        "agentgym/ListWorld-v0",
        num_envs=2,
        vectorization_mode=mode,
        vector_kwargs={"autoreset_mode": autoreset, **vector_kwargs},
        items=4,
        removals=2,
        budget_slack=1,
        oracles="S",
    )


@pytest.mark.parametrize(
    ("start", "shared"), [*((start, True) for start in STARTS), (STARTS[0], False)]
)
def test_async_is_sync_whatever_starts_the_processes(start: str, shared: bool) -> None:
    policy = NoisyPolicy("ListWorld", 0.2)
    envs = [vector("sync"), vector("async", context=start, shared_memory=shared)]
    try:
        (chats, infos), others = (each.reset(seed=5) for each in envs)
        for _ in range(12):
            assert others[0] == chats
            assert envs[1].observation_space.contains(others[0])
            texts = tuple(reply.text for reply in policy(chats))
            (chats, *signals, infos), others = (each.step(texts) for each in envs)
            assert [list(part) for part in others[1:4]] == [list(part) for part in signals]
            assert list(others[4]["turn"]) == list(infos["turn"])
    finally:
        for each in envs:
            each.close()


@pytest.mark.parametrize("autoreset", list(AutoresetMode))
@pytest.mark.parametrize(("mode", "copies"), [("sync", True), ("async", True), ("async", False)])
def test_every_way_to_reset_gives_what_single_envs_give(
    autoreset: AutoresetMode, mode: str, copies: bool
) -> None:
    policy, ends = NoisyPolicy("ListWorld", 0.3), 0
    singles = [gymnasium.make("agentgym/ListWorld-v0", **OPTIONS) for _ in range(2)]
    chats = [env.reset(seed=5 + k)[0] for k, env in enumerate(singles)]
    envs, over = vector(mode, autoreset, copy=copies), [False, False]
    try:
        shown, _ = envs.reset(seed=5)
        for _ in range(14):
            assert list(shown) == chats
            assert envs.observation_space.contains(shown)
            texts = tuple(reply.text for reply in policy(chats))
            results = [
                _expected(*each, autoreset) for each in zip(singles, texts, over, strict=True)
            ]
            shown, rewards, terminated, truncated, infos = envs.step(texts)
            chats, over = [r[0] for r in results], [r[2] or r[3] for r in results]
            assert [list(part) for part in (rewards, terminated, truncated)] == [
                [result[k] for result in results] for k in (1, 2, 3)
            ]
            assert list(infos["turn"]) == [result[4]["turn"] for result in results]
            if autoreset == AutoresetMode.SAME_STEP and any(over):
                assert list(infos["_final_obs"]) == over
                for k in np.flatnonzero(over):
                    assert infos["final_obs"][k] == results[k][4]["final_obs"]
                    assert infos["final_info"]["detail"][k] == results[k][4]["final_info"]["detail"]
            if autoreset == AutoresetMode.DISABLED and any(over):
                # an env remains unchanged until the caller resets it
                assert list(shown) == chats
                shown, _ = envs.reset(seed=[40, 41], options={"reset_mask": np.array(over)})
                for k in np.flatnonzero(over):
                    chats[k] = singles[k].reset(seed=40 + int(k))[0]
            ends += sum(over)
            over = [False, False] if autoreset == AutoresetMode.DISABLED else over
    finally:
        envs.close()
    assert ends >= 3


OPTIONS = {"items": 4, "removals": 2, "budget_slack": 1, "oracles": "S"}


def _expected(env: Any, text: str, over: bool, autoreset: AutoresetMode) -> tuple[Any, ...]:
    """Return the expected observation of one sub-env, computed independently."""
    if autoreset == AutoresetMode.NEXT_STEP and over:
        chat, info = env.reset()
        return chat, 0.0, False, False, info
    result: tuple[Any, ...] = env.step(text)
    if autoreset == AutoresetMode.SAME_STEP and (result[2] or result[3]):
        chat, info = env.reset()
        final = {"final_obs": result[0], "final_info": result[4], **info}
        return chat, *result[1:4], final
    return result
