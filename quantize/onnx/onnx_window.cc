// SPDX-License-Identifier: Apache-2.0
#include "quantize/onnx/onnx_window.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "runtime/shapes/shape_inference.h"

namespace atollrt {
namespace {

constexpr int64_t kMaxWindow = 65535;

}  // namespace

Status ReadWindowAxes(const OnnxNodeImport& n, const char* name, size_t spatial, int64_t low,
                      int64_t* axes) {
  const Dims values = n.Ints(name);
  if (values.empty()) return Status();
  if (values.size() != spatial) {
    return CorruptModel("%s has %zu numbers for %zu axes", name, values.size(), spatial);
  }
  for (size_t i = 0; i < spatial; ++i) {
    if (values[i] < low || values[i] > kMaxWindow) {
      return CorruptModel("%s is %s", name, DimsString(values).c_str());
    }
    axes[2 - spatial + i] = values[i];
  }
  return Status();
}

Result<OnnxWindow> ReadWindow(const OnnxNodeImport& n, const OnnxValue& x, const Dims& filter) {
  if (x.rank() != 3 && x.rank() != 4) {
    return Unsupported(
        "an input of shape %s; windows over one or two axes are supported, so 3 or 4 dimensions",
        DimsString(x.dims).c_str());
  }
  const size_t spatial = x.rank() - 2;
  if (filter.size() != spatial) {
    return CorruptModel("a filter of %s for an input of %s", DimsString(filter).c_str(),
                        DimsString(x.dims).c_str());
  }
  OnnxWindow window;
  for (size_t i = 0; i < spatial; ++i) {
    window.input[2 - spatial + i] = x.dims[2 + i];
    window.filter[2 - spatial + i] = filter[i];
    if (filter[i] < 1 || filter[i] > kMaxWindow) {
      return CorruptModel("a filter of %s", DimsString(filter).c_str());
    }
  }
  ATOLL_RETURN_IF_ERROR(ReadWindowAxes(n, "strides", spatial, 1, window.stride));
  ATOLL_RETURN_IF_ERROR(ReadWindowAxes(n, "dilations", spatial, 1, window.dilation));
  const std::string_view auto_pad = n.Text("auto_pad", "NOTSET");
  if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
    for (int i = 0; i < 2; ++i) {
      const int64_t output = (window.input[i] + window.stride[i] - 1) / window.stride[i];
      const int64_t total = std::max<int64_t>(
          0, (output - 1) * window.stride[i] + window.extent(i) - window.input[i]);
      const int64_t less = total / 2;
      window.before[i] = auto_pad == "SAME_UPPER" ? less : total - less;
      window.after[i] = total - window.before[i];
    }
  } else if (auto_pad == "NOTSET") {
    const Dims pads = n.Ints("pads");
    if (!pads.empty() && pads.size() != 2 * spatial) {
      return CorruptModel("pads has %zu numbers for %zu axes", pads.size(), spatial);
    }
    for (size_t i = 0; i < pads.size(); ++i) {
      if (pads[i] < 0 || pads[i] > kMaxWindow) {
        return Unsupported("pads of %s; negative ones are not supported", DimsString(pads).c_str());
      }
      int64_t* side = i < spatial ? window.before : window.after;
      side[2 - spatial + i % spatial] = pads[i];
    }
  } else if (auto_pad != "VALID") {
    return CorruptModel("auto_pad is '%s'", std::string(auto_pad).c_str());
  }
  return window;
}

bool IsSamePadding(const OnnxWindow& window) {
  for (int i = 0; i < 2; ++i) {
    const WindowResult same = ResolveWindow(
        {static_cast<int32_t>(window.input[i]), static_cast<int32_t>(window.filter[i]),
         static_cast<int32_t>(window.stride[i]), static_cast<int32_t>(window.dilation[i])},
        Padding::kSame);
    const int64_t total = std::max<int64_t>(
        0, (int64_t{same.output} - 1) * window.stride[i] + window.extent(i) - window.input[i]);
    const int64_t windows =
        (window.input[i] + window.before[i] + window.after[i] - window.extent(i)) /
            window.stride[i] +
        1;
    // Cells of padding behind the last window change nothing.
    if (same.pad_before != window.before[i] || windows != same.output ||
        window.before[i] + window.after[i] < total) {
      return false;
    }
  }
  return true;
}

Result<int32_t> AsPicture(OnnxNodeImport& n, const OnnxValue& x) {
  ATOLL_ASSIGN_OR_RETURN(const int32_t tensor, n.b.Stored(x, ChannelsLast(x.rank())));
  if (x.rank() == 4) return tensor;
  Shape shape = n.b.tensor(tensor).shape;
  shape.insert(shape.begin() + 1, 1);
  return n.b.EmitReshape(tensor, shape);
}

Status SetPicture(OnnxNodeImport& n, int32_t tensor, size_t rank) {
  if (rank == 4) return n.SetTensor(tensor, ChannelsLast(4));
  Shape shape = n.b.tensor(tensor).shape;
  shape.erase(shape.begin() + 1);
  ATOLL_ASSIGN_OR_RETURN(const int32_t line, n.b.EmitReshape(tensor, shape));
  return n.SetTensor(line, ChannelsLast(3));
}

Result<int32_t> EmitPad(OnnxNodeImport& n, int32_t tensor, const OnnxWindow& window, float value) {
  if (!window.padded()) return tensor;
  const auto i32 = [](int64_t number) { return static_cast<int32_t>(number); };
  ATOLL_ASSIGN_OR_RETURN(
      const int32_t sizes,
      n.b.IntTensor({4, 2}, {0, 0, i32(window.before[0]), i32(window.after[0]),
                             i32(window.before[1]), i32(window.after[1]), 0, 0}));
  if (value == 0) return n.b.Emit(OpType::kPAD, {tensor, sizes});
  ATOLL_ASSIGN_OR_RETURN(const int32_t scalar, n.b.ScalarTensor(value));
  return n.b.Emit(OpType::kPADV2, {tensor, sizes, scalar});
}

}  // namespace atollrt
