// SPDX-License-Identifier: Apache-2.0
#include "tests/support/made_up_tflite.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "runtime/kernels/cpu_features.h"
#include "runtime/ops/cpu_ops.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

constexpr TfliteLayout kLayouts[] = {
    {"2.5", 160, 72, 64, 48, false},
    {"2.9", 184, 80, 64, 48, false},
    {"2.16", 200, 80, 88, 56, true},
    {"LiteRT 2026", 200, 80, 88, 56, true},
};

int TfliteType(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return 1;
    case DataType::kFloat16:
      return 10;
    case DataType::kInt32:
      return 2;
    case DataType::kUInt8:
      return 3;
    case DataType::kInt64:
      return 4;
    case DataType::kString:
      return 5;
    case DataType::kBool:
      return 6;
    case DataType::kInt16:
      return 7;
    case DataType::kInt8:
      return 9;
    case DataType::kResource:
      return 14;
    case DataType::kUInt32:
      return 16;
  }
  return 0;
}

int ActivationNumber(Activation activation) { return static_cast<int>(activation); }

// Builtin parameters, an offset and a value at a time.
class Params {
 public:
  Params& Int(size_t offset, int32_t value) { return Put(offset, value); }
  Params& Float(size_t offset, float value) { return Put(offset, value); }
  Params& Byte(size_t offset, bool value) { return Put(offset, static_cast<uint8_t>(value)); }
  Params& List(const std::vector<int32_t>& values) {
    for (size_t i = 0; i < 8; ++i) Int(4 * i, i < values.size() ? values[i] : 0x7fffffff);
    return Int(32, static_cast<int32_t>(values.size()));
  }
  std::vector<uint8_t> Take() {
    // A struct with ints is a multiple of them.
    if (bytes_.size() > 2) bytes_.resize((bytes_.size() + 3) / 4 * 4);
    return std::move(bytes_);
  }

 private:
  template <typename T>
  Params& Put(size_t offset, T value) {
    bytes_.resize(std::max(bytes_.size(), offset + sizeof(value)));
    std::memcpy(bytes_.data() + offset, &value, sizeof(value));
    return *this;
  }
  std::vector<uint8_t> bytes_;
};

