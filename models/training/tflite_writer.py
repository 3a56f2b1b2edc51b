# SPDX-License-Identifier: Apache-2.0
"""Writes a TensorFlow Lite model (schema version 3) with the flatbuffers builder.

Tables are written by field id; the ids and enum values are those of models/schema/tflite.fbs.
Covers what quantized networks of images need: one subgraph, int8, int32 and float32 tensors, the
ops of OPERATORS, and custom ones.
"""

from collections import namedtuple

import flatbuffers
import numpy as np

DATA_ALIGNMENT = 16  # bytes, of every constant tensor within the file
TENSOR_TYPES = {np.dtype(np.float32): 0, np.dtype(np.int32): 2, np.dtype(np.int8): 9}
PADDING = {"SAME": 0, "VALID": 1}
ACTIVATION = {"NONE": 0, "RELU": 1}

# Scales and zero points: one each, or one per slice of `dimension`.
Quantization = namedtuple("Quantization", "scale zero_point dimension", defaults=(0,))

# The lowest operator version that defines int8, the member of the BuiltinOptions union (0: none),
# and the fields of that options table: name -> (id, type).
Operator = namedtuple("Operator", "code version options_type options")
_POOL = {"padding": (0, "Int8"), "stride_w": (1, "Int32"), "stride_h": (2, "Int32"),
         "filter_width": (3, "Int32"), "filter_height": (4, "Int32")}
OPERATORS = {
    "ADD": Operator(0, 2, 11, {"fused_activation_function": (0, "Int8")}),
    "CONV_2D": Operator(3, 3, 1, {"padding": (0, "Int8"), "stride_w": (1, "Int32"),
                                  "stride_h": (2, "Int32"),
                                  "fused_activation_function": (3, "Int8"),
                                  "dilation_w_factor": (4, "Int32"),
                                  "dilation_h_factor": (5, "Int32")}),
    "DEPTHWISE_CONV_2D": Operator(4, 3, 2, {"padding": (0, "Int8"), "stride_w": (1, "Int32"),
                                            "stride_h": (2, "Int32"),
                                            "depth_multiplier": (3, "Int32"),
                                            "fused_activation_function": (4, "Int8"),
                                            "dilation_w_factor": (5, "Int32"),
                                            "dilation_h_factor": (6, "Int32")}),
    "DEQUANTIZE": Operator(6, 2, 0, {}),
    "FULLY_CONNECTED": Operator(9, 4, 8, {"fused_activation_function": (0, "Int8")}),
    "LOGISTIC": Operator(14, 2, 0, {}),
    "MAX_POOL_2D": Operator(17, 2, 5, _POOL),
    "MEAN": Operator(40, 2, 27, {"keep_dims": (0, "Bool")}),
    "RESHAPE": Operator(22, 1, 0, {}),
    "RESIZE_NEAREST_NEIGHBOR": Operator(97, 2, 74, {"align_corners": (0, "Bool"),
                                                    "half_pixel_centers": (1, "Bool")}),
    "SOFTMAX": Operator(25, 2, 9, {"beta": (0, "Float32")}),
}
CUSTOM = 32  # the code of all operators that are known by name


