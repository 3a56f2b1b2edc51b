# SPDX-License-Identifier: Apache-2.0
"""A .tflite file as dictionaries: read, changed, and written again. Field ids and types are those of
TensorFlow Lite's schema, as far as quantized models need them."""
import struct
from typing import Any, Dict, List, Optional, Sequence

import numpy as np

# Numbers of operators, and of types of tensors.
MUL, CONV_2D, DEQUANTIZE, FULLY_CONNECTED, L2_NORMALIZATION, LOGISTIC = 18, 3, 6, 9, 11, 14
RESHAPE, SOFTMAX, SQUEEZE = 22, 25, 43
UINT8, INT8, INT32 = 3, 9, 2
_FULLY_CONNECTED_OPTIONS, _SOFTMAX_OPTIONS, _RESHAPE_OPTIONS, _SQUEEZE_OPTIONS = 8, 9, 17, 30

# Table -> fields by id: (name, type). A type is a letter of the struct module; "s" a string; one in
# brackets a vector; another name a table. "*" are builtin options: tables of numbers alone.
_SCHEMA: Dict[str, Dict[int, tuple]] = {
    "Model": {0: ("version", "I"), 1: ("operator_codes", ["OperatorCode"]),
              2: ("subgraphs", ["SubGraph"]), 3: ("description", "s"), 4: ("buffers", ["Buffer"])},
    "OperatorCode": {0: ("deprecated_code", "b"), 1: ("custom_code", "s"), 2: ("version", "i"),
                     3: ("code", "i")},
    "SubGraph": {0: ("tensors", ["Tensor"]), 1: ("inputs", ["i"]), 2: ("outputs", ["i"]),
                 3: ("operators", ["Operator"]), 4: ("name", "s")},
    "Tensor": {0: ("shape", ["i"]), 1: ("type", "b"), 2: ("buffer", "I"), 3: ("name", "s"),
               4: ("quantization", "Quantization"), 5: ("is_variable", "B"),
               7: ("shape_signature", ["i"])},
    "Quantization": {0: ("min", ["f"]), 1: ("max", ["f"]), 2: ("scale", ["f"]),
                     3: ("zero_point", ["q"]), 6: ("dimension", "i")},
    "Operator": {0: ("code", "I"), 1: ("inputs", ["i"]), 2: ("outputs", ["i"]),
                 3: ("options_type", "B"), 4: ("options", "*"), 5: ("custom_options", ["B"]),
                 6: ("custom_format", "b"), 8: ("intermediates", ["i"])},
    "Buffer": {0: ("data", ["B"])},
    # Builtin options that are not of numbers alone, and those that are made here.
    "Shape": {0: ("new_shape", ["i"])},
    "Softmax": {0: ("beta", "f")},
    "Nothing": {},
}
_OPTIONS = {_FULLY_CONNECTED_OPTIONS: None, _SOFTMAX_OPTIONS: "Softmax", _RESHAPE_OPTIONS: "Shape",
            _SQUEEZE_OPTIONS: "Shape"}


