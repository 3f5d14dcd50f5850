"""A client's filters: what a task's result is encrypted by, and what opens the sum that the next task begins from.

They stand where ``HEModelEncryptor`` and ``HEModelDecryptor`` of ``nvflare.app_opt.he`` stand. Unlike these they let
nothing pass that they do not know: what they raise ends in ``TASK_RESULT_FILTER_ERROR`` or ``TASK_DATA_FILTER_ERROR``,
and the server gets that instead of a model.
"""

from __future__ import annotations

from pathlib import Path

from kahe_session import ClientSite
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants

import shieldfl as sf
from shieldfl.errors import RangeError

ALGORITHM = "shieldfl kahe"
FRAME, TOTAL, ANSWER = "frame", "total", "answer"
"""What a DXO's data has: a client's frame on the way up, the total and the authority's answer on the way down."""
_ROUND = "shieldfl_kahe_round"


def site_folder(fl_ctx: FLContext, name: str) -> Path:
    """Return the folder of a session in the ``local`` folder of this site's workspace, where no job writes."""
    return Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_site_config_dir()) / name


class KaheEncryptor(Filter):
    """Encrypts the model that a client has trained, weighted by its steps. Nothing else of the result leaves.

    Parameters
    ----------
    folder : of the session, in the site's ``local`` folder.
    """

    def __init__(self, folder: str = "kahe") -> None:
        super().__init__()
        self.folder = folder
        self._site: ClientSite | None = None

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return a result that has the client's frame, and neither metrics nor other data.

        Raises ValueError for what is no model, ParameterError for one of another layout, RangeError that names the
        tensor for a value that is too large, PolicyError for a second model in a round.
        """
        code = shareable.get_return_code()
        if code != ReturnCode.OK:
            return make_reply(code)
        dxo = from_shareable(shareable)
        if dxo.data_kind != DataKind.WEIGHTS:
            raise ValueError(
                f"a result of kind {dxo.data_kind} is not sent: only models (WEIGHTS) are encrypted"
            )
        steps = dxo.get_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND)
        if not isinstance(steps, int):
            raise ValueError("the result does not say its NUM_STEPS_CURRENT_ROUND, by which it is weighted")
        round_number = fl_ctx.get_prop(_ROUND)
        if round_number is None:
            raise ValueError("no task of a round has come before this result: the job has no KaheDecryptor")
        if self._site is None:
            self._site = ClientSite(site_folder(fl_ctx, self.folder))
        session = self._site.session
        with self._site.store() as store:
            try:
                frame = store.encrypt(
                    session.public_key, session.weighted(dxo.data, steps), round=round_number
                )
            except RangeError as error:
                if error.position is None or error.position >= session.layout.size:
                    raise
                tensor = session.layout.parameters.name_of(error.position)
                raise RangeError(f"{error} (the tensor {tensor!r})") from None
        sent = DXO(DataKind.WEIGHTS, {FRAME: frame})
        sent.set_meta_prop(MetaKey.PROCESSED_ALGORITHM, ALGORITHM)
        return sent.to_shareable()


class KaheDecryptor(Filter):
    """Opens what the server sends, and hands the mean model on.

    Parameters
    ----------
    folder : of the session, in the site's ``local`` folder.
    first_round : the job's first round, whose model comes in the clear, and no other one's.
    """

    def __init__(self, folder: str = "kahe", first_round: int = 0) -> None:
        super().__init__()
        self.folder = folder
        self.first_round = first_round
        self._site: ClientSite | None = None

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the task with a model that can be trained.

        Raises ValueError for a model in the clear after the first round and for another round's total; KeyMismatchError
        for what the authority has not answered to this total, WireFormatError for a total that opens to noise.
        """
        dxo = from_shareable(shareable)
        round_number = shareable.get_header(AppConstants.CURRENT_ROUND)
        if not isinstance(round_number, int):
            raise ValueError("the task does not say its round, and rounds are what frames belong to")
        fl_ctx.set_prop(_ROUND, round_number, private=True, sticky=True)
        if dxo.get_meta_prop(MetaKey.PROCESSED_ALGORITHM) != ALGORITHM:
            if round_number != self.first_round:
                raise ValueError(
                    f"the server sent a model in the clear in round {round_number}: it can have none"
                )
            return shareable
        if self._site is None:
            self._site = ClientSite(site_folder(fl_ctx, self.folder))
        session = self._site.session
        total = sf.kahe.Total.from_bytes(dxo.data[TOTAL])
        if total.round != round_number - 1:
            raise ValueError(
                f"round {round_number} begins from a sum of round {total.round}: it is not the last one"
            )
        with self._site.store() as store:
            sums = store.open(session.public_key, total, dxo.data[ANSWER])
        return DXO(DataKind.WEIGHTS, dict(session.mean(sums, total.clients))).update_shareable(shareable)
