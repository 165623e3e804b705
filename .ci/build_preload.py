"""Build the library that the sandboxes preload (`agentgym/sandboxes/preload/episode.c`).

The `ziglang` compiler targets all platforms, and its builds are reproducible.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import ziglang

FOLDER = Path(__file__).resolve().parents[1] / "agentgym/sandboxes/preload"
HEADERS = Path(ziglang.__file__).parent / "lib/libc/include"
MACHINES = {"x86_64": ("x86-linux-any", []), "aarch64": ("", ["-mno-outline-atomics"])}
# Stack protectors and sanitizers need the C library, which the preloaded library does not link.
FLAGS = (
    "-shared -nostdlib -fPIC -O2 -s -Wall -Wno-unused-parameter -fvisibility=hidden -fno-stack-protector -fno-builtin "
    "-fno-sanitize=all -Wl,-soname,episode.so"
)


def main() -> None:
    source = FOLDER / "episode.c"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    for machine, (more, flags) in MACHINES.items():
        target = f"{machine}-linux-musl"
        folders = [target, "generic-musl", more, f"{machine}-linux-any", "any-linux-any"]
        headers = [word for name in folders if name for word in ("-isystem", str(HEADERS / name))]
        built = FOLDER / f"episode-{machine}.so"
        command = [
            sys.executable,
            "-m",
            "ziglang",
            "cc",
            "-target",
            target,
            *FLAGS.split(),
            *flags,
            *headers,
        ]
        command += [
            '-DEPISODE_FILE="/run/episode/state"',
            f'-DSOURCE="{digest}"',
            source.name,
            "-o",
            str(built),
        ]
        subprocess.run(command, cwd=FOLDER, check=True)
        built.chmod(0o644)
        print(f"{built}: {hashlib.sha256(built.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
