// SPDX-License-Identifier: Apache-2.0
//
// Partitioned models on the emulated device. That the bytes are those of the CPU, whatever the
// partitioner and the compiler decide, is the subject of tests/integration/random_graphs_test.cc.
#include "delegate/delegate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "delegate/lowering.h"
#include "runtime/interpreter.h"
#include "runtime/plan/partition_report.h"
#include "runtime/shapes/shape_inference.h"
#include "tests/delegate/emulated_delegate.h"
#include "tests/support/model_builder.h"
#include "tests/support/rng.h"
#include "tests/support/seeded_run.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

// By either operator; the values keep their quantization.
int32_t Resized(ModelBuilder& m, Rng& rng, int32_t x, int32_t height, int32_t width) {
  const OpType type =
      rng.Pick<OpType>({OpType::kRESIZE_BILINEAR, OpType::kRESIZE_NEAREST_NEIGHBOR});
  ResizeOptions options;
  options.align_corners = rng.OneIn(3);
  options.half_pixel_centers = !options.align_corners && rng.OneIn(2);
  Shape shape = m.tensor(x).shape;
  shape[1] = height;
  shape[2] = width;
  const int32_t y = m.Node(type, {x, m.Integers({2}, {height, width})}, shape, options);
  m.tensor(y).quantization = m.tensor(x).quantization;
  return y;
}

// One operator that moves [1, 8, 8, 12], between convolutions so that it is worth the device's
// while; the result is [1, 8, 8, 12] again.
int32_t RandomMove(ModelBuilder& m, Rng& rng, int32_t x) {
  const auto conv = [&m](int32_t tensor) { return m.Conv2D(tensor, {.channels = 12}); };
  const auto flat_to_image = [&m](int32_t tensor) { return m.Reshape(tensor, {1, 8, 8, 12}); };
  const auto two_parts = [&m](int32_t first, const Shape& shape) {
    const int32_t second = m.Activation(shape);
    m.graph().nodes.back().outputs.push_back(second);
    return m.Add(second, first);
  };
  switch (rng.Int(0, 10)) {
    case 0:
      return conv(m.Node(OpType::kTRANSPOSE, {x, m.Integers({4}, {0, 2, 1, 3})}, {1, 8, 8, 12}));
    case 1:
      return conv(flat_to_image(
          m.Node(OpType::kTRANSPOSE, {x, m.Integers({4}, {3, 0, 2, 1})}, {12, 1, 8, 8})));
    case 2: {
      const int32_t part =
          m.Node(OpType::kSLICE, {x, m.Integers({4}, {0, 1, 0, 4}), m.Integers({4}, {1, 4, 8, 6})},
                 {1, 4, 8, 6});
      return conv(m.Node(OpType::kTILE, {part, m.Integers({4}, {1, 2, 1, 2})}, {1, 8, 8, 12}));
    }
    case 3: {
      const int32_t even = m.Node(
          OpType::kSTRIDED_SLICE,
          {x, m.Integers({3}, {0, 0, 1}), m.Integers({3}, {1, 8, 8}), m.Integers({3}, {1, 1, 2})},
          {1, 8, 4, 12}, StridedSliceOptions{});
      return conv(m.Concatenation({even, even}, 2));
    }
    case 4: {
      const int32_t deep =
          m.Node(OpType::kSPACE_TO_DEPTH, {x}, {1, 4, 4, 48}, BlockOptions{.block_size = 2});
      const int32_t y = m.Conv2D(deep, {.channels = 48});
      return m.Node(OpType::kDEPTH_TO_SPACE, {y}, {1, 8, 8, 12}, BlockOptions{.block_size = 2});
    }
    case 5: {
      const int32_t half = m.Node(OpType::kSPLIT, {m.Integers({}, {3}), x}, {1, 8, 8, 6},
                                  SplitOptions{.num_splits = 2});
      return conv(two_parts(half, {1, 8, 8, 6}));
    }
    case 6: {
      const int32_t half =
          m.Node(OpType::kSPLIT_V, {x, m.Integers({2}, {4, -1}), m.Integers({}, {-3})},
                 {1, 4, 8, 12}, SplitOptions{.num_splits = 2});
      const int32_t sum = two_parts(half, {1, 4, 8, 12});
      return conv(m.Concatenation({sum, sum}, 1));
    }
    case 7: {
      const int32_t pair =
          m.Node(OpType::kPACK, {x, conv(x)}, {1, 8, 2, 8, 12}, AxisOptions{.axis = 2, .count = 2});
      const int32_t first =
          m.Node(OpType::kUNPACK, {pair}, {1, 8, 8, 12}, AxisOptions{.axis = 2, .count = 2});
      return two_parts(first, {1, 8, 8, 12});
    }
    case 8: {
      const int32_t value = m.Constant(DataType::kInt8, {}, {7});
      m.tensor(value).quantization = m.tensor(x).quantization;
      const int32_t paddings = m.Integers({4, 2}, {0, 0, 1, 1, 1, 1, 0, 0});
      const int32_t wide = m.Node(OpType::kPADV2, {x, paddings, value}, {1, 10, 10, 12});
      return m.Conv2D(wide, {.channels = 12, .kernel = 3, .padding = Padding::kValid});
    }
    case 9: {
      const MirrorPadOptions options{
          .mode = rng.Pick({MirrorPadMode::kReflect, MirrorPadMode::kSymmetric})};
      const int32_t paddings = m.Integers({4, 2}, {0, 0, 2, 0, 1, 3, 0, 0});
      const int32_t wide = m.Node(OpType::kMIRROR_PAD, {x, paddings}, {1, 10, 12, 12}, options);
      return m.Node(OpType::kSLICE,
                    {conv(wide), m.Integers({4}, {0, 1, 2, 0}), m.Integers({4}, {1, 8, 8, 12})},
                    {1, 8, 8, 12});
    }
    default:
      return conv(
          flat_to_image(m.Node(OpType::kEXPAND_DIMS, {x, m.Integers({}, {1})}, {1, 1, 8, 8, 12})));
  }
}

