"""How a node becomes a client of a run: it says who it is, takes the public set-up, and enrols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import Context, Message, RecordDict

import shieldfl
from shieldfl.errors import PolicyError, WireFormatError
from shieldfl.flower.client_session import ClientSession
from shieldfl.flower.held_models import HELD, with_held
from shieldfl.flower.node_memory import NodeMemory
from shieldfl.flower.node_settings import NodeSettings
from shieldfl.flower.sample_count import SampleCount
from shieldfl.flower.wire import ASK, Kind, ask, message_in, number_in, session_in, text_in
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.roles.message import Message as RoleMessage

__all__ = ["begun_session", "told_who"]


def told_who(
    message: Message,
    asked: Mapping[str, Any],
    context: Context,
    memory: NodeMemory,
    samples: int | None,
    *,
    writes_model: bool,
) -> Message:
    """Say which client this is, and, where the server goes on with a session, as which one it took part."""
    position, kept = memory.read(session_in(asked))
    index = ClientSession.index_in(kept)
    told = ask(
        Kind.HELLO,
        partition_id=int(context.node_config.get("partition-id", -1)),
        index=-1 if index is None else index,
        samples=-1 if samples is None else samples,
        shieldfl=shieldfl.__version__,
        position=list(position),
        writes_model=writes_model,
    )
    return Message(RecordDict({ASK: told}), reply_to=message)


def begun_session(
    message: Message,
    asked: Mapping[str, Any],
    settings: NodeSettings,
    memory: NodeMemory,
    count: SampleCount,
    samples: int | None,
    *,
    simulated: bool,
) -> tuple[ClientSession, RoleMessage]:
    """Take a run's public set-up; return the session, and what enrols this client.

    ``samples`` is what the app says of itself; else what was counted holds.
    """
    brought = message_in(message.content)
    if brought is not None and HELD in brought:
        brought = with_held(brought, count.model)
    if brought is None:
        raise PolicyError("the server's message brings no set-up, or no model with it")
    setup = settings.checked_setup(brought, simulated=simulated)
    # In a sum of one client that counts much and others that count little there is but the one's update.
    index, weight = number_in(asked, "index"), number_in(asked, "weight")
    own = count.samples if samples is None else samples
    alike = weight == setup.plan.most_weight == 1
    if not alike and (own is None or weight != max(own, 1)):
        raise PolicyError(
            "the server gives this client another weight than its number of samples, or has it count for itself alone: "
            "give the app ShieldMod(samples=...), or let its samples be counted"
        )
    model = {name: part for name, part in brought.items() if name not in ("setup", "signature")}
    if not all(name in GlobalModel.parts or name.startswith("apart") for name in model):
        # One called "weight" would take the place of that which was looked at.
        raise WireFormatError("the server's message brings parts that no set-up has")
    begun = RoleMessage(
        {
            "index": RoleMessage.from_number(index),
            "weight": RoleMessage.from_number(weight),
            "layout": text_in(asked, "layout").encode(),
            **model,
        }
    )
    session = ClientSession.begin(memory, setup, begun, settings.threads)
    return session, settings.signed(setup, session.index, session.steps.enrolment())