// Empty for operators without parameters. `since(v)`: fields of version v of the operator are
// there.
std::vector<uint8_t> MakeParams(const Graph& graph, const Node& node,
                                const std::function<bool(int)>& since) {
  Params to;
  const auto type_of = [&](const std::vector<int32_t>& tensors, size_t at) {
    return TfliteType(graph.tensors[tensors[at]].type);
  };
  const auto padding = [](Padding given) { return given == Padding::kSame ? 1 : 2; };
  switch (node.type) {
    case OpType::kCONV_2D: {
      const Conv2DOptions& o = std::get<Conv2DOptions>(node.options);
      to.Int(0, padding(o.padding)).Int(4, o.stride_w).Int(8, o.stride_h);
      to.Int(12, ActivationNumber(o.activation)).Int(16, o.dilation_w).Int(20, o.dilation_h);
      if (since(8)) to.Int(24, 0);
      break;
    }
    case OpType::kDEPTHWISE_CONV_2D: {
      const Conv2DOptions& o = std::get<Conv2DOptions>(node.options);
      const int32_t in = graph.tensors[node.inputs[0]].shape.back();
      const int32_t out = graph.tensors[node.outputs[0]].shape.back();
      to.Int(0, padding(o.padding)).Int(4, o.stride_w).Int(8, o.stride_h).Int(12, out / in);
      to.Int(16, ActivationNumber(o.activation)).Int(20, o.dilation_w).Int(24, o.dilation_h);
      break;
    }
    case OpType::kAVERAGE_POOL_2D:
    case OpType::kMAX_POOL_2D: {
      const Pool2DOptions& o = std::get<Pool2DOptions>(node.options);
      to.Int(0, padding(o.padding)).Int(4, o.stride_w).Int(8, o.stride_h);
      to.Int(12, o.filter_w).Int(16, o.filter_h).Int(20, ActivationNumber(o.activation));
      to.Int(36, 0);  // what the runtime computes for itself
      break;
    }
    case OpType::kFULLY_CONNECTED: {
      const auto& o = std::get<FullyConnectedOptions>(node.options);
      to.Int(0, ActivationNumber(o.activation)).Int(4, 0).Byte(8, o.keep_num_dims).Byte(9, false);
      if (since(11)) to.Int(12, 0);
      break;
    }
    case OpType::kTRANSPOSE_CONV: {
      const Conv2DOptions& o = std::get<Conv2DOptions>(node.options);
      to.Int(0, padding(o.padding)).Int(4, o.stride_w).Int(8, o.stride_h);
      if (since(4)) to.Int(12, ActivationNumber(o.activation));
      if (since(5)) to.Int(16, 0);
      break;
    }
    case OpType::kADD:
    case OpType::kSUB: {
      const auto& o = std::get<ElementwiseOptions>(node.options);
      to.Int(0, ActivationNumber(o.activation)).Byte(4, o.pot_scale_int16);
      break;
    }
    case OpType::kMUL:
    case OpType::kDIV:
    case OpType::kL2_NORMALIZATION:
      to.Int(0, ActivationNumber(std::get<ElementwiseOptions>(node.options).activation));
      break;
    case OpType::kCONCATENATION: {
      const AxisOptions& o = std::get<AxisOptions>(node.options);
      to.Int(0, o.axis).Int(4, ActivationNumber(o.activation));
      break;
    }
    case OpType::kRESHAPE:
      to.List(std::get<ReshapeOptions>(node.options).new_shape);
      break;
    case OpType::kSQUEEZE:
      to.List(std::get<SqueezeOptions>(node.options).dims);
      break;
    case OpType::kSOFTMAX:
      to.Float(0, std::get<SoftmaxOptions>(node.options).beta);
      break;
    case OpType::kLEAKY_RELU:
      to.Float(0, std::get<LeakyReluOptions>(node.options).alpha);
      break;
    case OpType::kRESIZE_BILINEAR:
    case OpType::kRESIZE_NEAREST_NEIGHBOR: {
      const ResizeOptions& o = std::get<ResizeOptions>(node.options);
      to.Byte(0, o.align_corners).Byte(1, o.half_pixel_centers);
      break;
    }
    case OpType::kSTRIDED_SLICE: {
      const auto& o = std::get<StridedSliceOptions>(node.options);
      to.Int(0, o.begin_mask).Int(4, o.end_mask).Int(8, o.ellipsis_mask);
      to.Int(12, o.new_axis_mask).Int(16, o.shrink_axis_mask);
      if (since(8)) to.Byte(20, o.offset);
      break;
    }
    case OpType::kGATHER: {
      const AxisOptions& o = std::get<AxisOptions>(node.options);
      to.Int(0, o.axis);
      if (since(5)) to.Int(4, o.count);
      break;
    }
    case OpType::kMEAN:
    case OpType::kSUM:
    case OpType::kREDUCE_MAX:
    case OpType::kREDUCE_MIN:
      to.Byte(0, std::get<ReducerOptions>(node.options).keep_dims);
      break;
    case OpType::kSPLIT:
    case OpType::kSPLIT_V:
      to.Int(0, std::get<SplitOptions>(node.options).num_splits);
      break;
    case OpType::kPACK:
    case OpType::kUNPACK: {
      const AxisOptions& o = std::get<AxisOptions>(node.options);
      to.Int(0, o.count).Int(4, o.axis);
      break;
    }
    case OpType::kSPACE_TO_DEPTH:
    case OpType::kDEPTH_TO_SPACE:
      to.Int(0, std::get<BlockOptions>(node.options).block_size);
      break;
    case OpType::kCAST:
      to.Int(0, type_of(node.inputs, 0)).Int(4, type_of(node.outputs, 0));
      break;
    case OpType::kARG_MAX:
    case OpType::kARG_MIN:
    case OpType::kSHAPE:
      to.Int(0, type_of(node.outputs, 0));
      break;
    case OpType::kMIRROR_PAD:
      to.Int(0, std::get<MirrorPadOptions>(node.options).mode == MirrorPadMode::kReflect ? 1 : 2);
      break;
    case OpType::kBATCH_MATMUL: {
      const auto& o = std::get<BatchMatMulOptions>(node.options);
      to.Byte(0, o.transpose_lhs).Byte(1, o.transpose_rhs);
      if (since(4)) to.Byte(2, false);
      break;
    }
    case OpType::kUNIDIRECTIONAL_SEQUENCE_LSTM: {
      const LstmOptions& o = std::get<LstmOptions>(node.options);
      to.Int(0, ActivationNumber(o.activation)).Float(4, o.cell_clip).Float(8, o.projection_clip);
      to.Byte(12, o.time_major).Byte(13, false);
      if (since(4)) to.Byte(14, false);
      break;
    }
    case OpType::kSVDF: {
      const SvdfOptions& o = std::get<SvdfOptions>(node.options);
      to.Int(0, o.rank).Int(4, ActivationNumber(o.activation)).Byte(8, false);
      break;
    }
    default:
      break;
  }
  return to.Take();
}

