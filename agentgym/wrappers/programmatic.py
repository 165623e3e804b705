"""Programmatic tool calling: Python code that calls the tools."""

from __future__ import annotations

import builtins
import functools
import hashlib
import json
import keyword
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium

from agentgym.assemble.wrapper_order import Stage, StagedWrapper
from agentgym.play.env import ToolEnv
from agentgym.text import reply_work
from agentgym.text.messages import Chat
from agentgym.text.tools import Tool, ToolError, Toolset, tool, tools_of

if TYPE_CHECKING:
    from agentgym.sandboxes import Limits, Sandbox

RUN_PYTHON = "run_python"


class ProgrammaticTools(StagedWrapper[Chat, str, Chat, str]):
    """Wrapper that adds a tool `run_python`, whose code calls the world's tools as functions.

    A call from code waits for its result, runs exactly once, and is checked like a direct call. The
    result goes to the code and to `StepInfo.nested`; the chat shows only printed output. Code
    cannot call tools that end the episode.

    Args:
        sandbox: The interpreter: `monty` or `bubblewrap` (see `agentgym.sandboxes`).
        code_only: Tools that only code can call.
        direct_only: Tools that code cannot call as functions.
        also: Other wrappers' tools, such as the memory tool, that code can call too.
        seconds: The maximum duration of a run.
        memory_mb: The maximum memory of a run.
        output_chars: The maximum number of characters that a run may print.
        calls: The maximum number of calls per run.

    Example:
        >>> env = ProgrammaticTools(gymnasium.make("agentgym/ListWorld-v0"))
    """

    stage: ClassVar[Stage] = Stage.TOOLS

    @staticmethod
    def requirements(sandbox: str = "monty", **_: Any) -> Mapping[str, str]:
        from agentgym.sandboxes import SANDBOXES  # noqa: PLC0415 - few envs run code

        return {SANDBOXES[sandbox].requirement: ""} if sandbox in SANDBOXES else {}

    def __init__(
        self,
        env: gymnasium.Env[Chat, str],
        sandbox: str = "monty",
        code_only: Sequence[str] = (),
        direct_only: Sequence[str] = (),
        also: Sequence[str] = (),
        seconds: float = 10.0,
        memory_mb: int = 256,
        output_chars: int = 20_000,
        calls: int = 1_000,
    ) -> None:
        from agentgym.sandboxes import Limits, make_sandbox  # noqa: PLC0415 - as above

        limits = Limits(seconds, memory_mb, output_chars, calls)
        super().__init__(
            env,
            sandbox=sandbox,
            code_only=list(code_only),
            direct_only=list(direct_only),
            also=list(also),
            seconds=seconds,
            memory_mb=memory_mb,
            output_chars=output_chars,
            calls=calls,
        )
        tools = _choose(self.world_env, code_only, direct_only, also)
        self.toolset = PythonTool(
            self.world_env, make_sandbox(sandbox), limits, frozenset(each.name for each in tools)
        )
        notes = _notes(tools, code_only, self.toolset.sandbox, limits)
        self.world_env.mount(self.toolset, notes, code_only)


@dataclass(eq=False)
class PythonTool(Toolset):
    """Toolset with the tool `run_python`."""

    env: ToolEnv
    sandbox: Sandbox
    limits: Limits
    names: frozenset[str]

    @tool
    def run_python(self, code: str) -> str:
        """Run Python code in which tools are functions, as the section "Tools in code" lists them.

        A call such as `text = tool_name("value", other=1)` does what the tool does and returns its result as a string. Use it to
        make many calls at once: loop, branch on results, keep in variables what you need. Only what the code prints comes back to
        you. Nothing is kept from one run to the next, but what the calls did is done, even if the code fails after them.

        Args:
            code: The program. A call that is refused raises ToolError, which the code may catch.
        """
        started = time.monotonic()
        with reply_work.shared_room():
            result = self.sandbox.run(code, self._functions(), self.limits, self._seed())
        reply_work.spend_seconds(time.monotonic() - started)
        if result.kind == "refused":
            raise ToolError(f"the code was not run: {result.error}")
        printed = result.stdout
        if not result.kind:
            return printed or "(the code printed nothing)"
        separator = "" if not printed or printed.endswith("\n") else "\n"
        return f"{printed}{separator}{result.kind}: {result.error}"

    def _seed(self) -> int:
        world = self.env.world
        text = f"{RUN_PYTHON} {type(world).__qualname__} {world.instance_seed} {world.turn}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")

    def _functions(self) -> dict[str, Callable[..., str]]:
        functions: dict[str, Callable[..., str]] = {}
        for each in self.env.callable_tools:
            if each.name in self.names:
                functions[each.name] = functools.partial(_call, self.env, each)
            elif not hasattr(builtins, each.name):
                functions[each.name] = functools.partial(_refuse, each)
        return functions