TEST(DeviceDelegate, MovesBytesAsTheCpuDoes) {
  Rng seeds(TestSeed(17));
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(8 << 20);
  int moves = 0;
  int moves_on_device = 0;
  for (int i = 0; i < 60 && !testing::Test::HasFailure(); ++i) {
    const uint64_t seed = seeds.Next();
    SCOPED_TRACE("model of seed " + std::to_string(seed));
    Rng rng(seed);
    ModelBuilder m(seed);
    int32_t x = m.Conv2D(m.Input({1, 8, 8, 12}), {.channels = 12});
    for (int k = 0; k < 4; ++k) x = RandomMove(m, rng, x);
    m.Output(x);
    const std::shared_ptr<const Model> model = m.Load();
    ASSERT_NE(model, nullptr);
    const std::vector<Bytes> want = RunWithSeed(MakeInterpreter(model, nullptr).get(), seed);
    const std::unique_ptr<Interpreter> interpreter = MakeInterpreter(model, delegate.get());
    ASSERT_NE(interpreter, nullptr);
    EXPECT_EQ(RunWithSeed(interpreter.get(), seed), want);
    for (size_t node = 0; node < model->graph().nodes.size(); ++node) {
      if (FindDeviceOp(model->graph().nodes[node].type)->lower != LowerMove) continue;
      ++moves;
      moves_on_device += interpreter->placements()[node].reason.empty() ? 1 : 0;
    }
  }
  EXPECT_GT(moves, 200);
  EXPECT_EQ(moves_on_device, moves);
}

