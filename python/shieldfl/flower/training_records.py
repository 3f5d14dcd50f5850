"""An app behind its mod: what a round asks of its training, what training did, and how many samples it counts.

Most methods ask for nothing but the trained arrays, and an app need not know of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from logging import WARNING
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from flwr.supercore import log

from shieldfl.authority.message import Message as RoleMessage
from shieldfl.errors import DataError, ParameterError, PolicyError
from shieldfl.flower.record_layout import RecordLayout
from shieldfl.flower.wire import ASK, COUNTED_METRIC, TRAINING, Number, said
from shieldfl.learning.local_update import LocalUpdate, PrivateSteps, StartingPoint
from shieldfl.rounds.plan import GlobalModel

PROTECTS = ContextVar("protects", default=False)
"""Whether the app is called by a ShieldMod: a function may have another one beside its app's."""
SCORES = "shieldfl.scores"
"""The name of the record with scores: arrays under the names, and of the shapes, of the model's parameters."""

_KEPT = "shieldfl.counted"


def asked_training(start: StartingPoint, client: int) -> ConfigRecord | MetricRecord:
    """Return what a round asks of training: scores, DP-SGD and its noise, synthetic data; of which round and client.

    A round that asks for none of that brings the two numbers as metrics: Flower's mods that clip take no second
    ConfigRecord, and message_size_mod no empty value.
    """
    numbers: dict[str, Any] = {"round": start.round or 0, "client": client}
    noise = start.noise
    if start.scores is None and noise is None and not start.synthetic and not start.synthetic_share:
        return MetricRecord(numbers)
    if start.scores is not None:
        numbers["scores"] = start.scores
    multiplier, norm = (0.0, 0.0) if noise is None else (noise.noise_multiplier, noise.max_grad_norm)
    synthetic = {"synthetic": start.synthetic, "synthetic-share": start.synthetic_share}
    private = {"private": noise is not None, "noise-multiplier": multiplier, "max-grad-norm": norm}
    return ConfigRecord({**numbers, **synthetic, **private})


class App:
    """A ClientApp that handles a message as if an unprotected server had sent it.

    The training by which a node that does not say its number of samples counts them takes place before a run's keys
    are made. What else comes of it is kept in the app's state, and round 1 takes it where it asks for the same.
    """

    def __init__(
        self, message: Message, asked: Mapping[str, Any], context: Context, call_next: ClientAppCallable
    ) -> None:
        self._message, self._asked, self._context, self._call_next = message, asked, context, call_next
        self._state = context.state

    def handled(self, arrays: ArrayRecord, training: ConfigRecord | MetricRecord | None = None) -> Message:
        """Have the app train, or evaluate; where it trained on just this to be counted, return what came of that."""
        content, kept = self._content(arrays, training), self._kept
        if kept.get("given") != content.object_id:
            return self._called(content)
        self._give_app(kept["state"])
        return Message(_records_in(kept["reply"]), reply_to=self._message)

    def _content(self, arrays: ArrayRecord, training: ConfigRecord | MetricRecord | None) -> RecordDict:
        """Return what an unprotected server would send the app: arrays, and the records of its own beside.

        Arrays of the server's own are refused: no signature says what they are, or that all clients get the same.
        """
        content = RecordDict({said(self._asked, "arrays", str): arrays})
        for name, record in self._message.content.items():
            if name.startswith(ASK):
                continue
            if name in content or isinstance(record, ArrayRecord):
                raise PolicyError(
                    f"the server sends {name!r} beside what is protected: a client trains from the run's model and no "
                    "other"
                )
            content[name] = record
        if training is not None:
            content[TRAINING] = training
        return content

    def _called(self, content: RecordDict) -> Message:
        protected, self._message.content = self._message.content, content
        inside = PROTECTS.set(True)
        try:
            return self._call_next(self._message, self._context)
        finally:
            PROTECTS.reset(inside)
            self._message.content = protected

    @property
    def _kept(self) -> Mapping[str, Any]:
        return self._state.config_records.get(_KEPT, ConfigRecord())

    @property
    def counted(self) -> tuple[int | None, RoleMessage | None]:
        """How many samples the app was counted to have, and the model that it trained from for that."""
        model = self._kept.get("model")
        return self._kept.get("samples"), None if model is None else RoleMessage.from_bytes(model)

    def count(self, model: RoleMessage) -> int:
        """Have the app train as its server's first round asks for it; return how many samples that was."""
        layout = RecordLayout.from_json(said(self._asked, "layout", str))
        numbers = GlobalModel.from_message(model, *layout.sizes)
        start = StartingPoint(numbers.parameters, numbers.buffers, round=1)
        apart = layout.apart_from_message(model)
        layout.check(*layout.sizes, apart)
        training = asked_training(start, said(self._asked, "index", Number))
        content = self._content(layout.record_of(start, apart), training)
        given, before = content.object_id, self._state_of_app()
        try:
            reply = self._called(content)
            if reply.has_error():
                raise DataError(reply.error.reason)
        except Exception as error:
            log(WARNING, "shieldfl: the training that counts samples: %s", error, exc_info=error)
            why = "the app's training failed, by which its samples are counted: the node's log says why"
            raise PolicyError(why) from None
        finally:
            after = self._state_of_app()
            self._give_app(before)
        samples = _samples_in(reply.content.metric_records)
        kept: dict[str, Any] = {"samples": samples, "given": given, "model": numbers.to_message().to_bytes()}
        self._state[_KEPT] = ConfigRecord({**kept, "state": after, "reply": _bytes_of(reply.content)})
        return samples

    def _state_of_app(self) -> bytes:
        own = {name: one for name, one in self._state.items() if not name.startswith(ASK)}
        return _bytes_of(RecordDict(own))

    def _give_app(self, state: bytes) -> None:
        for name in [one for one in self._state if not one.startswith(ASK)]:
            del self._state[name]
        self._state.update(_records_in(state))

    def forget_training(self) -> None:
        """Let go of all but the count: what comes of that training is on its way, or will not be asked for."""
        if _KEPT in self._state:
            self._state[_KEPT] = ConfigRecord({"samples": self._kept["samples"]})


