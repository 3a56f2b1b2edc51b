// SPDX-License-Identifier: Apache-2.0
#include "runtime/tflite/tflite_writer.h"

#include <flatbuffers/flexbuffers.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "runtime/base/buffer.h"
#include "runtime/base/bytes.h"
#include "runtime/graph/compiled_op.h"
#include "tflite_generated.h"

namespace atollrt {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using TableType = tflite::BuiltinOptions;

constexpr uint32_t kWrittenVersion = 3;
constexpr size_t kBufferAlignment = 16;

struct StoredOptions {
  TableType type = TableType::NONE;
  Offset<void> table;
};

tflite::Activation Stored(Activation activation) {
  return static_cast<tflite::Activation>(activation);
}
tflite::Padding Stored(Padding padding) { return static_cast<tflite::Padding>(padding); }

// The type of the tensor in a list at a position, float32 (0) if there is none.
int8_t StoredType(const Graph& graph, const std::vector<int32_t>& tensors, size_t position) {
  if (position >= tensors.size() || tensors[position] < 0 ||
      static_cast<size_t>(tensors[position]) >= graph.tensors.size()) {
    return 0;
  }
  return static_cast<int8_t>(graph.tensors[static_cast<size_t>(tensors[position])].type);
}

int32_t LastDimension(const Graph& graph, const std::vector<int32_t>& tensors) {
  if (tensors.empty() || tensors[0] < 0 ||
      static_cast<size_t>(tensors[0]) >= graph.tensors.size()) {
    return 0;
  }
  const Shape& shape = graph.tensors[static_cast<size_t>(tensors[0])].shape;
  return shape.empty() ? 0 : shape.back();
}

// Output channels per input channel; readers derive it from the shapes, too.
int32_t DepthMultiplier(const Graph& graph, const Node& node) {
  const int32_t input = LastDimension(graph, node.inputs);
  return input <= 0 ? 1 : std::max(1, LastDimension(graph, node.outputs) / input);
}

// The table of an operator whose options follow from the types of its tensors alone.
StoredOptions WriteTypeOptions(FlatBufferBuilder* fbb, const Graph& graph, const Node& node) {
  const int8_t output = StoredType(graph, node.outputs, 0);
  switch (node.type) {
    case OpType::kARG_MAX:
      return {TableType::ArgMaxOptions, tflite::CreateArgMaxOptions(*fbb, output).Union()};
    case OpType::kARG_MIN:
      return {TableType::ArgMinOptions, tflite::CreateArgMinOptions(*fbb, output).Union()};
    case OpType::kCAST:
      return {TableType::CastOptions,
              tflite::CreateCastOptions(*fbb, StoredType(graph, node.inputs, 0), output).Union()};
    case OpType::kSHAPE:
      return {TableType::ShapeOptions, tflite::CreateShapeOptions(*fbb, output).Union()};
    default:
      return {};
  }
}

// Sets `out` to what `write` makes of node.options, nothing if there are none.
template <typename Options, typename Write>
Status WriteWith(const Node& node, TableType type, StoredOptions* out, const Write& write) {
  if (std::holds_alternative<std::monostate>(node.options)) return Status();
  const auto* options = std::get_if<Options>(&node.options);
  if (options == nullptr) return InvalidArgument("its options are those of another operator");
  *out = {type, write(*options).Union()};
  return Status();
}

#define ATOLL_WRITE(Options, Table, ...)                 \
  return WriteWith<Options>(node, TableType::Table, out, \
                            [&](const Options& o) { return tflite::Create##Table(__VA_ARGS__); })

// The switch of ReadTfliteOptions, the other way round.
Status WriteOptions(FlatBufferBuilder* fbb, const Graph& graph, const Node& node,
                    StoredOptions* out) {
  FlatBufferBuilder& b = *fbb;
  switch (node.type) {
    case OpType::kCONV_2D:
      ATOLL_WRITE(Conv2DOptions, Conv2DOptions, b, Stored(o.padding), o.stride_w, o.stride_h,
                  Stored(o.activation), o.dilation_w, o.dilation_h);
    case OpType::kDEPTHWISE_CONV_2D:
      ATOLL_WRITE(Conv2DOptions, DepthwiseConv2DOptions, b, Stored(o.padding), o.stride_w,
                  o.stride_h, DepthMultiplier(graph, node), Stored(o.activation), o.dilation_w,
                  o.dilation_h);
    case OpType::kTRANSPOSE_CONV:
      ATOLL_WRITE(Conv2DOptions, TransposeConvOptions, b, Stored(o.padding), o.stride_w, o.stride_h,
                  Stored(o.activation));
    case OpType::kAVERAGE_POOL_2D:
    case OpType::kMAX_POOL_2D:
      ATOLL_WRITE(Pool2DOptions, Pool2DOptions, b, Stored(o.padding), o.stride_w, o.stride_h,
                  o.filter_w, o.filter_h, Stored(o.activation));
    case OpType::kFULLY_CONNECTED:
      ATOLL_WRITE(FullyConnectedOptions, FullyConnectedOptions, b, Stored(o.activation),
                  tflite::WeightsFormat::Default, o.keep_num_dims);
    case OpType::kSOFTMAX:
      ATOLL_WRITE(SoftmaxOptions, SoftmaxOptions, b, o.beta);
    case OpType::kCONCATENATION:
      ATOLL_WRITE(AxisOptions, ConcatenationOptions, b, o.axis, Stored(o.activation));
    case OpType::kGATHER:
      ATOLL_WRITE(AxisOptions, GatherOptions, b, o.axis, o.count);
    case OpType::kPACK:
      ATOLL_WRITE(AxisOptions, PackOptions, b, o.count, o.axis);
    case OpType::kUNPACK:
      ATOLL_WRITE(AxisOptions, UnpackOptions, b, o.count, o.axis);
    case OpType::kADD:
      ATOLL_WRITE(ElementwiseOptions, AddOptions, b, Stored(o.activation), o.pot_scale_int16);
    case OpType::kSUB:
      ATOLL_WRITE(ElementwiseOptions, SubOptions, b, Stored(o.activation), o.pot_scale_int16);
    case OpType::kMUL:
      ATOLL_WRITE(ElementwiseOptions, MulOptions, b, Stored(o.activation));
    case OpType::kDIV:
      ATOLL_WRITE(ElementwiseOptions, DivOptions, b, Stored(o.activation));
    case OpType::kL2_NORMALIZATION:
      ATOLL_WRITE(ElementwiseOptions, L2NormOptions, b, Stored(o.activation));
    case OpType::kRESHAPE:
      ATOLL_WRITE(ReshapeOptions, ReshapeOptions, b, b.CreateVector(o.new_shape));
    case OpType::kMEAN:
    case OpType::kSUM:
    case OpType::kREDUCE_MAX:
    case OpType::kREDUCE_MIN:
      ATOLL_WRITE(ReducerOptions, ReducerOptions, b, o.keep_dims);
    case OpType::kSQUEEZE:
      ATOLL_WRITE(SqueezeOptions, SqueezeOptions, b, b.CreateVector(o.dims));
    case OpType::kRESIZE_BILINEAR:
      ATOLL_WRITE(ResizeOptions, ResizeBilinearOptions, b, o.align_corners, o.half_pixel_centers);
    case OpType::kRESIZE_NEAREST_NEIGHBOR:
      ATOLL_WRITE(ResizeOptions, ResizeNearestNeighborOptions, b, o.align_corners,
                  o.half_pixel_centers);
    case OpType::kSPACE_TO_DEPTH:
      ATOLL_WRITE(BlockOptions, SpaceToDepthOptions, b, o.block_size);
    case OpType::kDEPTH_TO_SPACE:
      ATOLL_WRITE(BlockOptions, DepthToSpaceOptions, b, o.block_size);
    case OpType::kSTRIDED_SLICE:
      ATOLL_WRITE(StridedSliceOptions, StridedSliceOptions, b, o.begin_mask, o.end_mask,
                  o.ellipsis_mask, o.new_axis_mask, o.shrink_axis_mask, o.offset);
    case OpType::kSPLIT:
      ATOLL_WRITE(SplitOptions, SplitOptions, b, o.num_splits);
    case OpType::kSPLIT_V:
      ATOLL_WRITE(SplitOptions, SplitVOptions, b, o.num_splits);
    case OpType::kLEAKY_RELU:
      ATOLL_WRITE(LeakyReluOptions, LeakyReluOptions, b, o.alpha);
    case OpType::kMIRROR_PAD:
      ATOLL_WRITE(MirrorPadOptions, MirrorPadOptions, b,
                  static_cast<tflite::MirrorPadMode>(o.mode));
    case OpType::kBATCH_MATMUL:
      ATOLL_WRITE(BatchMatMulOptions, BatchMatMulOptions, b, o.transpose_lhs, o.transpose_rhs);
    case OpType::kUNIDIRECTIONAL_SEQUENCE_LSTM:
      ATOLL_WRITE(LstmOptions, UnidirectionalSequenceLSTMOptions, b, Stored(o.activation),
                  o.cell_clip, o.projection_clip, o.time_major);
    case OpType::kSVDF:
      ATOLL_WRITE(SvdfOptions, SVDFOptions, b, o.rank, Stored(o.activation));
    case OpType::kCALL_ONCE:
      ATOLL_WRITE(CallOnceOptions, CallOnceOptions, b, o.subgraph);
    case OpType::kVAR_HANDLE:
      ATOLL_WRITE(VarHandleOptions, VarHandleOptions, b, b.CreateString(o.container),
                  b.CreateString(o.shared_name));
    default:
      *out = WriteTypeOptions(fbb, graph, node);
      return Status();
  }
}

#undef ATOLL_WRITE

// The options of a custom operator as a FlexBuffers map; empty if Atoll knows none of it.
std::vector<uint8_t> EncodeCustomOptions(const Node& node) {
  flexbuffers::Builder builder;
  if (const auto* o = std::get_if<DetectionOptions>(&node.options)) {
    builder.Map([&] {
      builder.Int("max_detections", o->max_detections);
      builder.Int("max_classes_per_detection", o->max_classes_per_detection);
      builder.Int("detections_per_class", o->detections_per_class);
      builder.Int("num_classes", o->num_classes);
      builder.Bool("use_regular_nms", o->use_regular_nms);
      builder.Float("nms_score_threshold", o->score_threshold);
      builder.Float("nms_iou_threshold", o->iou_threshold);
      builder.Float("y_scale", o->y_scale);
      builder.Float("x_scale", o->x_scale);
      builder.Float("h_scale", o->h_scale);
      builder.Float("w_scale", o->w_scale);
    });
  } else if (const auto* p = std::get_if<PosenetOptions>(&node.options)) {
    builder.Map([&] {
      builder.Int("max_detections", p->max_detections);
      builder.Int("stride", p->stride);
      builder.Float("score_threshold", p->score_threshold);
      builder.Float("nms_radius", p->nms_radius);
    });
  } else {
    return {};
  }
  builder.Finish();
  return builder.GetBuffer();
}

Offset<tflite::Tensor> WriteTensor(FlatBufferBuilder* fbb, const Tensor& tensor, uint32_t buffer) {
  Offset<tflite::QuantizationParameters> quantization;
  const Quantization& q = tensor.quantization;
  if (!q.scales.empty() || !q.zero_points.empty()) {
    const auto scales = fbb->CreateVector(q.scales);
    const auto zero_points = fbb->CreateVector(q.zero_points);
    quantization =
        tflite::CreateQuantizationParameters(*fbb, 0, 0, scales, zero_points, 0, 0, q.dimension);
  }
  const auto shape = fbb->CreateVector(tensor.shape);
  Offset<flatbuffers::Vector<int32_t>> signature;
  if (!tensor.shape_signature.empty()) signature = fbb->CreateVector(tensor.shape_signature);
  const auto name = fbb->CreateString(tensor.name);
  return tflite::CreateTensor(*fbb, shape, static_cast<int8_t>(tensor.type), buffer, name,
                              quantization, tensor.is_variable, 0, signature);
}

// What all subgraphs share: buffers, and one code for all nodes of an operator and version.
class ModelWriter {
 public:
  // Buffer 0 is the empty one by convention.
  ModelWriter() : buffers_{tflite::CreateBuffer(fbb_)} {}

  Status Add(const Graph& graph) {
    std::vector<Offset<tflite::Tensor>> tensors;
    for (const Tensor& tensor : graph.tensors) {
      if (!tensor.packed_weights.empty()) {
        for (const size_t number : {subgraphs_.size(), tensors.size(), buffers_.size()}) {
          packed_weights_.push_back(static_cast<uint32_t>(number));
        }
        std::vector<uint8_t> room(tensor.packed_weights.begin(), tensor.packed_weights.end());
        room.resize(room.size() + Buffer::kAlignment - kBufferAlignment);
        AddBuffer(room);
      }
      tensors.push_back(WriteTensor(&fbb_, tensor, AddBuffer(tensor.data)));
    }
    std::vector<Offset<tflite::Operator>> nodes;
    for (const Node& node : graph.nodes) {
      StoredOptions options;
      Status status = WriteOptions(&fbb_, graph, node, &options);
      if (!status.ok()) return std::move(status).WithContext(Describe(graph, node));
      nodes.push_back(WriteNode(node, options));
    }
    const auto stored_tensors = fbb_.CreateVector(tensors);
    const auto inputs = fbb_.CreateVector(graph.inputs);
    const auto outputs = fbb_.CreateVector(graph.outputs);
    const auto stored_nodes = fbb_.CreateVector(nodes);
    const auto name = fbb_.CreateString(graph.name);
    subgraphs_.push_back(
        tflite::CreateSubGraph(fbb_, stored_tensors, inputs, outputs, stored_nodes, name));
    return Status();
  }

  void Add(const ModelExtras& extras) {
    const auto write_ends = [this](const std::vector<Signature::End>& ends) {
      std::vector<Offset<tflite::TensorMap>> stored;
      for (const Signature::End& end : ends) {
        const auto name = fbb_.CreateString(end.name);
        stored.push_back(tflite::CreateTensorMap(fbb_, name, static_cast<uint32_t>(end.tensor)));
      }
      return fbb_.CreateVector(stored);
    };
    for (const Signature& signature : extras.signatures) {
      const auto inputs = write_ends(signature.inputs);
      const auto outputs = write_ends(signature.outputs);
      const auto key = fbb_.CreateString(signature.key);
      signatures_.push_back(tflite::CreateSignatureDef(fbb_, inputs, outputs, key, 0,
                                                       static_cast<uint32_t>(signature.graph)));
    }
    for (const Metadata& metadata : extras.metadata) {
      if (metadata.name != kPackedWeightsMetadata) AddMetadata(metadata.name, metadata.data);
    }
  }

  std::vector<uint8_t> Finish() {
    const auto subgraphs = fbb_.CreateVector(subgraphs_);
    const auto codes = fbb_.CreateVector(codes_);
    if (!packed_weights_.empty()) {
      std::vector<uint8_t> table(packed_weights_.size() * sizeof(uint32_t));
      std::memcpy(table.data(), packed_weights_.data(), table.size());
      AddMetadata(kPackedWeightsMetadata, table);
    }
    Offset<flatbuffers::Vector<Offset<tflite::Metadata>>> metadata;
    if (!metadata_.empty()) metadata = fbb_.CreateVector(metadata_);
    Offset<flatbuffers::Vector<Offset<tflite::SignatureDef>>> signatures;
    if (!signatures_.empty()) signatures = fbb_.CreateVector(signatures_);
    const auto buffers = fbb_.CreateVector(buffers_);
    tflite::FinishModelBuffer(fbb_, tflite::CreateModel(fbb_, kWrittenVersion, codes, subgraphs, 0,
                                                        buffers, 0, metadata, signatures));
    std::vector<uint8_t> file(fbb_.GetBufferPointer(), fbb_.GetBufferPointer() + fbb_.GetSize());
    AlignPackedWeights(&file);
    return file;
  }

 private:
  // Moves packed weights within their buffers to where they belong, which is known only now.
  void AlignPackedWeights(std::vector<uint8_t>* file) const {
    const auto* buffers = tflite::GetModel(file->data())->buffers();
    for (size_t i = 2; i < packed_weights_.size(); i += 3) {
      const auto* data = buffers->Get(packed_weights_[i])->data();
      const size_t begin = static_cast<size_t>(data->data() - file->data());
      const size_t end = begin + data->size() - (Buffer::kAlignment - kBufferAlignment);
      const size_t moved = AlignUp(begin, Buffer::kAlignment) - begin;
      std::move_backward(file->begin() + static_cast<ptrdiff_t>(begin),
                         file->begin() + static_cast<ptrdiff_t>(end),
                         file->begin() + static_cast<ptrdiff_t>(end + moved));
    }
  }

  void AddMetadata(const std::string& name, std::span<const uint8_t> data) {
    const uint32_t buffer = AddBuffer(data);
    const auto stored_name = fbb_.CreateString(name);
    metadata_.push_back(tflite::CreateMetadata(fbb_, stored_name, buffer));
  }

  uint32_t AddBuffer(std::span<const uint8_t> data) {
    if (data.empty()) return 0;
    fbb_.ForceVectorAlignment(data.size(), 1, kBufferAlignment);
    const auto stored = fbb_.CreateVector(data.data(), data.size());
    buffers_.push_back(tflite::CreateBuffer(fbb_, stored));
    return static_cast<uint32_t>(buffers_.size() - 1);
  }

  uint32_t CodeOf(const Node& node) {
    const int32_t number = static_cast<int32_t>(node.type);
    const std::string name = node.type == OpType::kCUSTOM ? node.custom_name : "";
    const auto [entry, is_new] =
        code_indices_.insert({{number, name, node.version}, static_cast<uint32_t>(codes_.size())});
    if (is_new) {
      Offset<flatbuffers::String> custom;
      if (node.type == OpType::kCUSTOM) custom = fbb_.CreateString(name);
      // Old readers have only the 8-bit field; 127 there says that the number does not fit.
      codes_.push_back(tflite::CreateOperatorCode(fbb_, static_cast<int8_t>(std::min(number, 127)),
                                                  custom, node.version, number));
    }
    return entry->second;
  }

  Offset<tflite::Operator> WriteNode(const Node& node, const StoredOptions& options) {
    const uint32_t code = CodeOf(node);
    const auto inputs = fbb_.CreateVector(node.inputs);
    const auto outputs = fbb_.CreateVector(node.outputs);
    std::vector<uint8_t> custom(node.custom_options.begin(), node.custom_options.end());
    if (custom.empty()) custom = EncodeCustomOptions(node);
    Offset<flatbuffers::Vector<uint8_t>> custom_options;
    if (!custom.empty()) {
      fbb_.ForceVectorAlignment(custom.size(), 1, kBufferAlignment);
      custom_options = fbb_.CreateVector(custom);
    }
    Offset<flatbuffers::Vector<int32_t>> intermediates;
    if (!node.intermediates.empty()) intermediates = fbb_.CreateVector(node.intermediates);
    return tflite::CreateOperator(fbb_, code, inputs, outputs, options.type, options.table,
                                  custom_options, 0, 0, intermediates);
  }

  FlatBufferBuilder fbb_;
  std::vector<Offset<tflite::Buffer>> buffers_;
  std::vector<Offset<tflite::OperatorCode>> codes_;
  std::map<std::tuple<int32_t, std::string, int32_t>, uint32_t> code_indices_;
  std::vector<Offset<tflite::SubGraph>> subgraphs_;
  std::vector<uint32_t> packed_weights_;  // subgraph, tensor, buffer of each
  std::vector<Offset<tflite::Metadata>> metadata_;
  std::vector<Offset<tflite::SignatureDef>> signatures_;
};

// More bytes than the graph can take in the file.
uint64_t SizeBound(const Graph& graph) {
  constexpr uint64_t kFixed = 512;  // fields, vtables, lengths and padding of one table
  uint64_t bytes = kFixed + graph.name.size() + 4 * (graph.inputs.size() + graph.outputs.size());
  for (const Tensor& tensor : graph.tensors) {
    bytes += kFixed + tensor.data.size() + tensor.packed_weights.size() + tensor.name.size() +
             4 * (tensor.shape.size() + tensor.shape_signature.size()) +
             4 * tensor.quantization.scales.size() + 8 * tensor.quantization.zero_points.size();
  }
  for (const Node& node : graph.nodes) {
    const size_t indices = node.inputs.size() + node.outputs.size() + node.intermediates.size();
    bytes += 2 * kFixed + node.custom_name.size() + node.custom_options.size() + 4 * indices;
    if (const auto* reshape = std::get_if<ReshapeOptions>(&node.options)) {
      bytes += 4 * reshape->new_shape.size();
    } else if (const auto* squeeze = std::get_if<SqueezeOptions>(&node.options)) {
      bytes += 4 * squeeze->dims.size();
    } else if (const auto* handle = std::get_if<VarHandleOptions>(&node.options)) {
      bytes += handle->container.size() + handle->shared_name.size();
    }
  }
  return bytes;
}

uint64_t SizeBound(const ModelExtras& extras) {
  constexpr uint64_t kFixed = 512;
  uint64_t bytes = 0;
  for (const Signature& signature : extras.signatures) {
    bytes += kFixed + signature.key.size();
    for (const auto* ends : {&signature.inputs, &signature.outputs}) {
      for (const Signature::End& end : *ends) bytes += kFixed + end.name.size();
    }
  }
  for (const Metadata& metadata : extras.metadata) {
    bytes += kFixed + metadata.name.size() + metadata.data.size();
  }
  return bytes;
}

}  // namespace

Result<std::vector<uint8_t>> WriteTflite(std::span<const Graph* const> graphs,
                                         const ModelExtras& extras) {
  uint64_t bytes = SizeBound(extras);
  for (const Graph* graph : graphs) bytes += SizeBound(*graph);
  if (bytes >= FLATBUFFERS_MAX_BUFFER_SIZE) {
    return Unsupported("a .tflite file holds less than 2 GiB, the model has up to %llu bytes",
                       static_cast<unsigned long long>(bytes));
  }
  ModelWriter writer;
  for (const Graph* graph : graphs) ATOLL_RETURN_IF_ERROR(writer.Add(*graph));
  writer.Add(extras);
  return writer.Finish();
}

Result<std::vector<uint8_t>> WriteTflite(const Graph& graph) {
  const Graph* const graphs[] = {&graph};
  return WriteTflite(graphs);
}

}  // namespace atollrt
