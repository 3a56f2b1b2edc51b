// SPDX-License-Identifier: Apache-2.0
//
// CAST, QUANTIZE and DEQUANTIZE: between number formats. Integers of all widths travel through
// blocks of int64, so that there is one loop per format and not one per pair of formats.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/quantized_params.h"

namespace atollrt {
namespace {

constexpr int64_t kBlock = 64;
using Integers = std::array<int64_t, kBlock>;

// The first `count` integers of a block, from and to a tensor's format. Storing keeps the low
// bits; a bool is 1 for whatever is not 0.
using LoadIntegers = void (*)(const uint8_t* in, int64_t count, Integers* block);
using StoreIntegers = void (*)(const Integers& block, int64_t count, uint8_t* out);

template <typename T>
void Load(const uint8_t* in, int64_t count, Integers* block) {
  for (int64_t i = 0; i < count; ++i) {
    (*block)[static_cast<size_t>(i)] =
        LoadLittleEndian<T>(in + i * static_cast<int64_t>(sizeof(T)));
  }
}

template <typename T>
void Store(const Integers& block, int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    StoreLittleEndian<T>(out + i * static_cast<int64_t>(sizeof(T)),
                         static_cast<T>(block[static_cast<size_t>(i)]));
  }
}

void LoadBool(const uint8_t* in, int64_t count, Integers* block) {
  for (int64_t i = 0; i < count; ++i) (*block)[static_cast<size_t>(i)] = in[i] != 0;
}

void StoreBool(const Integers& block, int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = block[static_cast<size_t>(i)] != 0;
}

// A format of integers, with the range of its values; size 0 for everything else.
struct IntegerFormat {
  int64_t size = 0;  // bytes
  int64_t min = 0, max = 0;
  LoadIntegers load = nullptr;
  StoreIntegers store = nullptr;
};

IntegerFormat FormatOf(DataType type) {
  switch (type) {
    case DataType::kInt8:
      return {1, INT8_MIN, INT8_MAX, Load<int8_t>, Store<int8_t>};
    case DataType::kUInt8:
      return {1, 0, UINT8_MAX, Load<uint8_t>, Store<uint8_t>};
    case DataType::kInt16:
      return {2, INT16_MIN, INT16_MAX, Load<int16_t>, Store<int16_t>};
    case DataType::kInt32:
      return {4, INT32_MIN, INT32_MAX, Load<int32_t>, Store<int32_t>};
    case DataType::kUInt32:
      return {4, 0, UINT32_MAX, Load<uint32_t>, Store<uint32_t>};
    case DataType::kInt64:
      return {8, INT64_MIN, INT64_MAX, Load<int64_t>, Store<int64_t>};
    case DataType::kBool:
      return {1, 0, 1, LoadBool, StoreBool};
    case DataType::kFloat32:
    case DataType::kString:
    case DataType::kResource:
      break;
  }
  return {};
}

// Truncated and saturated; not-a-number becomes 0.
int64_t TruncateToInteger(float x, const IntegerFormat& format) {
  if (std::isnan(x)) return 0;
  if (static_cast<double>(x) <= static_cast<double>(format.min)) return format.min;
  if (static_cast<double>(x) >= static_cast<double>(format.max)) return format.max;
  return static_cast<int64_t>(x);
}

// Runs function(first, count) over blocks of `total` elements.
template <typename Function>
void ForEachBlock(int64_t total, Function function) {
  for (int64_t first = 0; first < total; first += kBlock) {
    function(first, std::min(kBlock, total - first));
  }
}

Status CheckOneScale(const char* role, const Tensor& tensor) {
  if (tensor.quantization.scales.size() == 1 && tensor.scale() > 0) return Status();
  return CorruptModel("%s '%s' has %zu scales, must have one that is positive", role,
                      tensor.name.c_str(), tensor.quantization.scales.size());
}

// Formats that QUANTIZE writes; int32 only from integers.
bool IsQuantizedType(DataType type) {
  return IsByteType(type) || type == DataType::kInt16 || type == DataType::kInt32;
}

Executor PrepareQuantizeFloat(const Tensor& output) {
  const IntegerFormat format = FormatOf(output.type);
  const float scale = output.scale();
  const float zero_point = static_cast<float>(output.zero_point());
  const float lo = static_cast<float>(format.min);
  const float hi = static_cast<float>(format.max);
  const int64_t total = output.element_count();
  return Run([=](const NodeIo& io) {
    ForEachBlock(total, [&](int64_t first, int64_t count) {
      Integers block;
      for (int64_t i = 0; i < count; ++i) {
        const float x = LoadLittleEndian<float>(io.inputs[0] + 4 * (first + i));
        const float y = std::round(x / scale) + zero_point;
        // Not-a-number becomes the lower bound.
        const float clamped = y > lo ? (y < hi ? y : hi) : lo;
        block[static_cast<size_t>(i)] = static_cast<int32_t>(clamped);
      }
      format.store(block, count, io.outputs[0] + first * format.size);
    });
  });
}

Executor PrepareRequantize(const Tensor& input, const Tensor& output) {
  const IntegerFormat from = FormatOf(input.type);
  const IntegerFormat to = FormatOf(output.type);
  const Multiplier multiplier =
      QuantizeMultiplier(static_cast<double>(input.scale()) / static_cast<double>(output.scale()));
  const int64_t input_zero = input.zero_point();
  const int64_t output_zero = output.zero_point();
  const int64_t total = output.element_count();
  return Run([=](const NodeIo& io) {
    ForEachBlock(total, [&](int64_t first, int64_t count) {
      Integers block;
      from.load(io.inputs[0] + first * from.size, count, &block);
      for (int64_t i = 0; i < count; ++i) {
        int64_t& value = block[static_cast<size_t>(i)];
        const int32_t steps = static_cast<int32_t>(value - input_zero);
        value = MultiplyByQuantizedMultiplier(steps, multiplier) + output_zero;
        value = std::clamp(value, to.min, to.max);
      }
      to.store(block, count, io.outputs[0] + first * to.size);
    });
  });
}

// Bytes have so few values that a table of their numbers is smaller than most tensors.
Executor PrepareDequantizeBytes(const Tensor& input) {
  std::vector<float> table(256);
  const ByteType type = input.type == DataType::kUInt8 ? ByteType::kUInt8 : ByteType::kInt8;
  for (int byte = 0; byte < 256; ++byte) {
    const int32_t steps = ByteValue(static_cast<uint8_t>(byte), type) - input.zero_point();
    table[byte] =
        static_cast<float>(static_cast<double>(steps) * static_cast<double>(input.scale()));
  }
  const int64_t count = input.element_count();
  return Run([table = std::move(table), count](const NodeIo& io) {
    for (int64_t i = 0; i < count; ++i) {
      StoreLittleEndian<float>(io.outputs[0] + 4 * i, table[io.inputs[0][i]]);
    }
  });
}

// Any width, one scale or one per channel.
Executor PrepareDequantizeChannels(const Tensor& input) {
  const IntegerFormat format = FormatOf(input.type);
  const Quantization& quantization = input.quantization;
  const size_t channels = quantization.scales.size();
  int64_t inner = 1;  // elements between neighbouring channels
  for (size_t i = static_cast<size_t>(quantization.dimension) + 1;
       channels > 1 && i < input.shape.size(); ++i) {
    inner *= input.shape[i];
  }
  const int64_t total = input.element_count();
  return Run([=, scales = quantization.scales,
              zero_points = quantization.zero_points](const NodeIo& io) {
    ForEachBlock(total, [&](int64_t first, int64_t count) {
      Integers block;
      format.load(io.inputs[0] + first * format.size, count, &block);
      for (int64_t i = 0; i < count; ++i) {
        const size_t c = static_cast<size_t>((first + i) / inner) % channels;
        const double steps = static_cast<double>(block[static_cast<size_t>(i)] - zero_points[c]);
        StoreLittleEndian<float>(io.outputs[0] + 4 * (first + i),
                                 static_cast<float>(steps * static_cast<double>(scales[c])));
      }
    });
  });
}

}  // namespace

