// SPDX-License-Identifier: Apache-2.0
//
// Operators of float32, in models of one node, give what TensorFlow Lite's C interface gives: moves
// in every byte, sums of products and functions within a few units in the last place of what they
// are made of. The library behind that interface is ours, or where npm has brought it TensorFlow
// Lite 2.9.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/compat/tflite_runner.h"
#include "tests/support/run_model.h"

namespace atollrt {
namespace {

using Bytes = std::vector<uint8_t>;

// What distance is allowed: from a number of this magnitude, and from zero.
struct Tolerance {
  double relative = 0, absolute = 0;
};
constexpr Tolerance kExact{};
constexpr Tolerance kFewUnits{1e-6, 1e-7};
constexpr Tolerance kSums{1e-5, 2e-5};

// A model of float32 inputs; outputs of any type.
class Comparison {
 public:
  explicit Comparison(std::string name, Tolerance tolerance = kFewUnits)
      : name_(std::move(name)), tolerance_(tolerance), rng_(TestSeed(1)) {}

  ModelBuilder m;

  int32_t Input(Shape shape) { return TypedInput<float>(m, std::move(shape)); }
  int32_t Constant(Shape shape, double low = -2, double high = 2) {
    const std::vector<float> values = Random(ElementCount(shape), low, high);
    Bytes bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return m.Constant(DataType::kFloat32, std::move(shape), std::move(bytes));
  }
  int32_t Ints(const std::vector<int32_t>& values) {
    return m.Integers({static_cast<int32_t>(values.size())}, values);
  }
  // A node of float32, whose output is one of the model's.
  void Node(OpType type, std::vector<int32_t> inputs, OpOptions options = {}) {
    m.Output(SetType<float>(m, m.Node(type, std::move(inputs), {}, std::move(options))));
  }

  // Two runs, as layers may remember, on numbers from `low` to `high`.
  void Run(double low = -4, double high = 4) {
    SCOPED_TRACE(name_);
    TfLiteRunner theirs(m.Build());
    ASSERT_TRUE(theirs.ok());
    const std::unique_ptr<Interpreter> ours = Prepare(m);
    ASSERT_NE(ours, nullptr);
    for (int run = 0; run < 2; ++run) {
      for (size_t i = 0; i < m.graph().inputs.size(); ++i) {
        const std::span<uint8_t> input = ours->TensorBytes(m.graph().inputs[i]);
        const std::vector<float> values =
            Random(static_cast<int64_t>(input.size() / sizeof(float)), low, high);
        std::memcpy(input.data(), values.data(), input.size());
        theirs.SetInput(i, input);
      }
      theirs.Invoke();
      const Status status = ours->Invoke();
      ASSERT_TRUE(status.ok()) << status.message();
      for (size_t i = 0; i < m.graph().outputs.size(); ++i) {
        Compare(Values<uint8_t>(*ours, m.graph().outputs[i]), theirs.Output(i),
                m.tensor(m.graph().outputs[i]).type);
      }
    }
  }

 private:
  std::vector<float> Random(int64_t count, double low, double high) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(low + rng_.Real() * (high - low));
    return values;
  }
  void Compare(const Bytes& ours, const Bytes& theirs, DataType type) const {
    ASSERT_EQ(ours.size(), theirs.size());
    if (type != DataType::kFloat32 || (tolerance_.relative == 0 && tolerance_.absolute == 0)) {
      EXPECT_EQ(ours, theirs);
      return;
    }
    for (size_t i = 0; i < ours.size(); i += sizeof(float)) {
      float a, b;
      std::memcpy(&a, &ours[i], sizeof(a));
      std::memcpy(&b, &theirs[i], sizeof(b));
      const double expected = static_cast<double>(b);
      ASSERT_NEAR(static_cast<double>(a), expected,
                  tolerance_.relative * std::abs(expected) + tolerance_.absolute)
          << "element " << i / sizeof(float);
    }
  }

  const std::string name_;
  const Tolerance tolerance_;
  Rng rng_;
};

std::string NameOf(OpType type, const std::string& rest = "") { return OpTypeName(type) + rest; }

constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kRelu6,
                                       Activation::kReluN1To1};

