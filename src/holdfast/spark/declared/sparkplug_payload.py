"""Sparkplug B's payload: the fields of `sparkplug_b.proto` (Eclipse Tahu), and a metric's value by its datatype.

The descriptor is written out as a table, so that nothing generated has to be kept; parsing is the `protobuf` package's.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.message import Message

from holdfast.spark.declared.protobuf import MessageReader, plain
from holdfast.spark.declared.values import as_json

DATATYPES: Final = (
    *(
        "Unknown",
        "Int8",
        "Int16",
        "Int32",
        "Int64",
        "UInt8",
        "UInt16",
        "UInt32",
        "UInt64",
        "Float",
        "Double",
        "Boolean",
    ),
    *("String", "DateTime", "Text", "UUID", "DataSet", "Bytes", "File", "Template", "PropertySet", "PropertySetList"),
    *("Int8Array", "Int16Array", "Int32Array", "Int64Array", "UInt8Array", "UInt16Array", "UInt32Array", "UInt64Array"),
    *("FloatArray", "DoubleArray", "BooleanArray", "StringArray", "DateTimeArray"),
)
_SIGNED: Final = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64}
# Arrays are packed into bytes, little end first.
_PACKED: Final = {
    "Int8Array": "b",
    "Int16Array": "h",
    "Int32Array": "i",
    "Int64Array": "q",
    "UInt8Array": "B",
    "UInt16Array": "H",
    "UInt32Array": "I",
    "UInt64Array": "Q",
    "FloatArray": "f",
    "DoubleArray": "d",
    "DateTimeArray": "Q",
}
_MOST_LONG: Final = (1 << 63) - 1
_VALUE: Final = "int_value:uint32 long_value:uint64 float_value:float double_value:double boolean_value:bool"
_VALUES: Final = f"{_VALUE} string_value:string"
# Each message as the names of its fields and their types, by number; `*` is a repeated one, `|` begins the value.
_MESSAGES: Final = {
    "Payload": "timestamp:uint64 metrics:*Metric seq:uint64 uuid:string body:bytes",
    "Metric": "name:string alias:uint64 timestamp:uint64 datatype:uint32 is_historical:bool is_transient:bool "
    f"is_null:bool metadata:MetaData properties:PropertySet | {_VALUES} bytes_value:bytes dataset_value:DataSet "
    "template_value:Template",
    "MetaData": "is_multi_part:bool content_type:string size:uint64 seq:uint64 file_name:string file_type:string "
    "md5:string description:string",
    "PropertySet": "keys:*string values:*PropertyValue",
    "PropertyValue": f"type:uint32 is_null:bool | {_VALUES} propertyset_value:PropertySet "
    "propertysets_value:PropertySetList",
    "PropertySetList": "propertyset:*PropertySet",
    "DataSet": "num_of_columns:uint64 columns:*string types:*uint32 rows:*Row",
    "Row": "elements:*DataSetValue",
    "DataSetValue": f"| {_VALUES}",
    "Template": "version:string metrics:*Metric parameters:*Parameter template_ref:string is_definition:bool",
    "Parameter": f"name:string type:uint32 | {_VALUES}",
}
_PACKAGE: Final = "holdfast.sparkplug"


def _descriptor_set() -> bytes:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="sparkplug_b.proto", package=_PACKAGE, syntax="proto2")
    for name, text in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field_name, kind, repeated, in_value) in enumerate(_fields(text), 1):
            field = message.field.add(name=field_name, number=number)
            field.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in _MESSAGES:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = kinds.Type.Value(f"TYPE_{kind.upper()}")
            if in_value:
                if not message.oneof_decl:
                    message.oneof_decl.add(name="value")
                field.oneof_index = 0
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


def _fields(text: str) -> Iterator[tuple[str, str, bool, bool]]:
    in_value = False
    for word in text.split():
        if word == "|":
            in_value = True
            continue
        name, _, kind = word.partition(":")
        yield name, kind.lstrip("*"), kind.startswith("*"), in_value


_READER: Final = MessageReader(_descriptor_set(), f"{_PACKAGE}.Payload")


def parse_payload(payload: bytes) -> Message:
    """Raises ValueError."""
    try:
        found = _READER.parse(payload)
    except ValueError:
        raise ValueError("expected a Sparkplug B payload, which these bytes are not") from None
    for metric in found.metrics:
        # what is no text comes as bytes
        if not isinstance(metric.name, str) or not isinstance(metric.string_value, str):
            raise ValueError(f"expected text in UTF-8 in a metric, got {metric.name or metric.string_value!r}")
    return found


def typed_value(metric: Any, datatype: str) -> dict[str, Any]:
    """The value of a metric in the columns of its type; none where it is null.

    Datasets, templates and arrays are JSON in `string_value`, as is a UInt64 that no long can hold.
    """
    which = metric.WhichOneof("value")
    if which is None or metric.is_null:
        return {}
    value = getattr(metric, which)
    if which in ("int_value", "long_value"):
        return _whole(int(value), datatype)
    if which in ("float_value", "double_value"):
        return {"double_value": float(value)}
    if which in ("dataset_value", "template_value"):
        return {"string_value": as_json(plain(value))}
    if which == "bytes_value" and datatype in (*_PACKED, "BooleanArray", "StringArray"):
        return {"string_value": as_json(_array(value, datatype)), "bytes_value": value}
    return {which: value}


def _whole(value: int, datatype: str) -> dict[str, Any]:
    bits = _SIGNED.get(datatype)
    if bits is not None:
        # two's complement of its own width, or of the field that carries it
        value &= (1 << bits) - 1
        value -= (value >> (bits - 1)) << bits
    if datatype == "DateTime":
        return {"timestamp_value": value}
    return {"long_value": value} if value <= _MOST_LONG else {"string_value": str(value)}


def _array(value: bytes, datatype: str) -> list[Any]:
    """Elements of a packed array; of one that is cut off, those that are whole."""
    if datatype == "StringArray":
        return [part.decode(errors="replace") for part in value.split(b"\0")[:-1]]
    if datatype == "BooleanArray":
        count = int.from_bytes(value[:4], "little")
        bits = [bool(byte >> (7 - bit) & 1) for byte in value[4:] for bit in range(8)]
        return bits[:count]
    code = _PACKED[datatype]
    size = struct.calcsize(f"<{code}")
    return [one for (one,) in struct.iter_unpack(f"<{code}", value[: len(value) // size * size])]


def properties_of(metric: Any) -> str | None:
    """A metric's properties (its quality, its unit) as JSON."""
    if not metric.HasField("properties"):
        return None
    return as_json(_property_set(metric.properties))


def _property_set(properties: Any) -> dict[str, Any]:
    return {str(key): _property(value) for key, value in zip(properties.keys, properties.values, strict=False)}


def _property(value: Any) -> Any:
    which = value.WhichOneof("value")
    if which is None or value.is_null:
        return None
    found = getattr(value, which)
    if which == "propertyset_value":
        return _property_set(found)
    if which == "propertysets_value":
        return [_property_set(one) for one in found.propertyset]
    if which in ("int_value", "long_value"):
        return next(iter(_whole(int(found), datatype_name(value.type)).values()))
    return found


def datatype_name(number: int) -> str:
    return DATATYPES[number] if number < len(DATATYPES) else str(number)
