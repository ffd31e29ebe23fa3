"""Secrets: a definition names where a password is, each process reads it there, and it is never shown."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from headrace.errors import DefinitionError, HeadraceError
from headrace.stability import stable

HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is stored. Only the place is sent to tasks; each process reads the value itself."""

    env: str | None = None
    file: str | None = None

    def reveal(self) -> str:
        try:
            if self.env is not None:
                return os.environ[self.env]
            return Path(str(self.file)).read_text(encoding="utf-8").rstrip("\n")
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
    """The plain value behind an option that may be a secret."""
    return value.reveal() if isinstance(value, Secret) else value


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


def without_password(url: str) -> str:
    """A URL for people, with its password hidden.

    >>> without_password("redis://:hunter2@127.0.0.1:6379/0")
    'redis://:***@127.0.0.1:6379/0'
    """
    parts = urlsplit(url)
    # Redis also takes a password in the query.
    query = re.sub(r"(\w*password=)[^&]*", rf"\1{HIDDEN}", parts.query, flags=re.IGNORECASE)
    user, host = parts.netloc.rpartition("@")[::2]
    shown = parts.netloc if parts.password is None else f"{user.partition(':')[0]}:{HIDDEN}@{host}"
    return urlunsplit(parts._replace(netloc=shown, query=query))


def shown_options(options: Mapping[str, str | Secret]) -> dict[str, str]:
    """Options for people, with secrets and everything named like a password or key hidden."""
    telling = ("password", "secret", "token", "key", "jaas")
    return {
        name: HIDDEN if isinstance(value, Secret) or any(word in name.lower() for word in telling) else value
        for name, value in options.items()
    }