TEST(TfLiteFloat, FunctionsOfOneNumber) {
  using enum OpType;
  for (const OpType type : {kABS, kCEIL, kCOS, kELU, kEXP, kFLOOR, kHARD_SWISH, kLOGISTIC, kNEG,
                            kRELU, kRELU6, kRELU_N1_TO_1, kROUND, kSIN, kSQUARE, kTANH}) {
    Comparison c(NameOf(type));
    c.Node(type, {c.Input({2, 5, 37})});
    c.Run(-8, 8);
  }
  for (const OpType type : {kLOG, kSQRT, kRSQRT}) {
    Comparison c(NameOf(type));
    c.Node(type, {c.Input({2, 5, 37})});
    c.Run(0.01, 8);
  }
  Comparison leaky("LEAKY_RELU");
  leaky.Node(kLEAKY_RELU, {leaky.Input({3, 50})}, LeakyReluOptions{.alpha = 0.1f});
  leaky.Run();
}

TEST(TfLiteFloat, FunctionsOfTwoNumbers) {
  using enum OpType;
  struct Shapes {
    Shape a, b;
  };
  const Shapes kShapes[] = {{{2, 3, 4, 5}, {2, 3, 4, 5}},
                            {{2, 3, 4, 5}, {5}},
                            {{2, 3, 4, 5}, {1}},
                            {{1, 3, 1, 5}, {2, 1, 4, 5}},
                            {{3, 1}, {2, 3, 4}}};
  for (const Shapes& shapes : kShapes) {
    for (const OpType type : {kADD, kSUB, kMUL, kDIV}) {
      for (const Activation activation : kActivations) {
        Comparison c(NameOf(type, ShapeString(shapes.a) + ShapeString(shapes.b)));
        c.Node(type, {c.Input(shapes.a), c.Constant(shapes.b, 0.5, 3)},
               ElementwiseOptions{.activation = activation});
        c.Run();
      }
    }
    for (const OpType type :
         {kMAXIMUM, kMINIMUM, kSQUARED_DIFFERENCE, kPOW, kFLOOR_DIV, kFLOOR_MOD}) {
      Comparison c(NameOf(type, ShapeString(shapes.a) + ShapeString(shapes.b)));
      c.Node(type, {c.Input(shapes.a), c.Constant(shapes.b, 0.5, 3)});
      c.Run(0.1, 8);
    }
  }
  // Of five dimensions TensorFlow Lite 2.9 ends the program at an ADD.
  for (const OpType type : {kSUB, kDIV}) {
    Comparison c(NameOf(type, " of five dimensions"));
    c.Node(type, {c.Input({2, 1, 3, 1, 4}), c.Constant({1, 2, 3, 5, 1}, 0.5, 3)},
           ElementwiseOptions{});
    c.Run();
  }
  for (const Shape& slopes : {Shape{1, 1, 6}, Shape{3, 4, 6}}) {
    Comparison c(NameOf(kPRELU, ShapeString(slopes)));
    c.Node(kPRELU, {c.Input({2, 3, 4, 6}), c.Constant(slopes)});
    c.Run();
  }
}

TEST(TfLiteFloat, Windows) {
  using enum OpType;
  for (const Padding padding : {Padding::kSame, Padding::kValid}) {
    for (const int32_t stride : {1, 2}) {
      for (const OpType type : {kAVERAGE_POOL_2D, kMAX_POOL_2D, kL2_POOL_2D}) {
        for (const Activation activation : kActivations) {
          Comparison c(NameOf(type), kSums);
          c.Node(type, {c.Input({2, 9, 11, 19})},
                 Pool2DOptions{.padding = padding,
                               .stride_h = stride,
                               .stride_w = stride + 1,
                               .filter_h = 3,
                               .filter_w = 2,
                               .activation = activation});
          c.Run();
        }
      }
      for (const int32_t dilation : {1, 2}) {
        for (const int32_t kernel : {1, 3, 5}) {
          if (stride > 1 && dilation > 1) continue;  // no converter writes that
          for (const int32_t multiplier : {1, 3, 8}) {
            Comparison c("DEPTHWISE_CONV_2D", kSums);
            const int32_t outputs = 7 * multiplier;
            c.m.Output(SetType<float>(
                c.m, c.m.Node(kDEPTHWISE_CONV_2D,
                              {c.Input({2, 12, 13, 7}), c.Constant({1, kernel, kernel, outputs}),
                               c.Constant({outputs})},
                              {2, 1, 1, outputs},
                              Conv2DOptions{.padding = padding,
                                            .stride_h = stride,
                                            .stride_w = stride,
                                            .dilation_h = dilation,
                                            .dilation_w = dilation,
                                            .activation = Activation::kRelu6})));
            c.Run();
          }
          Comparison c("CONV_2D", kSums);
          c.Node(kCONV_2D,
                 {c.Input({2, 12, 13, 7}), c.Constant({9, kernel, kernel, 7}), c.Constant({9})},
                 Conv2DOptions{.padding = padding,
                               .stride_h = stride,
                               .stride_w = stride,
                               .dilation_h = dilation,
                               .dilation_w = dilation,
                               .activation = Activation::kRelu});
          c.Run();
        }
      }
      Comparison c("TRANSPOSE_CONV", kSums);
      const int32_t height = padding == Padding::kSame ? 6 * stride : 5 * stride + 3;
      c.Node(kTRANSPOSE_CONV,
             {c.Ints({2, height, height, 5}), c.Constant({5, 3, 3, 7}), c.Input({2, 6, 6, 7})},
             Conv2DOptions{.padding = padding, .stride_h = stride, .stride_w = stride});
      c.Run();
    }
  }
  for (const Activation activation : kActivations) {
    Comparison c("FULLY_CONNECTED", kSums);
    c.Node(kFULLY_CONNECTED, {c.Input({3, 40}), c.Constant({11, 40}), c.Constant({11})},
           FullyConnectedOptions{.activation = activation});
    c.Run();
  }
  for (const bool transposed : {false, true}) {
    Comparison c("BATCH_MATMUL", kSums);
    c.Node(kBATCH_MATMUL,
           {c.Input({2, 5, 7}), c.Input(transposed ? Shape{2, 6, 7} : Shape{2, 7, 6})},
           BatchMatMulOptions{.transpose_rhs = transposed});
    c.Run();
  }
}

