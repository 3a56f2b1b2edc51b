#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes operators.pack: ONNX files of one node each and what onnxruntime computes of them.

usage: make_operators.py ONNXRUNTIME [OUTPUT]

Needs Debian's python3-onnx, and in the folder ONNXRUNTIME a copy of onnxruntime/ after
'npm ci --ignore-scripts' there.
The pack is zlib's, of records (numbers little-endian): uint32 length and name; uint32 length and
the model; uint32 number of inputs, and for each uint32 rank and uint32 sizes; uint32 number of
outputs, and for each uint32 elements, float32 scale, int16 values (value = scale * int16).
Input i of a model holds the numbers that `values` below makes of the seed i + 1.
"""
import itertools
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).parent
RANDOM = numpy.random.RandomState(1)
FILES = {}  # name -> (model, [input shapes])


def values(seed, count):
    """Multiples of 1/64 in [-1, 1): a generator of Numerical Recipes, its eighth byte dropped."""
    result = numpy.empty(count, numpy.float32)
    for i in range(count):
        seed = (seed * 1664525 + 1013904223) % 2**32
        result[i] = (seed >> 25) / 64 - 1
    return result


def floats(*shape):
    return (RANDOM.randint(-64, 64, shape) / 64).astype(numpy.float32)


def integers(*numbers):
    return numpy.array(numbers, numpy.int64)


def scalar(number):
    return numpy.float32(number)


def case(name, op, shapes, constants=(), opsets=(7, 9, 11, 13, 17), outputs=1, order=None,
         **attributes):
    """One file per opset: inputs x0 ..., constants c0 ...; `order` names a node's inputs."""
    inputs = [f"x{i}" for i in range(len(shapes))]
    order = order or inputs + [f"c{i}" for i in range(len(constants))]
    outs = [f"y{i}" for i in range(outputs)]
    kind = TensorProto.INT64 if op.startswith("Arg") else TensorProto.FLOAT
    for opset in opsets:
        graph = helper.make_graph(
            [helper.make_node(op, order, outs, **attributes)], "g",
            [helper.make_tensor_value_info(x, TensorProto.FLOAT, s)
             for x, s in zip(inputs, shapes)],
            [helper.make_tensor_value_info(y, kind, None) for y in outs],
            [numpy_helper.from_array(numpy.asarray(c), f"c{i}") for i, c in enumerate(constants)])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                                  ir_version=7 if opset > 8 else 4, producer_name="")
        if opset <= 8:  # where initializers are inputs, too
            for i, constant in enumerate(constants):
                array = numpy_helper.from_array(numpy.asarray(constant))
                graph.input.append(helper.make_tensor_value_info(f"c{i}", array.data_type,
                                                                 list(array.dims)))
            model.graph.CopyFrom(graph)
        model = onnx.shape_inference.infer_shapes(model)
        try:
            onnx.checker.check_model(model)
        except onnx.checker.ValidationError as error:
            if "Field 'shape' of 'type' is required" not in str(error):
                continue  # this opset has no such operator, attribute or input
            for output in model.graph.output:  # the checker's own inference does not know it
                if not output.type.tensor_type.HasField("shape"):
                    output.type.tensor_type.shape.Clear()
        FILES[f"{name}_{opset}"] = (model.SerializeToString(), shapes)


PICTURE = [1, 4, 7, 6]


