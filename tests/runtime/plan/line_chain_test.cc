// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/line_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/interpreter.h"
#include "runtime/kernels/depthwise/depthwise_conv2d.h"
#include "tests/runtime/kernels/random_conv.h"
#include "tests/runtime/kernels/random_pairs.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/model_builder.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Bytes = std::vector<uint8_t>;

// A convolution of random weights.
class Stage final : public LineRunner {
 public:
  // Of one image, whose sides and channels are those of `input`.
  Stage(Rng* rng, const ConvShape& input) {
    ConvShape s = RandomGeometry(rng, 1);
    s.batch = 1;
    s.input_h = input.output_h;
    s.input_w = input.output_w;
    s.input_c = input.output_c;
    is_depthwise_ = rng->OneIn(2);
    s.output_c = is_depthwise_ ? s.input_c * rng->Pick<int32_t>({1, 1, 1, 2})
                               : rng->Pick<int32_t>({3, 8, 16, 17, 32, 40});
    s.pad_top = rng->Int32(0, s.kernel_h / 2 * s.dilation_h);
    s.pad_left = rng->Int32(0, s.kernel_w / 2 * s.dilation_w);
    s.output_h = std::max((s.input_h + s.pad_top - 1) / s.stride_h + 1 - rng->Int32(0, 2), 1);
    s.output_w = std::max((s.input_w + s.pad_left - 1) / s.stride_w + 1 - rng->Int32(0, 2), 1);
    const int64_t depth = int64_t{s.kernel_h} * s.kernel_w * (is_depthwise_ ? 1 : s.input_c);
    Bytes weights(static_cast<size_t>(depth * s.output_c));
    rng->Fill(weights);
    const ByteType type = RandomType(rng);
    const std::vector<CpuFeatures> levels = AvailableCpuLevels();
    const CpuFeatures features = levels[static_cast<size_t>(rng->Int(0, std::ssize(levels) - 1))];
    const OutputStage output =
        RandomOutputStage(rng, s.output_c, static_cast<double>(depth) * 128 * 64);
    const auto params = [&](auto p) {
      p.shape = s;
      p.input_type = p.weight_type = type;
      p.input_zero_point = RandomZeroPoint(rng, type);
      p.weight_zero_point = RandomZeroPoint(rng, type);
      p.weights = weights.data();
      p.output = output;
      return p;
    };
    if (is_depthwise_) {
      depthwise_ = *DepthwiseConv2D::Prepare(params(DepthwiseConv2DParams()), features);
    } else {
      conv_ = *Conv2D::Prepare(params(Conv2DParams()), features);
    }
  }

  const ConvShape& shape() const override {
    return is_depthwise_ ? depthwise_.shape() : conv_.shape();
  }
  int64_t WeightBytes() const override { return 0; }
  const char* kernel_name() const override { return ""; }
  size_t LineScratchBytes() const override {
    return is_depthwise_ ? depthwise_.ScratchBytes(1) : conv_.ScratchBytes(1);
  }
  void RunLines(const LineWindow& input, LineRange lines, uint8_t* output,
                uint8_t* scratch) const override {
    is_depthwise_ ? depthwise_.RunLines(input, lines, output, scratch)
                  : conv_.RunLines(input, lines, output, scratch);
  }

  Bytes Run(const Bytes& input) const {
    Bytes output(static_cast<size_t>(shape().OutputBytes()));
    Bytes scratch(LineScratchBytes());
    is_depthwise_ ? depthwise_.Run(input.data(), output.data(), scratch.data(), nullptr)
                  : conv_.Run(input.data(), output.data(), scratch.data(), nullptr);
    return output;
  }

 private:
  bool is_depthwise_ = false;
  Conv2D conv_;
  DepthwiseConv2D depthwise_;
};