TEST(TfLiteFloat, Rows) {
  using enum OpType;
  for (const int32_t depth : {2, 4, 21, 1001}) {
    Comparison softmax("SOFTMAX");
    softmax.Node(kSOFTMAX, {softmax.Input({3, depth})}, SoftmaxOptions{.beta = 0.7f});
    softmax.Run();
    Comparison log_softmax("LOG_SOFTMAX", {1e-6, 1e-6});
    log_softmax.Node(kLOG_SOFTMAX, {log_softmax.Input({3, depth})});
    log_softmax.Run();
    Comparison norm("L2_NORMALIZATION");
    norm.Node(kL2_NORMALIZATION, {norm.Input({3, depth})}, ElementwiseOptions{});
    norm.Run();
  }
}

TEST(TfLiteFloat, Reductions) {
  using enum OpType;
  for (const OpType type : {kMEAN, kSUM, kREDUCE_MAX, kREDUCE_MIN, kREDUCE_PROD}) {
    for (const std::vector<int32_t>& axes :
         std::vector<std::vector<int32_t>>{{1, 2}, {-1}, {0}, {1}, {0, 1, 2, 3}}) {
      for (const bool keep_dims : {false, true}) {
        Comparison c(NameOf(type), kSums);
        c.Node(type, {c.Input({2, 5, 4, 19}), c.Ints(axes)},
               ReducerOptions{.keep_dims = keep_dims});
        c.Run(0.9, 1.1);
      }
    }
  }
  for (const OpType type : {kARG_MAX, kARG_MIN}) {
    Comparison c(NameOf(type));
    c.m.Output(
        SetType<int32_t>(c.m, c.m.Node(type, {c.Input({2, 5, 19}), c.m.Integers({}, {-1})}, {})));
    c.Run();
  }
}

TEST(TfLiteFloat, Resizing) {
  for (const OpType type : {OpType::kRESIZE_BILINEAR, OpType::kRESIZE_NEAREST_NEIGHBOR}) {
    for (const bool align_corners : {false, true}) {
      for (const bool half_pixel_centers : {false, true}) {
        if (align_corners && half_pixel_centers) continue;  // excluded by TensorFlow Lite
        for (const std::vector<int32_t>& size :
             std::vector<std::vector<int32_t>>{{10, 14}, {3, 4}, {13, 9}, {1, 1}, {20, 28}}) {
          Comparison c(NameOf(type),
                       type == OpType::kRESIZE_BILINEAR ? Tolerance{1e-6, 2e-6} : kExact);
          c.Node(type, {c.Input({2, 5, 7, 6}), c.Ints(size)},
                 ResizeOptions{.align_corners = align_corners,
                               .half_pixel_centers = half_pixel_centers});
          c.Run();
        }
      }
    }
  }
}

