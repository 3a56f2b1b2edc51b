// SPDX-License-Identifier: Apache-2.0
//
// Resize, and Upsample, which it was before.
#include <algorithm>
#include <cmath>

#include "quantize/onnx/onnx_operators.h"

namespace atollrt {
namespace {

// Where output cell `i` of an axis comes from, in float as ONNX's runtimes compute it.
float SourcePosition(std::string_view mode, int64_t i, int64_t in, int64_t out, float scale) {
  const float x = static_cast<float>(i);
  if (mode == "align_corners") {
    return out == 1 ? 0 : x * static_cast<float>(in - 1) / static_cast<float>(out - 1);
  }
  if (mode == "asymmetric") return x / scale;
  if (mode == "pytorch_half_pixel" && out <= 1) return 0;
  return (x + 0.5f) / scale - 0.5f;
}

int64_t NearestCell(std::string_view rounding, float x, int64_t in) {
  float cell = 0;
  if (rounding == "floor") {
    cell = std::floor(x);
  } else if (rounding == "ceil") {
    cell = std::ceil(x);
  } else if (rounding == "round_prefer_ceil") {
    cell = std::floor(x + 0.5f);
  } else {
    cell = std::ceil(x - 0.5f);
  }
  return std::clamp<int64_t>(static_cast<int64_t>(cell), 0, in - 1);
}

// TensorFlow Lite's own formula, in float as its kernel has it.
int64_t NearestOfTflite(const ResizeOptions& options, int64_t i, int64_t in, int64_t out) {
  const float scale = options.align_corners && out > 1
                          ? static_cast<float>(in - 1) / static_cast<float>(out - 1)
                          : static_cast<float>(in) / static_cast<float>(out);
  const float offset = options.half_pixel_centers ? 0.5f : 0.0f;
  const float x = (static_cast<float>(i) + offset) * scale;
  const int64_t cell = static_cast<int64_t>(options.align_corners ? std::round(x) : std::floor(x));
  return std::clamp<int64_t>(cell, 0, in - 1);
}

// What is asked for, of height and width.
struct Resizing {
  int64_t in[2];
  int64_t out[2];
  float scale[2];
  bool is_old = false;  // before opset 11, when there was one way alone
  std::string_view transformation;
  std::string_view rounding;
};

// From the scales or else the sizes, which stand in different places in each opset.
Status ReadSizes(const OnnxNodeImport& n, const OnnxValue& x, Resizing* resizing) {
  const bool is_upsample = n.node.op_type == "Upsample";
  std::vector<float> scales;
  Dims sizes;
  if (is_upsample && n.opset < 9) {
    const OnnxAttribute* attribute = n.Attribute("scales");
    if (attribute != nullptr) scales = attribute->floats;
  } else {
    const size_t at = is_upsample || n.opset < 11 ? 1 : 2;
    if (n.has(at)) {
      ATOLL_ASSIGN_OR_RETURN(scales, n.FloatsAt(at, "scales"));
    }
    if (n.has(3)) {
      ATOLL_ASSIGN_OR_RETURN(sizes, n.IntegersAt(3, "sizes"));
    }
  }
  const bool by_size = scales.empty();
  if ((by_size ? sizes.size() : scales.size()) != 4) {
    return CorruptModel("%zu scales and %zu sizes for 4 dimensions", scales.size(), sizes.size());
  }
  for (size_t i = 0; i < 4; ++i) {
    const float in = static_cast<float>(x.dims[i]);
    if (!by_size && !(scales[i] > 0 && scales[i] < 65536)) {
      return CorruptModel("a scale of %g", static_cast<double>(scales[i]));
    }
    const int64_t out = by_size ? sizes[i] : static_cast<int64_t>(std::floor(in * scales[i]));
    if (out < 1 || out > INT32_MAX) {
      return CorruptModel("a size of %lld", static_cast<long long>(out));
    }
    if (i < 2) {
      if (out == x.dims[i]) continue;
      return Unsupported(
          "sizes that change the batch or the channels; height and width are supported");
    }
    resizing->in[i - 2] = x.dims[i];
    resizing->out[i - 2] = out;
    resizing->scale[i - 2] = by_size ? static_cast<float>(out) / in : scales[i];
  }
  return {};
}

// The cells of an axis that are picked, in order.
Result<std::vector<int32_t>> NearestCells(OnnxNodeImport& n, const Resizing& resizing, int axis) {
  const int64_t in = resizing.in[axis], out = resizing.out[axis];
  const float scale = resizing.scale[axis];
  ATOLL_RETURN_IF_ERROR(n.b.Charge(out, sizeof(int32_t)));
  // Opset 10 rounds up where it makes a picture smaller.
  const std::string_view way = resizing.is_old && scale < 1 ? "ceil" : resizing.rounding;
  std::vector<int32_t> cells;
  for (int64_t i = 0; i < out; ++i) {
    const float position = SourcePosition(resizing.transformation, i, in, out, scale);
    cells.push_back(static_cast<int32_t>(NearestCell(way, position, in)));
  }
  return cells;
}

// The operator with those of its options that pick the same cells, or else lists of rows and
// columns.
Result<int32_t> EmitNearest(OnnxNodeImport& n, const Resizing& resizing, int32_t tensor,
                            int32_t size) {
  std::vector<int32_t> cells[2];
  for (int axis = 0; axis < 2; ++axis) {
    ATOLL_ASSIGN_OR_RETURN(cells[axis], NearestCells(n, resizing, axis));
  }
  for (const ResizeOptions options :
       {ResizeOptions{false, false}, ResizeOptions{false, true}, ResizeOptions{true, false}}) {
    bool equal = true;
    for (int axis = 0; axis < 2; ++axis) {
      for (size_t i = 0; equal && i < cells[axis].size(); ++i) {
        equal = NearestOfTflite(options, static_cast<int64_t>(i), resizing.in[axis],
                                resizing.out[axis]) == cells[axis][i];
      }
    }
    if (equal) return n.b.Emit(OpType::kRESIZE_NEAREST_NEIGHBOR, {tensor, size}, options);
  }
  for (int axis = 0; axis < 2; ++axis) {
    ATOLL_ASSIGN_OR_RETURN(const int32_t list,
                           n.b.IntTensor({static_cast<int32_t>(cells[axis].size())}, cells[axis]));
    AxisOptions options;
    options.axis = 1 + axis;
    ATOLL_ASSIGN_OR_RETURN(tensor, n.b.Emit(OpType::kGATHER, {tensor, list}, options));
  }
  return tensor;
}

Result<int32_t> EmitBilinear(OnnxNodeImport& n, const Resizing& resizing, int32_t tensor,
                             int32_t size) {
  ResizeOptions options;
  options.align_corners = resizing.transformation == "align_corners";
  options.half_pixel_centers =
      resizing.transformation == "half_pixel" || resizing.transformation == "pytorch_half_pixel";
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t in = resizing.in[axis], out = resizing.out[axis];
    const double exact = static_cast<double>(out) / static_cast<double>(in);
    if (!options.align_corners && std::abs(exact - double{resizing.scale[axis]}) > 1e-4 * exact &&
        out > 1) {
      return Unsupported(
          "a scale of %g that makes %lld of %lld cells; scales that give a whole "
          "number are supported",
          resizing.scale[axis], static_cast<long long>(out), static_cast<long long>(in));
    }
    if (resizing.transformation == "pytorch_half_pixel" && out == 1 && in > 1) {
      return Unsupported("pytorch_half_pixel that makes 1 of %lld cells",
                         static_cast<long long>(in));
    }
  }
  return n.b.Emit(OpType::kRESIZE_BILINEAR, {tensor, size}, options);
}

Status ImportResize(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.FloatInput(0));
  if (x->rank() != 4) {
    return Unsupported("an input of shape %s; 4 dimensions are supported",
                       DimsString(x->dims).c_str());
  }
  Resizing resizing;
  resizing.is_old = n.node.op_type == "Upsample" || n.opset < 11;
  ATOLL_RETURN_IF_ERROR(ReadSizes(n, *x, &resizing));
  const std::string_view mode = n.Text("mode", "nearest");
  resizing.transformation =
      resizing.is_old ? "asymmetric" : n.Text("coordinate_transformation_mode", "half_pixel");
  resizing.rounding = resizing.is_old ? "floor" : n.Text("nearest_mode", "round_prefer_floor");
  constexpr std::string_view kTransformations[] = {"asymmetric", "align_corners", "half_pixel",
                                                   "pytorch_half_pixel"};
  if (std::ranges::find(kTransformations, resizing.transformation) == std::end(kTransformations)) {
    return Unsupported(
        "coordinate_transformation_mode '%s'; half_pixel, pytorch_half_pixel, "
        "align_corners and asymmetric are supported",
        std::string(resizing.transformation).c_str());
  }
  if (mode != "nearest" && mode != "linear") {
    return Unsupported("mode '%s'; nearest and linear are supported", std::string(mode).c_str());
  }
  ATOLL_ASSIGN_OR_RETURN(int32_t tensor, n.b.Stored(*x, ChannelsLast(4)));
  ATOLL_ASSIGN_OR_RETURN(const int32_t size,
                         n.b.IntTensor({2}, {static_cast<int32_t>(resizing.out[0]),
                                             static_cast<int32_t>(resizing.out[1])}));
  ATOLL_ASSIGN_OR_RETURN(tensor, mode == "nearest" ? EmitNearest(n, resizing, tensor, size)
                                                   : EmitBilinear(n, resizing, tensor, size));
  return n.SetTensor(tensor, ChannelsLast(4));
}

}  // namespace

std::vector<OnnxOperatorEntry> OnnxResizeOperators() {
  return {{"Resize", ImportResize}, {"Upsample", ImportResize}};
}

}  // namespace atollrt
