"""Find a policy: one of ours by its name, or a user's own as `my_policy.py:MyPolicy`."""

import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from typing import Any

import msgspec

from mainspring.document import ScenarioError, suggest
from scheduler.policies import POLICIES

HANDLERS = {
    "on_start": ("now_ns", "gpus", "models", "rng", "out"),
    "on_request": ("now_ns", "request", "out"),
    "on_result": ("now_ns", "result", "out"),
    "on_wake": ("now_ns", "key", "out"),
}
"""What a policy is called with (scheduler/policy.py)."""


def find_policy(ref: str) -> Any:
    """The policy's class. Raises ScenarioError if there is none, or it is not a policy."""
    file, colon, name = ref.rpartition(":")
    if colon:
        return _checked(ref, _from_file(Path(file), name))
    if ref.endswith(".py"):
        own = ", ".join(f"{ref}:{name}" for name in _policies_in(_load(Path(ref))))
        raise ScenarioError(f"{ref}: which class of it? expected {own or f'{ref}:CLASS'}")
    if ref not in POLICIES:
        raise ScenarioError(
            f"no policy {ref}; {suggest(ref, list(POLICIES))} "
            "(one of your own is given as my_policy.py:MyPolicy)"
        )
    return POLICIES[ref]


def policy_file(ref: str) -> Path | None:
    """The file that a policy of a user's own is in."""
    file, colon, _ = ref.rpartition(":")
    return Path(file) if colon else None


def _from_file(file: Path, name: str) -> Any:
    module = _load(file)
    if not hasattr(module, name):
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        raise ScenarioError(f"{file}: no class {name}; {suggest(name, classes)}")
    return getattr(module, name)


def _policies_in(module: Any) -> list[str]:
    """Its classes that have the handlers of a policy."""
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and all(hasattr(value, handler) for handler in HANDLERS)
    ]


def _load(file: Path) -> Any:
    if not file.is_file():
        raise ScenarioError(f"{file}: no such file; expected a Python file with a policy in it")
    module_name = f"_policy_{file.stem}"
    spec = importlib.util.spec_from_file_location(module_name, file.absolute())
    if spec is None or spec.loader is None:
        raise ScenarioError(f"{file}: not a Python file; expected a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # annotations are looked up there by name
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's file raises is the user's to see, in one line
        raise ScenarioError(f"{file}{_line_of(file, error)}: {_told(error)}") from error
    return module


def _checked(ref: str, policy: Any) -> Any:
    missing = [handler for handler in HANDLERS if not callable(getattr(policy, handler, None))]
    if missing:
        raise ScenarioError(f"{ref} is not a policy: it has no {', '.join(missing)}")
    params = getattr(policy, "Params", None)
    if not (isinstance(params, type) and issubclass(params, msgspec.Struct)):
        raise ScenarioError(
            f"{ref} is not a policy: it has no Params; expected a "
            "class Params(msgspec.Struct, forbid_unknown_fields=True)"
        )
    calls = {"__init__": ("params",), **HANDLERS}
    for method, arguments in calls.items():
        try:
            inspect.signature(getattr(policy, method)).bind(None, *arguments)
        except TypeError:
            raise ScenarioError(
                f"{ref} is not a policy: it is called as {method}(self, {', '.join(arguments)}), "
                "and takes other arguments"
            ) from None
    return policy


def _line_of(file: Path, error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == file.absolute()]
    return f", line {lines[-1]}" if lines else ""


def _told(error: Exception) -> str:
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return " ".join(f"{type(error).__name__}: {message}".split())