TEST(TfLiteFloat, Moves) {
  using enum OpType;
  const auto compare = [](OpType type, const std::function<void(Comparison&)>& build) {
    Comparison c(NameOf(type), kExact);
    build(c);
    c.Run();
  };
  const std::vector<int32_t> kPaddings = {0, 0, 1, 2, 2, 1, 0, 0};
  const auto paddings = [&](Comparison& c) { return c.m.Integers({4, 2}, kPaddings); };
  compare(kPAD, [&](Comparison& c) { c.Node(kPAD, {c.Input({1, 4, 5, 3}), paddings(c)}); });
  compare(kPADV2, [&](Comparison& c) {
    c.Node(kPADV2, {c.Input({1, 4, 5, 3}), paddings(c), c.Constant({1})});
  });
  for (const MirrorPadMode mode : {MirrorPadMode::kReflect, MirrorPadMode::kSymmetric}) {
    compare(kMIRROR_PAD, [&](Comparison& c) {
      c.Node(kMIRROR_PAD, {c.Input({1, 4, 5, 3}), paddings(c)}, MirrorPadOptions{.mode = mode});
    });
  }
  compare(kTRANSPOSE, [](Comparison& c) {
    c.Node(kTRANSPOSE, {c.Input({2, 3, 4, 5}), c.Ints({0, 3, 1, 2})});
  });
  compare(kCONCATENATION, [](Comparison& c) {
    c.Node(kCONCATENATION, {c.Input({2, 3, 4}), c.Input({2, 5, 4}), c.Constant({2, 1, 4})},
           AxisOptions{.axis = 1});
  });
  compare(kPACK, [](Comparison& c) {
    c.Node(kPACK, {c.Input({2, 3}), c.Input({2, 3})}, AxisOptions{.axis = -1, .count = 2});
  });
  compare(kGATHER, [](Comparison& c) {
    c.Node(kGATHER, {c.Input({4, 5, 3}), c.Ints({3, 0, 3})}, AxisOptions{.axis = 1});
  });
  compare(kREVERSE_V2, [](Comparison& c) {
    c.Node(kREVERSE_V2, {c.Input({4, 5, 3}), c.Ints({1})});
  });
  compare(kFILL, [](Comparison& c) { c.Node(kFILL, {c.Ints({2, 3}), c.Input({})}); });
  compare(kTOPK_V2, [](Comparison& c) {
    c.Node(kTOPK_V2, {c.Input({3, 40}), c.m.Integers({}, {7})});
    const int32_t places = SetType<int32_t>(c.m, c.m.Activation({3, 7}));
    c.m.graph().nodes.back().outputs.push_back(places);
    c.m.Output(places);
  });
  compare(kADD_N, [](Comparison& c) {
    c.Node(kADD_N, {c.Input({3, 7}), c.Input({3, 7}), c.Input({3, 7})});
  });
  compare(kTILE, [](Comparison& c) { c.Node(kTILE, {c.Input({2, 1, 3}), c.Ints({1, 4, 2})}); });
  compare(kBROADCAST_TO, [](Comparison& c) {
    c.Node(kBROADCAST_TO, {c.Input({3, 1, 2}), c.Ints({2, 3, 4, 2})});
    c.m.graph().nodes.back().version = 2;  // its first one
  });
  compare(kSPACE_TO_BATCH_ND, [](Comparison& c) {
    c.Node(kSPACE_TO_BATCH_ND,
           {c.Input({1, 5, 6, 3}), c.Ints({2, 3}), c.m.Integers({2, 2}, {0, 1, 0, 0})});
  });
  compare(kBATCH_TO_SPACE_ND, [](Comparison& c) {
    c.Node(kBATCH_TO_SPACE_ND,
           {c.Input({6, 3, 2, 3}), c.Ints({2, 3}), c.m.Integers({2, 2}, {0, 1, 0, 0})});
  });
  compare(kDEPTH_TO_SPACE, [](Comparison& c) {
    c.Node(kDEPTH_TO_SPACE, {c.Input({1, 3, 4, 12})}, BlockOptions{.block_size = 2});
  });
  compare(kSPACE_TO_DEPTH, [](Comparison& c) {
    c.Node(kSPACE_TO_DEPTH, {c.Input({1, 4, 6, 3})}, BlockOptions{.block_size = 2});
  });
  compare(kSTRIDED_SLICE, [](Comparison& c) {
    c.Node(kSTRIDED_SLICE,
           {c.Input({4, 6, 8}), c.Ints({1, -1, 0}), c.Ints({3, 0, 0}), c.Ints({1, -2, 3})},
           StridedSliceOptions{.end_mask = 4, .shrink_axis_mask = 1});
  });
  compare(kSLICE, [](Comparison& c) {
    c.Node(kSLICE, {c.Input({4, 6, 8}), c.Ints({1, 0, 3}), c.Ints({2, -1, 4})});
  });
  compare(kSPLIT, [](Comparison& c) {
    const int32_t axis = c.m.Integers({}, {2});
    c.Node(kSPLIT, {axis, c.Input({2, 3, 8})}, SplitOptions{.num_splits = 2});
    const int32_t second = SetType<float>(c.m, c.m.Activation({2, 3, 4}));
    c.m.graph().nodes.back().outputs.push_back(second);
    c.m.Output(second);
  });
  compare(kUNPACK, [](Comparison& c) {
    c.Node(kUNPACK, {c.Input({2, 3, 4})}, AxisOptions{.axis = 0, .count = 2});
    const int32_t second = SetType<float>(c.m, c.m.Activation({3, 4}));
    c.m.graph().nodes.back().outputs.push_back(second);
    c.m.Output(second);
  });
  compare(kSELECT_V2, [](Comparison& c) {
    const int32_t condition = c.m.Constant(DataType::kBool, {2, 1, 3}, {1, 0, 1, 0, 0, 1});
    c.Node(kSELECT_V2, {condition, c.Input({2, 4, 3}), c.Input({1})});
  });
  compare(kSELECT, [](Comparison& c) {
    const int32_t condition = c.m.Constant(DataType::kBool, {2}, {1, 0});
    c.Node(kSELECT, {condition, c.Input({2, 4}), c.Input({2, 4})});
  });
  compare(kCAST, [](Comparison& c) {
    c.m.Output(SetType<int32_t>(c.m, c.m.Node(kCAST, {c.Input({3, 7})}, {})));
  });
}

