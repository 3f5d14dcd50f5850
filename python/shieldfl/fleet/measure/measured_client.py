"""The process of one client of a measured fleet: ``python -m shieldfl.fleet.measure.measured_client``.

It is told on standard input where the driver listens and with which word to report there, and ends when the driver
does. Between, it takes a method's client steps, as the driver's letters say.
"""

from __future__ import annotations

import ctypes
import json
import secrets
import signal
import socket
import sys
import time
from typing import Any

import msgspec
import numpy as np

from shieldfl.errors import RangeError
from shieldfl.fleet.measure.client_processes import ClientTask
from shieldfl.fleet.measure.paced_link import Connection, Letter, Link
from shieldfl.fleet.measure.spent_training import SpentTraining
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.public_setup import PublicSetup
from shieldfl.methods.protocol.training_client import PUBLIC_PARTS, TrainingClient
from shieldfl.methods.registry import method_of
from shieldfl.profiling.stages import median_seconds
from shieldfl.roles.message import Message
from shieldfl.scheme.enrolment import SECRET_BYTES
from shieldfl.scheme.registry import scheme_named
from shieldfl.training.local_update import StartingPoint

_PR_SET_PDEATHSIG = 1
_WARM_UP_VALUES = 2
# As many as calibration encrypts at a time, so that reading tables weighs as little.
_PROBE_CIPHERTEXTS = 64
_SELECTION = ("score", "negotiate")
"""Stages of a client's report in which it settles what it encrypts."""


def _training_of(task: ClientTask) -> Any:
    """Make the training that is asked for."""
    if task.train_core_seconds is not None:
        return SpentTraining(task.train_core_seconds, task.threads, task.seed)
    # Only here: clients whose training is stated need no torch.
    import torch

    from shieldfl.fleet.costs.train_step import LocalTraining

    torch.set_num_threads(task.threads)
    return LocalTraining(str(task.model), task.sample_shape, task.samples, task.local_epochs, task.seed)


