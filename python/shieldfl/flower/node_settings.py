"""What a node's operator settles in its configuration, whatever a server or an app says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from shieldfl.authority_service.identity import ClientIdentity, signed_setup_of
from shieldfl.errors import PolicyError
from shieldfl.methods.discovery import method_class
from shieldfl.methods.protocol.method import Method
from shieldfl.methods.protocol.public_setup import PublicSetup
from shieldfl.methods.registry import method_of
from shieldfl.roles.message import Message, Part
from shieldfl.settings import Settings, Text, about, settings_of

__all__ = ["NodeSettings"]

_PREFIX = "shieldfl-"


@dataclass(frozen=True)
class NodeSettings(Settings):
    """The settings of a SuperNode, each with ``shieldfl-`` before its name in ``--node-config``."""

    store: Annotated[
        Text | None,
        about("The folder, of this node alone, with its secrets and what it has sent.", metavar="FOLDER"),
    ] = None
    authority_key: Annotated[
        Text | None,
        about(
            "The public key of the key authority that this node believes, 64 hexadecimal digits. Of several all, with "
            "commas between them: a run has to have these, each of which protects the node on its own.",
            key="authority-key",
        ),
    ] = None
    client_key: Annotated[
        Text | None,
        about("The private key by which the authority knows this node.", key="client-key", metavar="FILE"),
    ] = None
    client_name: Annotated[
        Text | None,
        about("The name under which the authority's operator has enrolled that key.", key="client-name"),
    ] = None
    methods: Annotated[
        Text | None,
        about(
            "The methods that this node takes part in, with commas between them. Left out, those in which all that "
            "ever leaves is encrypted, whatever their settings."
        ),
    ] = None
    method_settings: Annotated[
        Text | None,
        about(
            "Settings of the method that this node insists on, a table in JSON. What is not in it is the server's "
            "choice.",
            key="method-settings",
        ),
    ] = None
    openers: Annotated[
        Text,
        about(
            "Who may open sums of this node's updates, with commas between them: clients, aggregator (the server, "
            "which then sees every mean), authority."
        ),
    ] = "clients"
    repeats: Annotated[
        bool,
        about(
            "Whether this node sends the same update in two runs or rounds, as repeatable training gives it. A server "
            "that has it summed with others in one, and not in the other, then learns it."
        ),
    ] = False
    threads: Annotated[
        int | None, about("For encryption; as many as the work is worth where it is left out.")
    ] = None

    @classmethod
    def of(cls, node_config: Mapping[str, Any]) -> NodeSettings:
        """Read a node's configuration. Raises PolicyError for a setting that there is not, ParameterError."""
        known = settings_of(cls)
        values = {}
        for key, value in node_config.items():
            if not key.startswith(_PREFIX):
                continue
            name = key.removeprefix(_PREFIX)
            if name not in known:
                allowed = ", ".join(f"{_PREFIX}{one}" for one in known)
                raise PolicyError(f"the node's configuration has no setting {key!r}: choose from {allowed}")
            values[known[name].name] = known[name].read(value, _PREFIX)
        return cls(**values)

    @property
    def is_deployed(self) -> bool:
        """Whether an operator has set this node up for protected runs."""
        return self.authority_key is not None or self.store is not None

    def checked_setup(self, message: Message, *, simulated: bool) -> PublicSetup:
        """Return a public set-up that this node takes part in.

        Raises KeyMismatchError for one that the pinned authority has not signed, PolicyError where none is pinned
        outside of a simulation, and for a method that the node's operator does not allow; both before anything is made
        of the set-up's numbers.
        """
        content = bytes(message["setup"])
        is_signed = self.authority_key is not None and "signature" in message
        if self.authority_key is not None and is_signed:
            content = signed_setup_of(message, self.authority_key)
        setup = PublicSetup.trusted(content)
        has_keys = bool(method_class(setup.method).schemes)
        is_restricted = self.is_deployed or not simulated
        if is_restricted:
            self._check_name(setup.method)
        needs_signature = self.authority_key is not None or not simulated
        if has_keys and needs_signature and not is_signed:
            raise PolicyError(
                "outside of a simulation a node takes part under a key authority that it pins, which serves the run: "
                "set shieldfl-authority-key in the node's configuration, and shieldfl.authority in the app's"
            )
        method = method_of(setup)
        if is_restricted:
            self._check_allowed(method)
        return setup

    def check_planned(self, planned: Part, *, simulated: bool) -> None:
        """Raise PolicyError for a run that the operator does not allow, before the node trains for it.

        Also for one in which all clients count alike: nothing of it needs the number of samples, which has no noise.
        Nobody has signed this: what the run is to be is looked at again in its set-up.
        """
        setup = PublicSetup.trusted(bytes(planned))
        is_restricted = self.is_deployed or not simulated
        if is_restricted:
            self._check_name(setup.method)
        method = method_of(setup)
        if is_restricted:
            self._check_allowed(method)
        if method.weighs_all_alike:
            raise PolicyError(
                f"the server asks how many samples there are, and all clients of {method.name} count alike"
            )

    def _check_name(self, name: str) -> None:
        """Raise PolicyError for a method that is not among those that the operator has listed, if any are."""
        allowed = None if self.methods is None else _listed(self.methods)
        if allowed is not None and name not in allowed:
            raise PolicyError(
                f"this node takes part in {', '.join(sorted(allowed))}, and not in {name}: ask its operator"
            )

    def _check_allowed(self, method: Method) -> None:
        """Raise PolicyError for a method, an opener or settings that the operator has not allowed."""
        if self.methods is None and not (method.purposes and method.hides_all):
            raise PolicyError(
                f"{method.name} does not encrypt all that it sends, and this node's operator has not allowed it: set "
                f'shieldfl-methods="{method.name}" in its configuration'
            )
        if method.purposes and method.opener not in _listed(self.openers):
            raise PolicyError(
                f"sums of this run would be opened by {method.opened_by}, which this node's operator has not allowed: "
                f'set shieldfl-openers="{method.opener}" in its configuration'
            )
        given = dict(method.own_settings)
        for name, value in self._insisted().items():
            if given.get(name) != value:
                raise PolicyError(
                    f"this node insists on {name} = {value!r}, and the run has {given.get(name)!r}: ask its operator"
                )

    def _insisted(self) -> dict[str, Any]:
        try:
            return msgspec.json.decode(self.method_settings or "{}", type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError):
            raise PolicyError("shieldfl-method-settings is no table in JSON") from None

    def signed(self, setup: PublicSetup, index: int, enrolment: Message) -> Message:
        """Return an enrolment, signed where this node has a key that the authority's operator knows."""
        if self.client_key is None or not enrolment:
            return enrolment
        if self.client_name is None:
            raise PolicyError("the node has a client key and no name for it: set shieldfl-client-name, too")
        identity = ClientIdentity.load(Path(self.client_key))
        return identity.signed_enrolment(self.client_name, setup.digest, index, enrolment)


def _listed(text: str) -> set[str]:
    return {one.strip() for one in text.split(",")}
