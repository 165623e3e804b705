"""The command `package`: package a world for OpenEnv or the verifiers hub."""

from __future__ import annotations

import re
from pathlib import Path
from pprint import pformat
from typing import Annotated, Literal

import typer

import agentgym.assemble.registry as registry
from agentgym.cli.common import WorldId, exit_on_user_error, parse_options, write_templates
from agentgym.text.requirements import DISTRIBUTION, PACKAGES
from agentgym.text.tools import first_paragraph
from agentgym.training.rollout.storage import write_text
from agentgym.world.config import make_config
from agentgym.world.world import load_world

_TEMPLATES = Path(__file__).parent / "package_files"
_PLACES = {"app.py": "server/app.py", "module.py": "$module.py"}


def package(
    env_id: WorldId,
    folder: Annotated[Path, "A new or empty folder for the package."],
    target: Annotated[
        Literal["openenv", "verifiers"],
        typer.Option("--for", help="openenv for a server and its image, verifiers for its hub."),
    ],
    options: Annotated[
        list[str],
        typer.Option("--set", help="an option of the stack as name=value; may be repeated."),
    ] = [],  # noqa: B006
    name: Annotated[str, "Name of the package; by default the world's."] = "",
) -> None:
    """Package a world with oracles and context strategies for OpenEnv or the verifiers hub."""
    with exit_on_user_error():
        given = parse_options(options)
        # A verifiers package can play all seats of a team, and an OpenEnv package only one seat.
        make_spec = registry.one_agent_spec if target == "openenv" else registry.spec
        spec = make_spec(env_id, **given)
        short = spec.name.lower()
        name = name or f"agentgym-{short}"
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            raise ValueError(f"--name must be lower-case letters, digits and -, got {name!r}")
        world = load_world(spec.kwargs["world"])
        own = {key: given[key] for key in given if key in world.Config.__dataclass_fields__}
        required = world.requirements(make_config(world, own))
        needed = [each for each in required if each in PACKAGES]
        words = {
            "name": name,
            "module": name.replace("-", "_"),
            "world": spec.id,
            "options": pformat(given, width=80),
            "summary": first_paragraph(world.__doc__),
            "distribution": DISTRIBUTION,
            "extras": ",".join([target, *needed]),
        }
        files = {}
        for source in (_TEMPLATES / target).glob("*.template"):
            files[source] = _PLACES.get(source.stem, source.stem)
        write_templates(folder, files, words)
        if target == "openenv":
            write_text(folder / "server" / "__init__.py", "")
    # pip looks up a bare name on PyPI, even if a folder with that name exists.
    typer.echo(f"wrote {folder}; next: pip install {folder.resolve()}")
