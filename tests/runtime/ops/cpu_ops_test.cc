// SPDX-License-Identifier: Apache-2.0
//
// What operators.inc says of an operator's types is what its functions do: others are refused, and
// for each that is listed some model runs.
#include "runtime/ops/cpu_ops.h"

#include <flatbuffers/flexbuffers.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "runtime/ops/apart_ops.h"
#include "tests/support/run_model.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kInt32,  DataType::kUInt8,
                               DataType::kInt64,   DataType::kString, DataType::kBool,
                               DataType::kInt16,   DataType::kInt8,   DataType::kResource,
                               DataType::kUInt32,  DataType::kFloat16};

std::string NameOf(const CpuOp& op) {
  return op.type == OpType::kCUSTOM ? op.custom_name : OpTypeName(op.type);
}

// Whether operators that are linked apart take this type, too.
bool IsApart(OpType op, DataType type) {
  const std::span<const CpuOp> ops = ApartOps();
  return std::any_of(ops.begin(), ops.end(), [&](const CpuOp& apart) {
    return apart.type == op && apart.types.Contains(type);
  });
}

TEST(CpuOps, AreListedOnce) {
  std::set<std::string> names;
  for (const CpuOp& op : CpuOps()) EXPECT_TRUE(names.insert(NameOf(op)).second) << NameOf(op);
}

TEST(CpuOps, RefuseTypesThatAreNotListed) {
  for (const CpuOp& op : CpuOps()) {
    if (op.type == OpType::kCALL_ONCE || op.type == OpType::kVAR_HANDLE) continue;  // no data
    for (const DataType type : kTypes) {
      if (op.types.Contains(type) || IsApart(op.type, type)) continue;
      Graph graph;
      graph.tensors.resize(4);
      for (Tensor& tensor : graph.tensors) {
        tensor.name = "t";
        tensor.type = type;
      }
      Node node;
      node.type = op.type;
      node.custom_name = op.custom_name;
      node.inputs = {0, 1, 2};
      node.outputs = {3};
      graph.nodes.push_back(node);
      const auto executor = PrepareCpuNode(graph, graph.nodes[0], CpuFeatures{});
      EXPECT_EQ(executor.code(), StatusCode::kUnsupported) << NameOf(op);
      EXPECT_THAT(executor.status().message(),
                  HasSubstr(std::string("'t' has type ") + DataTypeName(type) + ", must be "));
    }
  }
}

// ---- A model for each type ----------------------------------------------------------------------

// One operator whose data is of `type`.
class OneOperator {
 public:
  OneOperator(const CpuOp& op, DataType type) : op_(op), type_(type) { Build(); }

  // That it runs, on inputs of zeros; why not otherwise.
  Status Run() const {
    auto model = Model::FromBuffer(m_.Build());
    if (!model.ok()) return model.status();
    const auto interpreter = Interpreter::Create(*std::move(model), {.threads = 1});
    return interpreter.ok() ? (*interpreter)->Invoke() : interpreter.status();
  }

 private:
  bool IsQuantized() const { return IsByteType(type_) || type_ == DataType::kInt16; }

  void SetType(int32_t tensor, DataType type) {
    m_.tensor(tensor).type = type;
    m_.tensor(tensor).quantization = {};
    if (IsByteType(type) || type == DataType::kInt16) Quantize(m_, tensor, 0.5f, 0);
  }
  int32_t Data(Shape shape) {
    const int32_t tensor = m_.Input(std::move(shape));
    SetType(tensor, type_);
    return tensor;
  }
  // All bytes are 1, so no element is 0.
  int32_t Ones(DataType type, Shape shape) {
    const size_t bytes = static_cast<size_t>(ElementCount(shape)) * DataTypeSize(type);
    const int32_t tensor = m_.Constant(type, std::move(shape), std::vector<uint8_t>(bytes, 1));
    SetType(tensor, type);
    return tensor;
  }
  int32_t Integers(const std::vector<int32_t>& values) {
    return m_.Integers({static_cast<int32_t>(values.size())}, values);
  }