class _Client:
    """Takes part over a connection: each letter's kind is the name of a method here."""

    def __init__(self, connection: Connection) -> None:
        start = connection.receive()
        self._task = task = msgspec.convert(start.facts, ClientTask)
        self._connection = connection
        self._link = Link(task.upload_bytes_per_second, task.latency_seconds)
        self._training = _training_of(task)
        scheme = scheme_named(task.scheme)
        key = scheme.PublicKey.from_bytes(start.parts["public_key"])
        if scheme.enrols:
            # Known to nobody else: what the probe encrypts is opened by none.
            key = scheme.ClientKey.of_secret(key, task.index, secrets.token_bytes(SECRET_BYTES))
        self._encryptor = scheme.Encryptor(key, threads=task.threads)
        self._steps: TrainingClient
        self._begun: tuple[int, int, Message]
        self._start: StartingPoint
        self._newest: Message
        self._update: np.ndarray[Any, Any] = np.zeros(0, dtype=np.float32)
        self._refusal: str | None = None
        self._selects = False
        # What only the first time takes: libraries' set-up.
        self._training.train_few()
        self._encryptor.encrypt(np.zeros(_WARM_UP_VALUES, dtype=np.float32)).to_bytes()

    def take_part(self) -> None:
        """Do what the driver asks for until it closes the connection."""
        self._connection.send("ready")
        asked = {
            "method": self._begin_method,
            "enrolled": self._enrolled,
            "probe": self._probe,
            "begin": self._begin_round,
            "train": self._train,
            "step": self._step,
            "model": self._end_round,
            "tell": self._tell,
        }
        while True:
            letter = self._connection.receive()
            asked[letter.kind](letter)

    def _begin_method(self, letter: Letter) -> None:
        parts = letter.parts
        setup = PublicSetup.from_bytes(parts["setup"], parts["digest"])
        method = method_of(setup)
        initial = GlobalModel(
            *(np.frombuffer(parts[name], dtype=np.float32) for name in ("parameters", "buffers"))
        )
        self._steps = method.client_steps(
            setup,
            self._task.index,
            1,
            initial,
            threads=self._task.threads,
            shared_secret=parts.get("shared_secret"),
        )
        if isinstance(self._training, SpentTraining):
            self._training.begin_method(method.trained)
        else:
            self._training.begin_method(setup.method, setup.settings)
        self._connection.send("enrolment", parts={"message": self._steps.enrolment().to_bytes()})

    def _enrolled(self, letter: Letter) -> None:
        self._steps.enrolled(Message.from_bytes(letter.parts["message"]))

    def _probe(self, letter: Letter) -> None:
        """Tell the processor seconds of a training sample and of a ciphertext as they are now, medians.

        Each is repeated for so many seconds as were asked for; a stage that has nothing to find out is left out.
        """
        found, seconds = {}, letter.facts["seconds"]
        samples = self._training.train_few()
        if samples:
            found["train"] = median_seconds(self._training.train_few, seconds) / samples
        count = _PROBE_CIPHERTEXTS * self._task.threads
        values = np.zeros(count * self._encryptor.public_key.parameters.values_per_ciphertext, np.float32)
        found["encrypt"] = median_seconds(lambda: self._encryptor.encrypt(values).to_bytes(), seconds) / count
        self._connection.send("probed", found)

    def _begin_round(self, letter: Letter) -> None:
        facts = letter.facts
        self._begun = facts["round"], facts["participants"], Message.from_bytes(letter.parts["message"])
        self._refusal, self._selects = None, False
        self._connection.send("begun")

    def _train(self, letter: Letter) -> None:
        begin, used = time.monotonic(), time.process_time()
        self._start = self._steps.begin_round(*self._begun)
        score = 0.0
        try:
            update, score = self._training.train(self._start)
            self._update = update.parameters - self._start.parameters
            self._steps.finish_training(update)
        except RangeError as error:
            self._refusal = str(error)
        self._steps.report()
        end = time.monotonic()
        seconds = {"train": end - begin - score, "score": score}
        self._send_stage("training", seconds, end, used)

    def _step(self, letter: Letter) -> None:
        answer = None
        if letter.parts:
            self._connection.send("received", {"at": letter.at})
            answer = Message.from_bytes(letter.parts["message"])
        begin, used = time.monotonic(), time.process_time()
        message = b""
        if self._refusal is None:
            try:
                message = self._steps.step(letter.facts["phase"], answer).to_bytes()
            except RangeError as error:
                self._refusal = str(error)
        if self._refusal is not None:
            self._connection.send("refused", {"why": self._refusal})
            return
        end = time.monotonic()
        stages = self._steps.report().seconds
        select = sum(stages.get(name, 0.0) for name in _SELECTION)
        self._selects |= "score" in stages
        self._send_stage("steps", {"select": select, "encrypt": end - begin - select}, end, used)
        self._connection.send("message", parts={"message": message}, link=self._link)

    def _send_stage(self, name: str, seconds: dict[str, float], end: float, used: float) -> None:
        facts = {
            "name": name,
            "seconds": seconds,
            "processor_seconds": time.process_time() - used,
            "end": end,
        }
        self._connection.send("stage", facts)

    def _end_round(self, letter: Letter) -> None:
        self._newest = Message.from_bytes(letter.parts["message"])
        self._steps.end_round(self._newest)
        # Where clients open sums, it has the model only now.
        self._connection.send("received", {"at": time.monotonic()})

    def _tell(self, letter: Letter) -> None:
        """Tell what was trained and encrypted: to check the opened sums by, and what a simulation is to be of.

        The model comes along where the method has one for all clients.
        """
        stated, model = self._steps.disclosure, self._steps.global_model(self._newest)
        facts = {
            "scores": self._start.scores is not None,
            "selects": self._selects,
            "sent_plain": not (stated.kept.count or stated.noised.count or stated.encrypts_noised),
            "sends_mask": not set(stated.parts) <= set(PUBLIC_PARTS),
        }
        parts = {"update": self._update.tobytes(), "encrypted": stated.encrypted.to_bytes()}
        if "parameters" in model:
            parts["parameters"] = bytes(model["parameters"])
        self._connection.send("told", facts, parts)


def _main() -> None:
    # The driver's process ends its clients, also when Ctrl-C reaches the whole group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # And should it be killed itself, nobody is left who would continue a client that is stopped.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    line = sys.stdin.readline()
    if not line:
        return
    facts = json.loads(line)
    with socket.create_connection(("127.0.0.1", facts["port"])) as stream:
        connection = Connection(stream)
        connection.send("hello", {"client": facts["client"], "word": facts["word"]})
        try:
            _Client(connection).take_part()
        except ConnectionError:
            return


if __name__ == "__main__":
    _main()
