"""Report what this machine lacks for a Makefile target. The script must also run on old Python
versions.

`python3 .ci/preflight.py 4` also checks that 4 GB of disk space is free.
"""

import os
import shutil
import subprocess
import sys
import tempfile

OLDEST = (3, 11)


def main():
    errors = list(missing(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0))
    if not errors:
        for text in limits():
            sys.stderr.write("note: " + text + "\n")
    for text in errors:
        sys.stderr.write("error: " + text + "\n")
    sys.exit(1 if errors else 0)


def missing(gigabytes):
    if sys.version_info < OLDEST:
        yield (
            "Python %d.%d or later is needed, and %s is %d.%d; install one and run: make <target> "
            "PYTHON=python3.12" % (OLDEST + (sys.executable,) + tuple(sys.version_info[:2]))
        )
        return
    for module in ("venv", "ensurepip"):
        try:
            __import__(module)
        except ImportError:
            yield "%s has no module %s; on Debian and Ubuntu: apt install python%d.%d-venv" % (
                (sys.executable, module) + tuple(sys.version_info[:2])
            )
    for folder in (os.getcwd(), tempfile.gettempdir()):
        free = shutil.disk_usage(folder).free / 2.0**30
        needed = gigabytes if folder == os.getcwd() else 0.5
        if free < needed:
            yield "%s has %.1f GB of free disk and %.1f are needed; free some%s" % (
                folder,
                free,
                needed,
                "" if folder == os.getcwd() else ", or set TMPDIR to another folder",
            )
    if not os.access(os.getcwd(), os.W_OK):
        yield "%s cannot be written; clone into a folder of your own" % os.getcwd()


def limits():
    """Yield notes on missing tools and on features whose tests will be skipped."""
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        yield "there is no C compiler; a package without a wheel for this Python would need one (apt install build-essential)"
    if not sys.platform.startswith("linux"):
        yield "the sandboxes of bubblewrap and the office tasks need Linux; their tests are skipped"
    elif os.geteuid() and shutil.which("unshare"):
        made = subprocess.run(["unshare", "--user", "true"], capture_output=True, check=False)
        if made.returncode:
            yield (
                "user namespaces are not allowed here, so the tests of bubblewrap's sandboxes and of the "
                "office tasks are skipped; in Docker run with "
                "--security-opt seccomp=unconfined --security-opt apparmor=unconfined, on Ubuntu "
                "24.04 set "
                "sysctl kernel.apparmor_restrict_unprivileged_userns=0"
            )


if __name__ == "__main__":
    main()