  int32_t Output(DataType type, std::vector<int32_t> inputs, OpOptions options = {}) {
    const int32_t y = m_.Node(op_.type, std::move(inputs), {1}, std::move(options));
    m_.graph().nodes.back().custom_name = op_.custom_name;
    SetType(y, type);
    m_.Output(y);
    return y;
  }
  int32_t Same(std::vector<int32_t> inputs, OpOptions options = {}) {
    return Output(type_, std::move(inputs), std::move(options));
  }
  // Bytes whose scale the operator prescribes; the zero point is 0 or as far up as for int8.
  void SameWithScale(float scale, int32_t zero_point) {
    const int32_t y = Same(
        {Data({1, 4})}, op_.type == OpType::kSOFTMAX ? OpOptions{SoftmaxOptions{}} : OpOptions{});
    if (op_.type == OpType::kL2_NORMALIZATION) Last().options = ElementwiseOptions{};
    if (!IsQuantized()) return;
    Quantize(m_, y, scale, zero_point + (type_ == DataType::kUInt8 ? 128 : 0));
  }
  Node& Last() { return m_.graph().nodes.back(); }
  void AddOutput(DataType type, Shape shape) {
    const int32_t tensor = m_.Activation(std::move(shape));
    SetType(tensor, type);
    Last().outputs.push_back(tensor);
  }

  void Build();
  void BuildFilter();
  void BuildRecurrent();
  void BuildDecoder();
  void BuildVariable();

  const CpuOp& op_;
  const DataType type_;
  ModelBuilder m_;
  std::vector<uint8_t> custom_options_;
};

void OneOperator::BuildFilter() {
  const DataType weights = type_ == DataType::kInt16 ? DataType::kInt8 : type_;
  if (op_.type == OpType::kFULLY_CONNECTED) {
    Same({Data({1, 4}), Ones(weights, {3, 4})}, FullyConnectedOptions{});
  } else if (op_.type == OpType::kTRANSPOSE_CONV) {
    Same({Integers({1, 4, 4, 3}), Ones(weights, {3, 2, 2, 2}), Data({1, 4, 4, 2})},
         Conv2DOptions{});
  } else {
    const bool is_depthwise = op_.type == OpType::kDEPTHWISE_CONV_2D;
    Same({Data({1, 4, 4, 2}), Ones(weights, is_depthwise ? Shape{1, 2, 2, 2} : Shape{3, 2, 2, 2})},
         Conv2DOptions{});
  }
}

void OneOperator::BuildRecurrent() {
  const auto state = [this](DataType type, Shape shape, float scale) {
    const int32_t tensor = m_.Activation(std::move(shape));
    SetType(tensor, type);
    Quantize(m_, tensor, scale, 0);
    m_.tensor(tensor).is_variable = true;
    return tensor;
  };
  if (op_.type == OpType::kSVDF) {
    const int32_t x = Data({1, 4});
    Same({x, Ones(DataType::kInt8, {6, 4}), Ones(DataType::kInt16, {6, 5}), -1,
          state(DataType::kInt16, {1, 30}, 0.5f)},
         SvdfOptions{.rank = 2});
    return;
  }
  std::vector<int32_t> inputs(24, -1);
  inputs[0] = Data({1, 2, 4});
  for (size_t gate = 0; gate < 4; ++gate) {
    inputs[1 + gate] = Ones(DataType::kInt8, {3, 4});
    inputs[5 + gate] = Ones(DataType::kInt8, {3, 3});
    inputs[12 + gate] = Integers({1, 2, 3});
  }
  inputs[18] = state(DataType::kInt8, {1, 3}, 0.5f);
  inputs[19] = state(DataType::kInt16, {1, 3}, 1.0f / 2048);
  Same(inputs, LstmOptions{});
  const int32_t hidden = m_.Activation({});
  Last().intermediates = {-1, -1, -1, -1, hidden};
}

