"""Results as files and as JSON. A file is there whole or not at all."""

import base64
import json
import os
import shutil
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from holdfast.errors import StoreError, UsageError


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row for JSON: times in ISO 8601, bytes as text where they are text, else in base64 with a name that says so."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, datetime):
            found[name] = value.astimezone(UTC).isoformat()
        elif isinstance(value, (bytes, bytearray)):
            try:
                found[name] = bytes(value).decode()
            except UnicodeDecodeError:
                found[name] = base64.b64encode(value).decode()
                found[f"{name}_encoding"] = "base64"
        else:
            found[name] = value
    return found


def write_text(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StoreError(f"cannot write {path}: {error.strerror}") from None


def write_jsonl(rows: DataFrame, path: Path) -> int:
    """One JSON object a line, fetched partition by partition so that it need not fit in memory."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    count = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("w", encoding="utf-8") as file:
            for row in rows.toLocalIterator(prefetchPartitions=True):
                file.write(json.dumps(plain(row.asDict(recursive=True)), ensure_ascii=False) + "\n")
                count += 1
        os.replace(part, path)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    return count


def write_parquet(rows: DataFrame, path: Path) -> int:
    """A folder of Parquet files, written by executors."""
    if path.exists():
        raise UsageError(f"{path} exists already: remove it first, or name another")
    path = path.absolute()
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        rows.write.parquet(str(part))
        count = rows.sparkSession.read.parquet(str(part)).count()
        os.replace(part, path)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)  # Spark leaves an empty folder where it failed
    return count
