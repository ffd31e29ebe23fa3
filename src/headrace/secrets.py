"""Secrets: a definition names where a password is, each process reads it there, and it is never shown."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from headrace.errors import DefinitionError, HeadraceError
from headrace.redaction import HIDDEN, learn
from headrace.stability import stable

_TELLING = ("pass", "secret", "token", "key", "jaas", "auth", "cookie", "credential")
"""Words in the names of options and headers whose values are secrets."""


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is stored. Only the place is sent to tasks; each process reads the value itself."""

    env: str | None = None
    file: str | None = None

    def reveal(self) -> str:
        try:
            if self.env is not None:
                return learn(os.environ[self.env])
            return learn(Path(str(self.file)).read_text(encoding="utf-8").rstrip("\r\n"))
        except KeyError:
            why = f"the environment has no variable {self.env!r}. Set it"
        except OSError as problem:
            why = f"the secret's file {self.file!r} cannot be read ({problem.strerror}). It must exist"
        raise HeadraceError("SECRET_MISSING", f"{why} for the driver and for the executors.")

    def __repr__(self) -> str:
        return call_text(secret, env=self.env, file=self.file)


@stable
def secret(*, env: str | None = None, file: str | None = None) -> Secret:
    """A secret in an environment variable or a file, for passwords and keys of sources and sinks.

    >>> secret(env="PG_PASSWORD")
    hr.secret(env='PG_PASSWORD')
    """
    if (env is None) == (file is None):
        raise DefinitionError(
            "SECRET_AMBIGUOUS",
            f"hr.secret(env={env!r}, file={file!r}) must name one place. Give env='...' or file='...'.",
        )
    return Secret(env, file)


def revealed(value: str | Secret) -> str:
    """The plain value of a secret; from now on it is redacted."""
    return value.reveal() if isinstance(value, Secret) else learn(value)


def revealed_options(options: Iterable[tuple[str, str | Secret]]) -> dict[str, str]:
    """The plain values of options; those of which are secrets are redacted from now on."""
    return {name: revealed(value) if isinstance(value, Secret) or is_secret(name) else value for name, value in options}


def is_secret(name: str) -> bool:
    """Whether the value of an option or header of this name is a secret.

    >>> is_secret("sasl.password"), is_secret("Authorization"), is_secret("client.id")
    (True, True, False)
    """
    return any(word in name.lower() for word in _TELLING)


def call_text(function: Callable[..., object], *positional: object, **named: Any) -> str:
    """A call of a function of ``hr`` as code, for ``repr``: without defaults, and with a plain password hidden.

    >>> call_text(secret, env="PG_PASSWORD", file=None)
    "hr.secret(env='PG_PASSWORD')"
    """
    code, parameters = [repr(each) for each in positional], signature(function).parameters
    for name, given in named.items():
        value = HIDDEN if name == "password" and isinstance(given, str) else given
        shown = list(value) or None if isinstance(value, tuple) else value
        if shown != parameters[name].default:
            code.append(f"{name}={shown!r}")
    return f"hr.{function.__name__}({', '.join(code)})"


def shown_options(options: Mapping[str, str | Secret]) -> dict[str, str]:
    """Options for people, with secrets hidden."""
    return {name: HIDDEN if isinstance(value, Secret) or is_secret(name) else value for name, value in options.items()}
