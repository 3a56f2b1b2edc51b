// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/lint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/picture_models.h"

namespace atollcmd {
namespace {

using atollrt::DataType;
using atollrt::DetectorModel;
using atollrt::ModelBuilder;
using atollrt::ModelWithOutput;
using atollrt::OpType;
using atollrt::PreparedModel;
using atollrt::Shape;
using atollrt::Task;
using atollrt::Tensor;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<Finding> Lint(const ModelBuilder& m, const ModelUse& use) {
  const PreparedModel model(m);
  return LintModel(model.get(), use);
}

std::vector<std::string> Codes(const std::vector<Finding>& findings) {
  std::vector<std::string> codes;
  for (const Finding& finding : findings) codes.push_back(finding.code);
  return codes;
}

// A classifier of pictures with nothing wrong.
ModelBuilder GoodModel(const Shape& picture = {1, 32, 32, 3}) {
  ModelBuilder m;
  const int32_t input = m.Input(picture);
  m.tensor(input).quantization = {.scales = {1.0f / 255}, .zero_points = {-128}};
  m.Output(m.Softmax(
      m.FullyConnected(m.Mean(m.Conv2D(input, {.channels = 4, .kernel = 3}), {1, 2}), 10)));
  return m;
}

const Shape kPicture32 = {1, 32, 32, 3};
constexpr ModelUse kPicture = {.takes_picture = true};
constexpr ModelUse kClassify = {.task = Task::kClassify, .takes_picture = true};

TEST(Lint, FindsNothingWhereNothingIsWrong) {
  EXPECT_THAT(Codes(Lint(GoodModel(), kClassify)), IsEmpty());
  EXPECT_THAT(Codes(Lint(GoodModel({1, 28, 28, 1}), kClassify)), IsEmpty());
  EXPECT_THAT(Codes(Lint(GoodModel(), {})), IsEmpty());
}

TEST(Lint, FindsFloatModels) {
  ModelBuilder m;
  m.Output(m.FullyConnected(m.Input({1, 8}), 10));
  const size_t count = m.graph().tensors.size();
  for (size_t i = 0; i < count; ++i) {
    const bool is_constant = m.graph().tensors[i].is_constant();
    const int64_t bytes = 4 * m.graph().tensors[i].element_count();
    const int32_t zeros = m.Constant(DataType::kUInt8, {static_cast<int32_t>(bytes)},
                                     std::vector<uint8_t>(static_cast<size_t>(bytes)));
    Tensor& tensor = m.graph().tensors[i];
    tensor.type = DataType::kFloat32;
    tensor.quantization = {};
    if (is_constant) tensor.data = m.tensor(zeros).data;
  }
  const std::vector<Finding> findings = Lint(m, {});
  ASSERT_THAT(Codes(findings), ElementsAre("float_model"));
  EXPECT_THAT(findings[0].message, AllOf(HasSubstr("100 %"), HasSubstr("'atoll quantize'")));
}

TEST(Lint, FindsInputsThatAreNoPictures) {
  const auto lint = [](const Shape& shape) {
    return Lint(ModelWithInput(shape, DataType::kInt8, 1.0f / 255, -128), kPicture);
  };
  EXPECT_THAT(Codes(lint({1, 32, 32, 3})), IsEmpty());
  const auto first = lint({1, 3, 224, 224});
  ASSERT_THAT(Codes(first), ElementsAre("input_channels"));
  EXPECT_THAT(first[0].message, AllOf(HasSubstr("[1,3,224,224]"), HasSubstr("3 channels first"),
                                      HasSubstr("[1,224,224,3]")));
  const auto alpha = lint({1, 32, 32, 4});
  ASSERT_THAT(Codes(alpha), ElementsAre("input_channels"));
  EXPECT_THAT(alpha[0].message, HasSubstr("4 channels"));
  const auto batch = lint({8, 32, 32, 3});
  ASSERT_THAT(Codes(batch), ElementsAre("input_batch"));
  EXPECT_THAT(batch[0].message, AllOf(HasSubstr("8 pictures"), HasSubstr("batch size 1")));
}

TEST(Lint, AsksForTheScalingOfFloatInputs) {
  const ModelBuilder m = ModelWithInput(kPicture32, DataType::kFloat32, 0, 0);
  const auto findings = Lint(m, kPicture);
  ASSERT_THAT(Codes(findings), ElementsAre("input_normalization"));
  EXPECT_THAT(findings[0].message, HasSubstr("--mean 0 --std 255"));
  EXPECT_THAT(Codes(Lint(m, {.takes_picture = true, .scaling_given = true})), IsEmpty());
  EXPECT_THAT(Codes(Lint(m, {})), IsEmpty()) << "no picture goes in";
}

TEST(Lint, KnowsTheRangesThatPicturesAreTrainedOn) {
  const auto codes = [](DataType type, float scale, int32_t zero_point) {
    return Codes(Lint(ModelWithInput(kPicture32, type, scale, zero_point), kPicture));
  };
  EXPECT_THAT(codes(DataType::kUInt8, 0.0078125f, 128), IsEmpty());
  EXPECT_THAT(codes(DataType::kInt8, 0.007843f, -1), IsEmpty());
  EXPECT_THAT(codes(DataType::kUInt8, 1, 0), IsEmpty());
  EXPECT_THAT(codes(DataType::kInt8, 1, 0), IsEmpty());
  const auto normalized =
      Lint(ModelWithInput(kPicture32, DataType::kInt8, 0.01866f, -15), kPicture);  // ImageNet's
  ASSERT_THAT(Codes(normalized), ElementsAre("input_normalization"));
  EXPECT_THAT(normalized[0].message,
              AllOf(HasSubstr("-2.109 to 2.65"), HasSubstr("--mean and --std")));
}

TEST(Lint, FindsByteInputsWithoutAScale) {
  const auto findings = Lint(ModelWithInput(kPicture32, DataType::kInt8, 0, 0), kPicture);
  ASSERT_THAT(Codes(findings), ElementsAre("input_scale"));
  EXPECT_THAT(findings[0].message, HasSubstr("-128 to 127"));
  // Where the model converts the bytes itself, it means them.
  ModelBuilder m;
  const int32_t input = m.Input({1, 32, 32, 3});
  m.tensor(input).type = DataType::kUInt8;
  m.tensor(input).quantization = {};
  const int32_t cast = m.Node(OpType::kCAST, {input}, {1, 32, 32, 3});
  m.tensor(cast).type = DataType::kFloat32;
  m.tensor(cast).quantization = {};
  m.Output(cast);
  EXPECT_THAT(Codes(Lint(m, kPicture)), IsEmpty());
}

TEST(Lint, FindsScoresThatAreNoProbabilities) {
  ModelBuilder m;
  const int32_t input = m.Input({1, 32, 32, 3});
  m.tensor(input).quantization = {.scales = {1.0f / 255}, .zero_points = {-128}};
  const int32_t logits = m.FullyConnected(m.Mean(input, {1, 2}), 10);
  m.tensor(logits).quantization = {.scales = {0.5f}, .zero_points = {28}};
  m.Output(m.Reshape(logits, {1, 1, 1, 10}));
  const auto findings = Lint(m, kClassify);
  ASSERT_THAT(Codes(findings), ElementsAre("output_scores"));
  EXPECT_THAT(findings[0].message, AllOf(HasSubstr("FULLY_CONNECTED"), HasSubstr("-78 to 49.5")));
  EXPECT_THAT(Codes(Lint(m, kPicture)), IsEmpty()) << "of another kind of model";
}

TEST(Lint, FindsPicturesThatPassForSegmentations) {
  const ModelBuilder m = ModelWithInput(kPicture32, DataType::kInt8, 1.0f / 255, -128);
  EXPECT_THAT(Codes(Lint(m, {.task = Task::kSegment, .takes_picture = true})),
              ElementsAre("output_is_picture"));
}

TEST(Lint, FindsRawBoxes) {
  for (const Shape& shape : {Shape{1, 8400, 84}, Shape{1, 84, 8400}}) {
    ModelBuilder m = ModelWithOutput({1, 32, 32, 3}, DataType::kFloat32, shape);
    m.tensor(m.graph().inputs[0]).quantization = {.scales = {1.0f / 255}, .zero_points = {-128}};
    const auto findings = Lint(m, kPicture);
    ASSERT_THAT(Codes(findings), ElementsAre("raw_detector"));
    EXPECT_THAT(findings[0].message, HasSubstr("TFLite_Detection_PostProcess"));
    const PreparedModel model(m);
    EXPECT_EQ(AdviseTask(model.get(), Task::kDetect), findings[0].message);
  }
}

TEST(Lint, AdvisesTheSubcommandThatFits) {
  const auto advice = [](const ModelBuilder& m, Task wanted) {
    const PreparedModel model(m);
    return AdviseTask(model.get(), wanted);
  };
  EXPECT_THAT(advice(DetectorModel(3), Task::kClassify), HasSubstr("'atoll detect'"));
  EXPECT_THAT(advice(GoodModel(), Task::kPose), HasSubstr("'atoll classify'"));
  const auto with_output = [](DataType type, const Shape& shape) {
    return ModelWithOutput({1, 32, 32, 3}, type, shape);
  };
  EXPECT_THAT(advice(with_output(DataType::kInt32, {1, 8, 8}), Task::kDetect),
              HasSubstr("'atoll segment'"));
  EXPECT_THAT(advice(with_output(DataType::kFloat32, {1, 1, 17, 3}), Task::kDetect),
              HasSubstr("'atoll pose'"));
  EXPECT_THAT(advice(with_output(DataType::kInt32, {1, 8}), Task::kDetect),
              HasSubstr("'atoll run'"));
}

TEST(Lint, AdvisesHowToConvertTheInput) {
  const auto advice = [](const Shape& shape) {
    const PreparedModel model(ModelWithInput(shape, DataType::kInt8, 1, 0));
    return AdviseInput(model.get());
  };
  EXPECT_THAT(advice({1, 1, 64, 64}), HasSubstr("channels last, [1,64,64,1]"));
  EXPECT_EQ(advice({1, 640}), "use 'atoll run'");
}

TEST(Lint, TellsPicturesFromSounds) {
  const auto seems = [](const Shape& shape) {
    const PreparedModel model(ModelWithInput(shape, DataType::kInt8, 1, 0));
    return SeemsToTakePictures(model.get());
  };
  EXPECT_TRUE(seems({1, 28, 28, 1}));
  EXPECT_TRUE(seems({1, 28, 28}));
  EXPECT_TRUE(seems({1, 3, 224, 224}));
  EXPECT_FALSE(seems({1, 49, 10, 1}));  // a spectrogram
  EXPECT_FALSE(seems({1, 1960}));
}

// ---- Labels -------------------------------------------------------------------------------------

std::string LintNames(size_t count, int offset, const ClassCount& classes) {
  std::vector<std::string> names(count, "cat");
  if (!names.empty()) names[0] = "nothing";
  const auto finding = LintLabels("names.txt", names, offset, classes);
  if (!finding) return "";
  EXPECT_STREQ(finding->code, "label_count");
  return finding->message;
}

TEST(LintLabels, AcceptsWhatFits) {
  EXPECT_EQ(LintNames(10, 0, {10, 10}), "");
  EXPECT_EQ(LintNames(11, 1, {10, 10}), "");
  EXPECT_EQ(LintNames(9, -1, {10, 10}), "");
  EXPECT_EQ(LintNames(90, 0, {90, 91}), "");
  EXPECT_EQ(LintNames(91, 0, {90, 91}), "");
}

TEST(LintLabels, SaysBothNumbers) {
  EXPECT_THAT(LintNames(3, 0, {10, 10}),
              AllOf(HasSubstr("3 labels"), HasSubstr("10 classes"), HasSubstr("'names.txt'"),
                    Not(HasSubstr("--label-offset"))));
  EXPECT_THAT(LintNames(12, 0, {10, 10}), AllOf(HasSubstr("12 labels"), HasSubstr("10 classes"),
                                                Not(HasSubstr("--label-offset"))));
  EXPECT_THAT(LintNames(12, 1, {10, 10}), HasSubstr("--label-offset is 1"));
}

TEST(LintLabels, KnowsTheTwoListsOfCoco) {
  EXPECT_THAT(LintNames(80, 0, {90, 91}), AllOf(HasSubstr("COCO"), HasSubstr("90")));
}

TEST(LintLabels, GuessesTheBackground) {
  EXPECT_THAT(LintNames(9, 0, {10, 10}), HasSubstr("add --label-offset -1"));
  EXPECT_THAT(LintNames(11, 0, {10, 10}),
              AllOf(HasSubstr("add --label-offset 1"), HasSubstr("'nothing'")));
}

}  // namespace
}  // namespace atollcmd
