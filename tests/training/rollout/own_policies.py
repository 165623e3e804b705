"""User-written policies: all supported forms and all common mistakes."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import agentgym
from agentgym import Chat, Reply
from agentgym.oracles import OraclePolicy

PLAY = OraclePolicy("ListWorld")


def text_of(chat: Chat) -> str:
    return PLAY([chat])[0].text


class Client:
    """Client like `AsyncOpenAI`, bound to the event loop of its first request."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.under_way = self.most = 0

    async def ask(self, chat: Chat) -> str:
        loop = asyncio.get_running_loop()
        self.loop = self.loop or loop
        if self.loop is not loop:
            raise RuntimeError("Event loop is closed")
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0.001)
        self.under_way -= 1
        return text_of(chat)


def replies_for_chats(chats: Sequence[Chat]) -> list[Reply]:
    return [Reply(text_of(chat)) for chat in chats]


def texts_for_batch(batch: list[Chat]) -> list[str]:
    return [text_of(chat) for chat in batch]


def reply_for_annotated(x: Chat) -> Reply:
    return Reply(text_of(x))


def text_for_unnamed(x):  # type: ignore[no-untyped-def]
    return text_of(Chat(x.messages, x.tools))


def with_option(chats: Sequence[Chat], style: str) -> list[str]:
    return [text_of(chat) for chat in chats]


class OneChat:
    def __call__(self, observation: Any) -> str:
        return text_of(observation)


class AsyncOne:
    def __init__(self) -> None:
        self.client = Client()

    async def __call__(self, chat: Chat) -> str:
        return await self.client.ask(chat)


class AsyncMany(AsyncOne):
    async def __call__(self, chats: Sequence[Chat]) -> list[Reply]:  # type: ignore[override]
        texts = await asyncio.gather(*map(self.client.ask, chats))
        return [Reply(text) for text in texts]


class AsyncUnnamed(AsyncOne):
    async def __call__(self, x):  # type: ignore[no-untyped-def]
        return await self.client.ask(Chat(x.messages, x.tools))


class Areply:
    def __init__(self) -> None:
        self.client = Client()

    async def areply(self, c):  # type: ignore[no-untyped-def]
        return Reply(await self.client.ask(c))


class Remembering:
    def __init__(self) -> None:
        self.seen: list[int] = []
        self.seeds: list[tuple[int, str]] = []

    def reset(self, seed: int, episode_id: str) -> None:
        self.seen = []
        self.seeds.append((seed, episode_id))

    def __call__(self, chat: Chat) -> str:
        self.seen.append(len(chat.messages))
        if self.seen != sorted(set(self.seen)):
            raise RuntimeError(f"episodes are mixed: {self.seen}")
        return text_of(chat)


class RememberingByEpisode(Remembering):
    def __init__(self) -> None:
        super().__init__()
        self.turns: dict[str, list[int]] = {}

    async def reset(self, episode_id: str, **known: Any) -> None:  # type: ignore[override]
        self.turns[episode_id] = []
        self.seeds.append((known["seed"], episode_id))

    async def __call__(self, chats: Sequence[Chat], *, episode_ids: list[str]) -> list[str]:  # type: ignore[override]
        for chat, name in zip(chats, episode_ids, strict=True):
            self.turns[name].append(len(chat.messages))
            if self.turns[name] != sorted(set(self.turns[name])):
                raise RuntimeError(f"episodes are mixed: {self.turns}")
        return texts_for_batch(list(chats))


class Seeded:
    def reset(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, chats: Sequence[Chat]) -> list[str]:
        assert self.seed >= 0
        return texts_for_batch(list(chats))


GOOD: dict[str, Callable[[], Any]] = {
    "replies for chats": lambda: replies_for_chats,
    "texts for a batch": lambda: texts_for_batch,
    "an annotated chat": lambda: reply_for_annotated,
    "an unnamed chat": lambda: text_for_unnamed,
    "a partial": lambda: functools.partial(with_option, style="short"),
    "a class of one chat": OneChat,
    "an async class of one chat": AsyncOne,
    "an async class of many chats": AsyncMany,
    "an async class of something": AsyncUnnamed,
    "an async partial": lambda: functools.partial(AsyncOne().__call__),
    "a class with areply": Areply,
    "state of one episode": Remembering,
    "state by episode": RememberingByEpisode,
    "a reset with a seed": Seeded,
}


def fails_on(*seeds: int, env: Any = None) -> Callable[[Sequence[Chat]], list[str]]:
    env = env or agentgym.make("ListWorld")
    lost = {str(env.reset(seed=seed)[0].messages[1].text) for seed in seeds}

    def policy(chats: Sequence[Chat]) -> list[str]:
        for chat in chats:
            if str(chat.messages[1].text) in lost:
                raise KeyError("no such\nkey")
        return texts_for_batch(list(chats))

    return policy


def _coroutine(chats: Sequence[Chat]) -> Any:
    return AsyncMany()(chats)


def _generate(chats: Sequence[Chat]) -> Iterator[str]:
    yield from texts_for_batch(list(chats))


async def _async_generate(chats: Sequence[Chat]) -> Any:
    for chat in chats:
        yield text_of(chat)


EACH = "return a str or a Reply for each chat, in a list"
WRONG: dict[str, tuple[Any, str]] = {
    "None": (lambda chats: None, f"returned None for a list of chats; {EACH}, on every path"),
    "None in a list": (
        lambda chats: [None] * len(chats),
        "returned None in its list; return a str or a Reply, on every path",
    ),
    "numbers": (
        lambda chats: [5] * len(chats),
        "returned int in its list; return a str or a Reply",
    ),
    "a dict": (lambda chats: {"text": "x"}, f"returned dict for a list of chats; {EACH}"),
    "bytes": (lambda chats: b"x", f"returned bytes for a list of chats; {EACH}"),
    "one text": (
        lambda chats: "x",
        "returned one reply for a list of chats; return a list, or name its parameter `chat`",
    ),
    "too few": (lambda chats: [], f"returned 0 replies for 1 chats; {EACH}"),
    "a coroutine": (_coroutine, "returned coroutine for a list of chats; define the policy itself"),
    "coroutines": (
        lambda chats: [AsyncOne()(chat) for chat in chats],
        "returned coroutine in its list; define the policy itself with `async def`",
    ),
    "a generator": (_generate, f"returned generator for a list of chats; {EACH} instead of yield"),
    "an async generator": (_async_generate, "returned async_generator for a list of chats"),
    "None for a chat": (lambda chat: None, "returned None for one chat; return a str or a Reply"),
    "a list for a chat": (lambda chat: ["x"], "returned list for one chat; return a str or"),
    "no text": (
        lambda chat: Reply(None),  # type: ignore[arg-type]
        "returned None as the text of a reply; give Reply a str",
    ),
}


def returns_none(env_id: str) -> Callable[..., Any]:
    function: Callable[..., Any] = WRONG["None"][0]
    return function


def no_chat() -> str:
    return ""


def chat_and_env(chat: Chat, env: Any) -> str:
    return ""


class OddReset(OneChat):
    def reset(self, env: Any) -> None:
        pass


UNCALLABLE = {
    OneChat: "policy OneChat is a class; give an instance, such as OneChat()",
    no_chat: "policy no_chat cannot be called with chats .*it must take one chat or a list of chats",
    chat_and_env: "policy chat_and_env cannot be called with chats .*'env'",
    OddReset(): "reset of policy OddReset cannot be called .*may be seed and episode_id",
}