TEST(DeviceDelegate, GivesTheCpusBytesInPartsOfChannels) {
  ModelBuilder m;
  int32_t x = m.Conv2D(m.Input({1, 5, 5, 64}), {.channels = 100, .kernel = 3, .stride = 2});
  x = m.Conv2D(x, {.channels = 200, .kernel = 3});
  m.Output(m.FullyConnected(m.Reshape(x, {1, 1800}), 333));
  const std::shared_ptr<const Model> model = m.Load();
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(64 << 10);
  const std::unique_ptr<Interpreter> interpreter = MakeInterpreter(model, delegate.get());
  ASSERT_EQ(interpreter->partitions().size(), 1u);
  EXPECT_EQ(interpreter->partitions()[0].nodes.size(), 4u);
  EXPECT_THAT(interpreter->partitions()[0].report->note, HasSubstr("parts of its output channels"));
  for (const uint64_t seed : {1u, 2u}) {
    EXPECT_EQ(RunWithSeed(interpreter.get(), seed),
              RunWithSeed(MakeInterpreter(model, nullptr).get(), seed));
  }
}

// Every reduction of every set of axes of five.
TEST(DeviceDelegate, ReducesAnyAxesOnTheDevice) {
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(8 << 20);
  const Shape shape = {2, 3, 2, 5, 4};
  for (const OpType type :
       {OpType::kMEAN, OpType::kSUM, OpType::kREDUCE_MAX, OpType::kREDUCE_MIN}) {
    for (uint32_t set = 0; set < 32; ++set) {
      std::vector<int32_t> axes;
      for (int32_t axis = 0; axis < 5; ++axis) {
        if ((set >> axis & 1) != 0) axes.push_back(axis);
      }
      SCOPED_TRACE(OpTypeName(type) + " of axes " + std::to_string(set));
      ModelBuilder m;
      const int32_t list = m.Integers({static_cast<int32_t>(axes.size())}, axes);
      m.Output(m.Node(type, {m.Input(shape), list}, {}, ReducerOptions{.keep_dims = set % 3 == 0}));
      const std::shared_ptr<const Model> model = m.Load();
      const std::unique_ptr<Interpreter> interpreter = MakeInterpreter(model, delegate.get());
      ASSERT_NE(interpreter, nullptr);
      EXPECT_EQ(interpreter->partitions().size(), 1u);
      EXPECT_EQ(RunWithSeed(interpreter.get(), set),
                RunWithSeed(MakeInterpreter(model, nullptr).get(), set));
    }
  }
}

// Images of 58 KiB on a device with 24: what passes between the operators is never whole.
TEST(DeviceDelegate, ResizesAndNormalisesInBandsOfRows) {
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(24 << 10);
  Rng rng(TestSeed(19));
  for (int i = 0; i < 40 && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("model " + std::to_string(i));
    ModelBuilder m;
    int32_t x = Resized(m, rng, m.Input({1, 20, 20, 16}), 60, 60);
    if (rng.OneIn(2)) x = m.Softmax(x);
    if (rng.OneIn(2)) x = m.L2Normalization(x);
    if (rng.OneIn(2)) {
      x = m.Mean(x, {rng.Int32(2, 3)});
    } else {
      const OpType type = rng.Pick<OpType>({OpType::kREDUCE_MAX, OpType::kREDUCE_MIN});
      const Quantization quantization = m.tensor(x).quantization;
      x = m.Node(type, {x, m.Integers({1}, {3})}, {1, 60, 60, 1},
                 ReducerOptions{.keep_dims = true});
      m.tensor(x).quantization = quantization;
    }
    m.Output(Resized(m, rng, x, 17, 9));
    if (i % 2 == 1) {
      for (Tensor& tensor : m.graph().tensors) {
        if (tensor.type != DataType::kInt8) continue;
        tensor.type = DataType::kUInt8;
        tensor.quantization.zero_points[0] += 128;
      }
    }
    const std::shared_ptr<const Model> model = m.Load();
    const std::unique_ptr<Interpreter> interpreter = MakeInterpreter(model, delegate.get());
    ASSERT_NE(interpreter, nullptr);
    ASSERT_EQ(interpreter->partitions().size(), 1u);
    EXPECT_THAT(interpreter->partitions()[0].report->note, HasSubstr("bands of rows"));
    const auto seed = static_cast<uint64_t>(i);
    EXPECT_EQ(RunWithSeed(interpreter.get(), seed),
              RunWithSeed(MakeInterpreter(model, nullptr).get(), seed));
  }
}