class ModelWriter:
    """Collects tensors and operators in execution order, then serializes them."""

    def __init__(self):
        self._tensors = []    # (name, shape, dtype, buffer index, Quantization or None)
        self._buffers = [b""]  # number 0 is empty by definition: "not a constant"
        self._operators = []  # (operator name, inputs, outputs, options; of a custom one bytes)

    def activation(self, name, shape, quantization=None):
        """Adds a tensor that is computed or given at run time, int8 or, without quantization,
        float32; returns its index."""
        dtype = np.dtype(np.int8 if quantization else np.float32)
        return self._add(name, shape, dtype, 0, quantization)

    def constant(self, name, values, quantization=None):
        """Adds a constant tensor from an int8, int32 or float32 array; returns its index."""
        self._buffers.append(values.astype(values.dtype.newbyteorder("<")).tobytes())
        return self._add(name, values.shape, values.dtype, len(self._buffers) - 1, quantization)

    def operator(self, name, inputs, outputs, **options):
        """Adds an operator; options are the fields of its options table."""
        self._operators.append((name, inputs, outputs, options))

    def custom_operator(self, name, inputs, outputs, options):
        """Adds an operator that is known by its name; options are the bytes of a flexbuffer."""
        self._operators.append((name, inputs, outputs, bytes(options)))

    def finish(self, inputs, outputs, description):
        """Returns the bytes of the file."""
        b = self._builder = flatbuffers.Builder(1 << 16)
        names = sorted({op[0] for op in self._operators}, key=_code)
        buffers = self._tables(self._buffers, self._buffer)
        tensors = self._tables(self._tensors, self._tensor)
        operators = self._tables(self._operators, lambda op: self._operator(names, *op))
        subgraph = self._table((0, "Offset", tensors), (1, "Offset", self._int32s(inputs)),
                               (2, "Offset", self._int32s(outputs)), (3, "Offset", operators),
                               (4, "Offset", b.CreateString("main")))
        model = self._table((0, "Uint32", 3),
                            (1, "Offset", self._tables(names, self._operator_code)),
                            (2, "Offset", self._tables([subgraph], lambda offset: offset)),
                            (3, "Offset", b.CreateString(description)),
                            (4, "Offset", buffers))
        b.Finish(model, b"TFL3")
        return bytes(b.Output())

    def _add(self, name, shape, dtype, buffer, quantization):
        self._tensors.append((name, shape, dtype, buffer, quantization))
        return len(self._tensors) - 1

    def _operator_code(self, name):
        # Codes below 127 stand in both fields; readers older than the wide one know the first.
        if name not in OPERATORS:
            custom_name = self._builder.CreateString(name)
            return self._table((0, "Int8", CUSTOM), (1, "Offset", custom_name), (2, "Int32", 1),
                               (3, "Int32", CUSTOM))
        op = OPERATORS[name]
        return self._table((0, "Int8", op.code), (2, "Int32", op.version), (3, "Int32", op.code))

    def _operator(self, names, name, inputs, outputs, options):
        op = OPERATORS.get(name)
        fields = [(0, "Uint32", names.index(name)), (1, "Offset", self._int32s(inputs)),
                  (2, "Offset", self._int32s(outputs))]
        if op is None:
            fields.append((5, "Offset", self._builder.CreateByteVector(options)))
        elif op.options_type:
            table = self._table(*[(*op.options[key], value) for key, value in options.items()])
            fields += [(3, "Uint8", op.options_type), (4, "Offset", table)]
        return self._table(*fields)

    def _tensor(self, tensor):
        name, shape, dtype, buffer, quantization = tensor
        fields = [(0, "Offset", self._int32s(shape)), (1, "Int8", TENSOR_TYPES[dtype]),
                  (2, "Uint32", buffer), (3, "Offset", self._builder.CreateString(name))]
        if quantization:
            scale = np.atleast_1d(np.asarray(quantization.scale, np.float32))
            zero_point = np.broadcast_to(np.asarray(quantization.zero_point, np.int64), scale.shape)
            fields.append((4, "Offset", self._table(
                (2, "Offset", self._builder.CreateNumpyVector(scale)),
                (3, "Offset", self._builder.CreateNumpyVector(np.ascontiguousarray(zero_point))),
                (6, "Int32", quantization.dimension))))
        return self._table(*fields)

    def _buffer(self, data):
        if not data:
            return self._table()
        b = self._builder
        b.StartVector(1, len(data), DATA_ALIGNMENT)
        b.head -= len(data)
        b.Bytes[b.head:b.head + len(data)] = data
        return self._table((0, "Offset", b.EndVector()))

    def _int32s(self, values):
        return self._builder.CreateNumpyVector(np.asarray(values, np.int32))

    def _tables(self, items, write):
        """A vector of tables, one per item, each written by write(item)."""
        offsets = [write(item) for item in items]
        self._builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        return self._builder.EndVector()

    def _table(self, *fields):
        """A table of (field id, type, value); children are written before their parents."""
        b = self._builder
        b.StartObject(1 + max((field for field, _, _ in fields), default=-1))
        for field, kind, value in fields:
            if kind == "Offset":
                b.PrependUOffsetTRelativeSlot(field, value, 0)
            else:
                getattr(b, f"Prepend{kind}Slot")(field, value, None)  # None: write defaults too
        return b.EndObject()


def _code(name):
    return OPERATORS[name].code if name in OPERATORS else CUSTOM
