"""Flower's grid and nodes in the test's process: every message is what a network would carry."""

from __future__ import annotations

import itertools

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto, recorddict_from_proto, recorddict_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

FIRST_NODE = 1_000_001


class LoopbackGrid(Grid):
    """Delivers messages to a ClientApp, made anew for each one, as a process would.

    Parameters
    ----------
    make_app : returns the ClientApp.
    nodes : how many there are; each has its number as its partition.
    node_config : what every node's configuration has beside; called with the node's number.
    """

    def __init__(self, make_app, nodes, node_config=lambda number: {}, run_config=None):
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # as in a ServerApp
        self.make_app = make_app
        self.run_config = run_config or {}
        self.configs = {
            FIRST_NODE + number: {"partition-id": number, "num-partitions": nodes} | node_config(number)
            for number in range(nodes)
        }
        self.states = dict.fromkeys(self.configs, recorddict_to_proto(RecordDict()))
        self.hidden = set()
        """Nodes that are not there: they get nothing and answer nothing."""
        self.before = None
        """Called with a node and its message before it is delivered; may change it, or return False: it is lost."""
        self.after = None
        """The same with the reply."""
        self.bytes_down = self.bytes_up = 0
        self._numbers = itertools.count(1)
        self._replies = {}

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        raise NotImplementedError

    def get_node_ids(self):
        return [node for node in self.configs if node not in self.hidden]

    def push_messages(self, messages):
        found = []
        for message in messages:
            number = str(next(self._numbers))
            message.metadata.__dict__["_message_id"] = number
            message.metadata.__dict__["_run_id"] = 1
            found.append(number)
            reply = self._delivered(message)
            if reply is not None:
                self._replies[number] = reply
        return found

    def _delivered(self, message):
        node = message.metadata.dst_node_id
        if node in self.hidden:
            return None
        proto = message_to_proto(message)
        self.bytes_down += proto.ByteSize()
        carried = message_from_proto(proto)
        if self.before is not None and self.before(node, carried) is False:
            return None
        context = Context(
            1, node, self.configs[node], recorddict_from_proto(self.states[node]), self.run_config
        )
        try:
            reply = self.make_app()(carried, context)
        except Exception as error:
            reply = Message(Error(2, f"{type(error).__name__}: {error}"), reply_to=carried)
        else:
            self.states[node] = recorddict_to_proto(context.state)
        if self.after is not None and self.after(node, reply) is False:
            return None
        proto = message_to_proto(reply)
        self.bytes_up += proto.ByteSize()
        return message_from_proto(proto)

    def pull_messages(self, message_ids):
        return [self._replies.pop(number) for number in list(message_ids) if number in self._replies]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))