Executor PrepareQuantize(const Graph& graph, const Node& node, CpuFeatures features) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  if (IsByteType(input.type) && IsByteType(output.type)) {
    return PrepareTable(graph, node, features);
  }
  const bool from_float = input.type == DataType::kFloat32;
  if (!IsQuantizedType(output.type) || (from_float && output.type == DataType::kInt32)) {
    return Unsupported("from %s to %s", DataTypeName(input.type), DataTypeName(output.type));
  }
  ATOLL_RETURN_IF_ERROR(CheckOneScale("output", output));
  if (from_float) return PrepareQuantizeFloat(output);
  ATOLL_RETURN_IF_ERROR(CheckOneScale("input", input));
  return PrepareRequantize(input, output);
}

Executor PrepareDequantize(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  if (output.type != DataType::kFloat32) {
    return Unsupported("from %s to %s; only to float32", DataTypeName(input.type),
                       DataTypeName(output.type));
  }
  if (input.quantization.scales.empty()) {
    return CorruptModel("input '%s' has no scale", input.name.c_str());
  }
  if (IsByteType(input.type) && input.quantization.scales.size() == 1) {
    return PrepareDequantizeBytes(input);
  }
  return PrepareDequantizeChannels(input);
}

Executor PrepareCast(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  const bool from_float = input.type == DataType::kFloat32;
  const bool to_float = output.type == DataType::kFloat32;
  const IntegerFormat from = FormatOf(input.type);
  const IntegerFormat to = FormatOf(output.type);
  if (!to_float && to.size == 0) {
    return Unsupported("from %s to %s", DataTypeName(input.type), DataTypeName(output.type));
  }
  const int64_t total = output.element_count();
  if (from_float) {
    const bool to_bool = output.type == DataType::kBool;
    return Run([=](const NodeIo& io) {
      ForEachBlock(total, [&](int64_t first, int64_t count) {
        const uint8_t* in = io.inputs[0] + 4 * first;
        if (to_float) {
          std::memcpy(io.outputs[0] + 4 * first, in, 4 * static_cast<size_t>(count));
          return;
        }
        Integers block;
        for (int64_t i = 0; i < count; ++i) {
          const float x = LoadLittleEndian<float>(in + 4 * i);
          block[static_cast<size_t>(i)] = to_bool ? x != 0 : TruncateToInteger(x, to);
        }
        to.store(block, count, io.outputs[0] + first * to.size);
      });
    });
  }
  return Run([=](const NodeIo& io) {
    ForEachBlock(total, [&](int64_t first, int64_t count) {
      Integers block;
      from.load(io.inputs[0] + first * from.size, count, &block);
      if (!to_float) return to.store(block, count, io.outputs[0] + first * to.size);
      for (int64_t i = 0; i < count; ++i) {
        StoreLittleEndian<float>(io.outputs[0] + 4 * (first + i),
                                 static_cast<float>(block[static_cast<size_t>(i)]));
      }
    });
  });
}

}  // namespace atollrt