// The version of a node's operator: at least that which has all that the node says, as converters
// write it.
int VersionOf(const Node& node) {
  int least = 1;
  if (const auto* filter = std::get_if<Conv2DOptions>(&node.options);
      node.type == OpType::kTRANSPOSE_CONV && filter->activation != Activation::kNone) {
    least = 4;
  }
  if (const auto* slice = std::get_if<StridedSliceOptions>(&node.options);
      slice != nullptr && slice->offset) {
    least = 8;
  }
  if (const auto* axis = std::get_if<AxisOptions>(&node.options);
      node.type == OpType::kGATHER && axis->count != 0) {
    least = 5;
  }
  return std::max(node.version, least);
}

std::unique_ptr<GuardedBuffer> Guarded(size_t bytes) {
  auto made = std::make_unique<GuardedBuffer>(bytes);
  std::memset(made->data(), 0, bytes);
  return made;
}

std::unique_ptr<GuardedBuffer> Guarded(std::span<const uint8_t> bytes) {
  auto made = std::make_unique<GuardedBuffer>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), made->data());
  return made;
}

// What was there cannot be read any more.
void Move(std::unique_ptr<GuardedBuffer>* buffer) { *buffer = Guarded((*buffer)->bytes()); }

TfLiteIntArray* MakeArray(std::span<const int> numbers) {
  auto* const array = static_cast<TfLiteIntArray*>(
      std::malloc(sizeof(TfLiteIntArray) + numbers.size() * sizeof(int)));
  array->size = static_cast<int>(numbers.size());
  std::copy(numbers.begin(), numbers.end(), array->data);
  return array;
}

std::span<const int> SpanOf(const TfLiteIntArray* array) {
  if (array == nullptr || array->size < 0) return {};  // of a node that a test has spoilt
  return {array->data, static_cast<size_t>(array->size)};
}

// As 2.9 and older take it: they know nothing of what comes after.
struct OldRegistration {
  void* functions[5];
  int32_t builtin_code;
  const char* custom_name;
  int version;
};
static_assert(sizeof(OldRegistration) == 64);

}  // namespace

std::span<const TfliteLayout> TfliteLayouts() { return kLayouts; }

void FillFromSeed(uint64_t seed, DataType type, std::span<uint8_t> bytes) {
  Rng rng(seed);
  if (type == DataType::kFloat32) {
    for (size_t i = 0; i + sizeof(float) <= bytes.size(); i += sizeof(float)) {
      const auto value = static_cast<float>(static_cast<double>(rng.Next() >> 40) * 0x1p-23 - 1);
      std::memcpy(bytes.data() + i, &value, sizeof(value));
    }
    return;
  }
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    const uint64_t number = rng.Next();
    std::memcpy(bytes.data() + i, &number, std::min(sizeof(number), bytes.size() - i));
  }
  if (type != DataType::kBool) return;
  for (uint8_t& byte : bytes) byte &= 1;
}

// ---- The graph ----------------------------------------------------------------------------------

MadeUpTflite::MadeUpTflite(std::shared_ptr<const Model> model, const TfliteLayout& layout,
                           int threads)
    : layout_(layout), model_(model), original_(std::move(model)) {
  context_ = Guarded(layout_.context);
  TfLiteContext& context = *this->context();
  context.impl_ = this;
  context.ResizeTensor = ResizeTensor;
  context.ReportError = ReportError;
  context.AddTensors = AddTensors;
  context.recommended_num_threads = threads;
  context.GetExternalContext = [](TfLiteContext*, int) -> TfLiteExternalContext* {
    return nullptr;
  };
  context.SetExternalContext = [](TfLiteContext*, int, TfLiteExternalContext*) {};
  AllowDelegates(false);
  MakeTensors();
  MakeNodes();
}

MadeUpTflite::~MadeUpTflite() { FreeKernels(); }

TfLiteIntArray* MadeUpTflite::Keep(std::span<const int> numbers) {
  arrays_.emplace_back(MakeArray(numbers));
  return static_cast<TfLiteIntArray*>(arrays_.back().get());
}