def _call(env: ToolEnv, schema: Tool, /, *args: Any, **kwargs: Any) -> str:
    parameters = list(schema.parameters.get("properties", {}))
    if len(args) > len(parameters):
        raise ToolError(
            f"{schema.name} takes {len(parameters)} arguments, got {len(args)}: "
            f"{_signature(schema)}"
        )
    positional = dict(zip(parameters, args, strict=False))
    if twice := positional.keys() & kwargs.keys():
        raise ToolError(
            f"{schema.name} received the argument {sorted(twice)[0]!r} twice: {_signature(schema)}"
        )
    return env.call(schema.name, {**positional, **kwargs}, nested=True).text


def _refuse(schema: Tool, /, *args: Any, **kwargs: Any) -> str:
    why = "it ends the episode" if schema.final else "it is not a function"
    raise ToolError(f"{schema.name} cannot be called from code: {why}; call it directly")


def _choose(
    env: ToolEnv, code_only: Sequence[str], direct_only: Sequence[str], also: Sequence[str]
) -> list[Tool]:
    tools = {each.name: each for each in env.callable_tools}
    for option, names in {"code_only": code_only, "direct_only": direct_only, "also": also}.items():
        for name in names:
            if name not in tools:
                raise ValueError(
                    f"{option} names {name!r}, which is not a tool; tools: {', '.join(tools)}"
                )
            if option != "direct_only" and tools[name].final:
                raise ValueError(
                    f"{option} names {name!r}, which ends the episode; only direct calls can use "
                    "such a tool"
                )
            if option != "direct_only" and name in direct_only:
                raise ValueError(f"{option} and direct_only must not both name {name!r}")
    wanted = {*also, *code_only}
    for owner in env.world_class(env.config, 0).toolsets():
        wanted.update(tools_of(owner))
    chosen = []
    for name, each in tools.items():
        if name not in wanted or name in direct_only or each.final:
            continue
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(
                f"the tool {name!r} cannot be a function with this name; "
                "add the tool to direct_only"
            )
        chosen.append(each)
    return chosen


def _notes(
    tools: Sequence[Tool], code_only: Sequence[str], sandbox: Sandbox, limits: Limits
) -> str:
    lines = ["# Tools in code", f"In the code of {RUN_PYTHON} these are functions:"]
    for each in tools:
        lines.append(f"- {_signature(each)}")
        if each.name in code_only:
            lines.append(f"  Only code can call it. {each.description}")
            for name, item in each.parameters.get("properties", {}).items():
                if item.get("description"):
                    lines.append(f"  {name}: {item['description']}")
    lines.append(
        f"One run may take {limits.seconds:g} seconds and {limits.memory_mb} MB, make "
        f"{limits.calls} calls and print "
        f"{limits.output_chars} characters. {sandbox.rules}"
    )
    return "\n".join(lines)


def _signature(schema: Tool) -> str:
    required, types = schema.parameters.get("required", ()), schema.parameters.get("$defs", {})
    arguments = []
    for name, item in schema.parameters.get("properties", {}).items():
        default = "" if name in required else " (optional)"
        if default and "default" in item:
            default = f" = {json.dumps(item['default'], ensure_ascii=False)}"
        arguments.append(f"{name}: {_type(item, types)}{default}")
    return f"{schema.name}({', '.join(arguments)})"


def _type(schema: Mapping[str, Any], types: Mapping[str, Any]) -> str:
    if name := schema.get("$ref", ""):
        return _type(types.get(name.rsplit("/", 1)[-1], {"type": "object"}), types)
    if choices := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        return " or ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)
    if alternatives := schema.get("anyOf"):
        return " or ".join(_type(alternative, types) for alternative in alternatives)
    if schema.get("type") == "array" and "items" in schema:
        return f"array of {_type(schema['items'], types)}"
    return str(schema.get("type", "any"))