void OneOperator::BuildDecoder() {
  flexbuffers::Builder options;
  const bool is_posenet = std::string(op_.custom_name) == "PosenetDecoderOp";
  options.Map([&] {
    options.Int("max_detections", 2);
    if (is_posenet) {
      options.Int("stride", 16);
      options.Double("score_threshold", 0.5);
      options.Double("nms_radius", 20);
      return;
    }
    options.Int("max_classes_per_detection", 1);
    options.Int("num_classes", 2);
    for (const char* name :
         {"nms_score_threshold", "nms_iou_threshold", "y_scale", "x_scale", "h_scale", "w_scale"}) {
      options.Double(name, 0.5);
    }
  });
  options.Finish();
  custom_options_ = options.GetBuffer();
  if (is_posenet) {
    Output(DataType::kFloat32, {Data({1, 5, 5, 17}), Data({1, 5, 5, 34}), Data({1, 5, 5, 64})});
  } else {
    Output(DataType::kFloat32, {Data({1, 6, 4}), Data({1, 6, 2}), Data({6, 4})});
  }
  Last().custom_options = custom_options_;
  for (int i = 0; i < 3; ++i) AddOutput(DataType::kFloat32, {});
}

void OneOperator::BuildVariable() {
  const int32_t handle = m_.Node(OpType::kVAR_HANDLE, {}, {}, VarHandleOptions{"", "v"});
  SetType(handle, DataType::kResource);
  m_.Node(OpType::kASSIGN_VARIABLE, {handle, Data({1, 2})}, {});
  Last().outputs.clear();
  const int32_t y = m_.Node(OpType::kREAD_VARIABLE, {handle}, {1, 2});
  SetType(y, type_);
  m_.Output(y);
}

