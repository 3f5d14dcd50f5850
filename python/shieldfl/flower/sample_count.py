"""The training by which a node that does not say its number of samples counts them, before a run's keys are made."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from logging import WARNING
from typing import Any

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore import log

from shieldfl.errors import DataError, PolicyError
from shieldfl.flower.record_layout import RecordLayout
from shieldfl.flower.training_records import answered_by_app, asked_training, content_for_app
from shieldfl.flower.wire import ASK, number_in, text_in
from shieldfl.roles.message import Message as RoleMessage
from shieldfl.training.local_update import StartingPoint

__all__ = ["COUNTED_METRIC", "SampleCount"]

COUNTED_METRIC = "num-examples"
"""The one metric that a node reads for it: were the name the server's choice, it would learn about any of them."""

_KEPT = "shieldfl.counted"
_REPLY, _STATE = f"{_KEPT} ", f"{_KEPT}, state: "


class SampleCount:
    """The count, and what else came of that training: round 1 takes it, where it asks for the same.

    Parameters
    ----------
    state : of the app in this run, where Flower keeps it.
    """

    def __init__(self, state: RecordDict) -> None:
        self._state = state

    @property
    def _kept(self) -> Mapping[str, Any]:
        return self._state.config_records.get(_KEPT, ConfigRecord())

    @property
    def samples(self) -> int | None:
        """How many samples the app has trained on; None where nothing was counted."""
        found = self._kept.get("samples")
        return found if isinstance(found, int) else None

    @property
    def model(self) -> RoleMessage | None:
        """The model that it trained from, as parts of a role's message."""
        found = self._kept.get("model")
        return RoleMessage.from_bytes(found) if isinstance(found, bytes) else None

    def train(
        self,
        message: Message,
        model: RoleMessage,
        asked: Mapping[str, Any],
        call_app: Callable[[], Message],
    ) -> int:
        """Have the app train as its server's first round asks for it; return how many samples that was.

        Raises PolicyError where it fails or does not say: its words stay here, since they may be of the data.
        """
        layout = RecordLayout.from_json(text_in(asked, "layout"))
        numbers = layout.model_in(model)
        start = StartingPoint(numbers.parameters, numbers.buffers, round=1)
        apart = layout.apart_from_message(model)
        layout.check(numbers.parameters.size, numbers.buffers.size, apart)
        arrays = layout.record_of(numbers.parameters, numbers.buffers, apart)
        content = content_for_app(message, asked, arrays, asked_training(start, number_in(asked, "index")))
        given, before = content.object_id, copy.deepcopy(self._of_app)
        try:
            reply = answered_by_app(message, content, call_app)
            if reply.has_error():
                raise DataError(reply.error.reason)
        except Exception as error:
            log(WARNING, "shieldfl: the training that counts samples: %s", error, exc_info=error)
            raise PolicyError(
                "the app's training failed, by which its samples are counted: the node's log says why"
            ) from None
        finally:
            after = self._of_app
            self._give_app(before)
        samples = _samples_in(reply.content.metric_records)
        self.forget_training()
        self._state[_KEPT] = ConfigRecord(
            {"samples": samples, "given": given, "model": numbers.to_message().to_bytes()}
        )
        for head, records in ((_REPLY, reply.content), (_STATE, after)):
            for name, record in records.items():
                self._state[f"{head}{name}"] = record
        return samples

    def reply(self, message: Message, content: RecordDict) -> Message | None:
        """Return what the app said to just this content when its samples were counted; None for any other.

        Its state is then what that training has left: a client whose training serves no round has not trained.
        """
        if self._kept.get("given") != content.object_id:
            return None
        self._give_app(self._under(_STATE))
        return Message(RecordDict(self._under(_REPLY)), reply_to=message)

    def _under(self, head: str) -> dict[str, Any]:
        return {name.removeprefix(head): one for name, one in self._state.items() if name.startswith(head)}

    @property
    def _of_app(self) -> dict[str, Any]:
        return {name: one for name, one in self._state.items() if not name.startswith(ASK)}

    def _give_app(self, records: Mapping[str, Any]) -> None:
        for name in self._of_app:
            del self._state[name]
        for name, record in records.items():
            self._state[name] = record

    def forget_training(self) -> None:
        """Let go of all but the count: what comes of that training is on its way, or will not be asked for."""
        for name in [one for one in self._state if one.startswith((_REPLY, _STATE))]:
            del self._state[name]
        if self.samples is not None:
            self._state[_KEPT] = ConfigRecord({"samples": self.samples})


def _samples_in(metrics: Mapping[str, MetricRecord]) -> int:
    for record in metrics.values():
        found = record.get(COUNTED_METRIC)
        if isinstance(found, int | float) and 0 <= found < 2**32 and found == int(found):
            return int(found)
        if found is not None:
            raise PolicyError(
                f"the app's metric {COUNTED_METRIC!r} is no whole number, at least 0 and below 2^32: return how many "
                "samples it has trained on, or give it ShieldMod(samples=...)"
            )
    raise PolicyError(
        f"the app does not say how many samples it has trained on: return them as the metric {COUNTED_METRIC!r}, a "
        "whole number, or give it ShieldMod(samples=...)"
    )
