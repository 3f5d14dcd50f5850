"""What of an object changes, declared by name and type, as bytes and back.

A class says in ``changes`` which attributes its steps change and of what types they are; one codec (msgspec) does the
rest. Everything else of an object comes from whoever makes it. What must stay where it was made has no copy at all.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from functools import partial
from inspect import isabstract
from types import UnionType
from typing import Any, ClassVar, NoReturn, Self, Union, get_args, get_origin

import numpy as np

from shieldfl.array_view import Buffer
from shieldfl.errors import SecretCopyError, WireFormatError


def refuse_unless(possible: bool) -> None:
    """Raise WireFormatError for a state whose values, right in type, no step leaves: for ``check_changed``."""
    if not possible:
        raise WireFormatError("the state holds values that no step of this role leaves")


class Stateful:
    """Base of objects whose changing part is a record: plain values, and records of the parts that are stateful too."""

    changes: ClassVar[Mapping[str, Any]] = {}
    """Attributes, or properties that can be set, and their types; those of base classes come before them. A type is a
    plain one, a dataclass, a stateful class, one with ``to_bytes`` and ``from_bytes``, NDArray, or made up of these.
    Where an attribute's is an abstract stateful class, or has one in it, what the object has decides."""

    @classmethod
    def all_changes(cls) -> dict[str, Any]:
        """Return the changes of the class and its bases, by name."""
        found: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            found |= vars(base).get("changes", {})
        return found

    def changed(self) -> dict[str, Any]:
        """Return what has changed, by name; encoded before anything changes again."""
        return {name: _recorded(getattr(self, name)) for name in self.all_changes()}

    def take_changed(self, record: Mapping[str, Any]) -> None:
        """Take what :func:`decode_record` read; where that raises, the object is of no use any more."""
        for name, value in record.items():
            setattr(self, name, _revived(partial(getattr, self, name), value))
        self.check_changed()

    def check_changed(self) -> None:
        """Raise WireFormatError for values, right in type, that no step leaves; bases' checks come first."""

    def revived(self, record: Mapping[str, Any]) -> Self:
        """Return an object like this one that has this record; this one stays as it is."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.take_changed(record)
        return other


def _recorded(value: Any) -> Any:
    if isinstance(value, Stateful):
        return value.changed()
    if type(value) is dict:
        return {key: _recorded(entry) for key, entry in value.items()}
    return value


def _revived(current: Callable[[], Any], value: Any) -> Any:
    import msgspec

    if isinstance(value, msgspec.Struct):
        part = current()
        if not isinstance(part, Stateful):
            raise WireFormatError("the state holds a part that this role does not have")
        return part.revived(msgspec.structs.asdict(value))
    if type(value) is dict and any(isinstance(entry, msgspec.Struct) for entry in value.values()):
        return {key: _revived(partial(current().get, key), entry) for key, entry in value.items()}
    return value


def encode_record(record: Mapping[str, Any], seconds: Mapping[str, float]) -> bytearray:
    """Encode a record and times; a bytearray, so that whoever asked can overwrite what is secret."""
    import msgspec

    buffer = bytearray()
    msgspec.msgpack.Encoder(enc_hook=_plain).encode_into((record, seconds), buffer)
    return buffer


def decode_record(
    data: Buffer, own: Stateful, readers: Mapping[type, Callable[[bytes], Any]]
) -> tuple[dict[str, Any], dict[str, float]]:
    """Read a record of an object like this one and the times beside it. Raises WireFormatError for what is none.

    ``readers`` take the place of ``from_bytes`` of types whose few bytes may state a lot of memory.
    """
    import msgspec

    try:
        kind: Any = type(own)
        form: Any = tuple.__class_getitem__((_struct_of(kind, _chosen(own)), dict[str, float]))
        record, seconds = msgspec.msgpack.decode(data, type=form, dec_hook=partial(_typed, readers))
        return msgspec.structs.asdict(record), seconds
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise WireFormatError("these bytes are no state of this kind of role") from error


Chosen = tuple[tuple[str, Any], ...]
"""The classes of attributes whose declared ones are abstract, each with what it chooses in turn."""


def _chosen(own: Stateful) -> Chosen:
    found: list[tuple[str, Any]] = []
    for name, kind in own.all_changes().items():
        if _is_open(kind):
            part = getattr(own, name)
            found.append((name, None if part is None else (type(part), _chosen(part))))
    return tuple(found)


@functools.cache
def _is_open(kind: Any) -> bool:
    """Say whether a type, or one in it, is an abstract stateful class."""
    if get_origin(kind) is UnionType:
        return any(map(_is_open, get_args(kind)))
    if not (isinstance(kind, type) and get_origin(kind) is None and issubclass(kind, Stateful)):
        return False
    return isabstract(kind) or any(map(_is_open, kind.all_changes().values()))


@functools.cache
def _struct_of(kind: Any, chosen: Chosen = ()) -> Any:
    import msgspec

    concrete = {name: None if part is None else _struct_of(*part) for name, part in chosen}
    fields = [
        (name, concrete[name] if name in concrete else _wire_type(of))
        for name, of in kind.all_changes().items()
    ]
    return msgspec.defstruct(kind.__name__, fields, forbid_unknown_fields=True)


def _wire_type(kind: Any) -> Any:
    """Return a type in which stateful classes are their records."""
    declared: Any = kind
    if isinstance(kind, type) and get_origin(kind) is None:
        return _struct_of(declared) if issubclass(kind, Stateful) else kind
    origin, args = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return Union[tuple(map(_wire_type, args))]  # noqa: UP007  # of types that are known at run time alone
    return dict.__class_getitem__((args[0], _wire_type(args[1]))) if origin is dict else kind


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if isinstance(value, np.generic):
        return value.item()
    return value.to_bytes()


def _typed(readers: Mapping[type, Callable[[bytes], Any]], kind: Any, value: Any) -> Any:
    if get_origin(kind) is not np.ndarray:
        return (readers.get(kind) or kind.from_bytes)(value)
    sizes, (dtype,) = get_args(get_args(kind)[0]), get_args(get_args(kind)[1])
    shape, content = value
    # Vectors, where the type does not say how many dimensions there are.
    if len(shape) != (1 if not sizes or Ellipsis in sizes else len(sizes)):
        raise WireFormatError("the state holds an array of other dimensions")
    # Rows of nothing would take no bytes, however many they are said to be.
    if any(type(size) is not int or size < (len(shape) > 1) for size in shape):
        raise WireFormatError("the state holds an array of a shape that none has")
    if math.prod(shape) * np.dtype(dtype).itemsize != len(content):
        raise WireFormatError("the state holds an array of another size than it states")
    return np.frombuffer(content, dtype=dtype).reshape(shape).copy()


class Uncopied:
    """Base of classes whose objects ``pickle``, ``copy.copy`` and ``copy.deepcopy`` refuse with SecretCopyError."""

    __slots__ = ()
    _why_uncopied: ClassVar[str]
    """What follows the class's name in the message: what it holds, and what to do instead."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise SecretCopyError(f"{type(self).__name__} {self._why_uncopied}")