void OneOperator::Build() {
  const auto scalar = [this](int32_t value) { return m_.Integers({}, {value}); };
  switch (op_.type) {
    case OpType::kADD:
    case OpType::kDIV:
    case OpType::kMUL:
    case OpType::kSUB:
      Same({Data({1, 4}), Ones(type_, {1, 4})}, ElementwiseOptions{.pot_scale_int16 = false});
      return;
    case OpType::kFLOOR_DIV:
    case OpType::kMAXIMUM:
    case OpType::kMINIMUM:
    case OpType::kPRELU:
    case OpType::kSQUARED_DIFFERENCE:
      Same({Data({1, 4}), Ones(type_, {1, 4})});
      return;
    case OpType::kEQUAL:
    case OpType::kGREATER:
    case OpType::kGREATER_EQUAL:
    case OpType::kLESS:
    case OpType::kLESS_EQUAL:
    case OpType::kNOT_EQUAL:
      Output(DataType::kBool, {Data({1, 4}), Ones(type_, {1, 4})});
      return;
    case OpType::kEXP:
    case OpType::kHARD_SWISH:
    case OpType::kRELU:
    case OpType::kRELU6:
    case OpType::kRELU_N1_TO_1:
    case OpType::kRSQRT:
    case OpType::kSQRT:
      Same({Data({1, 4})});
      return;
    case OpType::kLEAKY_RELU:
      Same({Data({1, 4})}, LeakyReluOptions{0.1f});
      return;
    case OpType::kLOGISTIC:
    case OpType::kSOFTMAX:
      return SameWithScale(1.0f / 256, -128);
    case OpType::kTANH:
    case OpType::kL2_NORMALIZATION:
      return SameWithScale(1.0f / 128, 0);
    case OpType::kLOG_SOFTMAX:
      return SameWithScale(1.0f / 16, 127);
    case OpType::kMEAN:
    case OpType::kREDUCE_MAX:
    case OpType::kREDUCE_MIN:
    case OpType::kSUM:
      Same({Data({2, 4}), Integers({0})}, ReducerOptions{});
      return;
    case OpType::kARG_MAX:
    case OpType::kARG_MIN:
      Output(DataType::kInt32, {Data({2, 4}), scalar(1)});
      return;
    case OpType::kAVERAGE_POOL_2D:
    case OpType::kMAX_POOL_2D:
      Same({Data({1, 4, 4, 2})}, Pool2DOptions{.filter_h = 2, .filter_w = 2});
      return;
    case OpType::kCONV_2D:
    case OpType::kDEPTHWISE_CONV_2D:
    case OpType::kFULLY_CONNECTED:
    case OpType::kTRANSPOSE_CONV:
      return BuildFilter();
    case OpType::kBATCH_MATMUL:
      Same({Data({2, 3}), Data({3, 4})}, BatchMatMulOptions{});
      return;
    case OpType::kRESIZE_BILINEAR:
    case OpType::kRESIZE_NEAREST_NEIGHBOR:
      Same({Data({1, 2, 2, 1}), Integers({3, 3})}, ResizeOptions{});
      return;
    case OpType::kCAST:
      Output(DataType::kInt32, {Data({1, 4})});
      return;
    case OpType::kDEQUANTIZE:
      Output(DataType::kFloat32, {Data({1, 4})});
      return;
    case OpType::kQUANTIZE:
      Data({1, 4});
      if (type_ == DataType::kInt32) Quantize(m_, 0, 0.5f, 0);
      Output(DataType::kInt8, {0});
      return;
    case OpType::kSHAPE:
      Output(DataType::kInt32, {Data({1, 4})});
      return;
    case OpType::kBATCH_TO_SPACE_ND:
      Same({Data({4, 2, 2, 1}), Integers({2, 2}), m_.Integers({2, 2}, {0, 0, 0, 0})});
      return;
    case OpType::kSPACE_TO_BATCH_ND:
      Same({Data({1, 4, 4, 1}), Integers({2, 2}), m_.Integers({2, 2}, {0, 0, 0, 0})});
      return;
    case OpType::kDEPTH_TO_SPACE:
    case OpType::kSPACE_TO_DEPTH:
      Same({Data({1, 2, 2, 4})}, BlockOptions{2});
      return;
    case OpType::kCONCATENATION:
      Same({Data({1, 4}), Data({1, 4})}, AxisOptions{});
      return;
    case OpType::kPACK:
      Same({Data({1, 4}), Data({1, 4})}, AxisOptions{.count = 2});
      return;
    case OpType::kEXPAND_DIMS:
      Same({Data({1, 4}), scalar(0)});
      return;
    case OpType::kGATHER:
      Same({Data({2, 4}), Integers({1})}, AxisOptions{});
      return;
    case OpType::kGATHER_ND:
      Same({Data({2, 4}), m_.Integers({1, 1}, {1})});
      return;
    case OpType::kMIRROR_PAD:
      Same({Data({4}), m_.Integers({1, 2}, {1, 1})}, MirrorPadOptions{});
      return;
    case OpType::kPAD:
      Same({Data({4}), m_.Integers({1, 2}, {1, 1})});
      return;
    case OpType::kPADV2:
      Same({Data({4}), m_.Integers({1, 2}, {1, 1}), Ones(type_, {1})});
      return;
    case OpType::kRESHAPE:
      Same({Data({4})}, ReshapeOptions{{2, 2}});
      return;
    case OpType::kSLICE:
      Same({Data({4}), Integers({1}), Integers({2})});
      return;
    case OpType::kSPLIT:
      Same({scalar(0), Data({4})}, SplitOptions{1});
      return;
    case OpType::kSPLIT_V:
      Same({Data({4}), Integers({4}), scalar(0)}, SplitOptions{1});
      return;
    case OpType::kSQUEEZE:
      Same({Data({1, 4})}, SqueezeOptions{});
      return;
    case OpType::kSTRIDED_SLICE:
      Same({Data({4}), Integers({0}), Integers({4}), Integers({2})}, StridedSliceOptions{});
      return;
    case OpType::kTILE:
      Same({Data({4}), Integers({2})});
      return;
    case OpType::kTRANSPOSE:
      Same({Data({2, 4}), Integers({1, 0})});
      return;
    case OpType::kUNPACK:
      Same({Data({1, 4})}, AxisOptions{.count = 1});
      return;
    case OpType::kASSIGN_VARIABLE:
    case OpType::kREAD_VARIABLE:
      return BuildVariable();
    case OpType::kSVDF:
    case OpType::kUNIDIRECTIONAL_SEQUENCE_LSTM:
      return BuildRecurrent();
    case OpType::kCUSTOM:
      return BuildDecoder();
    default:
      ADD_FAILURE() << NameOf(op_) << " has no model here";
  }
}

TEST(CpuOps, RunWithEveryTypeThatIsListed) {
  for (const CpuOp& op : CpuOps()) {
    for (const DataType type : kTypes) {
      if (!op.types.Contains(type)) continue;
      const Status status = OneOperator(op, type).Run();
      EXPECT_TRUE(status.ok()) << NameOf(op) << " of " << DataTypeName(type) << ": "
                               << status.message();
    }
  }
}

}  // namespace
}  // namespace atollrt