// An encoder and decoder whose middle is never on chip as a whole.
TEST(DeviceDelegate, ComputesTransposedConvolutionsInBands) {
  ModelBuilder m;
  int32_t x = m.Conv2D(m.Input({1, 64, 24, 3}), {.channels = 32, .kernel = 3, .stride = 2});
  x = m.Conv2D(x, {.channels = 64, .kernel = 3, .stride = 2});
  x = m.TransposeConv(x, {.channels = 32, .kernel = 4, .stride = 2}, 32, 12);
  x = m.TransposeConv(m.Relu(x), {.channels = 16, .kernel = 3, .stride = 2}, 64, 24);
  m.Output(m.Conv2D(x, {.channels = 2}));
  const std::shared_ptr<const Model> model = m.Load();
  ASSERT_NE(model, nullptr);
  const std::vector<Bytes> want = RunWithSeed(MakeInterpreter(model, nullptr).get(), 1);
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(88 << 10);
  const std::unique_ptr<Interpreter> interpreter = MakeInterpreter(model, delegate.get());
  ASSERT_EQ(interpreter->partitions().size(), 1u);
  EXPECT_EQ(interpreter->partitions()[0].nodes.size(), 6u);
  EXPECT_THAT(interpreter->partitions()[0].report->note, HasSubstr("bands of rows"));
  EXPECT_EQ(RunWithSeed(interpreter.get(), 1), want);
  EXPECT_EQ(static_cast<int64_t>(interpreter->last_cost().device_cycles),
            interpreter->partitions()[0].report->estimated_cycles);
}

// Which the kernels of both sides compute in another way.
TEST(DeviceDelegate, TakesStridesFarBeyondTheFilter) {
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(8 << 20);
  for (const int32_t stride : {7, 8, 31, 33, 60}) {
    ModelBuilder m(static_cast<uint64_t>(stride));
    m.Output(m.TransposeConv(m.Input({1, 3, 2, 5}), {.channels = 4, .kernel = 2, .stride = stride},
                             3 * stride, 2 * stride));
    const std::shared_ptr<const Model> model = m.Load();
    const std::vector<Bytes> want = RunWithSeed(MakeInterpreter(model, nullptr).get(), 1);
    const std::unique_ptr<Interpreter> interpreter = MakeInterpreter(model, delegate.get());
    EXPECT_EQ(interpreter->partitions().size(), 1u);
    EXPECT_EQ(RunWithSeed(interpreter.get(), 1), want) << "stride " << stride;
  }
}

// Multipliers beyond 2^127, of which only the exponent's remainder counts.
TEST(DeviceDelegate, TakesScalesFromOneEndOfFloat32ToTheOther) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 4, 4, 2});
  const int32_t y = m.Conv2D(x, {.channels = 3});
  m.tensor(x).quantization.scales = {1e30f};
  m.tensor(y).quantization.scales = {1e-30f};
  m.Output(y);
  const std::shared_ptr<const Model> model = m.Load();
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(8 << 20);
  const std::unique_ptr<Interpreter> interpreter = MakeInterpreter(model, delegate.get());
  EXPECT_EQ(interpreter->partitions().size(), 1u);
  EXPECT_EQ(RunWithSeed(interpreter.get(), 1),
            RunWithSeed(MakeInterpreter(model, nullptr).get(), 1));
}

// ---- Two tensors, parts and bands of rows -------------------------------------------------------

