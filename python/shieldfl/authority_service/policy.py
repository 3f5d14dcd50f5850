"""What a key authority allows, whatever an aggregator asks: a file that its operator writes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from shieldfl.encryption.registry import REGISTRY, scheme_of
from shieldfl.errors import PolicyError
from shieldfl.rounds.method import Method
from shieldfl.rounds.plan import FederationPlan
from shieldfl.settings import Count, Settings, about, parse_toml, read_settings, read_text, settings_of

_ENROLLING = tuple(name for name, scheme in REGISTRY.items() if scheme.enrols)


@dataclass(frozen=True)
class AuthorityPolicy(Settings):
    """The bounds of every session. A session that was begun keeps those that it was begun under."""

    min_clients: Annotated[
        Count, about("The fewest clients of a total that is opened; a plan with fewer is refused.")
    ] = 3
    most_clients: Annotated[Count, about("Of a session.")] = 10_000
    most_rounds: Annotated[Count, about("Of a session.")] = 10_000
    most_values: Annotated[
        Annotated[int, Meta(ge=1, lt=2**40)], about("Of a model: its parameters and buffers together.")
    ] = 2**28
    most_sessions: Annotated[Count, about("That are begun in all, ended ones among them.")] = 1_000
    most_bytes_in_progress: Annotated[
        int,
        Meta(ge=2**20, lt=2**40),
        about(
            "Of all requests together, in bytes; the process takes several times as much memory. A request that is "
            "larger waits for no others to be there."
        ),
    ] = 2**29
    most_connections: Annotated[Count, about("Of all aggregators, at once.")] = 512
    most_connections_of_one_address: Annotated[Count, about("Of most_connections.")] = 128
    schemes: Annotated[
        tuple[str, ...],
        about("What updates may be encrypted by.", choices=tuple(REGISTRY)),
    ] = _ENROLLING
    registered_clients_only: Annotated[
        bool,
        about(
            "Whether clients prove, when they enrol, that they are among those whom this authority's operator has "
            "registered. Without it an aggregator may make clients up, and have a sum opened of one real client."
        ),
    ] = True

    @classmethod
    def from_file(cls, path: Path) -> AuthorityPolicy:
        """Read a policy. Raises DataError for a file that cannot be read, ParameterError for what it must not say."""
        text = read_text(path, "policy")
        return read_settings(cls, parse_toml(text, tuple(settings_of(cls)), str(path)), str(path))

    def to_toml(self) -> str:
        """Return the file, with what each setting is for."""
        lines = [
            "# What this key authority allows, whatever an aggregator asks. Read when it starts to serve."
        ]
        for key, setting in settings_of(type(self)).items():
            value = getattr(self, setting.name)
            lines += ["", f"# {setting.meaning}", f"{key} = {json.dumps(value)}"]
        return "\n".join(lines) + "\n"

    def check_plan(self, plan: FederationPlan) -> None:
        """Raise PolicyError for a plan that this does not allow, and say which bound it breaks."""
        if plan.min_clients < self.min_clients:
            raise PolicyError(
                f"the plan opens totals of {plan.min_clients} clients, and this authority none of fewer than "
                f"{self.min_clients}: plan with min_clients = {self.min_clients} or more"
            )
        for asked, most, what in (
            (plan.clients, self.most_clients, "clients"),
            (plan.rounds, self.most_rounds, "rounds"),
            (plan.update_size, self.most_values, "values"),
        ):
            if asked > most:
                raise PolicyError(f"the plan has {asked:,} {what}, and this authority allows {most:,}")

    def check_method(self, method: Method) -> None:
        """Raise PolicyError for a method that this does not allow, whatever its plan."""
        used = {scheme_of(parameters).name for parameters in method.purposes.values()}
        if not used:
            raise PolicyError(f"{method.name} encrypts nothing: it needs no key authority")
        if not used <= set(self.schemes):
            raise PolicyError(
                f"{method.name} would encrypt by {', '.join(sorted(used))}, and this authority allows "
                f"{', '.join(self.schemes)}: take one of these as the method's encryption"
            )
        if self.registered_clients_only and not method.enrols:
            raise PolicyError(
                "clients of this method do not enrol, so nobody vouches for them: encrypt by "
                f"{' or '.join(_ENROLLING)}, or have the operator set registered_clients_only = false"
            )