void MadeUpTflite::MakeTensors() {
  const std::vector<Tensor>& from = graph().tensors;
  tensors_ = Guarded(from.size() * sizeof(TfLiteTensor));
  context()->tensors = tensors();
  context()->tensors_size = from.size();
  memory_.resize(from.size());
  std::set<int32_t> written;
  for (const Node& node : graph().nodes) written.insert(node.outputs.begin(), node.outputs.end());
  for (size_t i = 0; i < from.size(); ++i) {
    TfLiteTensor& tensor = tensors()[i];
    tensor.type = static_cast<TfLiteType>(TfliteType(from[i].type));
    tensor.name = from[i].name.c_str();
    tensor.buffer_handle = -1;
    tensor.is_variable = from[i].is_variable;
    tensor.dims = Keep(from[i].shape);
    tensor.bytes = static_cast<size_t>(from[i].byte_size());
    if (!from[i].shape_signature.empty()) tensor.dims_signature = Keep(from[i].shape_signature);
    if (from[i].is_constant()) {
      tensor.allocation_type = kTfLiteMmapRo;
      tensor.data.raw_const = reinterpret_cast<const char*>(from[i].data.data());
    } else {
      tensor.allocation_type = from[i].is_variable ? kTfLiteArenaRwPersistent : kTfLiteArenaRw;
    }
    const Quantization& quantization = from[i].quantization;
    if (quantization.scales.empty()) continue;
    tensor.params = {from[i].scale(), from[i].zero_point()};
    std::vector<uint8_t>& block = quantizations_.emplace_back(sizeof(TfLiteAffineQuantization));
    auto* const affine = reinterpret_cast<TfLiteAffineQuantization*>(block.data());
    std::vector<int> bits(quantization.scales.size());
    std::memcpy(bits.data(), quantization.scales.data(), bits.size() * sizeof(float));
    affine->scale = reinterpret_cast<TfLiteFloatArray*>(Keep(bits));
    affine->zero_point =
        Keep(std::vector<int>(quantization.zero_points.begin(), quantization.zero_points.end()));
    affine->quantized_dimension = quantization.dimension;
    tensor.quantization = {kTfLiteAffineQuantization, affine};
  }
}

void MadeUpTflite::MakeNodes() {
  for (const Node& from : graph().nodes) {
    RuntimeNode& made = nodes_.emplace_back();
    made.node = Guarded(layout_.node);
    made.registered = Guarded(layout_.registration);
    TfLiteNode& node = *made.get();
    node.inputs = Keep(from.inputs);
    node.outputs = Keep(from.outputs);
    node.intermediates = Keep(from.intermediates);
    node.temporaries = Keep({});
    TfLiteRegistration& registration = *made.registration();
    registration.builtin_code = static_cast<int32_t>(from.type);
    registration.version = VersionOf(from);
    if (from.type == OpType::kCUSTOM) {
      registration.custom_name = from.custom_name.c_str();
      made.params = Guarded(from.custom_options);
      node.custom_initial_data = made.params->data();
      node.custom_initial_data_size = static_cast<int>(from.custom_options.size());
    } else if (const std::vector<uint8_t> params = MakeParams(
                   graph(), from,
                   [&](int version) {
                     return layout_.has_new_parameters || registration.version >= version;
                   });
               !params.empty()) {
      made.params = Guarded(params);
      node.builtin_data = made.params->data();
    }
    plan_.push_back(static_cast<int>(plan_.size()));
  }
  original_plan_ = plan_;
}

// Everything that a runtime may move lies elsewhere afterwards.
void MadeUpTflite::Shake() {
  if (!shakes) return;
  Move(&tensors_);
  context()->tensors = tensors();
  constexpr size_t kMany = 100;  // of a large graph it would take too long
  if (nodes_.size() > kMany) return;
  for (RuntimeNode& node : nodes_) {
    Move(&node.node);
    Move(&node.registered);
  }
}

void MadeUpTflite::SetDims(TfLiteTensor* tensor, std::span<const int> dims) {
  tensor->dims = Keep(dims);
  int64_t count = 1;
  for (const int size : dims) count *= size;
  const auto index = static_cast<size_t>(tensor - tensors());
  tensor->bytes = static_cast<size_t>(count) * DataTypeSize(graph().tensors[index].type);
}

std::span<uint8_t> MadeUpTflite::BytesOf(int32_t tensor) {
  return {tensors()[tensor].data.uint8, tensors()[tensor].bytes};
}