// Any operator of two tensors.
int32_t RandomPair(ModelBuilder& m, Rng& rng, int32_t a, int32_t b, bool is_unsigned) {
  Shape shape;
  EXPECT_TRUE(BroadcastShapes(m.tensor(a).shape, m.tensor(b).shape, &shape));
  const OpType type = rng.Pick({OpType::kADD, OpType::kSUB, OpType::kMUL, OpType::kMAXIMUM,
                                OpType::kMINIMUM, OpType::kPRELU, OpType::kSQUARED_DIFFERENCE});
  // TensorFlow Lite has no uint8 form; slopes must not enlarge the input.
  if (type == OpType::kSQUARED_DIFFERENCE && is_unsigned) return m.Add(a, b);
  if (type == OpType::kPRELU && m.tensor(a).shape != shape) return m.Add(a, b);
  const bool has_options = type == OpType::kADD || type == OpType::kSUB || type == OpType::kMUL;
  ElementwiseOptions options;
  if (rng.OneIn(3)) options.activation = Activation::kRelu6;
  return m.Node(type, {a, b}, shape, has_options ? OpOptions(options) : OpOptions());
}

int32_t Slice(ModelBuilder& m, int32_t x, const std::vector<int32_t>& begin, const Shape& size) {
  return m.Node(OpType::kSLICE, {x, m.Integers({4}, begin), m.Integers({4}, size)}, size);
}

// An operand for an image that is as large as `x`, or repeats along some axes: a constant, or made
// from `x` on the device.
int32_t RandomOperand(ModelBuilder& m, Rng& rng, int32_t x) {
  const Shape shape = m.tensor(x).shape;
  const int32_t h = shape[1], w = shape[2], c = shape[3];
  switch (rng.Int(0, 9)) {
    case 0:
      return m.Constant({c});
    case 1:
      return m.Constant({});
    case 2:
      return m.Constant(rng.OneIn(2) ? Shape{h, 1, 1} : Shape{1, h, 1, 1});
    case 3:
      return m.Constant(rng.OneIn(2) ? Shape{h, w, c} : Shape{1, h, w, c});
    case 4:
      return m.Constant({w, 1});
    case 5:  // one row
      return Slice(m, x, {0, h / 2, 0, 0}, {1, 1, w, c});
    case 6:  // one column
      return Slice(m, x, {0, 0, w - 1, 0}, {1, h, 1, c});
    case 7:
      return m.Relu(Slice(m, x, {0, 1, 1, 0}, {1, 1, 1, c}));
    case 8:
      return m.Relu(x);
    default:
      return x;
  }
}

// Something of the shape of `x`, an image of even sides and channels, that works row by row.
int32_t RandomRowWork(ModelBuilder& m, Rng& rng, int32_t x, bool is_unsigned) {
  const Shape shape = m.tensor(x).shape;
  const int32_t h = shape[1], w = shape[2], c = shape[3];
  const auto second_output = [&m](const Shape& part) {
    const int32_t tensor = m.Activation(part);
    m.graph().nodes.back().outputs.push_back(tensor);
    return tensor;
  };
  switch (rng.Int(0, 9)) {
    case 0:
    case 1:
    case 2: {
      const int32_t other = RandomOperand(m, rng, x);
      return rng.OneIn(2) ? RandomPair(m, rng, x, other, is_unsigned)
                          : RandomPair(m, rng, other, x, is_unsigned);
    }
    case 3:
      return m.MaxPool(m.Pad(x, {0, 0, 2, 0, 1, 1, 0, 0}), {.size = 3, .stride = 1});
    case 4: {
      const Shape half{1, h, w, c / 2};
      const int32_t first =
          m.Node(OpType::kSPLIT, {m.Integers({}, {3}), x}, half, SplitOptions{.num_splits = 2});
      const int32_t second = second_output(half);
      return m.Concatenation({second, m.Relu(first)}, 3);
    }
    case 5: {
      const int32_t deep = m.Node(OpType::kSPACE_TO_DEPTH, {x}, {1, h / 2, w / 2, 4 * c},
                                  BlockOptions{.block_size = 2});
      return m.Node(OpType::kDEPTH_TO_SPACE, {m.Relu(deep)}, shape, BlockOptions{.block_size = 2});
    }
    case 6: {  // every second row, then both halves below each other
      const int32_t rows =
          m.Node(OpType::kSTRIDED_SLICE,
                 {x, m.Integers({2}, {0, 1}), m.Integers({2}, {1, h}), m.Integers({2}, {1, 2})},
                 {1, h / 2, w, c}, StridedSliceOptions{});
      return m.Concatenation({rows, m.Relu(rows)}, 1);
    }
    case 7: {  // wider by a constant part, and back
      const int32_t wide = m.Concatenation({m.Constant({1, h, w, 2}), x}, 3);
      return Slice(m, wide, {0, 0, 0, 1}, shape);
    }
    case 8: {
      const int32_t narrow = Slice(m, x, {0, 0, 1, 0}, {1, h, w / 2, c});
      return m.Node(OpType::kTILE, {narrow, m.Integers({4}, {1, 1, 2, 1})}, shape);
    }
    default:
      return m.Relu(x);
  }
}

