"""What of an object changes, declared by name and type, as bytes and back.

A class says in ``changes`` which attributes, or properties that can be set, its steps change and of what
types they are; those of its bases come before them. A type is a plain one, a dataclass, a class that has
``changes`` itself, one with ``to_bytes`` and ``from_bytes``, NDArray, or made up of these. One codec
(msgspec) does the rest; then each class's ``check_changed``, where it has one, raises WireFormatError for
values, right in type, that no step leaves: bases' come first. The maker of an object supplies all else. An
object that must stay where it was made cannot be copied at all.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from functools import partial
from types import UnionType
from typing import Any, ClassVar, NoReturn, TypeVar, Union, get_args, get_origin

import numpy as np

from shieldfl.array_view import Buffer
from shieldfl.errors import SecretCopyError, WireFormatError

Own = TypeVar("Own")


def refuse_unless(possible: bool) -> None:
    """Raise WireFormatError for values of the right type that no step leaves: for ``check_changed``."""
    if not possible:
        raise WireFormatError("the state holds values that no step of this role leaves")


def is_stateful(kind: Any) -> bool:
    """Say whether a class declares ``changes``, by which its objects are recorded, and is no plain type."""
    return hasattr(kind, "changes")


def changes_of(kind: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        found |= vars(base).get("changes", {})
    return found


def changed(own: object) -> dict[str, Any]:
    """Return the changed values of an object, by attribute name. Encode them before it changes again."""
    return {name: _recorded(getattr(own, name)) for name in changes_of(type(own))}


def take_changed(own: object, record: Mapping[str, Any]) -> None:
    """Set an object's attributes to what :func:`decode_record` read.

    If that raises, the object is unusable.
    """
    for name, value in record.items():
        setattr(own, name, _revived(partial(getattr, own, name), value))
    for base in reversed(type(own).__mro__):
        if "check_changed" in vars(base):
            vars(base)["check_changed"](own)


def revived(own: Own, record: Mapping[str, Any], take: Callable[[Own, Any], None] = take_changed) -> Own:
    """Return an object like this one that has this record; this one stays as it is."""
    other = object.__new__(type(own))
    other.__dict__.update(own.__dict__)
    take(other, record)
    return other


def _recorded(value: Any) -> Any:
    if is_stateful(value):
        return changed(value)
    if type(value) is dict:
        return {key: _recorded(entry) for key, entry in value.items()}
    return value


def _revived(current: Callable[[], Any], value: Any) -> Any:
    import msgspec

    if isinstance(value, msgspec.Struct):
        part = current()
        if not is_stateful(part):
            raise WireFormatError("the state holds a part that this role does not have")
        return revived(part, msgspec.structs.asdict(value))
    if type(value) is dict and any(isinstance(entry, msgspec.Struct) for entry in value.values()):
        return {key: _revived(partial(current().get, key), entry) for key, entry in value.items()}
    return value


def encode_record(record: Mapping[str, Any], seconds: Mapping[str, float]) -> bytearray:
    """Encode a record and times as a bytearray, so that the caller can overwrite secrets in it."""
    import msgspec

    buffer = bytearray()
    msgspec.msgpack.Encoder(enc_hook=_plain).encode_into((record, seconds), buffer)
    return buffer


def decode_record(
    data: Buffer, own: object, readers: Mapping[type, Callable[[bytes], Any]]
) -> tuple[dict[str, Any], dict[str, float]]:
    """Read a record of an object like this one and the times beside it.

    Raises WireFormatError for other bytes.

    ``readers`` replace ``from_bytes`` for types whose frames of a few bytes may state a lot of memory.
    """
    import msgspec

    try:
        form: Any = tuple.__class_getitem__((_struct_of(*_shape(own)), dict[str, float]))
        record, seconds = msgspec.msgpack.decode(data, type=form, dec_hook=partial(_typed, readers))
        return msgspec.structs.asdict(record), seconds
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise WireFormatError("these bytes are no state of this kind of role") from error


Shape = tuple[type, tuple[tuple[str, Any], ...]]
"""An object's class, and the shapes of its stateful parts by attribute name, maybe of a subclass each."""


def _shape(own: object) -> Shape:
    declared = changes_of(type(own)).items()
    held = [
        (name, getattr(own, name))
        for name, kind in declared
        if any(map(is_stateful, get_args(kind) if get_origin(kind) is UnionType else (kind,)))
    ]
    return type(own), tuple((name, _shape(part)) for name, part in held if part is not None)


@functools.cache
def _struct_of(kind: type, parts: tuple[tuple[str, Shape], ...] = ()) -> Any:
    import msgspec

    shapes = dict(parts)
    fields = [(name, _wire_type(of, shapes.get(name))) for name, of in changes_of(kind).items()]
    return msgspec.defstruct(kind.__name__, fields, forbid_unknown_fields=True)


def _wire_type(kind: Any, shape: Shape | None = None) -> Any:
    if is_stateful(kind):
        return _struct_of(*(shape or (kind,)))
    origin, args = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return Union[tuple(_wire_type(one, shape) for one in args)]  # noqa: UP007  # known at run time
    return dict.__class_getitem__((args[0], _wire_type(args[1]))) if origin is dict else kind


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if isinstance(value, np.generic):
        return value.item()
    return value.to_bytes()


def _typed(readers: Mapping[type, Callable[[bytes], Any]], kind: Any, value: Any) -> Any:
    if get_origin(kind) is not np.ndarray:
        if issubclass(kind, dict):
            return kind(value)
        return (readers.get(kind) or kind.from_bytes)(value)
    sizes, (dtype,) = get_args(get_args(kind)[0]), get_args(get_args(kind)[1])
    shape, content = value
    # Vectors, where the type does not say how many dimensions there are.
    refuse_unless(len(shape) == (1 if not sizes or Ellipsis in sizes else len(sizes)))
    # Rows of nothing would take no bytes, however many they are said to be.
    refuse_unless(all(type(size) is int and size >= (len(shape) > 1) for size in shape))
    refuse_unless(math.prod(shape) * np.dtype(dtype).itemsize == len(content))
    return np.frombuffer(content, dtype=dtype).reshape(shape).copy()


class Uncopied:
    """Base of objects that ``pickle``, ``copy.copy`` and ``copy.deepcopy`` refuse with SecretCopyError."""

    __slots__ = ()
    _why_uncopied: ClassVar[str]
    """Text after the class's name in the message: what the object holds, and what to do instead."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise SecretCopyError(f"{type(self).__name__} {self._why_uncopied}")