class ModelFile:
    """A model of one subgraph that Atoll has loaded, so that its bytes are sound."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.model = self._table("Model", struct.unpack_from("<I", content, 0)[0])
        if len(self.model["subgraphs"]) != 1:
            raise ValueError("models with several subgraphs cannot be changed")
        (graph,) = self.model["subgraphs"]
        self.tensors: List[Dict[str, Any]] = graph["tensors"]
        self.operators: List[Dict[str, Any]] = graph["operators"]
        self.graph = graph

    # ---- Looking --------------------------------------------------------------------------------

    def code(self, operator: Dict[str, Any]) -> int:
        """The number of the operator."""
        code = self.model["operator_codes"][operator.get("code", 0)]
        return max(code.get("code", 0), code.get("deprecated_code", 0))

    def constant(self, tensor: int) -> Optional[np.ndarray]:
        """The stored values of a tensor; None if it is computed."""
        described = self.tensors[tensor]
        data = self.model["buffers"][described.get("buffer", 0)].get("data")
        if data is None or not len(data):
            return None
        dtype = {UINT8: np.uint8, INT8: np.int8, INT32: np.int32}.get(described.get("type", 0))
        return None if dtype is None else np.frombuffer(
            bytes(data), dtype).reshape(described.get("shape", []))

    # ---- Changing -------------------------------------------------------------------------------

    def set_constant(self, tensor: int, values: np.ndarray) -> None:
        """Gives a tensor values, and their shape."""
        self.model["buffers"].append({"data": values.tobytes()})
        self.tensors[tensor].update(buffer=len(self.model["buffers"]) - 1,
                                    shape=list(values.shape))
        self.tensors[tensor].pop("shape_signature", None)

    def add_tensor(self, name: str, shape: Sequence[int], tensor_type: int,
                   scale: Sequence[float], zero_point: Sequence[int]) -> int:
        """Returns the index of a new tensor."""
        self.tensors.append({"name": name, "shape": list(shape), "type": tensor_type, "buffer": 0,
                             "quantization": {"scale": list(scale),
                                              "zero_point": list(zero_point)}})
        return len(self.tensors) - 1

    def add_operator(self, code: int, version: int, inputs: Sequence[int],
                     outputs: Sequence[int]) -> None:
        """FULLY_CONNECTED or SOFTMAX, without more than it must have."""
        self.model["operator_codes"].append(
            {"deprecated_code": code, "code": code, "version": version})
        options: Dict[str, Any] = {"kind": "Nothing"}
        if code == SOFTMAX:
            options = {"kind": "Softmax", "beta": 1.0}
        self.operators.append({
            "code": len(self.model["operator_codes"]) - 1, "inputs": list(inputs),
            "outputs": list(outputs), "options": options,
            "options_type": _SOFTMAX_OPTIONS if code == SOFTMAX else _FULLY_CONNECTED_OPTIONS})

    def cut(self, operator_count: int, outputs: Sequence[int]) -> None:
        """Keeps the first operators, and of the tensors those that they and `outputs` name."""
        del self.operators[operator_count:]
        used = sorted({tensor for operator in self.operators
                       for key in ("inputs", "outputs", "intermediates")
                       for tensor in operator.get(key, []) if tensor >= 0}
                      | set(self.graph["inputs"]) | set(outputs))
        number = {old: new for new, old in enumerate(used)}
        number[-1] = -1
        self.tensors[:] = [self.tensors[old] for old in used]
        for operator in self.operators:
            for key in ("inputs", "outputs", "intermediates"):
                if key in operator:
                    operator[key] = [number[tensor] for tensor in operator[key]]
        self.graph["inputs"] = [number[tensor] for tensor in self.graph["inputs"]]
        self.graph["outputs"] = [number[tensor] for tensor in outputs]

    def to_bytes(self) -> bytes:
        """The file, with the buffers that tensors name."""
        buffers = [b""]
        place = {0: 0}
        for tensor in self.tensors:
            old = tensor.get("buffer", 0)
            if old not in place:
                place[old] = len(buffers)
                buffers.append(self.model["buffers"][old].get("data", b""))
            tensor["buffer"] = place[old]
        self.model["buffers"] = [{"data": data} if len(data) else {} for data in buffers]
        out = bytearray(b"\0\0\0\0TFL3")
        _write_table(out, 0, "Model", self.model)
        return bytes(out)

    # ---- Reading --------------------------------------------------------------------------------

    def _number(self, letter: str, at: int) -> Any:
        return struct.unpack_from("<" + letter, self._content, at)[0]

    def _fields(self, at: int) -> List[int]:
        """Where the table at `at` has its fields, by id; 0: nowhere."""
        vtable = at - self._number("i", at)
        count = (self._number("H", vtable) - 4) // 2
        offsets = [self._number("H", vtable + 4 + 2 * i) for i in range(count)]
        return [at + offset if offset else 0 for offset in offsets]

    def _table(self, kind: str, at: int) -> Dict[str, Any]:
        table: Dict[str, Any] = {}
        for field, where in enumerate(self._fields(at)):
            if where and field in _SCHEMA[kind]:
                name, field_type = _SCHEMA[kind][field]
                if field_type == "*":
                    table[name] = self._options(table.get("options_type", 0),
                                                where + self._number("I", where))
                else:
                    table[name] = self._value(field_type, where)
            elif where and (kind, field) == ("Tensor", 6):
                raise ValueError("models with sparse tensors cannot be changed")
        return table

    def _value(self, field_type: Any, where: int) -> Any:
        if isinstance(field_type, str) and len(field_type) == 1 and field_type != "s":
            return self._number(field_type, where)
        at = where + self._number("I", where)
        if field_type == "s":
            return self._content[at + 4:at + 4 + self._number("I", at)]
        if isinstance(field_type, str):
            return self._table(field_type, at)
        count = self._number("I", at)
        (element,) = field_type
        if len(element) > 1:
            places = [at + 4 + 4 * i for i in range(count)]
            return [self._table(element, place + self._number("I", place)) for place in places]
        size = struct.calcsize(element)
        if element == "B":
            return self._content[at + 4:at + 4 + count]
        return list(struct.unpack_from(f"<{count}{element}", self._content, at + 4)) if size else []

    def _options(self, options_type: int, at: int) -> Dict[str, Any]:
        kind = _OPTIONS.get(options_type)
        if kind is not None:
            return {"kind": kind, **self._table(kind, at)}
        vtable = at - self._number("i", at)
        vtable_size, size = self._number("H", vtable), self._number("H", vtable + 2)
        return {"kind": "", "vtable": self._content[vtable:vtable + vtable_size],
                "inline": self._content[at + 4:at + size], "alignment": at % 8}


# ---- Writing --------------------------------------------------------------------------------------
# Tables come before what they point at, so that offsets are positive; `at` is where the offset to
# what is written stands.

def _align(out: bytearray, alignment: int, plus: int = 0) -> None:
    out.extend(bytes(-(len(out) + plus) % alignment))


def _point(out: bytearray, at: int) -> None:
    struct.pack_into("<I", out, at, len(out) - at)


def _write_table(out: bytearray, at: int, kind: str, table: Dict[str, Any]) -> None:
    fields = [(field, field_type, table[name])
              for field, (name, field_type) in _SCHEMA[kind].items() if name in table]
    sizes = {field: _inline_size(field_type) for field, field_type, _ in fields}
    vtable = [0] * (max(sizes, default=-1) + 1)
    position = 4
    for field in sorted(sizes, key=lambda field: -sizes[field]):
        position += -position % sizes[field]
        vtable[field] = position
        position += sizes[field]
    _align(out, 8, 4 + 2 * len(vtable))
    out.extend(struct.pack(f"<HH{len(vtable)}H", 4 + 2 * len(vtable), position, *vtable))
    start = len(out)
    _point(out, at)
    out.extend(struct.pack("<i", 4 + 2 * len(vtable)) + bytes(position - 4))
    for field, field_type, value in fields:
        _write_value(out, start + vtable[field], field_type, value)


def _inline_size(field_type: Any) -> int:
    is_number = isinstance(field_type, str) and len(field_type) == 1 and field_type not in "s*"
    return struct.calcsize("<" + field_type) if is_number else 4


def _write_value(out: bytearray, at: int, field_type: Any, value: Any) -> None:
    if field_type == "s":
        _align(out, 4)
        _point(out, at)
        text = value.encode() if isinstance(value, str) else bytes(value)
        out.extend(struct.pack("<I", len(text)) + text + b"\0")
    elif field_type == "*":
        if value["kind"]:
            _write_table(out, at, value["kind"], value)
        else:
            _align(out, 8, len(value["vtable"]) - value["alignment"])
            out.extend(value["vtable"])
            _point(out, at)
            out.extend(struct.pack("<i", len(value["vtable"])) + value["inline"])
    elif isinstance(field_type, list):
        (element,) = field_type
        if len(element) > 1:
            _align(out, 4)
            _point(out, at)
            first = len(out) + 4
            out.extend(struct.pack("<I", len(value)) + bytes(4 * len(value)))
            for i, item in enumerate(value):
                _write_table(out, first + 4 * i, element, item)
        else:
            # Kernels read the bytes of buffers as numbers of any type.
            _align(out, 16 if element == "B" else 8, 4)
            _point(out, at)
            out.extend(struct.pack("<I", len(value)))
            out.extend(bytes(value) if element == "B"
                       else struct.pack(f"<{len(value)}{element}", *value))
    elif len(field_type) > 1:
        _write_table(out, at, field_type, value)
    else:
        struct.pack_into("<" + field_type, out, at, value)
