"""Scalars in OpenCL C, written out beside what the library says."""

SCALARS = {
    "bool": "uchar",
    "int8": "char",
    "uint8": "uchar",
    "int16": "short",
    "uint16": "ushort",
    "int32": "int",
    "uint32": "uint",
    "int64": "long",
    "uint64": "ulong",
    "float32": "float",
    "float64": "double",
    "complex64": "float2",
    "complex128": "double2",
}
INTEGERS = {name: c_type for name, c_type in SCALARS.items() if "int" in name}
