"""Messages of protobuf by a descriptor set, as `protoc --include_imports --descriptor_set_out=FILE` writes it.

Parsing is the `protobuf` package's. Here a message becomes the plain values that the other decoders have too: a dict
without the fields that are not set, 64-bit numbers as numbers, enums by name.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from holdfast.problem import nearest
from holdfast.spark.declared.paths import parse_path

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class MessageReader:
    """Reads one kind of message. Raises ValueError where descriptors or name are no good."""

    def __init__(self, descriptor_set: bytes, message: str) -> None:
        files = descriptor_pb2.FileDescriptorSet()
        try:
            files.ParseFromString(descriptor_set)
        except DecodeError:
            raise ValueError("expected a descriptor set, as `protoc --descriptor_set_out` writes it") from None
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in _in_order(files):
                pool.Add(file)
            self.descriptor: Descriptor = pool.FindMessageTypeByName(message)
        except TypeError as error:
            raise ValueError(f"expected a descriptor set made with --include_imports: {error}") from None
        except KeyError:
            known = sorted(_messages(files))
            near = f"; nearest: {nearest(message, known)}" if known else ""
            raise ValueError(f"expected a message of the descriptor set, got {message!r}{near}") from None
        self._class = message_factory.GetMessageClass(self.descriptor)

    def parse(self, payload: bytes) -> Message:
        """Raises ValueError."""
        found = self._class()
        try:
            found.ParseFromString(payload)
        except DecodeError:
            raise ValueError(f"expected a message {self.descriptor.full_name}") from None
        return found

    def missing(self, source: str) -> str | None:
        """What is wrong with a place, if the message has no such field."""
        descriptor: Descriptor | None = self.descriptor
        for step in parse_path(source):
            if isinstance(step, int):
                continue
            if descriptor is None:
                return f"expected no parts of a field that is no message, got {source!r}"
            field = descriptor.fields_by_name.get(step)
            if field is None:
                names = [one.name for one in descriptor.fields]
                near = f"; nearest: {nearest(step, names)}" if names else ""
                return f"expected a field of {descriptor.full_name}, got {step!r}{near}"
            descriptor = None if is_map(field) else field.message_type
        return None


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def plain(message: Message) -> dict[str, Any]:
    """The fields of a message. One without presence (proto3's scalars) has its default; others are left out."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if is_map(field):
            parts = field.message_type.fields_by_name["value"]
            found[field.name] = {str(key): _value(parts, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [_value(field, one) for one in value]
        elif not field.has_presence or message.HasField(field.name):
            found[field.name] = _value(field, value)
    return found


def unknown_fields(message: Message) -> list[int]:
    """Numbers of fields that the descriptor does not have: somebody knows a newer one."""
    return sorted({field.field_number for field in UnknownFieldSet(message)})


def _value(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name == "google.protobuf.Timestamp":
            return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
        return plain(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return named.name if named is not None else value
    return value


def _in_order(files: descriptor_pb2.FileDescriptorSet) -> list[descriptor_pb2.FileDescriptorProto]:
    """Files after those that they import; what is not in the set is found missing by the pool."""
    by_name = {file.name: file for file in files.file}
    found: list[descriptor_pb2.FileDescriptorProto] = []
    waiting = list(reversed(files.file))
    seen: set[str] = set()
    while waiting:
        file = waiting[-1]
        missing = [by_name[name] for name in file.dependency if name in by_name and name not in seen]
        seen.add(file.name)
        if missing:
            waiting += missing
            continue
        waiting.pop()
        if file not in found:
            found.append(file)
    return found


def _messages(files: descriptor_pb2.FileDescriptorSet) -> list[str]:
    return [f"{file.package}.{one.name}".lstrip(".") for file in files.file for one in file.message_type]
