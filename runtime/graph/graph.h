// SPDX-License-Identifier: Apache-2.0
//
// The intermediate representation: one graph of nodes and tensors as plain structs. Both have the
// numbers of the model file, unless constant folding has removed nodes (constant_folding.h) or
// those of a compiled partition took its place. The loader makes it and guarantees, for what comes
// after:
//   - every index is in range (-1 only where an operator's input is absent);
//   - nodes stand in an order in which every tensor is written before it is read, once;
//   - every shape is concrete, has at most kMaxRank dimensions and a byte size that fits
//     (kMaxTensorBytes);
//   - a node has outputs, but for CALL_ONCE and ASSIGN_VARIABLE, and inputs, but for CALL_ONCE and
//     VAR_HANDLE, unless its operator is unknown to shape inference;
//   - quantization has as many zero points as scales, all scales finite and >= 0, and a
//     dimension that exists;
//   - no input of the graph is a constant;
//   - constants have at least the bytes that their shapes need, and no variable tensor is one;
//   - a variable has one type and shape in all graphs of the model and is assigned before it is
//     read; a graph that CALL_ONCE names calls no other.
// Immutable after loading, so it may be shared by threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "atoll/status.h"

namespace atollrt {

enum class DataType : int8_t {
#define ATOLL_DATA_TYPE(name, number, ...) name = number,
#include "runtime/graph/data_types.inc"
};
const char* DataTypeName(DataType type);  // "int8", or "unknown"
// Bytes of one element; 0 for types without a fixed size.
size_t DataTypeSize(DataType type);
inline bool IsByteType(DataType type) {
  return type == DataType::kInt8 || type == DataType::kUInt8;
}

using Shape = std::vector<int32_t>;
int64_t ElementCount(const Shape& shape);     // 1 for a scalar
std::string ShapeString(const Shape& shape);  // "[1, 224, 224, 3]"
// So that every count of elements fits into an int32.
inline constexpr int64_t kMaxTensorBytes = INT32_MAX;
// No operator has a use for nearly as many dimensions, and every node that keeps its input's shape
// has a copy of it.
inline constexpr size_t kMaxRank = 64;

// real value = scale * (stored value - zero point).
struct Quantization {
  std::vector<float> scales;         // none: not quantized; one: per tensor; else per channel
  std::vector<int64_t> zero_points;  // as many as scales
  int32_t dimension = 0;             // of the shape, along which per-channel scales run
};

struct Tensor {
  std::string name;
  DataType type = DataType::kFloat32;
  Shape shape;
  // The shape in the file if some sizes may be others, which are -1; empty: none may.
  Shape shape_signature{};
  Quantization quantization;
  std::span<const uint8_t> data;  // constants: in the model (file or folded); empty otherwise
  // Constant weights once more, as kernels of one kind of CPU read them (kernels/packed_weights.h):
  // bytes of the file, which nobody checks; empty if it has none.
  std::span<const uint8_t> packed_weights{};
  bool is_variable = false;