void MadeUpTflite::GiveMemory(int32_t tensor) {
  TfLiteTensor& to = tensors()[tensor];
  if (to.allocation_type == kTfLiteMmapRo) return;
  constexpr size_t kAlignment = 64;
  const size_t bytes = (to.bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::unique_ptr<void, FreeArray> fresh(
      std::aligned_alloc(kAlignment, std::max(bytes, kAlignment)));
  if (to.data.data != nullptr && moves_memory) {
    std::memcpy(fresh.get(), to.data.data, to.bytes);
  }
  to.data.data = fresh.get();
  memory_[static_cast<size_t>(tensor)] = std::move(fresh);
}

// ---- What delegates may call --------------------------------------------------------------------

void MadeUpTflite::AllowDelegates(bool allow) {
  may_ask_ = allow;
  TfLiteContext& context = *this->context();
  context.GetExecutionPlan = GetExecutionPlan;
  context.GetNodeAndRegistration = GetNode;
  context.PreviewDelegatePartitioning = Preview;
  using Replacing = decltype(context.ReplaceNodeSubsetsWithDelegateKernels);
  if (layout_.registration == sizeof(OldRegistration)) {
    using OldReplacing =
        TfLiteStatus (*)(TfLiteContext*, OldRegistration, const TfLiteIntArray*, TfLiteDelegate*);
    const OldReplacing replace = [](TfLiteContext* self, OldRegistration given,
                                    const TfLiteIntArray* nodes, TfLiteDelegate* delegate) {
      TfLiteRegistration registration = {};
      std::memcpy(&registration, &given, sizeof(given));
      return Of(self).Replace(registration, *nodes, delegate);
    };
    context.ReplaceNodeSubsetsWithDelegateKernels =
        reinterpret_cast<Replacing>(reinterpret_cast<void*>(replace));
  } else {
    context.ReplaceNodeSubsetsWithDelegateKernels =
        [](TfLiteContext* self, TfLiteRegistration registration, const TfLiteIntArray* nodes,
           TfLiteDelegate* delegate) { return Of(self).Replace(registration, *nodes, delegate); };
  }
}

TfLiteStatus MadeUpTflite::GetExecutionPlan(TfLiteContext* context, TfLiteIntArray** plan) {
  MadeUpTflite& self = Of(context);
  if (!self.may_ask_) {
    self.errors_ += "forbidden: GetExecutionPlan\n";
    return kTfLiteError;
  }
  *plan = self.Keep(self.plan_);
  return kTfLiteOk;
}

TfLiteStatus MadeUpTflite::GetNode(TfLiteContext* context, int index, TfLiteNode** node,
                                   TfLiteRegistration** registration) {
  MadeUpTflite& self = Of(context);
  if (!self.may_ask_ || index < 0 || static_cast<size_t>(index) >= self.nodes_.size()) {
    self.errors_ += "forbidden: GetNodeAndRegistration\n";
    return kTfLiteError;
  }
  *node = self.nodes_[static_cast<size_t>(index)].get();
  *registration = self.nodes_[static_cast<size_t>(index)].registration();
  return kTfLiteOk;
}

TfLiteStatus MadeUpTflite::ResizeTensor(TfLiteContext* context, TfLiteTensor* tensor,
                                        TfLiteIntArray* dims) {
  MadeUpTflite& self = Of(context);
  const std::unique_ptr<void, FreeArray> owner(dims);  // it is the runtime's now
  if (tensor < self.tensors() || tensor >= self.tensors() + context->tensors_size) {
    self.errors_ += "ResizeTensor of no tensor\n";
    return kTfLiteError;
  }
  self.SetDims(tensor, SpanOf(dims));
  return kTfLiteOk;
}

void MadeUpTflite::ReportError(TfLiteContext* context, const char* format, ...) {
  char text[2048];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  Of(context).errors_ += std::string(text) + "\n";
}

TfLiteStatus MadeUpTflite::AddTensors(TfLiteContext* context, int count, int* first) {
  MadeUpTflite& self = Of(context);
  const size_t before = context->tensors_size;
  std::unique_ptr<GuardedBuffer> more =
      Guarded((before + static_cast<size_t>(count)) * sizeof(TfLiteTensor));
  std::copy(self.tensors_->bytes().begin(), self.tensors_->bytes().end(), more->data());
  self.tensors_ = std::move(more);
  context->tensors = self.tensors();
  context->tensors_size += static_cast<size_t>(count);
  *first = static_cast<int>(before);
  return kTfLiteOk;
}

// As the runtime does it: sets of nodes of one kind, each as large as possible with what is ready.
std::vector<MadeUpTflite::Subset> MadeUpTflite::PartitionGraph(std::span<const int> nodes) const {
  const std::set<int> wanted(nodes.begin(), nodes.end());
  constexpr int kNotReady = -2;
  constexpr int kAlwaysReady = -1;
  std::map<int, int> ready;  // tensors that nodes of the plan write: the subset that does
  for (const int node : plan_) {
    for (const int tensor : SpanOf(nodes_[static_cast<size_t>(node)].get()->outputs)) {
      ready[tensor] = kNotReady;
    }
  }
  const auto epoch = [&](int tensor) {
    const auto found = ready.find(tensor);
    return tensor < 0 || found == ready.end() ? kAlwaysReady : found->second;
  };
  std::vector<Subset> subsets;
  std::vector<int> left = plan_;
  while (!left.empty()) {
    const int number = static_cast<int>(subsets.size());
    Subset& subset = subsets.emplace_back();
    for (bool is_any = true; is_any;) {
      is_any = false;
      std::vector<int> rest;
      for (const int index : left) {
        const TfLiteNode& node = *nodes_[static_cast<size_t>(index)].get();
        const bool is_ready = std::ranges::all_of(
            SpanOf(node.inputs), [&](int tensor) { return epoch(tensor) != kNotReady; });
        if (subset.nodes.empty()) subset.is_partition = wanted.contains(index);
        if (!is_ready || wanted.contains(index) != subset.is_partition) {
          rest.push_back(index);
          continue;
        }
        subset.nodes.push_back(index);
        for (const int tensor : SpanOf(node.outputs)) ready[tensor] = number;
        is_any = true;
      }
      left = std::move(rest);
    }
    if (subset.nodes.empty()) break;  // no graph of ours
  }
  std::vector<std::set<int>> inputs(subsets.size()), outputs(subsets.size());
  for (size_t i = 0; i < subsets.size(); ++i) {
    for (const int index : subsets[i].nodes) {
      for (const int tensor : SpanOf(nodes_[static_cast<size_t>(index)].get()->inputs)) {
        if (tensor < 0 || epoch(tensor) == static_cast<int>(i)) continue;
        inputs[i].insert(tensor);
        if (epoch(tensor) >= 0) outputs[static_cast<size_t>(epoch(tensor))].insert(tensor);
      }
    }
  }
  for (const int32_t tensor : graph().outputs) {
    if (epoch(tensor) >= 0) outputs[static_cast<size_t>(epoch(tensor))].insert(tensor);
  }
  for (size_t i = 0; i < subsets.size(); ++i) {
    subsets[i].inputs.assign(inputs[i].begin(), inputs[i].end());
    subsets[i].outputs.assign(outputs[i].begin(), outputs[i].end());
  }
  return subsets;
}

TfLiteStatus MadeUpTflite::Preview(TfLiteContext* context, const TfLiteIntArray* nodes,
                                   TfLiteDelegateParams** partitions, int* count) {
  MadeUpTflite& self = Of(context);
  if (!self.may_ask_) {
    self.errors_ += "forbidden: PreviewDelegatePartitioning\n";
    return kTfLiteError;
  }
  self.previewed_.clear();
  for (const Subset& subset : self.PartitionGraph(SpanOf(nodes))) {
    if (!subset.is_partition) continue;
    self.previewed_.push_back(
        {nullptr, self.Keep(subset.nodes), self.Keep(subset.inputs), self.Keep(subset.outputs)});
  }
  *partitions = self.previewed_.data();
  *count = static_cast<int>(self.previewed_.size());
  return kTfLiteOk;
}

TfLiteStatus MadeUpTflite::Replace(const TfLiteRegistration& registration,
                                   const TfLiteIntArray& nodes, TfLiteDelegate* delegate) {
  if (!may_ask_) {
    errors_ += "forbidden: ReplaceNodeSubsetsWithDelegateKernels\n";
    return kTfLiteError;
  }
  if (registration.registration_external != nullptr) {
    *static_cast<int*>(registration.registration_external) = 1;  // as newer runtimes do
  }
  const std::vector<Subset> subsets = PartitionGraph(SpanOf(&nodes));
  plan_.clear();
  for (const Subset& subset : subsets) {
    if (!subset.is_partition) {
      plan_.insert(plan_.end(), subset.nodes.begin(), subset.nodes.end());
      continue;
    }
    const TfLiteDelegateParams params = {delegate, Keep(subset.nodes), Keep(subset.inputs),
                                         Keep(subset.outputs)};
    RuntimeNode made;
    made.node = Guarded(layout_.node);
    made.registered =
        Guarded({reinterpret_cast<const uint8_t*>(&registration), layout_.registration});
    made.params = Guarded({reinterpret_cast<const uint8_t*>(&params), sizeof(params)});
    made.get()->inputs = params.input_tensors;
    made.get()->outputs = params.output_tensors;
    made.get()->builtin_data = made.params->data();
    made.get()->delegate = delegate;
    for (const int tensor : subset.outputs) tensors()[tensor].delegate = delegate;
    const auto number = static_cast<int>(nodes_.size());
    nodes_.push_back(std::move(made));
    plan_.push_back(number);
    replacements_.push_back({number, params});
    partitions_.push_back(subset.nodes);
    Shake();
    nodes_.back().get()->user_data = registration.init(
        context(), reinterpret_cast<const char*>(nodes_.back().params->data()), 0);
  }
  return kTfLiteOk;
}

// ---- What programs call -------------------------------------------------------------------------

void MadeUpTflite::FreeKernels() {
  for (const Replacement& replacement : replacements_) {
    const RuntimeNode& node = nodes_[static_cast<size_t>(replacement.node)];
    if (node.registration()->free != nullptr) {
      node.registration()->free(context(), node.get()->user_data);
    }
  }
  if (!replacements_.empty()) nodes_.resize(static_cast<size_t>(replacements_.front().node));
  replacements_.clear();
  partitions_.clear();
  plan_ = original_plan_;
}

TfLiteStatus MadeUpTflite::ModifyGraph(TfLiteDelegate* delegate) {
  is_ready_ = false;
  if (layout_.delegate > offsetof(TfLiteDelegate, opaque_delegate_builder) &&
      delegate->opaque_delegate_builder != nullptr) {
    errors_ += "the delegate has an opaque builder\n";
    return kTfLiteError;
  }
  if ((delegate->flags & kTfLiteDelegateFlagsAllowDynamicTensors) == 0) {
    errors_ += "the delegate wants all tensors to have their sizes\n";
    return kTfLiteApplicationError;
  }
  AllowDelegates(true);
  Shake();
  const TfLiteStatus status = delegate->Prepare(context(), delegate);
  AllowDelegates(false);
  if (status != kTfLiteOk) FreeKernels();
  return status;
}

void MadeUpTflite::ResizeInput(size_t index, Shape shape) {
  is_ready_ = false;
  const auto number = static_cast<int32_t>(index);
  std::erase_if(shapes_, [&](const InputShape& known) { return known.index == number; });
  shapes_.push_back({.index = number, .shape = std::move(shape)});
}

TfLiteStatus MadeUpTflite::AllocateTensors() {
  if (!shapes_.empty()) {
    // The shapes of what it runs itself are those that Atoll infers; no constants are in question.
    auto resized = Model::WithInputShapes(original_, shapes_);
    if (!resized.ok()) {
      errors_ += resized.status().message() + "\n";
      return kTfLiteError;
    }
    model_ = *std::move(resized);
    for (const int32_t input : graph().inputs) {
      SetDims(&tensors()[input], graph().tensors[input].shape);
    }
  }
  const Result<CpuFeatures> features = DetectCpuFeatures();
  for (const int32_t input : graph().inputs) GiveMemory(input);
  for (const int index : plan_) {
    if (nodes_[static_cast<size_t>(index)].get()->delegate == nullptr) {
      RuntimeNode& node = nodes_[static_cast<size_t>(index)];
      const Node& from = graph().nodes[static_cast<size_t>(index)];
      if (from.type == OpType::kCALL_ONCE || from.type == OpType::kREAD_VARIABLE ||
          from.type == OpType::kASSIGN_VARIABLE) {
        errors_ += "the made-up runtime has no variables\n";
        return kTfLiteError;
      }
      auto executor = PrepareCpuNode(graph(), from, *features);
      if (!executor.ok()) {
        errors_ += executor.status().message() + "\n";
        return kTfLiteError;
      }
      node.executor = *std::move(executor);
      for (const int32_t tensor : from.outputs) {
        SetDims(&tensors()[tensor], graph().tensors[tensor].shape);
      }
    } else {
      Shake();
      const RuntimeNode& node = nodes_[static_cast<size_t>(index)];
      const TfLiteStatus status = node.registration()->prepare(context(), node.get());
      if (status != kTfLiteOk) {
        errors_ += "Node number " + std::to_string(index) + " (" +
                   node.registration()->custom_name + ") failed to prepare.\n";
        return status;
      }
      for (const int tensor : SpanOf(node.get()->outputs)) {
        const std::span<const int> dims = SpanOf(tensors()[tensor].dims);
        if (!std::ranges::equal(dims, graph().tensors[tensor].shape)) {
          errors_ += "'" + graph().tensors[tensor].name + "' got another shape\n";
          return kTfLiteError;
        }
      }
    }
    const RuntimeNode& node = nodes_[static_cast<size_t>(index)];
    for (const int tensor : SpanOf(node.get()->outputs)) GiveMemory(tensor);
  }
  for (size_t i = 0; i < graph().tensors.size(); ++i) {
    if (graph().tensors[i].is_variable) GiveMemory(static_cast<int32_t>(i));
  }
  ResetVariables();
  is_ready_ = true;
  return kTfLiteOk;
}

void MadeUpTflite::ResetVariables() {
  for (size_t i = 0; i < graph().tensors.size(); ++i) {
    const Tensor& tensor = graph().tensors[i];
    if (!tensor.is_variable) continue;
    const std::span<uint8_t> bytes = BytesOf(static_cast<int32_t>(i));
    std::memset(bytes.data(), tensor.type == DataType::kInt8 ? tensor.zero_point() : 0,
                bytes.size());
  }
}

TfLiteStatus MadeUpTflite::InvokeNode(RuntimeNode* node) {
  std::vector<const uint8_t*> inputs;
  std::vector<uint8_t*> outputs;
  std::vector<uint8_t*> state;
  for (const int tensor : SpanOf(node->get()->inputs)) {
    const bool is_variable = tensor >= 0 && tensors()[tensor].is_variable;
    inputs.push_back(tensor < 0 ? nullptr : tensors()[tensor].data.uint8);
    state.push_back(is_variable ? tensors()[tensor].data.uint8 : nullptr);
  }
  for (const int tensor : SpanOf(node->get()->outputs)) {
    outputs.push_back(tensors()[tensor].data.uint8);
  }
  scratch_.resize(node->executor->ScratchBytes(1) + Buffer::kAlignment);
  const auto address = reinterpret_cast<uintptr_t>(scratch_.data());
  RequestCost cost;
  const NodeIo io = {.inputs = inputs,
                     .outputs = outputs,
                     .state = state,
                     .scratch = scratch_.data() + (-address % Buffer::kAlignment),
                     .pool = &pool_,
                     .cost = &cost};
  const Status status = node->executor->Invoke(io);
  if (status.ok()) return kTfLiteOk;
  errors_ += status.message() + "\n";
  return kTfLiteError;
}

TfLiteStatus MadeUpTflite::Invoke() {
  if (!is_ready_) {
    errors_ += "Invoke called on model that is not ready.\n";
    return kTfLiteError;
  }
  if (moves_memory) {
    for (size_t i = 0; i < graph().tensors.size(); ++i) {
      if (memory_[i] != nullptr) GiveMemory(static_cast<int32_t>(i));
    }
  }
  for (const int index : plan_) {
    if (nodes_[static_cast<size_t>(index)].get()->delegate == nullptr) {
      if (InvokeNode(&nodes_[static_cast<size_t>(index)]) != kTfLiteOk) return kTfLiteError;
      continue;
    }
    if (moves_memory) Shake();
    const RuntimeNode& node = nodes_[static_cast<size_t>(index)];
    const TfLiteRegistration& registration = *node.registration();
    if (registration.profiling_string != nullptr) {
      registration.profiling_string(context(), node.get());
    }
    const TfLiteStatus status = registration.invoke(context(), node.get());
    if (status != kTfLiteOk) {
      errors_ += "Node number " + std::to_string(index) + " (" + registration.custom_name +
                 ") failed to invoke.\n";
      return status;
    }
  }
  return kTfLiteOk;
}

std::vector<std::vector<uint8_t>> MadeUpTflite::Run(uint64_t seed) {
  for (size_t i = 0; i < input_count(); ++i) {
    const std::span<uint8_t> bytes = Input(i);
    FillFromSeed(seed, graph().tensors[graph().inputs[i]].type, bytes);
  }
  std::vector<std::vector<uint8_t>> outputs;
  if (Invoke() != kTfLiteOk) return outputs;
  for (size_t i = 0; i < output_count(); ++i) {
    const std::span<const uint8_t> bytes = Output(i);
    outputs.emplace_back(bytes.begin(), bytes.end());
  }
  return outputs;
}

size_t MadeUpTflite::claimed() const {
  size_t count = 0;
  for (const std::vector<int>& partition : partitions_) count += partition.size();
  return count;
}

}  // namespace atollrt