def _bytes_of(records: RecordDict) -> bytes:
    return bytes(recorddict_to_proto(records).SerializeToString())


def _records_in(data: bytes) -> RecordDict:
    return recorddict_from_proto(ProtoRecordDict.FromString(data))


def _samples_in(metrics: Mapping[str, MetricRecord]) -> int:
    said_so = [record[COUNTED_METRIC] for record in metrics.values() if COUNTED_METRIC in record]
    if not said_so:
        raise PolicyError(
            "the app does not say how many samples it has trained on: return them as the metric "
            f"{COUNTED_METRIC!r}, a whole number, or give it ShieldMod(samples=...)"
        )
    found = said_so[0]
    if not isinstance(found, int | float) or not 0 <= found < 2**32 or found != int(found):
        raise PolicyError(
            f"the app's metric {COUNTED_METRIC!r} is no whole number, at least 0 and below 2^32: return how many "
            "samples it has trained on, or give it ShieldMod(samples=...)"
        )
    return int(found)


def done_training(update: LocalUpdate, *, synthetic: bool) -> ConfigRecord:
    private = update.private_steps
    steps, rate = (0, 0.0) if private is None else (private.steps, private.sample_rate)
    return ConfigRecord({"synthetic": synthetic, "steps": steps, "sample-rate": rate})


def update_of(content: RecordDict, start: StartingPoint, layout: RecordLayout) -> LocalUpdate:
    """Return what an app's reply says that it has trained.

    Raises PolicyError where a round asks for synthetic data or private training, and the reply does not say that it was
    so; ParameterError for missing scores, for other arrays than the model's, or several records of them.
    """
    models = dict(content.array_records)
    scores = models.pop(SCORES, None)
    if len(models) != 1:
        raise ParameterError(
            f"the app's reply has {len(models)} records of arrays: return the trained model in one, and nothing else"
        )
    told: dict[str, Any] = dict(content.config_records.get(TRAINING, {}))
    model = layout.model_of(*models.values())
    if start.synthetic and told.get("synthetic") is not True:
        raise PolicyError(
            "this round trains on synthetic data, and sends what it trains in the clear: the app has to say that it "
            f"did so, in the record {TRAINING!r}"
        )
    steps, rate = told.get("steps"), told.get("sample-rate", 0.0)
    private = PrivateSteps(int(steps), float(rate)) if steps else None
    if start.noise is not None and private is None:
        raise PolicyError(
            "this round trains by DP-SGD: the app has to say how many steps it made, at which sample rate, in the "
            f"record {TRAINING!r}"
        )
    if start.scores is None:
        return start.trained(model.parameters, model.buffers, None, private)
    if scores is None:
        raise ParameterError(
            f"the method needs scores of the kind {start.scores!r}: return them as the record {SCORES!r}, arrays under "
            "the names of the model's parameters"
        )
    return start.trained(model.parameters, model.buffers, layout.scores_of(scores), private)
