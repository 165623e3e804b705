from __future__ import annotations

import asyncio
import base64
import importlib
import warnings
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import agentgym
from agentgym import Chat, ToolCall, render, tool_env
from agentgym.assemble.registry import worlds
from agentgym.play.policy import PolicyError
from agentgym.training import integrations
from agentgym.training.rollout import LocalPolicy, make_model, make_tokenizer, rollout
from tests.training.integrations.openenv_server import serving as serving_openenv
from tests.training.rollout.endpoint_kinds import KINDS, environment  # noqa: F401 - a fixture
from tests.training.rollout.endpoint_server import Answer, serving

pytest.importorskip("torch")
pytest.importorskip("PIL")

from tests.training.integrations.album_world import ALBUM
from tests.training.integrations.vision import VisionModel, pngs_in

# Other libraries use deprecated functions, and leave streams and event loops open.
pytestmark = pytest.mark.filterwarnings("ignore")
SEED = 5
PICTURED: dict[str, Any] = {"operations": 1, "counted": 1.0, "pictured": 1.0}
STACKS: dict[str, dict[str, Any]] = {"MultimodalWorld": PICTURED, ALBUM: {}}


def images_of(chat: Chat) -> list[bytes]:
    return [image.png for message in chat.messages for image in message.images]


class Play:
    """An optimal player that, before each reply, shows the request's images to a vision model.

    Attributes:
        emitted: The images in the env's chat at each of the player's turns.
    """

    def __init__(self, vision: VisionModel, world: str, options: dict[str, Any]) -> None:
        self.vision, self.world, self.options = vision, world, options
        self.env = agentgym.make(world, **options)
        self.chat, _ = self.env.reset(seed=SEED)
        self.emitted: list[list[bytes]] = []

    def next(self) -> str:
        self.emitted.append(images_of(self.chat))
        text = render(tool_env(self.env).world.optimal_calls()[0])
        self.chat, *_ = self.env.step(text)
        return text

    def answer(self, request: dict[str, Any]) -> str:
        if pngs := pngs_in(request):
            self.vision.look(pngs)
        return self.next()

    def serve(self, request: dict[str, Any], number: int) -> Answer:
        return Answer({"content": self.answer(request)})


@pytest.fixture(scope="module")
def model() -> VisionModel:
    return VisionModel()


def play_endpoint(play: Play, folder: Path, name: str) -> None:
    if name not in KINDS:
        pytest.skip("the SDK is not installed")
    kind = KINDS[name]

    def script(request: dict[str, Any], number: int) -> Answer:
        return kind.said(play.answer(request))

    with serving(script, kind.path) as server, closing(kind.policy(kind.url(server))) as policy:
        rollout(policy, agentgym.make(play.world, **play.options), SEED)


def play_verifiers(play: Play, folder: Path, tools: str) -> None:
    pytest.importorskip("verifiers.v1")
    runs: Any = importlib.import_module("tests.training.integrations.verifiers_runs")
    load_environment = integrations.verifiers.load_environment
    env = load_environment(play.world, range(SEED, SEED + 1), tools=tools, **play.options)
    with serving(play.serve) as server:
        assert runs.play_task(env, server.url).traces[0].reward == 1.0


def play_openenv(play: Play, folder: Path) -> None:
    pytest.importorskip("openenv", "0.10")
    openenv = integrations.openenv
    stack = openenv.Stack(play.world, play.options)
    with serving_openenv(openenv.create_app([stack])) as url, serving(play.serve) as server:
        env = openenv.RemoteEnv(url)
        with closing(KINDS["chat"].policy(server.url)) as policy:
            chat, _ = env.reset(seed=SEED)
            over = False
            while not over:
                chat, _, *ends, _ = env.step(policy([chat])[0].text)
                over = any(ends)
        env.close()


def play_inspect(play: Play, folder: Path, tools: str) -> None:
    inspect_ai: Any = pytest.importorskip("inspect_ai")
    task = integrations.inspect_tasks.world(
        play.world, seeds=1, start=SEED, tools=tools, **play.options
    )
    with serving(play.serve) as server:
        model = inspect_ai.model.get_model("openai-api/local/m", base_url=server.url, api_key="x")
        (log,) = inspect_ai.eval(task, model=model, log_dir=str(folder), display="none")
    assert log.status == "success", log.error