// Every second activation gets a quantization of its own where operators allow that: between
// uint8 tensors, concatenations rescale.
void MakeUnsigned(ModelBuilder& m, Rng& rng) {
  for (Tensor& tensor : m.graph().tensors) {
    if (tensor.type != DataType::kInt8) continue;
    tensor.type = DataType::kUInt8;
    tensor.quantization.zero_points = {125};
  }
  for (const Node& node : m.graph().nodes) {
    if (node.type != OpType::kRELU || rng.OneIn(2)) continue;
    Tensor& tensor = m.tensor(node.outputs[0]);
    // Only if all readers are free to take any scale.
    bool is_free = true;
    for (const Node& reader : m.graph().nodes) {
      const bool reads =
          std::count(reader.inputs.begin(), reader.inputs.end(), node.outputs[0]) > 0;
      is_free = is_free && (!reads || reader.type == OpType::kCONCATENATION ||
                            reader.type == OpType::kADD || reader.type == OpType::kRELU);
    }
    if (is_free) tensor.quantization = {.scales = {1.0f / 11}, .zero_points = {100}};
  }
}

// Wide images between small ones: on a chip with room for a few rows of them only, bands must give
// the bytes of the CPU, as the whole images do on a roomy one.
TEST(DeviceDelegate, ComputesInBandsOfRowsWhatTheCpuComputes) {
  Rng seeds(TestSeed(23));
  const std::unique_ptr<DeviceDelegate> roomy = DelegateWith(8 << 20);
  const std::unique_ptr<DeviceDelegate> tight = DelegateWith(28 << 10);
  const std::unique_ptr<DeviceDelegate> middling = DelegateWith(44 << 10);
  int nodes = 0, on_roomy = 0, banded = 0;
  for (int i = 0; i < 200 && !testing::Test::HasFailure(); ++i) {
    const uint64_t seed = seeds.Next();
    SCOPED_TRACE("model of seed " + std::to_string(seed));
    Rng rng(seed);
    ModelBuilder m(seed);
    const bool is_unsigned = rng.OneIn(2);
    const int32_t small = m.Input({1, 32, 16, 4});
    int32_t x = is_unsigned ? m.Concatenation({small, small, m.Relu(small), small, small, small}, 3)
                            : m.Conv2D(small, {.channels = 24, .kernel = 3});
    for (int64_t k = rng.Int(1, 4); k > 0; --k) x = RandomRowWork(m, rng, x, is_unsigned);
    x = is_unsigned ? Slice(m, x, {0, 0, 0, 3}, {1, 32, 16, 4}) : m.Conv2D(x, {.channels = 4});
    m.Output(x);
    if (is_unsigned) MakeUnsigned(m, rng);
    const std::shared_ptr<const Model> model = m.Load();
    ASSERT_NE(model, nullptr);
    const std::unique_ptr<Interpreter> cpu = MakeInterpreter(model, nullptr);
    ASSERT_NE(cpu, nullptr);
    const std::vector<Bytes> want = RunWithSeed(cpu.get(), seed);
    for (DeviceDelegate* delegate : {roomy.get(), middling.get(), tight.get()}) {
      const std::unique_ptr<Interpreter> interpreter = MakeInterpreter(model, delegate);
      ASSERT_NE(interpreter, nullptr);
      EXPECT_EQ(RunWithSeed(interpreter.get(), seed), want);
      for (const NodePlacement& placement : interpreter->placements()) {
        if (delegate == roomy.get()) {
          ++nodes;
          on_roomy += placement.partition >= 0 ? 1 : 0;
          EXPECT_EQ(placement.reason, "");
        }
      }
      for (const Partition& partition : interpreter->partitions()) {
        banded += partition.report->note.find("bands of rows") != std::string::npos ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(on_roomy, nodes);
  EXPECT_GT(banded, 100);
}

// Scales may be anything that a float can be; instructions hold exponents of at most 127.
TEST(DeviceDelegate, ComputesWithMultipliersOfAnySize) {
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(8 << 20);
  const auto expect_cpus_bytes = [&](ModelBuilder& m, int32_t x, int32_t y) {
    m.tensor(x).quantization.scales = {2e19f};
    m.tensor(y).quantization.scales = {1e-30f};
    m.Output(y);
    const std::shared_ptr<const Model> model = m.Load();
    const std::vector<Bytes> want = RunWithSeed(MakeInterpreter(model, nullptr).get(), 1);
    const std::unique_ptr<Interpreter> interpreter = MakeInterpreter(model, delegate.get());
    EXPECT_EQ(interpreter->partitions().size(), 1u);
    EXPECT_EQ(RunWithSeed(interpreter.get(), 1), want);
  };
  {
    ModelBuilder m;
    const int32_t x = m.Input({1, 4, 4, 3});
    expect_cpus_bytes(m, x, m.Conv2D(x, {.channels = 4, .kernel = 3}));
  }
  {
    ModelBuilder m;
    const int32_t x = m.Input({1, 4, 4, 3});
    expect_cpus_bytes(m, x, m.DepthwiseConv2D(x, {.kernel = 3}));
  }
  {
    ModelBuilder m;
    const int32_t x = m.Input({1, 4, 4, 3});
    expect_cpus_bytes(m, x, m.Mean(x, {1, 2}));
  }
  for (const OpType type : {OpType::kMUL, OpType::kPRELU}) {
    ModelBuilder m;
    const int32_t x = m.Input({1, 4, 4, 3});
    const int32_t slopes = m.Constant({3});
    expect_cpus_bytes(m, x,
                      m.Node(type, {x, slopes}, {1, 4, 4, 3},
                             type == OpType::kMUL ? OpOptions(ElementwiseOptions{}) : OpOptions()));
  }
}

TEST(DeviceDelegate, EstimatesTheCyclesThatTheDeviceThenCounts) {
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(8 << 20);
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 16, 16, 3}), {.channels = 16, .kernel = 3, .stride = 2});
  m.Output(m.FullyConnected(m.AveragePool(m.DepthwiseConv2D(x, {.kernel = 3}), {}), 10));
  const std::unique_ptr<Interpreter> interpreter = MakeInterpreter(m.Load(), delegate.get());
  RunWithSeed(interpreter.get(), 1);
  RunWithSeed(interpreter.get(), 1);
  ASSERT_EQ(interpreter->partitions().size(), 1u);
  EXPECT_EQ(static_cast<int64_t>(interpreter->last_cost().device_cycles),
            interpreter->partitions()[0].report->estimated_cycles);
}

