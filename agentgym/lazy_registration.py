"""Registration of the worlds of a package without importing their modules.

A module registers its worlds in statements at its top level that call `register`, or a function
whose name begins so. These are run alone, with the constants and functions that they use, which are
read in the same way from the sources of the package; a class stands for its path, `module:Class`.
A module whose registration cannot be run like that is imported. A law compares what this registers
with what importing every module does.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import CodeType, ModuleType
from typing import Any

_DOCSTRING = re.compile(r'\n"""[\w`].*?"""', re.DOTALL)
_STATEMENTS = re.compile(r"\n(?=[A-Za-z_@])")
"""The ends of top-level statements. A text over several lines may be cut; what is left of it does
not compile, and the module is imported. To parse all modules would take a third of the import.
"""
_CALL = re.compile(r"register\w*\(")
_REGISTRATION = re.compile(rf"(?:\w+\.)*{_CALL.pattern}")
_DEFINITION = re.compile(r"(class|def) (\w+)|(\w+)(?:\s*:[^=\n]+)?\s*=(?!=)")
_IMPORT = re.compile(r"(?:from ([\w.]+) )?import (.+)", re.DOTALL)
_COMMENT = re.compile(r"#.*")
_IMPORTED = re.compile(r"([\w.]+)(?: as (\w+))?")


def register_worlds(package: str, skip: Collection[str] = ()) -> None:
    """Register the worlds of the modules in a package and in the packages within it.

    A module that cannot be imported is left out with a warning.

    Args:
        package: The full name of the package.
        skip: Names of packages within it that hold no worlds.
    """
    sources = _Sources(package)
    for module in _walk(package, skip):
        try:
            if _CALL.search(sources.read(module)):
                sources.statements(module).register()
        except Exception:  # noqa: BLE001 - whatever it is, the import says it better
            _import(module)


def _walk(package: str, skip: Collection[str]) -> Iterator[str]:
    """Yield the names of the modules in a package, whose attributes they become."""
    parent = import_module(package)
    vars(parent)["__getattr__"] = partial(_load_submodule, package)
    for info in iter_modules(parent.__path__, f"{package}."):
        if not info.ispkg:
            yield info.name
        elif info.name.rpartition(".")[2] not in skip:
            yield from _walk(info.name, skip)


def _load_submodule(package: str, name: str) -> ModuleType:
    """Import a submodule that is used as an attribute (PEP 562)."""
    full = f"{package}.{name}"
    try:
        return import_module(full)
    except ModuleNotFoundError as error:
        if error.name != full:
            raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}") from None


def _import(module: str) -> None:
    try:
        import_module(module)
    except Exception as error:  # noqa: BLE001 - the module is code of anyone
        warnings.warn(
            f"{module} cannot be imported ({error!r}), so its worlds are missing",
            RuntimeWarning,
            stacklevel=3,
        )


class _Sources:
    """The sources of the modules in a package, read when they are needed."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._statements: dict[str, _Statements] = {}

    def read(self, module: str) -> str:
        """Return the source of a module.

        Raises:
            OSError: It is in no file of its own, but in an archive, say.
            ValueError: There is only its bytecode.
        """
        spec = find_spec(module)
        return Path(spec.origin or "").read_text("utf-8") if spec else ""

    def statements(self, module: str) -> _Statements:
        """Return the statements of a module."""
        if module not in self._statements:
            self._statements[module] = _Statements(module, self.read(module), self)
        return self._statements[module]

    def value(self, module: str, name: str) -> Any:
        """Return what a name in a module stands for; a module outside the package is imported."""
        if module.startswith(f"{self._package}."):
            return self.statements(module).value(name)
        return getattr(import_module(module), name)


class _Statements:
    """The statements at the top level of a module, run when what they bind is needed."""

    def __init__(self, module: str, source: str, sources: _Sources) -> None:
        self._module = module
        self._sources = sources
        self._registrations: list[str] = []
        self._others: list[str] = []
        self._bindings: dict[str, str] = {}
        self._origins: dict[str, tuple[str, str]] = {}
        self._values: dict[str, Any] = {}
        decorator = ""
        for statement in _STATEMENTS.split(_DOCSTRING.sub("", f"\n{source}")):
            if _REGISTRATION.match(statement):
                self._registrations.append(statement)
            elif imported := _IMPORT.match(statement):
                self._add_import(*imported.groups())
            elif not statement.startswith("@"):
                self._add(statement, decorator)
            decorator = statement if statement.startswith("@") else ""

    def _add_import(self, module: str | None, names: str) -> None:
        for name, alias in _IMPORTED.findall(_COMMENT.sub("", names) if "#" in names else names):
            if module is not None:
                self._origins[alias or name] = (module, name)
            else:
                self._bindings[alias or name] = f"import {name} as {alias or name}"

    def _add(self, statement: str, decorator: str) -> None:
        defined = _DEFINITION.match(statement)
        kind, name = (defined[1], defined[2] or defined[3]) if defined else (None, "")
        if kind == "def" and decorator:  # which may make anything of the function, and of it alone
            self._others.append(f"{decorator} {name}")
        elif not name or name in self._bindings or (kind is None and _CALL.search(statement)):
            self._others.append(statement)
        else:
            self._bindings[name] = statement

    def register(self) -> None:
        """Run the registrations.

        Raises:
            LookupError: There are some within other statements, such as a loop.
        """
        if any(map(_CALL.search, self._others)):
            raise LookupError(f"{self._module} registers worlds within other statements")
        for statement in self._registrations:
            self._run(statement)

    def value(self, name: str) -> Any:
        """Return what a name stands for.

        Raises:
            LookupError: A statement that is no definition may change it.
        """
        if any(re.search(rf"\b{name}\b", statement) for statement in self._others):
            raise LookupError(f"{name} of {self._module} is not only defined")
        if name not in self._values:
            self._values[name] = self._evaluate(name)
        return self._values[name]

    def _evaluate(self, name: str) -> Any:
        if name in self._origins:
            return self._sources.value(*self._origins[name])
        statement = self._bindings[name]
        is_class = statement.startswith("class ")
        return f"{self._module}:{name}" if is_class else self._run(statement, name)[name]

    def _run(self, statement: str, binding: str = "") -> dict[str, Any]:
        """Run a statement with what it uses, and return its namespace."""
        flags = annotations.compiler_flag  # of this module's own `from __future__`
        code = compile(statement, self._module, "exec", flags, dont_inherit=True)
        known = (self._origins.keys() | self._bindings.keys()) - {binding}
        namespace = {name: self.value(name) for name in _names(code) & known}
        exec(code, namespace)
        return namespace


def _names(code: CodeType) -> set[str]:
    """Return the global names that a code uses, and those of attributes."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return {*code.co_names}.union(*map(_names, inner))