  bool is_constant() const { return !data.empty(); }
  int64_t element_count() const { return ElementCount(shape); }
  int64_t byte_size() const { return element_count() * static_cast<int64_t>(DataTypeSize(type)); }
  // The pair most operators use: it exists only with exactly one scale, otherwise (0, 0).
  float scale() const { return quantization.scales.size() == 1 ? quantization.scales[0] : 0.0f; }
  int32_t zero_point() const {
    return quantization.scales.size() == 1 ? static_cast<int32_t>(quantization.zero_points[0]) : 0;
  }
};

enum class OpType : int32_t {
#define ATOLL_OP(name, number, ...) k##name = number,
#define ATOLL_OP_NAME(name, number) k##name = number,
#include "runtime/graph/operators.inc"
};
// "CONV_2D"; "operator 147" for numbers that have no name here.
std::string OpTypeName(OpType type);

enum class Padding : int8_t { kSame, kValid };
enum class Activation : int8_t { kNone, kRelu, kReluN1To1, kRelu6, kTanh, kSignBit };

struct Conv2DOptions {  // CONV_2D, DEPTHWISE_CONV_2D; TRANSPOSE_CONV without dilation
  Padding padding = Padding::kSame;
  int32_t stride_h = 1, stride_w = 1;
  int32_t dilation_h = 1, dilation_w = 1;
  Activation activation = Activation::kNone;
  bool operator==(const Conv2DOptions&) const = default;
};
struct Pool2DOptions {
  Padding padding = Padding::kSame;
  int32_t stride_h = 1, stride_w = 1;
  int32_t filter_h = 1, filter_w = 1;
  Activation activation = Activation::kNone;
  bool operator==(const Pool2DOptions&) const = default;
};
struct FullyConnectedOptions {
  Activation activation = Activation::kNone;
  bool keep_num_dims = false;
  bool operator==(const FullyConnectedOptions&) const = default;
};
struct SoftmaxOptions {
  float beta = 1.0f;
  bool operator==(const SoftmaxOptions&) const = default;
};
struct AxisOptions {                          // CONCATENATION, GATHER, PACK, UNPACK
  int32_t axis = 0;                           // as stored: negative ones count from the end
  int32_t count = 0;                          // PACK, UNPACK: tensors; GATHER: batch dimensions
  Activation activation = Activation::kNone;  // CONCATENATION
  bool operator==(const AxisOptions&) const = default;
};
struct ElementwiseOptions {  // ADD, SUB, MUL, DIV, L2_NORMALIZATION
  Activation activation = Activation::kNone;
  bool pot_scale_int16 = true;  // ADD, SUB
  bool operator==(const ElementwiseOptions&) const = default;
};
struct ReshapeOptions {
  Shape new_shape;
  bool operator==(const ReshapeOptions&) const = default;
};
struct ReducerOptions {  // MEAN, SUM, REDUCE_MAX, REDUCE_MIN
  bool keep_dims = false;
  bool operator==(const ReducerOptions&) const = default;
};
struct SqueezeOptions {
  std::vector<int32_t> dims;
  bool operator==(const SqueezeOptions&) const = default;
};
struct ResizeOptions {  // RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR
  bool align_corners = false;
  bool half_pixel_centers = false;
  bool operator==(const ResizeOptions&) const = default;
};
struct BlockOptions {  // SPACE_TO_DEPTH, DEPTH_TO_SPACE
  int32_t block_size = 0;
  bool operator==(const BlockOptions&) const = default;
};
struct StridedSliceOptions {  // bit k of a mask concerns axis k
  int32_t begin_mask = 0, end_mask = 0, ellipsis_mask = 0, new_axis_mask = 0;
  int32_t shrink_axis_mask = 0;
  bool offset = false;  // ends are relative to begins
  bool operator==(const StridedSliceOptions&) const = default;
};
struct SplitOptions {  // SPLIT, SPLIT_V
  int32_t num_splits = 0;
  bool operator==(const SplitOptions&) const = default;
};
struct LeakyReluOptions {
  float alpha = 0;
  bool operator==(const LeakyReluOptions&) const = default;
};
enum class MirrorPadMode : int8_t { kReflect, kSymmetric };
struct MirrorPadOptions {
  MirrorPadMode mode = MirrorPadMode::kReflect;
  bool operator==(const MirrorPadOptions&) const = default;
};
struct BatchMatMulOptions {
  bool transpose_lhs = false, transpose_rhs = false;
  bool operator==(const BatchMatMulOptions&) const = default;
};
struct LstmOptions {                          // UNIDIRECTIONAL_SEQUENCE_LSTM
  Activation activation = Activation::kTanh;  // of the cell
  float cell_clip = 0, projection_clip = 0;   // 0: none
  bool time_major = false;
  bool operator==(const LstmOptions&) const = default;
};
struct SvdfOptions {
  int32_t rank = 0;
  Activation activation = Activation::kNone;
  bool operator==(const SvdfOptions&) const = default;
};
struct CallOnceOptions {
  int32_t subgraph = 0;
  bool operator==(const CallOnceOptions&) const = default;
};
struct VarHandleOptions {  // handles of equal names are the same variable
  std::string container, shared_name;
  int32_t variable = -1;  // of the model, by number
  bool operator==(const VarHandleOptions&) const = default;
};
struct VariableOptions {  // READ_VARIABLE, ASSIGN_VARIABLE
  int32_t variable = -1;  // the one whose handle is input 0
  bool operator==(const VariableOptions&) const = default;
};
struct DetectionOptions {  // TFLite_Detection_PostProcess
  int32_t max_detections = 0;
  int32_t max_classes_per_detection = 0;
  int32_t detections_per_class = 100;  // regular NMS only
  int32_t num_classes = 0;             // without the background
  bool use_regular_nms = false;
  float score_threshold = 0, iou_threshold = 0;
  float y_scale = 1, x_scale = 1, h_scale = 1, w_scale = 1;
  bool operator==(const DetectionOptions&) const = default;
};
struct PosenetOptions {  // PosenetDecoderOp
  int32_t max_detections = 0;
  int32_t stride = 0;  // pixels per cell of the maps
  float score_threshold = 0;
  float nms_radius = 0;  // pixels
  bool operator==(const PosenetOptions&) const = default;
};
using NoOptions = std::monostate;
using OpOptions =
    std::variant<NoOptions, Conv2DOptions, Pool2DOptions, FullyConnectedOptions, SoftmaxOptions,
                 AxisOptions, ElementwiseOptions, ReshapeOptions, ReducerOptions, SqueezeOptions,
                 ResizeOptions, BlockOptions, StridedSliceOptions, SplitOptions, LeakyReluOptions,
                 MirrorPadOptions, BatchMatMulOptions, LstmOptions, SvdfOptions, CallOnceOptions,
                 VarHandleOptions, VariableOptions, DetectionOptions, PosenetOptions>;

// The custom operator that stands for those that Google's compiler took for a Coral.
inline constexpr char kEdgeTpuOperator[] = "edgetpu-custom-op";

struct Node {
  OpType type = OpType::kCUSTOM;
  std::string custom_name;  // of OpType::kCUSTOM
  int32_t version = 1;
  std::vector<int32_t> inputs;         // tensor indices; -1: absent
  std::vector<int32_t> outputs;        // tensor indices
  std::vector<int32_t> intermediates;  // tensors that only hold quantization (LSTM); -1: absent
  OpOptions options;
  std::span<const uint8_t> custom_options;
  int32_t compiled = -1;  // the partition of Graph::compiled that it belongs to