def windows():
    x = PICTURE
    conv = lambda name, w, bias=True, shape=x, **rest: case(
        name, "Conv", [shape], [w, floats(w.shape[0])] if bias else [w], **rest)
    conv("conv", floats(5, 4, 3, 3), pads=[1, 1, 1, 1])
    conv("conv_no_bias", floats(5, 4, 3, 3), bias=False)
    conv("conv_stride", floats(5, 4, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    conv("conv_uneven", floats(5, 4, 3, 2), pads=[0, 1, 2, 0], strides=[2, 1])
    conv("conv_dilated", floats(5, 4, 3, 3), pads=[2, 2, 2, 2], dilations=[2, 2])
    conv("conv_upper", floats(5, 4, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2])
    conv("conv_lower", floats(5, 4, 4, 4), auto_pad="SAME_LOWER", strides=[2, 2])
    conv("conv_valid", floats(5, 4, 4, 4), auto_pad="VALID")
    conv("conv_depthwise", floats(4, 1, 3, 3), group=4, pads=[1, 1, 1, 1])
    conv("conv_multiplier", floats(8, 1, 3, 3), group=4, pads=[1, 1, 1, 1], strides=[2, 2])
    conv("conv_groups", floats(6, 2, 3, 3), group=2, pads=[1, 1, 1, 1])
    conv("conv_line", floats(5, 4, 3), shape=[1, 4, 9], pads=[1, 1])
    conv("conv_line_depthwise", floats(4, 1, 3), shape=[1, 4, 9], pads=[1, 1], group=4)
    conv("conv_batch", floats(3, 4, 1, 1), shape=[2, 4, 5, 5])
    up = lambda name, w, bias=0, shape=x, **rest: case(
        name, "ConvTranspose", [shape], [w] + ([floats(bias)] if bias else []), **rest)
    up("up", floats(4, 5, 2, 2), 5, strides=[2, 2])
    up("up_4x4", floats(4, 5, 4, 4), 5, strides=[2, 2], pads=[1, 1, 1, 1])
    up("up_3x3", floats(4, 5, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
    up("up_odd", floats(4, 5, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1])
    up("up_groups", floats(4, 3, 3, 3), 6, strides=[2, 2], group=2)
    up("up_depthwise", floats(4, 1, 3, 3), 4, strides=[2, 2], group=4)
    up("up_dilated", floats(4, 5, 3, 3), dilations=[2, 2])
    up("up_line", floats(4, 5, 3), shape=[1, 4, 6], strides=[2])
    up("up_uneven", floats(4, 5, 3, 3), strides=[2, 3], pads=[0, 1, 2, 0], output_padding=[1, 2])
    for op in ("MaxPool", "AveragePool"):
        pool = lambda name, shape=x, op=op, **rest: case(f"{op}_{name}", op, [shape], **rest)
        pool("plain", kernel_shape=[2, 2], strides=[2, 2])
        pool("padded", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        pool("same", kernel_shape=[3, 3], auto_pad="SAME_UPPER", strides=[2, 2])
        pool("lower", kernel_shape=[2, 2], auto_pad="SAME_LOWER")
        pool("ceil", [1, 4, 8, 6], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1,
             opsets=(10, 11, 13, 17))
        pool("line", [1, 4, 9], kernel_shape=[3], strides=[2])
        pool("uneven", kernel_shape=[3, 2], pads=[0, 1, 2, 0])
        pool("5x5", kernel_shape=[5, 5], pads=[2, 2, 2, 2])
    case("AveragePool_counted", "AveragePool", [x], kernel_shape=[3, 3], strides=[2, 2],
         pads=[1, 1, 1, 1], count_include_pad=1)
    case("AveragePool_counted_ceil", "AveragePool", [[1, 4, 8, 6]], kernel_shape=[3, 3],
         strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1, ceil_mode=1, opsets=(11, 13))
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        case(op, op, [x])
        case(op + "_line", op, [[2, 3, 5]])
    for name, shape in (("picture", x), ("line", [2, 4, 5]), ("row", [2, 4])):
        case("norm_" + name, "BatchNormalization", [shape],
             [floats(4), floats(4), floats(4), abs(floats(4)) + scalar(0.25)], epsilon=1e-3,
             opsets=(7, 9, 11, 14, 15))


def products():
    case("gemm", "Gemm", [[2, 5]], [floats(5, 3), floats(3)])
    case("gemm_b", "Gemm", [[2, 5]], [floats(3, 5), floats(3)], transB=1, alpha=.5, beta=2.)
    case("gemm_a", "Gemm", [[5, 2]], [floats(5, 3), floats(2, 3)], transA=1)
    case("gemm_column", "Gemm", [[2, 5]], [floats(5, 3), floats(2, 1)], beta=.5)
    case("gemm_computed", "Gemm", [[2, 5], [3, 5]], [floats(3)], transB=1, alpha=.5)
    case("gemm_no_c", "Gemm", [[2, 5]], [floats(5, 3)], opsets=(11, 13, 17))
    case("gemm_number", "Gemm", [[2, 5]], [floats(5, 3), floats(1)])
    case("matmul", "MatMul", [[2, 5]], [floats(5, 3)])
    case("matmul_stack", "MatMul", [[2, 4, 5]], [floats(5, 3)])
    case("matmul_computed", "MatMul", [[2, 4, 5], [2, 5, 3]])
    case("matmul_4", "MatMul", [[1, 2, 4, 5], [1, 2, 5, 3]])
    case("matmul_constants", "MatMul", [[2, 4, 5]], [floats(2, 5, 3)])
    case("matmul_broadcast", "MatMul", [[2, 4, 5], [5, 3]])


def arithmetic():
    x = PICTURE
    for op, attributes in (("Relu", {}), ("LeakyRelu", {"alpha": .1}), ("Sigmoid", {}),
                           ("Tanh", {}), ("HardSigmoid", {}), ("Elu", {"alpha": .7}),
                           ("Exp", {}), ("Neg", {}), ("Abs", {}), ("Identity", {}),
                           ("Dropout", {})):
        for shape in (x, [3, 5]):
            case(f"{op}_{len(shape)}", op, [shape], **attributes)
    case("HardSigmoid_sixth", "HardSigmoid", [x], alpha=1 / 6, beta=.5)
    case("HardSwish", "HardSwish", [x], opsets=(14, 17))
    for name, shape, slope in (("channels", x, floats(4, 1, 1)), ("one", x, floats(1)),
                               ("row", [2, 3], floats(3)), ("every", x, floats(4, 7, 6)),
                               ("batch", x, floats(1, 4, 1, 1))):
        case("PRelu_" + name, "PRelu", [shape], [slope])
    for name, limits in (("both", {"min": -.5, "max": .25}), ("6", {"min": 0., "max": 6.}),
                         ("low", {"min": .125}), ("1", {"min": -1., "max": 1.})):
        case("Clip_attribute_" + name, "Clip", [x], opsets=(7, 10), **limits)
    for name, limits, order in (("both", (-.5, .25), None), ("1", (-1, 1), None),
                                ("high", (.25,), ["x0", "", "c0"]), ("relu", (0,), None),
                                ("positive", (0, .5), None)):
        case("Clip_input_" + name, "Clip", [x], [scalar(limit) for limit in limits],
             opsets=(11, 12, 13), order=order)
    for op in ("Softmax", "LogSoftmax"):
        for axis in (None, 0, 1, 2, 3, -1, -2):
            case(f"{op}_{axis}", op, [[2, 3, 4, 5]],
                 opsets=(11, 13) if (axis or 0) < 0 else (7, 11, 13),
                 **({} if axis is None else {"axis": axis}))
        case(op + "_row", op, [[2, 5]], opsets=(7, 11, 13))
    for op in ("Add", "Sub", "Mul", "Div"):
        two = scalar(2)
        for name, shapes, constants, order in (
                ("channels", [x], [floats(4, 1, 1) + two], None), ("width", [x], [floats(6) + two],
                                                                   None),
                ("number", [x], [two], None), ("one", [x], [floats(1) + two], None),
                ("right", [x], [floats(4, 1, 1)], ["c0", "x0"]) if op != "Div" else
                ("full", [x], [floats(1, 4, 7, 6) + two], None),
                ("enlarged", [[4, 1, 1]], [floats(1, 4, 7, 6) + two], None),
                ("rank", [[5]], [floats(1, 1) + two], None)):
            case(f"{op}_{name}", op, shapes, constants, order=order, opsets=(7, 13))
        if op == "Div":
            continue  # by values that are nearly 0, errors have no bound
        for name, shapes in (("computed", [x, x]), ("gate", [x, [1, 4, 1, 1]]), ("row", [x, [6]]),
                             ("plane", [x, [4, 1, 1]])):
            case(f"{op}_{name}", op, shapes, opsets=(7, 13))
    for op in ("Min", "Max"):
        case(op, op, [x, x], opsets=(8, 12, 13))
        case(op + "_three", op, [x, [1, 4, 1, 1], x], opsets=(8, 13))
        case(op + "_constant", op, [x], [floats(4, 1, 1)], opsets=(8, 13))
    case("Sum", "Sum", [x, x, [1, 4, 1, 1]], opsets=(8, 13))
    for power in (1, 2, 3):
        case(f"Pow_{power}", "Pow", [x], [scalar(power)], opsets=(7, 12, 13))
    for op in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2"):
        for axes, keep in (([2, 3], 1), ([2, 3], 0), ([1], 1), ([1], 0), ([-1], 0), (None, 1),
                           (None, 0), ([0], 0)):
            named = "all" if axes is None else "".join(map(str, axes))
            early = (11,) if axes == [-1] else (7, 11)
            if op == "ReduceSum" and axes is not None:
                case(f"{op}_input_{named}_{keep}", op, [x], [integers(*axes)], opsets=(13,),
                     keepdims=keep)
            late = () if op == "ReduceSum" else (13,)
            case(f"{op}_{named}_{keep}", op, [x], opsets=early + late, keepdims=keep,
                 **({} if axes is None else {"axes": axes}))
    for op in ("ArgMax", "ArgMin"):
        for axis in (0, 1, 2, 3, -1):
            for keep in (0, 1):
                case(f"{op}_{axis}_{keep}", op, [[2, 3, 4, 5]], axis=axis, keepdims=keep,
                     opsets=(11, 13) if axis < 0 else (7, 13))


def moves():
    x = PICTURE
    for axis in (0, 1, 2, 3):
        case(f"Concat_{axis}", "Concat", [x, x], axis=axis, opsets=(7, 13))
    case("Concat_last", "Concat", [x, x], axis=-1, opsets=(11, 13))
    case("Concat_constant", "Concat", [x], [floats(1, 2, 7, 6)], axis=1, opsets=(7, 13))
    case("Concat_rows", "Concat", [[2, 3], [2, 4]], axis=1, opsets=(7, 13))
    case("Split_even", "Split", [x], outputs=2, axis=1, opsets=(7, 11, 13, 17))
    case("Split_attribute", "Split", [x], outputs=2, axis=2, split=[3, 4], opsets=(7, 11))
    case("Split_input", "Split", [x], [integers(3, 4)], outputs=2, axis=2, opsets=(13, 17))
    case("Split_last", "Split", [x], outputs=2, axis=-1, split=[2, 4], opsets=(11,))
    case("Slice_attribute", "Slice", [x], starts=[1, 0], ends=[3, -1], axes=[1, 3], opsets=(7, 9))
    case("Slice_leading", "Slice", [x], starts=[0, 1], ends=[1, 3], opsets=(7, 9))
    for name, operands in (("plain", ((1, 0), (3, -1), (1, 3))),
                           ("steps", ((0, 0), (99, 99), (2, 3), (2, 2))),
                           ("backward", ((-1, -1), (-99, -99), (2, 3), (-1, -2))),
                           ("last", ((-3,), (2**63 - 1,), (-1,))),
                           ("part", ((5,), (1,), (2,), (-2,)))):
        case("Slice_" + name, "Slice", [x], [integers(*numbers) for numbers in operands],
             opsets=(10, 11, 13))
    for name, pads, rest in (("plain", [0, 0, 1, 2, 0, 0, 3, 0], {}),
                             ("value", [0, 1, 1, 2, 0, 0, 3, 0], {"value": 1.5}),
                             ("reflect", [0, 0, 1, 2, 0, 0, 3, 0], {"mode": "reflect"}),
                             ("cut", [0, 0, -1, 2, 0, 0, 1, -2], {})):
        case("Pad_attribute_" + name, "Pad", [x], pads=pads, opsets=(7, 10), **rest)
        value = [scalar(rest["value"])] if "value" in rest else []
        mode = {"mode": rest["mode"]} if "mode" in rest else {}
        case("Pad_input_" + name, "Pad", [x], [integers(*pads)] + value, opsets=(11, 13), **mode)
    case("Pad_rows", "Pad", [[3, 4]], [integers(1, 0, 0, 2)], opsets=(11, 13))
    for i, (shape, target) in enumerate((
            (x, [1, -1]), (x, [0, -1]), (x, [1, 2, 2, 7, 6]), (x, [1, 4, 42]), (x, [1, 4, 6, 7]),
            (x, [2, 2, 42]), ([2, 12], [2, 3, 2, 2]), ([1, 168], [1, 4, 7, 6]), (x, [168]),
            ([1, 4, 1, 1], [1, 4]), ([2, 4, 3, 1], [8, 3]), ([2, 3, 4, 5], [3, 2, 20]))):
        case(f"Reshape_{i}", "Reshape", [shape], [integers(*target)], opsets=(7, 13))
    for axis in (0, 1, 2, 3, 4):
        case(f"Flatten_{axis}", "Flatten", [x], axis=axis, opsets=(7, 13))
    case("Flatten_back", "Flatten", [x], axis=-2, opsets=(11, 13))
    case("Squeeze_attribute", "Squeeze", [[1, 4, 1, 6]], axes=[2], opsets=(7, 11))
    case("Squeeze_input", "Squeeze", [[1, 4, 1, 6]], [integers(0, -2)], opsets=(13, 17))
    case("Unsqueeze_attribute", "Unsqueeze", [[4, 6]], axes=[0, 3], opsets=(7, 11))
    case("Unsqueeze_input", "Unsqueeze", [[4, 6]], [integers(0, -1)], opsets=(13, 17))
    for order in itertools.permutations(range(4)):
        case("Transpose_" + "".join(map(str, order)), "Transpose", [[2, 3, 4, 5]],
             perm=list(order), opsets=(13,))
    case("Transpose", "Transpose", [[2, 3, 4, 5]], opsets=(7, 13))
    case("Transpose_5", "Transpose", [[2, 3, 2, 3, 2]], perm=[0, 2, 1, 4, 3], opsets=(7, 13))
    for axis in (0, 1, 2, 3):
        case(f"Gather_{axis}", "Gather", [x], [integers(0)], axis=axis, opsets=(7, 13))
        case(f"Gather_number_{axis}", "Gather", [x], [numpy.int64(0)], axis=axis, opsets=(7, 13))
    case("Gather_back", "Gather", [x], [integers(3, 1, -1, 0)], axis=1, opsets=(11, 13))
    case("Gather_matrix", "Gather", [x], [integers([0, 1], [2, 3])], axis=1, opsets=(7, 13))
    case("DepthToSpace", "DepthToSpace", [[1, 12, 3, 4]], blocksize=2, opsets=(7, 11, 13))
    for mode in ("CRD", "DCR"):
        case("DepthToSpace_" + mode, "DepthToSpace", [[1, 12, 3, 4]], blocksize=2, mode=mode,
             opsets=(11, 13))
    case("SpaceToDepth", "SpaceToDepth", [[1, 3, 4, 6]], blocksize=2, opsets=(7, 13))
    case("Tile", "Tile", [x], [integers(1, 2, 1, 3)], opsets=(7, 13))
    case("Expand", "Expand", [[1, 4, 1, 6]], [integers(2, 4, 7, 1)], opsets=(8, 13))
    case("Cast", "Cast", [x], to=1, opsets=(7, 13))


def resizing():
    x = [1, 3, 4, 5]
    for mode in ("nearest", "linear"):
        case("Upsample_attribute_" + mode, "Upsample", [x], scales=[1., 1., 2., 2.], mode=mode,
             opsets=(7,))
        scales = numpy.array([1, 1, 2, 3], numpy.float32)
        case("Upsample_input_" + mode, "Upsample", [x], [scales], mode=mode, opsets=(9,))
        case("Resize_10_" + mode, "Resize", [x], [scales], mode=mode, opsets=(10,))
    case("Resize_10_smaller", "Resize", [x], [numpy.array([1, 1, .5, .6], numpy.float32)],
         mode="nearest", opsets=(10,))
    none = numpy.zeros(0, numpy.float32)
    for way in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
        rest = {"coordinate_transformation_mode": way}
        for i, scales in enumerate(((2, 2), (.5, .6), (1.5, 1.4), (3, 3))):
            scales = numpy.array((1, 1) + scales, numpy.float32)
            case(f"Resize_linear_{way}_{i}", "Resize", [x], [none, scales], mode="linear",
                 opsets=(11, 13), **rest)
            for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
                case(f"Resize_{rounding}_{way}_{i}", "Resize", [x], [none, scales],
                     mode="nearest", nearest_mode=rounding, opsets=(11,), **rest)
        case("Resize_size_" + way, "Resize", [x], [none, none, integers(1, 3, 7, 9)],
             mode="linear", opsets=(11,), **rest)
        case("Resize_size_alone_" + way, "Resize", [x], [integers(1, 3, 7, 9)],
             order=["x0", "", "", "c0"], mode="nearest", nearest_mode="floor", opsets=(13,), **rest)


def chain(name, nodes, constants=(), shape=None, opsets=(11, 13, 16, 17)):
    """One file per opset from x0 to y0; `nodes`: (operator, inputs, output, attributes)."""
    for opset in opsets:
        graph = helper.make_graph(
            [helper.make_node(op, inputs.split(), [output], **rest)
             for op, inputs, output, rest in nodes], "g",
            [helper.make_tensor_value_info("x0", TensorProto.FLOAT, shape or PICTURE)],
            [helper.make_tensor_value_info("y0", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(numpy.asarray(c), f"c{i}") for i, c in enumerate(constants)])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                                  ir_version=7, producer_name="")
        model = onnx.shape_inference.infer_shapes(model)
        FILES[f"{name}_{opset}"] = (model.SerializeToString(), [shape or PICTURE])


def computed_shapes():
    """Operators that compute shapes, on their way to what takes one."""
    tensor = numpy_helper.from_array
    chain("Constant", [("Constant", "", "a", {"value": tensor(floats(4, 1, 1))}),
                       ("Add", "x0 a", "y0", {})])
    chain("Constant_float", [("Constant", "", "a", {"value_float": 1.5}),
                             ("Add", "x0 a", "y0", {})], opsets=(12, 13, 16))
    chain("Constant_ints", [("Constant", "", "a", {"value_ints": [1, 4, -1]}),
                            ("Reshape", "x0 a", "y0", {})], opsets=(12, 13, 16))
    chain("ConstantOfShape", [
        ("Shape", "x0", "s", {}),
        ("ConstantOfShape", "s", "a", {"value": tensor(numpy.array([1.5], numpy.float32))}),
        ("Add", "x0 a", "y0", {})])
    chain("Shape", [("Shape", "x0", "s", {}), ("Gather", "s c0", "d", {"axis": 0}),
                    ("Concat", "d c1", "t", {"axis": 0}), ("Reshape", "x0 t", "y0", {})],
          [integers(0, 2), integers(-1)])
    chain("Size", [("Size", "x0", "s", {}), ("Reshape", "s c0", "t", {}),
                   ("Reshape", "x0 t", "y0", {})], [integers(1)])
    chain("Range", [("Shape", "x0", "s", {}), ("Gather", "s c0", "d", {"axis": 0}),
                    ("Range", "c1 d c2", "r", {}), ("Cast", "r", "f", {"to": 1}),
                    ("Add", "x0 f", "y0", {})],
          [numpy.int64(3), numpy.int64(0), numpy.int64(1)])
    # Sizes of -1 are those of the tensor, as Expand's are computed.
    chain("Where_Equal", [("Shape", "x0", "s", {}), ("Equal", "c0 c1", "e", {}),
                          ("Where", "e s c0", "t", {}), ("Expand", "x0 t", "y0", {})],
          [integers(2, -1, 7, -1), integers(-1)])
    for op in ("Less", "Greater"):
        chain(op, [("Shape", "x0", "s", {}), (op, "s c0", "e", {}),
                   ("Where", "e c1 c2", "t", {}), ("Tile", "x0 t", "y0", {})],
              [integers(5), integers(2), integers(1)])
    for op in ("Floor", "Ceil"):
        chain(op, [("Shape", "x0", "s", {}), ("Cast", "s", "f", {"to": 1}),
                   ("Mul", "f c0", "m", {}), (op, "m", "r", {}), ("Cast", "r", "t", {"to": 7}),
                   ("Slice", "x0 c1 t c2", "y0", {})],
              [numpy.array([1, .7, .7, .7], numpy.float32), integers(0, 0, 0, 0),
               integers(0, 1, 2, 3)])
    for keep in (0, 1):
        chain(f"ReduceProd_{keep}", [
            ("Shape", "x0", "s", {}), ("Slice", "s c0 c1", "d", {}),
            ("ReduceProd", "d", "p", {"axes": [0], "keepdims": keep}),
            ("Reshape", "p c2", "q", {}), ("Concat", "c2 q", "t", {"axis": 0}),
            ("Reshape", "x0 t", "y0", {})], [integers(1), integers(4), integers(1)])
    chain("Sqrt", [("Abs", "x0", "a", {}), ("Sqrt", "a", "y0", {})], opsets=(7, 9, 13, 16))
    chain("Reciprocal", [("Add", "x0 c0", "a", {}), ("Reciprocal", "a", "y0", {})],
          [scalar(3)], opsets=(7, 9, 13, 16))


def record(name, model, shapes, outputs):
    name = name.encode()
    parts = [struct.pack("<I", len(name)), name, struct.pack("<I", len(model)), model,
             struct.pack("<I", len(shapes))]
    for shape in shapes:
        parts.append(struct.pack(f"<{len(shape) + 1}I", len(shape), *shape))
    parts.append(struct.pack("<I", len(outputs)))
    for output in outputs:
        numbers = numpy.array(output, numpy.float64)
        largest = numpy.abs(numbers).max()
        # Whole numbers stay what they are.
        scale = 1.0 if (numbers == numbers.round()).all() else largest / 32767
        scale = struct.unpack("<f", struct.pack("<f", scale))[0]
        steps = numpy.clip((numbers / scale).round(), -32767, 32767).astype("<i2")
        parts.append(struct.pack("<If", len(numbers), scale) + steps.tobytes())
    return b"".join(parts)


def main():
    onnxruntime = pathlib.Path(sys.argv[1]).resolve()
    target = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else HERE / "operators.pack")
    for make in (windows, products, arithmetic, moves, resizing, computed_shapes):
        make()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, (model, shapes) in FILES.items():
            (folder / f"{name}.onnx").write_bytes(model)
            (folder / f"{name}.json").write_text(json.dumps(
                [{"shape": shape, "values": values(i + 1, int(numpy.prod(shape))).tolist()}
                 for i, shape in enumerate(shapes)]))
        subprocess.run(["node", HERE / "run_onnxruntime.js", onnxruntime, folder], check=True)
        records = [record(name, model, shapes,
                          json.loads((folder / f"{name}.out.json").read_text()))
                   for name, (model, shapes) in sorted(FILES.items())
                   if (folder / f"{name}.out.json").exists()]
    target.write_bytes(zlib.compress(b"".join(records), 9))
    print(f"{len(records)} of {len(FILES)} files, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