CARRIERS: dict[str, Callable[[Play, Path], None]] = {
    "chat completions": partial(play_endpoint, name="chat"),
    "responses": partial(play_endpoint, name="responses"),
    "messages": partial(play_endpoint, name="messages"),
    "verifiers": partial(play_verifiers, tools="text"),
    "verifiers, native": partial(play_verifiers, tools="native"),
    "openenv": play_openenv,
    "inspect_tasks": partial(play_inspect, tools="text"),
    "inspect_tasks, native": partial(play_inspect, tools="native"),
}


@pytest.mark.parametrize("bridge", CARRIERS)
@pytest.mark.parametrize("world", STACKS)
def test_every_image_reaches_the_model(
    bridge: str, world: str, model: VisionModel, tmp_path: Path
) -> None:
    model.received.clear()
    play = Play(model, world, STACKS[world])
    CARRIERS[bridge](play, tmp_path)
    expected = [model.fingerprints(images) for images in play.emitted if images]
    assert [images for _, images in model.received] == expected
    assert len(expected[-1]) > 1


def test_mcp_results_carry_images_and_instructions_refuse_them(model: VisionModel) -> None:
    """MCP results can contain images, but MCP instructions are only text."""
    mcp: Any = pytest.importorskip("mcp")
    bridge = integrations.mcp
    play = Play(model, ALBUM, {"cover": False})
    episode = bridge.open_episode(ALBUM, SEED, cover=False)

    async def run() -> list[bytes]:
        shown = []
        async with mcp.Client(bridge.build_server(episode)) as client:
            while calls := tool_env(play.env).world.optimal_calls():
                result = await client.call_tool(calls[0].name, dict(calls[0].arguments))
                shown += [base64.b64decode(p.data) for p in result.content if p.type == "image"]
                play.next()
        return shown

    model.received.clear()
    model.look(asyncio.run(run()))
    assert model.received[0][1] == model.fingerprints(images_of(play.chat))
    assert len(model.received[0][1]) == 4
    with pytest.raises(ValueError, match="MCP instructions carry only text, and the task of Album"):
        bridge.open_episode(ALBUM, SEED)


@pytest.mark.parametrize("world", STACKS)
def test_every_image_reaches_the_model_that_trl_trains(
    world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trl: Any = pytest.importorskip("trl")
    bridge, options = integrations.trl, STACKS[world]
    templates = Path(trl.__file__).parent / "chat_templates"
    vision = VisionModel((templates / "qwen3_vl.jinja").read_text(encoding="utf-8"))
    trainer = trl.GRPOTrainer(
        model=vision.model,
        processing_class=vision.processor,
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=2,
            num_generations=2,
            max_steps=1,
            max_completion_length=4_000,
            save_strategy="no",
        ),
        environment_factory=bridge.environment_factory(world, **options),
        train_dataset=bridge.prompts(world, [SEED], **options),
    )
    trainer.generation_config.max_new_tokens = 1
    sample, emitted = trainer._generate_single_turn, []

    def generate(*arguments: Any, **named: Any) -> Any:
        sample(*arguments, **named)
        envs = [tool_env(each._env) for each in trainer.environments]
        emitted.append([image for env in envs for image in images_of(env.chat)])
        calls = [env.world.optimal_calls() for env in envs]
        replies = [render(each[0]) if each else "Done." for each in calls]
        return [vision.tokenizer.encode(f"{reply}<|im_end|>") for reply in replies], None

    monkeypatch.setattr(trainer, "_generate_single_turn", generate)
    trainer.train()
    sampled = [images for trained, images in vision.received if not trained]
    trained = [images for trained, images in vision.received if trained]
    expected = [vision.fingerprints(images) for images in emitted if images]
    assert sampled[: len(expected)] == expected
    assert trained == [expected[-1]]
    assert len(expected[-1]) > 3


def refuse_trl_rollouts(world: str, options: dict[str, Any]) -> None:
    pytest.importorskip("trl")
    rollouts = integrations.trl.rollout_func(agentgym.spec(world, **options))
    tokenizer = make_tokenizer(["a"], 300)
    trainer = SimpleNamespace(processing_class=tokenizer, eos_token_ids=[], chat_template_kwargs={})
    rollouts([[{"role": "user", "content": "", "seed": SEED}]], trainer)


def refuse_trl_examples(world: str, options: dict[str, Any]) -> None:
    pytest.importorskip("trl")
    integrations.trl.prompts("MultimodalWorld", [SEED], shots=1, **PICTURED)