TEST(DeviceDelegate, SharesOneDeviceAmongInterpreters) {
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(24 << 10);
  ModelBuilder first(1);
  first.Output(first.FullyConnected(first.Input({1, 128}), 128));
  ModelBuilder second(2);
  second.Output(second.FullyConnected(second.Input({1, 128}), 128));
  const std::unique_ptr<Interpreter> a = MakeInterpreter(first.Load(), delegate.get());
  const std::unique_ptr<Interpreter> b = MakeInterpreter(second.Load(), delegate.get());
  const std::vector<Bytes> want_a = RunWithSeed(MakeInterpreter(first.Load(), nullptr).get(), 1);
  const std::vector<Bytes> want_b = RunWithSeed(MakeInterpreter(second.Load(), nullptr).get(), 1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(RunWithSeed(a.get(), 1), want_a);
    EXPECT_EQ(RunWithSeed(b.get(), 1), want_b);
  }
}

// What is on the device for one interpreter is there for all others of its model.
TEST(DeviceDelegate, CompilesAModelOnceForAllItsInterpreters) {
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(24 << 10);
  ModelBuilder m;
  m.Output(m.FullyConnected(m.Input({1, 128}), 128));  // 16 KiB of parameters
  const std::shared_ptr<const Model> model = m.Load();
  std::unique_ptr<Interpreter> first = MakeInterpreter(model, delegate.get());
  const std::vector<Bytes> want = RunWithSeed(first.get(), 1);
  const uint64_t uploaded = first->last_cost().bytes_to_device;
  RunWithSeed(first.get(), 1);
  const uint64_t resident = first->last_cost().bytes_to_device;
  ASSERT_GT(uploaded, resident + (16 << 10));
  std::unique_ptr<Interpreter> second = MakeInterpreter(model, delegate.get());
  EXPECT_EQ(first->partitions()[0].report, second->partitions()[0].report);
  EXPECT_EQ(RunWithSeed(second.get(), 1), want);
  EXPECT_EQ(second->last_cost().bytes_to_device, resident);
  first = nullptr;
  EXPECT_EQ(RunWithSeed(second.get(), 1), want);
  EXPECT_EQ(second->last_cost().bytes_to_device, resident);
  second = nullptr;
  EXPECT_EQ(RunWithSeed(MakeInterpreter(model, delegate.get()).get(), 1), want);
}