TEST(TfLiteFloat, WeightsOfHalfPrecision) {
  Comparison c("DEQUANTIZE", kSums);
  Bytes halves(size_t{2} * 20 * 30);
  for (size_t i = 0; i < halves.size(); i += 2) {
    halves[i] = static_cast<uint8_t>(i * 37);
    halves[i + 1] = static_cast<uint8_t>(0x30 + i % 11 + (i % 3 == 0 ? 0x80 : 0));  // below 8
  }
  const int32_t weights =
      c.m.Node(OpType::kDEQUANTIZE, {c.m.Constant(DataType::kFloat16, {20, 30}, halves)}, {20, 30});
  c.m.graph().nodes.back().version = 3;
  c.Node(OpType::kFULLY_CONNECTED, {c.Input({2, 30}), SetType<float>(c.m, weights), -1},
         FullyConnectedOptions{});
  c.m.tensor(c.m.graph().outputs[0]).shape = {2, 20};
  c.Run();
}

TEST(TfLiteFloat, Lstm) {
  for (const bool time_major : {false, true}) {
    for (const float cell_clip : {0.0f, 0.5f}) {
      for (const Activation activation : {Activation::kTanh, Activation::kRelu}) {
        constexpr int32_t kBatch = 2, kSteps = 6, kInputs = 9, kUnits = 21;
        Comparison c("UNIDIRECTIONAL_SEQUENCE_LSTM", {1e-5, 2e-6});
        std::vector<int32_t> operands(24, -1);
        const int32_t outer = time_major ? kSteps : kBatch, inner = time_major ? kBatch : kSteps;
        operands[0] = c.Input({outer, inner, kInputs});
        for (size_t gate = 0; gate < 4; ++gate) {
          operands[1 + gate] = c.Constant({kUnits, kInputs}, -0.5, 0.5);
          operands[5 + gate] = c.Constant({kUnits, kUnits}, -0.5, 0.5);
          operands[12 + gate] = c.Constant({kUnits}, -0.5, 0.5);
        }
        for (const size_t state : {18, 19}) {
          operands[state] = SetType<float>(c.m, c.m.Activation({kBatch, kUnits}));
          c.m.tensor(operands[state]).is_variable = true;
        }
        c.Node(OpType::kUNIDIRECTIONAL_SEQUENCE_LSTM, operands,
               LstmOptions{
                   .activation = activation, .cell_clip = cell_clip, .time_major = time_major});
        c.Run(-1, 1);
      }
    }
  }
}

}  // namespace
}  // namespace atollrt