TEST(LineChain, EqualsItsStagesOneByOne) {
  Rng rng(TestSeed(1));
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(2), ThreadPool(3)};
  for (int i = 0; i < 300 && !testing::Test::HasFailure(); ++i) {
    std::vector<std::unique_ptr<Stage>> stages;
    // Large enough for several bands, now and then.
    ConvShape shape;
    shape.output_h = rng.Int32(1, 60);
    shape.output_w = rng.Pick<int32_t>({1, 5, rng.Int32(1, 40)});
    shape.output_c = rng.Pick<int32_t>({1, 3, 16, 24, 64, 130});
    std::vector<LineStage> line_stages;
    std::vector<PairTail> tails;
    tails.reserve(4);
    for (int stage = rng.Int32(2, 4); stage > 0; --stage) {
      stages.push_back(std::make_unique<Stage>(&rng, shape));
      shape = stages.back()->shape();
      line_stages.push_back({.runner = stages.back().get()});
      if (rng.OneIn(3)) line_stages.back().tail = &tails.emplace_back(RandomPairTail(&rng));
    }
    Bytes expected(static_cast<size_t>(stages[0]->shape().InputBytes()));
    rng.Fill(expected);
    GuardedBuffer input(expected.size(), rng.Pick({GuardedBuffer::kEnd, GuardedBuffer::kStart}));
    std::memcpy(input.data(), expected.data(), expected.size());
    std::vector<std::unique_ptr<GuardedBuffer>> others;
    std::vector<const uint8_t*> inputs = {input.data()};
    for (size_t k = 0; k < stages.size(); ++k) {
      expected = stages[k]->Run(expected);
      if (line_stages[k].tail == nullptr) continue;
      others.push_back(std::make_unique<GuardedBuffer>(
          expected.size(), rng.Pick({GuardedBuffer::kEnd, GuardedBuffer::kStart})));
      RandomBytes(&rng, others.back()->bytes());
      inputs.push_back(others.back()->data());
      expected = ReferenceTail(*line_stages[k].tail, expected, inputs.back());
    }

    LineChain chain(line_stages);
    ThreadPool* pool = &pools[rng.Int(0, 2)];
    GuardedBuffer output(expected.size(), GuardedBuffer::kEnd);
    GuardedBuffer scratch(AlignUp(chain.ScratchBytes(pool->threads()), 64), GuardedBuffer::kEnd);
    uint8_t* const outputs[] = {output.data()};
    ASSERT_TRUE(chain
                    .Invoke({.inputs = inputs,
                             .outputs = outputs,
                             .state = {},
                             .scratch = scratch.data(),
                             .pool = pool})
                    .ok());
    EXPECT_EQ(Bytes(output.data(), output.data() + output.size()), expected);
    EXPECT_TRUE(output.Intact());
    EXPECT_TRUE(scratch.Intact());
  }
}

// An inverted residual of an image that is large enough to be worth a chain.
struct Residual {
  explicit Residual(uint64_t seed) : builder(seed) {
    input = builder.Input({1, 64, 64, 16});
    const int32_t expanded = builder.Conv2D(input, {.channels = 64, .kernel = 1});
    const int32_t filtered = builder.DepthwiseConv2D(expanded, {.kernel = 3});
    const int32_t projected = builder.Conv2D(filtered, {.channels = 16, .kernel = 1});
    output = builder.Add(input, projected);
    builder.Output(output);
    in_between = {expanded, filtered};
  }
  ModelBuilder builder;
  int32_t input, output;
  std::vector<int32_t> in_between;
};

TEST(LineChain, NeedsNoMemoryForTheTensorsInBetween) {
  const Residual residual(1);
  const auto interpreter = Interpreter::Create(residual.builder.Load(), {.threads = 1});
  ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
  for (const int32_t tensor : residual.in_between) {
    EXPECT_THAT((*interpreter)->TensorBytes(tensor), IsEmpty());
  }
  const int64_t one = residual.builder.graph().tensors[residual.in_between[0]].byte_size();
  EXPECT_LT((*interpreter)->arena_bytes(), 2 * one);
}

TEST(LineChain, RunsNodeByNodeForListeners) {
  const Residual residual(2);
  const auto interpreter = Interpreter::Create(residual.builder.Load(), {.threads = 2});
  ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
  Interpreter& i = **interpreter;
  Rng(3).Fill(i.TensorBytes(residual.input));
  ASSERT_TRUE(i.Invoke().ok());
  const auto copy = [&](int32_t tensor) {
    const auto bytes = i.TensorBytes(tensor);
    return Bytes(bytes.begin(), bytes.end());
  };
  const Bytes chained = copy(residual.output);

  std::vector<int32_t> heard;
  i.SetTap([&](int32_t tensor) {
    heard.push_back(tensor);
    EXPECT_EQ(i.TensorBytes(tensor).size(),
              static_cast<size_t>(residual.builder.graph().tensors[tensor].byte_size()));
  });
  ASSERT_TRUE(i.Invoke().ok());
  EXPECT_EQ(heard.size(), 4u);
  EXPECT_EQ(heard[0], residual.in_between[0]);
  EXPECT_EQ(heard[1], residual.in_between[1]);
  EXPECT_EQ(copy(residual.output), chained);
  i.SetTap(nullptr);
  ASSERT_TRUE(i.Invoke().ok());
  EXPECT_EQ(copy(residual.output), chained);
}