  // "CONV_2D", or the custom operator's name.
  std::string op_name() const { return type == OpType::kCUSTOM ? custom_name : OpTypeName(type); }
};

// A place for a tensor that outlives an invocation; all graphs of a model share it. READ_VARIABLE
// and ASSIGN_VARIABLE name it by its index in the model.
struct Variable {
  std::string name;
  DataType type = DataType::kFloat32;
  Shape shape;

  int64_t byte_size() const {
    return ElementCount(shape) * static_cast<int64_t>(DataTypeSize(type));
  }
};

struct Graph {
  std::string name;
  std::vector<Tensor> tensors;
  std::vector<Node> nodes;
  std::vector<int32_t> inputs;   // tensor indices
  std::vector<int32_t> outputs;  // tensor indices
  // Executables of partitions that came with the model (compiled_op.h), as stored.
  std::vector<std::span<const uint8_t>> compiled;

  // The tensor at a node's input position, or nullptr if it is absent.
  const Tensor* Input(const Node& node, size_t position) const {
    if (position >= node.inputs.size() || node.inputs[position] < 0) return nullptr;
    return &tensors[static_cast<size_t>(node.inputs[position])];
  }
  const Tensor& Output(const Node& node, size_t position = 0) const {
    return tensors[static_cast<size_t>(node.outputs[position])];
  }
};

// Names for the ends of a graph, so that callers need no positions.
struct Signature {
  struct End {
    std::string name;
    int32_t tensor = 0;
    bool operator==(const End&) const = default;
  };
  std::string key;    // "serving_default"
  int32_t graph = 0;  // of the model's
  std::vector<End> inputs{};
  std::vector<End> outputs{};
  bool operator==(const Signature&) const = default;
};

// Bytes that came with a model, in its file.
struct Metadata {
  std::string name;
  std::span<const uint8_t> data;
};

// What a model has beside its graphs.
struct ModelExtras {
  std::vector<Signature> signatures;
  std::vector<Metadata> metadata;
};

// "tensor 17 'conv1/w'", for messages.
std::string Describe(const Graph& graph, int32_t tensor);
// "node 4 (CONV_2D) 'conv1/out'", by the name of its first output, if it has one: that is what
// users know nodes by.
std::string Describe(const Graph& graph, const Node& node);

// Pairs (earlier, later) of nodes that must keep their order although no tensor leads from one to
// the other: they touch the same variable or the same variable tensor.
std::vector<std::pair<int32_t, int32_t>> StateOrder(const Graph& graph);

// What constants have, each byte once, though many tensors may lie in the same buffer.
int64_t ConstantBytes(const Graph& graph);

// Multiply-accumulates of a convolution, depthwise or transposed convolution, fully-connected or
// LSTM layer; 0 for everything else.
int64_t MultiplyAccumulates(const Graph& graph, const Node& node);

// The int32 or int64 values of a constant tensor, which must be one of these types.
std::vector<int64_t> ConstantIntegers(const Tensor& tensor);

}  // namespace atollrt
