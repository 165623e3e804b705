from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

import agentgym
from agentgym import Chat, Message, Reply
from agentgym.oracles import OraclePolicy
from agentgym.play.policy import PolicyError
from agentgym.training.rl import rows
from agentgym.training.rl.batches import batch, logprobs_of
from agentgym.training.rl.cloning import Tokenized
from agentgym.training.rollout import LocalPolicy, Renderer, collect, make_renderer, rollout
from agentgym.training.rollout.models.renderer import ChatTemplate
from tests.training.rollout.chat_families import FAMILIES, make_family_tokenizer, make_llama

ENV = agentgym.spec("ListWorld", items=4, removals=2, oracles="P", max_failed_rounds=None)


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Any:
    return FAMILIES[request.param]


def test_the_roles_that_a_template_accepts_are_found_out(family: Any) -> None:
    template = ChatTemplate(make_family_tokenizer(family))
    assert (template.takes_tool, template.takes_system, template.takes_neighbours) == (
        family.tool,
        family.system,
        family.neighbours,
    )


def test_all_that_is_said_is_in_the_prompt_and_marks_are_single(family: Any) -> None:
    tokenizer = make_family_tokenizer(family)
    renderer = Renderer(tokenizer)
    trajectory = rollout(
        OraclePolicy("ListWorld"), agentgym.make("ListWorld", items=4, removals=2), 0
    )
    chat = trajectory.steps[-1].chat
    text = tokenizer.decode(list(renderer.ids(chat)))
    for message in chat.messages:
        assert (message.raw or message.text).strip() in text
    if family.bos and family.end != "</s>":
        assert text.count(family.bos) == 1
    assert text.startswith(family.bos)
    if renderer.template.takes_tool:
        theirs = tokenizer.apply_chat_template(
            [{"role": m.role, "content": m.raw or m.text} for m in chat.messages],
            add_generation_prompt=True,
            return_dict=False,
        )
        assert list(renderer.ids(chat)) == list(theirs)


def test_a_family_plays_with_exact_rows_and_log_probabilities(family: Any) -> None:
    tokenizer = make_family_tokenizer(family)
    model = make_llama(tokenizer)
    player = LocalPolicy(model, tokenizer, 1.0, max_new_tokens=5)
    for trajectory in collect(player, ENV, range(2), 2):
        made = rows(trajectory)
        trained = [i for row in made for i, s in zip(row.ids, row.sampled, strict=True) if s]
        assert trained == [i for step in trajectory.steps for i in step.reply.ids]
        data = batch(made, 0)
        again = logprobs_of(model, data)
        assert ((again - data.logprobs) * data.sampled).abs().max() < 1e-4
        for step in trajectory.steps:
            stops = [i in player.renderer.stops for i in step.reply.ids]
            assert not any(stops[:-1]), "nothing is sampled after the end of a turn"


def test_a_demonstration_ends_its_turn_once_and_goes_on_in_one_row(family: Any) -> None:
    tokenizer = make_family_tokenizer(family)
    teacher = Tokenized(OraclePolicy("ListWorld"), make_renderer(make_llama(tokenizer), tokenizer))
    (trajectory,) = collect(teacher, ENV, [0])
    end = tokenizer.convert_tokens_to_ids(family.end)
    assert all(step.reply.ids[-1] == end for step in trajectory.steps)
    made = rows(trajectory)
    assert (len(made) == 1) == family.grows
    for row in made:
        assert not any(i == j == end for i, j in pairwise(row.ids))


class Counting:
    """Teacher whose state belongs to one episode; it fails or leaves at some seeds."""

    def reset(self, seed: int) -> None:
        self.seed, self.turn = seed, 0

    def __call__(self, chat: Chat) -> Reply:
        self.turn += 1
        if self.turn > 1 and self.seed == 1:
            raise PolicyError("its server is down")
        return Reply(f"turn {self.turn}", ended="over_window" if self.seed == self.turn else "")