def refuse_skyrl(world: str, options: dict[str, Any]) -> None:
    skyrl_gym: Any = pytest.importorskip("skyrl_gym")
    name = f"{world}-{len(skyrl_gym.registry)}"
    integrations.skyrl.register(name, world, **options)
    integrations.skyrl.prompts(name, [SEED])


def refuse_skyrl_results(world: str, options: dict[str, Any]) -> None:
    skyrl_gym: Any = pytest.importorskip("skyrl_gym")
    options = {**options, "cover": False} if world == ALBUM else options
    name = f"{world}-{len(skyrl_gym.registry)}"
    integrations.skyrl.register(name, world, **options)
    (row,) = integrations.skyrl.prompts(name, [SEED])
    env = skyrl_gym.make(name, env_config={}, extras={"seed": row["seed"]})
    env.init(row["prompt"])
    env.step(render(ToolCall("turn_page", {})))


def refuse_verl(world: str, options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # verl and Ray cause warnings
        pytest.importorskip("verl")
        verl = integrations.verl
    verl.prompts("loop", world, [SEED], **options)


def refuse_local_model(world: str, options: dict[str, Any]) -> None:
    env = agentgym.make(world, **options)
    chat, _ = env.reset(seed=SEED)
    tokenizer = make_tokenizer([chat.to_text()], 800)
    policy = LocalPolicy(make_model(tokenizer, 32), tokenizer, max_new_tokens=1)
    while not images_of(chat):
        policy([chat])
        chat, *_ = env.step(render(tool_env(env).world.optimal_calls()[0]))
    policy([chat])


def refuse_families(world: str, options: dict[str, Any]) -> None:
    pytest.importorskip("renderers")
    from renderers import Qwen3RendererConfig  # noqa: PLC0415 - has an environment of its own

    words = "<|im_start|> <|im_end|> <|endoftext|> <think> </think> <tool_call> </tool_call>"
    words += " <tool_response> </tool_response>"
    tokenizer = make_tokenizer(["a"], 300)
    tokenizer.add_tokens(words.split(), special_tokens=True)
    renderer = integrations.renderers.FamilyRenderer(tokenizer, Qwen3RendererConfig())
    env = agentgym.make(world, **options)
    chat, _ = env.reset(seed=SEED)
    while not images_of(chat):
        chat, *_ = env.step(render(tool_env(env).world.optimal_calls()[0]))
    renderer.ids(chat)


REFUSERS: dict[str, tuple[Callable[[str, dict[str, Any]], None], str]] = {
    "trl.rollout_func": (refuse_trl_rollouts, "TRL's rollout_func carries only text, and {}"),
    "trl.prompts": (refuse_trl_examples, "TRL's prompts carry only text, and MultimodalWorld"),
    "skyrl": (refuse_skyrl, "SkyRL carries only text, and {}"),
    "skyrl, results": (refuse_skyrl_results, "SkyRL carries only text, and {}"),
    "verl": (refuse_verl, "verl carries only text, and {}"),
    "renderers": (refuse_families, "a local model accepts only text, but the chat contains"),
    "local model": (refuse_local_model, "a local model accepts only text, but the chat contains"),
}


@pytest.mark.parametrize("bridge", REFUSERS)
@pytest.mark.parametrize("world", STACKS)
def test_a_bridge_without_images_refuses_them_by_name(bridge: str, world: str) -> None:
    refuse, message = REFUSERS[bridge]
    name = tool_env(agentgym.make(world)).world_class.__name__
    with pytest.raises((ValueError, PolicyError), match=message.format(name)) as caught:
        refuse(world, STACKS[world])
    assert any(word in str(caught.value) for word in ("; use ", "; remove "))


def test_every_bridge_carries_images_or_refuses_them() -> None:
    tested = {name.partition(",")[0].partition(".")[0] for name in (*CARRIERS, *REFUSERS)}
    assert set(integrations._EXTRAS) == tested & integrations._EXTRAS.keys() | {"mcp"}


@pytest.mark.family(world=[entry.id for entry in worlds()])
def test_a_world_that_shows_images_requires_their_extra(world: str) -> None:
    env = tool_env(agentgym.make(world))
    chat, _ = env.reset(seed=SEED)
    for _ in range(20):
        if calls := env.world.optimal_calls():
            chat, *_ = env.step(render(calls[0]))
    announced = "images" in env.world_class.requirements(env.config)
    assert announced or not images_of(chat)
    env.close()
