"""What an app says of its protected run, in its own configuration."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from shieldfl.authority_service.authority_client import AuthorityClient, AuthorityConnection
from shieldfl.authority_service.certificates import CertificateFiles, client_tls
from shieldfl.authority_service.several_authorities import SeveralAuthorities
from shieldfl.errors import ParameterError
from shieldfl.flower.record_layout import BUFFERS
from shieldfl.methods.discovery import named_method
from shieldfl.methods.settings import MethodSettings
from shieldfl.settings import Count, Positive, Settings, Text, about, settings_of

__all__ = ["FederationSettings"]

_PREFIX = "shieldfl."
_OF_METHOD = "settings."


@dataclass(frozen=True)
class FederationSettings(Settings):
    """The settings of a protected run: ``[tool.flwr.app.config.shieldfl]`` of an app's pyproject.toml."""

    clients: Annotated[Count, about("How many nodes take part; the run waits until so many are there.")]
    method: Annotated[Text, about("How updates are protected.")] = "full-he"
    min_clients: Annotated[
        Count,
        about("Of a round: with fewer it is given up, and no smaller sum is opened.", key="min-clients"),
    ] = 3
    max_clients: Annotated[
        Count | None,
        about(
            "Of a round: with more it is given up. Sums have room for so many: a smaller bound takes fewer bytes. Left "
            "out, all.",
            key="max-clients",
        ),
    ] = None
    opener: Annotated[
        Literal["aggregator", "clients", "authority"] | None,
        about(
            "Who opens sums. aggregator: the server alone, which then has the model. clients: each client; neither "
            "server nor key authority sees an opened value. authority: the key authority, which gets the sums. None: "
            "the server where the method lets it, else clients where they can, else the authority; the log says which."
        ),
    ] = None
    weighting: Annotated[
        Literal["uniform", "samples"],
        about(
            "samples: each client counts by its number of samples, as its ShieldMod(samples=...) says, or its training "
            "before the run's keys are made. uniform: all count alike, as they do in methods that know no weights."
        ),
    ] = "samples"
    most_weight: Annotated[
        Annotated[int, Meta(ge=1, lt=2**32)] | None,
        about(
            "The largest number of samples of a client; left out, the largest that any says. Each doubling beyond that "
            "takes another bit for each value.",
            key="most-weight",
        ),
    ] = None
    server_learning_rate: Annotated[Positive, about("1 is FedAvg.", key="server-learning-rate")] = 1.0
    buffers: Annotated[
        Text,
        about(
            "The arrays that are statistics and no parameters: patterns of names, with commas between them."
        ),
    ] = BUFFERS
    threads: Annotated[
        int | None, about("Of the server, for its sums; as many as the work is worth where it is left out.")
    ] = None
    authority: Annotated[
        Text | None,
        about(
            "The address of the key authority, https://...; none in a simulation, where it is in the server's process. "
            "Of two or three, each of which has to answer, all, with commas between them."
        ),
    ] = None
    authority_key: Annotated[
        Text | None,
        about(
            "Its public key, 64 hexadecimal digits; of several in the order of their addresses, with commas.",
            key="authority-key",
        ),
    ] = None
    authority_tls: Annotated[
        Text | None,
        about(
            "The folder with the certificate that the authority knows the server by, and its CA's; of several one "
            "each, with commas.",
            key="authority-tls",
            metavar="FOLDER",
        ),
    ] = None
    authority_name: Annotated[Text, about("The name of that certificate.", key="authority-name")] = (
        "aggregator"
    )
    checkpoint: Annotated[
        Text | None,
        about(
            "A folder of the server, of this run alone: what it takes to go on is written there after each round.",
            metavar="FOLDER",
        ),
    ] = None
    resume: Annotated[bool, about("Whether to go on from the checkpoint.")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.authority is not None and (self.authority_key is None or self.authority_tls is None):
            raise ParameterError(
                "a key authority is reached with its public key and a certificate: set shieldfl.authority-key and "
                "shieldfl.authority-tls, too"
            )
        if self.resume and self.checkpoint is None:
            raise ParameterError("there is nothing to go on from: set shieldfl.checkpoint")

    @classmethod
    def of(cls, run_config: Mapping[str, Any]) -> tuple[FederationSettings, MethodSettings]:
        """Read an app's configuration: these settings, and the method's, ``[...shieldfl.settings]``.

        What is empty counts as left out. Raises ParameterError for a setting that there is not, or what it must not be.
        """
        known, values, of_method = settings_of(cls), {}, {}
        for key, value in run_config.items():
            name = key.removeprefix(_PREFIX)
            if name == key or value == "":
                continue
            if name.startswith(_OF_METHOD):
                of_method[name.removeprefix(_OF_METHOD)] = value
            elif name in known:
                values[known[name].name] = known[name].read(value, _PREFIX)
            else:
                allowed = ", ".join(f"{_PREFIX}{one}" for one in known)
                raise ParameterError(f"there is no setting {key!r}: choose from {allowed}")
        if "clients" not in values:
            raise ParameterError(f"the app's configuration lacks {_PREFIX}clients: how many nodes take part")
        settings = cls(**values)
        named_method(settings.method)
        methods = MethodSettings()
        return settings, methods.changed(settings.method, of_method) if of_method else methods

    def authority_connection(self) -> AuthorityConnection | None:
        """Return what reaches the key authority; None where there is none. Raises ParameterError, DataError."""
        if self.authority is None or self.authority_key is None or self.authority_tls is None:
            return None
        settings = (self.authority, self.authority_key, self.authority_tls)
        listed = [[one.strip() for one in setting.split(",")] for setting in settings]
        if len({len(each) for each in listed}) > 1:
            raise ParameterError(
                "of several key authorities each has an address, a key and a folder: give shieldfl.authority, "
                "shieldfl.authority-key and shieldfl.authority-tls as many, in one order"
            )
        clients = [
            # A service that is started again takes seconds, and a round waits for it.
            AuthorityClient(address, self._tls_of(folder), key, attempts=10)
            for address, key, folder in zip(*listed, strict=True)
        ]
        return clients[0] if len(clients) == 1 else SeveralAuthorities(clients)

    def _tls_of(self, folder: str) -> ssl.SSLContext:
        return client_tls(CertificateFiles.in_folder(Path(folder), self.authority_name))
