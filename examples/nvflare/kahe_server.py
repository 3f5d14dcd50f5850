"""The server's part: a sum of frames that it cannot open, and a model that it cannot read.

``KaheAggregator`` stands where ``HEInTimeAccumulateWeightedAggregator`` stands. NVFlare's own
``FullModelShareableGenerator`` serves beside it: the model of a round is the total and the authority's answer.
"""

from __future__ import annotations

from pathlib import Path

from kahe_filters import ALGORITHM, ANSWER, FRAME, TOTAL, site_folder
from kahe_session import Session
from key_authority import answer_from
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.aggregator import Aggregator
from nvflare.app_common.abstract.model import ModelLearnable, ModelLearnableKey
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_opt.pt.file_model_persistor import PTFileModelPersistor

import shieldfl as sf
from shieldfl.encryption.enrolment import client_number


class KaheAggregator(Aggregator):
    """Adds clients' frames as they come, and asks the key authority for what opens their sum to the clients.

    Parameters
    ----------
    folder : of the session, in the ``local`` folder of the server's workspace, with the server's certificate for the
        key authority.
    """

    def __init__(self, folder: str = "kahe") -> None:
        super().__init__()
        self.folder = folder
        self._path: Path | None = None
        self._session: Session | None = None
        self._sum: sf.kahe.Aggregator | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Read the session when the job begins."""
        if event_type == EventType.START_RUN:
            self._path = site_folder(fl_ctx, self.folder)
            self._session = Session.read(self._path)

    def accept(self, shareable: Shareable, fl_ctx: FLContext) -> bool:
        """Add a client's frame; say whether it is in the sum. What is refused changes nothing, and is logged."""
        assert self._session is not None
        client = shareable.get_peer_prop(ReservedKey.IDENTITY_NAME, "?")
        try:
            dxo = from_shareable(shareable)
            if dxo.get_meta_prop(MetaKey.PROCESSED_ALGORITHM) != ALGORITHM:
                raise ValueError("it is not encrypted with kahe: the client's job lacks KaheEncryptor")
            if self._sum is None:
                self._sum = sf.kahe.Aggregator(
                    self._session.public_key,
                    round=fl_ctx.get_prop(AppConstants.CURRENT_ROUND),
                    positions=sf.Mask.full(self._session.values),
                    weighted=False,
                )
            self._sum.add(dxo.data[FRAME], client=client_number(client))
        except (sf.ShieldError, ValueError, KeyError) as error:
            self.log_error(fl_ctx, f"the result of {client} is not in the sum: {error}")
            return False
        return True

    def aggregate(self, fl_ctx: FLContext) -> Shareable:
        """Return total and answer. Raises what the authority refuses with, such as PolicyError for too few clients."""
        assert self._session is not None
        assert self._path is not None
        if self._sum is None:
            raise ValueError("no client's result was added in this round, so there is no model of it")
        total = self._sum.total()
        answer = answer_from(self._session.authority, self._path, total.request())
        opened_by_clients = DXO(DataKind.WEIGHTS, {TOTAL: total.to_bytes(), ANSWER: answer})
        opened_by_clients.set_meta_prop(MetaKey.PROCESSED_ALGORITHM, ALGORITHM)
        return opened_by_clients.to_shareable()

    def reset(self, fl_ctx: FLContext) -> None:
        """Begin another round's sum."""
        self._sum = None


class KaheModelPersistor(PTFileModelPersistor):
    """Loads the first model as its base does, and writes what clients can open: no server has a model to write."""

    def save_model(self, ml: ModelLearnable, fl_ctx: FLContext) -> None:
        """Write the newest total and answer beside where the model would be."""
        for name, part in ml[ModelLearnableKey.WEIGHTS].items():
            (Path(self.log_dir) / f"global_model.{name}").write_bytes(part)