def test_demonstrations_keep_the_state_failures_and_ends_of_a_teacher() -> None:
    spec = agentgym.spec("ListWorld", max_failed_rounds=3)
    renderer = Renderer(make_family_tokenizer(FAMILIES["qwen2.5"]))
    made = collect(Tokenized(Counting(), renderer), spec, range(4), 2, ordered=True)
    for one, two in zip(collect(Counting(), spec, range(4), ordered=True), made, strict=True):
        assert [step.reply.text for step in one.steps] == [step.reply.text for step in two.steps]
        assert (one.failure, one.last) == (two.failure, two.last)
        assert [bool(step.reply.ids) for step in two.steps] == [not s.ended for s in one.steps]


def test_every_end_mark_of_the_generation_config_ends_a_reply() -> None:
    # The tokenizer and the generation config have different end tokens. The model samples the
    # end token given in the generation config.
    tokenizer = make_family_tokenizer(FAMILIES["qwen2.5"])
    model = make_llama(tokenizer)
    other = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    model.lm_head = torch.nn.Linear(16, len(tokenizer))
    torch.nn.init.zeros_(model.lm_head.weight)
    model.lm_head.bias.data[other] = 100.0
    chat, _ = agentgym.make("ListWorld").reset(seed=0)
    for setting, length in ((tokenizer.eos_token_id, 4), (other, 1), ([2, other], 1)):
        model.generation_config.eos_token_id = setting
        (reply,) = LocalPolicy(model, tokenizer, 0.0, max_new_tokens=4)([chat])
        assert reply.ids == (other,) * length
        assert (reply.text == "") == (length == 1)


def test_variables_of_the_template_and_the_date_are_ours() -> None:
    qwen = make_family_tokenizer(FAMILIES["qwen3"])
    chat, _ = agentgym.make("ListWorld").reset(seed=0)
    with_thinking, without = (
        qwen.decode(list(Renderer(qwen, options=options).ids(chat)))
        for options in ({}, {"enable_thinking": False})
    )
    assert without == with_thinking + "<think>\n\n</think>\n\n"
    dated = make_family_tokenizer(
        FAMILIES["qwen3"],
        "{{ date_string if date_string is defined else strftime_now('%d %b %Y') }}"
        + FAMILIES["qwen3"].text,
    )
    assert dated.decode(list(Renderer(dated).ids(chat))).startswith("26 Jul 2024")


def test_native_tools_go_to_templates_that_have_a_place_for_them() -> None:
    tokenizer = make_family_tokenizer(FAMILIES["qwen2.5"])
    chat, _ = agentgym.make("ListWorld").reset(seed=0)
    native, plain = (
        tokenizer.decode(list(Renderer(tokenizer, native_tools=native).ids(chat)))
        for native in (True, False)
    )
    for tool in chat.tools:
        assert f'"name": "{tool.name}"' in native.partition("</tools>")[0]
    assert "</tools>" not in plain
    with pytest.raises(ValueError, match="native_tools requires a chat template that shows tools"):
        Renderer(make_family_tokenizer(FAMILIES["gemma"]), native_tools=True)


def test_what_cannot_be_used_is_named() -> None:
    tokenizer = make_family_tokenizer(FAMILIES["qwen3"])
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match="has no chat template; use an instruct model"):
        Renderer(tokenizer)
    tokenizer.chat_template = "{{ raise_exception('never') }}"
    with pytest.raises(ValueError, match="omits user messages"):
        Renderer(tokenizer)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match="must have an eos_token"):
        Renderer(tokenizer)


def test_a_system_message_that_is_left_out_on_purpose_stays_out() -> None:
    tokenizer = make_family_tokenizer(
        FAMILIES["qwen3"],
        "{% for m in messages if m['role'] != 'system' %}{{ m['content'] }}<|im_end|>{% endfor %}",
    )
    template = ChatTemplate(tokenizer)
    shown = template.render([Message("system", "Rules"), Message("user", "Go")])
    assert shown == "Go<|im_end|>"
