"""A kahe session as the parties of a job have it: what is public of it, and a site's own memory.

A site enrols in the session whose ``session.json`` lies in a folder of its own, ``local/NAME`` of its workspace:

    python kahe_session.py request FOLDER site-1 site-1.request
    python kahe_session.py take-grant FOLDER site-1.grant
"""

from __future__ import annotations

import argparse
import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import shieldfl as sf
from shieldfl.authority.client_store import ClientStore
from shieldfl.authority.private_file import write_private_file
from shieldfl.models import ModelLayout

SESSION_FILE = "session.json"
_STORE, _STORE_KEY = "client.store", "client.store.key"


def values_of(layout: ModelLayout) -> int:
    """Return how many values a frame has: those of the model, each times the client's weight, and the weight."""
    return layout.size + 1


@dataclass(frozen=True)
class Session:
    """What all parties know of a session. It comes from the authority's operator, on a way that nobody can tamper with.

    One session is for one job: the rounds of a session go up and never begin again.
    """

    public_key: sf.kahe.PublicKey
    layout: ModelLayout
    """Of the model that the job trains: a model with other arrays is refused."""
    most_steps: int
    """The most steps that a client makes in a round: weights are in parts of it."""
    authority: str
    """Where the key authority is served, such as ``127.0.0.1:7445``."""

    @property
    def values(self) -> int:
        """How many values a frame has."""
        return values_of(self.layout)

    def to_json(self) -> str:
        """Encode."""
        identity = self.public_key.authorities[0]
        return json.dumps(
            {
                "public_key": self.public_key.to_bytes().hex(),
                "identity": identity.to_bytes().hex(),
                "layout": self.layout.to_json(),
                "most_steps": self.most_steps,
                "authority": self.authority,
            }
        )

    @classmethod
    def read(cls, folder: Path) -> Session:
        """Read the session of a folder. Raises OSError, ValueError."""
        read: dict[str, Any] = json.loads((folder / SESSION_FILE).read_text())
        return cls(
            sf.kahe.PublicKey.from_bytes(bytes.fromhex(read["public_key"]), bytes.fromhex(read["identity"])),
            ModelLayout.from_json(read["layout"]),
            int(read["most_steps"]),
            str(read["authority"]),
        )

    def weighted(self, model: dict[str, Any], steps: int) -> NDArray[np.float64]:
        """Return what a client encrypts: its model times its weight, then the weight, (values,).

        Raises ParameterError for a model of another layout, ValueError for steps that are out of range.
        """
        if not 0 < steps <= self.most_steps:
            raise ValueError(
                f"the client made {steps} steps, and the session is for 1 to {self.most_steps}: set one up for more"
            )
        weight = steps / self.most_steps
        return np.append(self.layout.flatten(model) * weight, weight)

    def mean(self, sums: NDArray[np.float64], clients: int) -> dict[str, NDArray[np.float32]]:
        """Return the mean model, by name, of what a total opens to. Raises ValueError for weights that cannot be."""
        weight = sums[-1]
        if not 0.0 < weight <= clients:
            raise ValueError(f"the weights of {clients} clients sum to {weight:.3g}: one of them is forged")
        values = (sums[:-1] / weight).astype(np.float32)
        parts = self.layout.parameters
        slices = dict(parts.slices())
        return {
            name: values[slices[name]].reshape(shape)
            for name, shape in zip(parts.names, parts.shapes, strict=True)
        }


class ClientSite:
    """A site's folder of a session: the session, and the memory of what the site has sent.

    Parameters
    ----------
    folder : that :meth:`request` made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.session = Session.read(folder)

    def store(self) -> ClientStore:
        """Open the memory, for use in ``with``: one process has it at a time."""
        return ClientStore(self.folder / _STORE, (self.folder / _STORE_KEY).read_bytes())

    @classmethod
    def request(cls, folder: Path, site: str) -> bytes:
        """Draw the site's secret, beside the session that lies in its folder; return the request for the authority.

        It has to come to the authority's operator by a way that tells who sent it. Raises PolicyError where the folder
        has a secret already.
        """
        if (folder / _STORE_KEY).exists():
            raise sf.PolicyError(
                f"{folder} has this site's secret already: a second one would lose the first"
            )
        key = secrets.token_bytes(32)
        write_private_file(folder / _STORE_KEY, key)
        with ClientStore.create(folder / _STORE, key) as store:
            (request,) = store.enrol(Session.read(folder).public_key, site)
        return request

    def take_grant(self, grant: bytes) -> None:
        """Take what the authority's operator gave for the request: what opens the authority's answers."""
        with self.store() as store:
            store.take_grant(self.session.public_key, grant)


def main() -> None:
    """Run a command of a site."""
    parser = argparse.ArgumentParser(description="A site's part in setting a session up.")
    commands = parser.add_subparsers(dest="command", required=True)
    asks = commands.add_parser(
        "request", help="draw the site's secret, and write the request for the authority"
    )
    asks.add_argument("folder", type=Path)
    asks.add_argument("site", help="its name in NVFlare")
    asks.add_argument("request", type=Path)
    takes = commands.add_parser("take-grant", help="take what the authority's operator gave for the request")
    takes.add_argument("folder", type=Path)
    takes.add_argument("grant", type=Path)
    given = parser.parse_args()
    if given.command == "request":
        given.request.write_bytes(ClientSite.request(given.folder, given.site))
    else:
        ClientSite(given.folder).take_grant(given.grant.read_bytes())


if __name__ == "__main__":
    main()