TEST(DeviceDelegate, CompilesAModelOnceForEachShape) {
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(8 << 20);
  ModelBuilder m;
  m.Output(m.Conv2D(m.Input({1, 8, 8, 3}), {.channels = 4, .kernel = 3}));
  const std::shared_ptr<const Model> model = m.Load();
  const InputShape shape = {.index = 0, .shape = {1, 16, 16, 3}};
  const InputShape other = {.index = 0, .shape = {1, 12, 16, 3}};
  const auto first = Model::WithInputShapes(model, {&shape, 1});
  const auto second = Model::WithInputShapes(model, {&shape, 1});
  const auto third = Model::WithInputShapes(model, {&other, 1});
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  EXPECT_EQ(*first, *second);
  EXPECT_NE(*first, *third);
  const auto report = [&](const std::shared_ptr<const Model>& of) {
    return MakeInterpreter(of, delegate.get())->partitions().at(0).report;
  };
  const std::unique_ptr<Interpreter> kept = MakeInterpreter(*first, delegate.get());
  EXPECT_EQ(report(*second), kept->partitions()[0].report);
  EXPECT_NE(report(*third), kept->partitions()[0].report);
}

TEST(DeviceDelegate, RefusesAFaultyModelAsTheCpuDoes) {
  ModelBuilder m;
  const int32_t y = m.Conv2D(m.Input({1, 4, 4, 2}), {.channels = 2});
  m.tensor(y).quantization = {};
  m.Output(y);
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(8 << 20);
  for (Delegate* each : {static_cast<Delegate*>(delegate.get()), static_cast<Delegate*>(nullptr)}) {
    const auto interpreter = Interpreter::Create(m.Load(), {.threads = 1, .delegate = each});
    EXPECT_EQ(interpreter.status().code(), StatusCode::kCorruptModel);
    EXPECT_THAT(interpreter.status().message(),
                HasSubstr("node 0 (CONV_2D) 't3': output 't3' has 0 scales"));
  }
}

}  // namespace
}  // namespace atollrt