// A convolution too small for a chain, then an ADD, which becomes its tail.
TEST(TailedFilter, EqualsConvolutionAndAdd) {
  for (const bool is_second : {false, true}) {
    for (const int threads : {1, 2}) {
      ModelBuilder builder(static_cast<uint64_t>(threads));
      const int32_t input = builder.Input({1, 9, 7, 24});
      const int32_t filtered = builder.Conv2D(input, {.channels = 24, .kernel = 3});
      const int32_t sum = is_second ? builder.Add(input, filtered) : builder.Add(filtered, input);
      builder.Output(builder.DepthwiseConv2D(sum, {.kernel = 3}));
      const auto interpreter = Interpreter::Create(builder.Load(), {.threads = threads});
      ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
      Interpreter& i = **interpreter;
      EXPECT_THAT(i.TensorBytes(filtered), IsEmpty());
      Rng(3).Fill(i.TensorBytes(input));
      ASSERT_TRUE(i.Invoke().ok());
      const auto copy = [&] {
        const auto bytes = i.TensorBytes(builder.graph().outputs[0]);
        return Bytes(bytes.begin(), bytes.end());
      };
      const Bytes together = copy();
      int heard = 0;
      i.SetTap([&](int32_t) { ++heard; });  // one by one from now on
      ASSERT_TRUE(i.Invoke().ok());
      EXPECT_EQ(heard, 3);
      EXPECT_EQ(copy(), together);
    }
  }
}

// What somebody else reads stays.
TEST(TailedFilter, LeavesAloneWhatIsAnOutput) {
  ModelBuilder builder(1);
  const int32_t input = builder.Input({1, 9, 7, 24});
  const int32_t filtered = builder.Conv2D(input, {.channels = 24, .kernel = 3});
  builder.Output(builder.Add(input, filtered));
  builder.Output(filtered);
  const auto interpreter = Interpreter::Create(builder.Load(), {.threads = 1});
  ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
  EXPECT_FALSE((*interpreter)->TensorBytes(filtered).empty());
}

// PAD, then a convolution of the padded image; the interpreter makes one of them.
TEST(PaddedFilter, EqualsPadAndConvolution) {
  for (const bool is_depthwise : {false, true}) {
    for (const int32_t stride : {1, 2}) {
      for (const int32_t pad : {0, 1, 3, 5}) {
        ModelBuilder builder(static_cast<uint64_t>(pad + 10 * stride));
        const int32_t input = builder.Input({1, 13, 11, 8});
        const int32_t padded = builder.Pad(input, {0, 0, pad, pad / 2, pad / 2, pad, 0, 0});
        const ModelBuilder::Filter filter = {
            .channels = 12, .kernel = 3, .stride = stride, .padding = Padding::kValid};
        const int32_t filtered =
            is_depthwise ? builder.DepthwiseConv2D(padded, filter) : builder.Conv2D(padded, filter);
        // Another one after it, which has no PAD.
        const int32_t output = builder.DepthwiseConv2D(filtered, {.kernel = 3});
        builder.Output(output);
        const auto interpreter = Interpreter::Create(builder.Load(), {.threads = 1});
        ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
        Interpreter& i = **interpreter;
        EXPECT_THAT(i.TensorBytes(padded), IsEmpty());
        Rng(3).Fill(i.TensorBytes(input));
        ASSERT_TRUE(i.Invoke().ok());
        const auto copy = [&] {
          const auto bytes = i.TensorBytes(output);
          return Bytes(bytes.begin(), bytes.end());
        };
        const Bytes folded = copy();
        int heard = 0;
        i.SetTap([&](int32_t) { ++heard; });  // one by one from now on
        ASSERT_TRUE(i.Invoke().ok());
        EXPECT_EQ(heard, 3);
        EXPECT_EQ(copy(), folded) << "pad " << pad << " stride " << stride;
      }
    }
  }
}

TEST(FindLineChains, LeavesAloneWhatSomebodyElseReads) {
  Rng rng(1);
  ConvShape shape;
  shape.output_h = shape.output_w = 64;
  shape.output_c = 64;
  const Stage stage(&rng, shape);
  Graph graph;
  graph.tensors.resize(4);
  for (Tensor& tensor : graph.tensors) {
    tensor.type = DataType::kInt8;
    tensor.shape = {1, 64, 64, 64};
  }
  graph.outputs = {3};
  const std::vector<ChainStep> steps = {{&stage, {0}, {1}}, {&stage, {1}, {2}}, {&stage, {2}, {3}}};
  EXPECT_THAT(FindLineChains(graph, steps), ElementsAre(ElementsAre(0, 1, 2)));

  graph.outputs = {2, 3};
  EXPECT_THAT(FindLineChains(graph, steps), ElementsAre(ElementsAre(0, 1)));

  graph.outputs = {3};
  graph.tensors[1].shape = {1, 8, 8, 8};  // small
  EXPECT_THAT(FindLineChains(graph, steps), ElementsAre(ElementsAre(1, 2)));
}

}  // namespace
}  // namespace atollrt
