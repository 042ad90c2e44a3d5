"""Byte layout of the tables in docs/pack-format.md: one `struct` string a table, in file order."""

from __future__ import annotations

import struct
from typing import Final

MAGIC: Final = b"AOTPACK\0"
VERSION: Final = 1
NONE: Final = 0xFFFFFFFF
HEADER: Final = struct.Struct("<8sIIQQ32sIIIIIIQ")
DIRECTORY: Final = struct.Struct("<QII")
PACK_ID: Final = slice(32, 64)

OPERATOR: Final = struct.Struct("<8IQQ")
TENSOR: Final = struct.Struct("<IBBHI12s")
COLUMN: Final = struct.Struct("<IBBBBII16s")
VALUE: Final = struct.Struct("<q")
ROW: Final = struct.Struct("<II")
IMAGE: Final = struct.Struct("<16IQQ4I32s")
ARGUMENT: Final = struct.Struct("<IBBBBIIqQ")
DESCRIPTOR: Final = struct.Struct("<IBBBBBBH5III24s")
FACTOR: Final = struct.Struct("<BBBBIII")
BLOB: Final = struct.Struct("<QQQ32sQ")

#: Record size of every table, in the order of the directory. Strings and meta are bytes.
TABLES: Final = {
    "strings": 1,
    "operators": OPERATOR.size,
    "tensors": TENSOR.size,
    "columns": COLUMN.size,
    "values": VALUE.size,
    "rows": ROW.size,
    "images": IMAGE.size,
    "arguments": ARGUMENT.size,
    "descriptors": DESCRIPTOR.size,
    "factors": FACTOR.size,
    "blobs": BLOB.size,
    "meta": 1,
}
HEADER_SIZE: Final = HEADER.size + DIRECTORY.size * len(TABLES)
