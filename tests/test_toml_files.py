"""Files that people write: how their text may be encoded, and what no reader gets to the end of."""

from __future__ import annotations

from pathlib import Path

import pytest

from shieldfl.authority_service.service import AuthorityPolicy
from shieldfl.cli.authority import passphrase_of
from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.fleet.cost_source import load_profile
from shieldfl.lab.fleet.fleet import load_fleet
from shieldfl.lab.simulation.compared_runs import load_experiment
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.settings import read_text

EXPERIMENT = 'methods = ["fedavg"]\n[run]\nrounds = {}\n'
READERS = {
    "experiment": load_experiment,
    "fleet": load_fleet,
    "policy": AuthorityPolicy.from_file,
    "profile": load_profile,
    "passphrase": passphrase_of,
}


def written(folder: Path, content: bytes | str) -> Path:
    path = folder / "file"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    path = written(tmp_path, EXPERIMENT.format(2).encode("utf-8-sig"))
    assert load_experiment(path).config.rounds == 2
    assert AuthorityPolicy.from_file(written(tmp_path, "\ufeffmin_clients = 5")).min_clients == 5
    assert passphrase_of(written(tmp_path, "\ufeffa passphrase\r\n")) == "a passphrase"
    assert read_text(written(tmp_path, "\ufeff" + "ab" * 32), "public key") == "ab" * 32


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le"])
def test_utf_16_is_named(reader, encoding, tmp_path):
    path = written(tmp_path, EXPERIMENT.format(2).encode(encoding))
    with pytest.raises(DataError, match="UTF-16, or no text: save it as UTF-8"):
        reader(path)
    with pytest.raises(DataError, match="not UTF-8"):
        reader(written(tmp_path, b"\xe9"))
    with pytest.raises(DataError, match="look whether it is there"):
        reader(tmp_path / "none")


@pytest.mark.parametrize("deep", ["methods = " + "[" * 20_000, "methods = " + "{a = " * 20_000])
@pytest.mark.parametrize("reader", [load_experiment, load_fleet, AuthorityPolicy.from_file])
def test_brackets_in_brackets_are_an_error_of_the_file(reader, deep, tmp_path):
    with pytest.raises(ParameterError, match="too much to read"):
        reader(written(tmp_path, deep))


@pytest.mark.parametrize("text", ["{", "[" * 100_000], ids=["open", "in brackets"])
def test_a_profile_of_brackets_that_are_not_closed_is_an_error_of_the_file(text, tmp_path):
    with pytest.raises(DataError, match="is no JSON"):
        load_profile(written(tmp_path, text))


@pytest.mark.parametrize("number", ["1" * 4301, "-" + "1" * 4301, "0x" + "f" * 5000])
def test_a_number_that_python_does_not_write_is_an_error_of_the_file(number, tmp_path):
    with pytest.raises(ParameterError, match=r"too (much to read|many digits)"):
        load_experiment(written(tmp_path, EXPERIMENT.format(number)))


def test_a_number_that_python_does_not_write_is_refused_by_a_setting():
    for name in ("rounds", "learning_rate", "model"):
        with pytest.raises(ParameterError, match=f"^{name} must be .* not a number with too many digits"):
            RunConfig(**{name: 10**5000})
