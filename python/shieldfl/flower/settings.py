"""What an app says of its protected run, and a node's operator settles, whatever a server or app says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from shieldfl.authority.message import Message, Part
from shieldfl.authority_service.identity import ClientIdentity, signed_setup_of
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.flower.records import BUFFERS
from shieldfl.methods.registry import MethodSettings, method_class, method_of
from shieldfl.rounds.method import Method
from shieldfl.rounds.plan import PublicSetup
from shieldfl.settings import Count, Positive, Settings, Text, about, read_settings

_PREFIX, _NODE_PREFIX = "shieldfl.", "shieldfl-"


@dataclass(frozen=True)
class FederationSettings(Settings):
    """The settings of a protected run: ``[tool.flwr.app.config.shieldfl]`` of an app's pyproject.toml."""

    joins_words_by = "-"
    clients: Annotated[
        Count, about("Number of nodes in the federation. The run waits until all are connected.")
    ]
    method: Annotated[Text, about("Method that protects the updates.")] = "full-he"
    min_clients: Annotated[
        Count,
        about("Fewest clients in a round. A round with fewer is given up, and no smaller sum is opened."),
    ] = 3
    max_clients: Annotated[
        Count | None,
        about(
            "Most clients in a round. Sums have room for this many: a smaller bound takes fewer bytes. "
            "Default: all."
        ),
    ] = None
    opener: Annotated[
        Literal["aggregator", "clients", "authority"] | None,
        about(
            "Who opens sums. aggregator: the server alone, which then has the model. clients: each "
            "client; neither server nor key authority sees an opened value. authority: the key "
            "authority, which gets the sums. Default: the server if the method allows it, else clients "
            "if they can, else the authority; the log names it."
        ),
    ] = None
    weighting: Annotated[
        Literal["uniform", "samples"],
        about("Weights of clients in the mean: their numbers of samples, or 1 for each."),
    ] = "samples"
    most_weight: Annotated[
        Annotated[int, Meta(ge=1, lt=2**32)] | None,
        about(
            "Largest number of samples of a client. A larger value leaves fewer bits for precision. "
            "Default: the largest that a client states."
        ),
    ] = None
    server_learning_rate: Annotated[Positive, about("Factor of the server's step; 1 is FedAvg.")] = 1.0
    buffers: Annotated[
        Text,
        about("Arrays that are statistics, not parameters: patterns of names, separated by commas."),
    ] = BUFFERS
    threads: Annotated[
        int | None, about("Threads of the server for its sums. Default: as many as the work is worth.")
    ] = None
    authority: Annotated[
        Text | None,
        about(
            "Address of the key authority, https://... Left out in a simulation, where it runs in the "
            "server's process. Two or three authorities, which all have to answer, are separated by "
            "commas."
        ),
    ] = None
    authority_key: Annotated[
        Text | None,
        about(
            "Public key of the key authority, 64 hexadecimal digits. Keys of several authorities are "
            "separated by commas, in the order of their addresses."
        ),
    ] = None
    authority_tls: Annotated[
        Text | None,
        about(
            "Folder with the server's certificate for the authority, and the CA's certificate. One "
            "folder for each authority, separated by commas."
        ),
    ] = None
    authority_name: Annotated[Text, about("Name of the server's certificate in that folder.")] = "aggregator"
    checkpoint: Annotated[
        Text | None,
        about(
            "Folder of the server, for this run alone. After each round the server writes there what it "
            "needs to resume."
        ),
    ] = None
    resume: Annotated[bool, about("Resume the run from its checkpoint.")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.authority is not None and (self.authority_key is None or self.authority_tls is None):
            raise ParameterError(
                "a key authority is reached with its public key and a certificate: set "
                "shieldfl.authority-key and shieldfl.authority-tls, too"
            )
        if self.resume and self.checkpoint is None:
            raise ParameterError("there is no checkpoint to resume from: set shieldfl.checkpoint")

    @classmethod
    def of(cls, run_config: Mapping[str, Any]) -> tuple[FederationSettings, MethodSettings]:
        """Read an app's configuration: these settings, and the method's, ``[...shieldfl.settings]``.

        Empty values count as left out. Raises ParameterError for an unknown setting, and for a value that a
        setting cannot have.
        """
        head = f"{_PREFIX}settings."
        own = {key: value for key, value in run_config.items() if key.startswith(_PREFIX) and value != ""}
        of_method = {key.removeprefix(head): own.pop(key) for key in list(own) if key.startswith(head)}
        settings = read_settings(cls, own, "the app's configuration", _PREFIX)
        return settings, MethodSettings().changed(settings.method, of_method)


@dataclass(frozen=True)
class NodeSettings(Settings):
    """The settings of a SuperNode, each with ``shieldfl-`` before its name in ``--node-config``."""

    joins_words_by = "-"
    store: Annotated[
        Text | None,
        about("Folder of this node alone. It holds the node's secrets and a record of what it sent."),
    ] = None
    authority_key: Annotated[
        Text | None,
        about(
            "Public key of the key authority that this node trusts, 64 hexadecimal digits. Several keys "
            "are separated by commas: the run must then use all these authorities, and one honest "
            "authority protects the node."
        ),
    ] = None
    client_key: Annotated[
        Text | None, about("File with the private key that identifies this node to the authority.")
    ] = None
    client_name: Annotated[
        Text | None, about("Name under which the authority's operator registered that key.")
    ] = None
    methods: Annotated[
        Text | None,
        about(
            "Methods that this node takes part in, separated by commas. Default: the methods that "
            "encrypt all that a client sends, whatever their settings."
        ),
    ] = None
    method_settings: Annotated[
        Text | None,
        about(
            "Settings of the method that this node requires, as a JSON object. The server chooses all "
            "other settings."
        ),
    ] = None
    openers: Annotated[
        Text,
        about(
            "Who may open sums that contain this node's updates, separated by commas: clients, "
            "aggregator (the server, which then sees every mean), authority."
        ),
    ] = "clients"
    repeats: Annotated[
        bool,
        about(
            "Allow this node to send the same update in two runs or rounds, as deterministic training "
            "produces it. If all others repeat theirs, and a sum leaves this node out, the server learns "
            "the update."
        ),
    ] = False
    threads: Annotated[
        int | None, about("Threads for encryption. Default: as many as the work is worth.")
    ] = None

    @classmethod
    def of(cls, node_config: Mapping[str, Any]) -> NodeSettings:
        own = {key: value for key, value in node_config.items() if key.startswith(_NODE_PREFIX)}
        return read_settings(cls, own, "the node's configuration", _NODE_PREFIX)

    def checked_setup(self, message: Message, *, simulated: bool) -> PublicSetup:
        """Return a public set-up that this node takes part in.

        Raises KeyMismatchError for one that the pinned authority has not signed, PolicyError where none is
        pinned outside of a simulation, and for a method that the node's operator does not allow: before its
        numbers are used.
        """
        content, is_believed = bytes(message["setup"]), simulated and self.authority_key is None
        if self.authority_key is not None and "signature" in message:
            content, is_believed = signed_setup_of(message, self.authority_key), True
        setup = PublicSetup.trusted(content)
        self._allowed(setup, simulated=simulated, is_believed=is_believed)
        return setup

    def check_planned(self, planned: Part, *, simulated: bool) -> None:
        """Raise PolicyError for a run that the operator does not allow, before the node trains for it.

        Also for one in which all clients count alike: it does not need the number of samples, which has no
        noise. Nobody has signed this plan: the run's set-up is checked again.
        """
        method = self._allowed(PublicSetup.trusted(bytes(planned)), simulated=simulated, is_believed=True)
        if method.weighs_all_alike:
            raise PolicyError(f"the server asks for samples, and all clients of {method.name} count alike")

    def _allowed(self, setup: PublicSetup, *, simulated: bool, is_believed: bool) -> Method:
        """Return a set-up's method.

        Raises PolicyError for what the operator does not allow, and for keys that no pinned authority vouches
        for.
        """
        # An operator has set it up for protected runs.
        is_restricted = self.authority_key is not None or self.store is not None or not simulated
        taken = sorted(listed(self.methods or setup.method))
        if is_restricted and setup.method not in taken:
            raise PolicyError(
                f"this node takes part in {', '.join(taken)}, and not in {setup.method}: ask its operator"
            )
        if method_class(setup.method).schemes and not is_believed:
            raise PolicyError(
                "outside of a simulation a node takes part under a key authority that it pins, which serves "
                "the run: set shieldfl-authority-key in the node's configuration, and shieldfl.authority in "
                "the app's"
            )
        method = method_of(setup)
        if is_restricted:
            self._check_allowed(method)
        return method

    def _check_allowed(self, method: Method) -> None:
        if self.methods is None and not (method.purposes and method.hides_all):
            raise PolicyError(
                f"{method.name} does not encrypt all that it sends, and this node's operator has not allowed "
                f'it: set shieldfl-methods="{method.name}" in its configuration'
            )
        if method.purposes and method.opener not in listed(self.openers):
            raise PolicyError(
                f"sums of this run would be opened by {method.opened_by}, which this node's operator has not "
                f'allowed: set shieldfl-openers="{method.opener}" in its configuration'
            )
        try:
            insisted = msgspec.json.decode(self.method_settings or "{}", type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError):
            raise PolicyError("shieldfl-method-settings is no table in JSON") from None
        given = dict(method.own_settings)
        for name, value in insisted.items():
            if given.get(name) != value:
                raise PolicyError(
                    f"this node insists on {name} = {value!r}, and the run has {given.get(name)!r}: ask its "
                    "operator"
                )

    def signed(self, setup: PublicSetup, index: int, enrolment: Message) -> Message:
        if self.client_key is None or not enrolment:
            return enrolment
        if self.client_name is None:
            raise PolicyError("the node has a client key and no name for it: set shieldfl-client-name, too")
        identity = ClientIdentity.load(Path(self.client_key))
        return identity.signed_enrolment(self.client_name, setup.digest, index, enrolment)


def listed(text: str) -> list[str]:
    return [one.strip() for one in text.split(",")]
