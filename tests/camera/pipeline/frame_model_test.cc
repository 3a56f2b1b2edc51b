// SPDX-License-Identifier: Apache-2.0
#include "atoll/camera/frame_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/picture_models.h"

namespace atollrt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

PlanarImage Flat(int width, int height, uint8_t level) {
  PlanarImage picture;
  picture.ReshapeColor(width, height, 1, 1);
  std::fill(picture.y.samples.begin(), picture.y.samples.end(), level);
  std::fill(picture.cb.samples.begin(), picture.cb.samples.end(), static_cast<uint8_t>(128));
  std::fill(picture.cr.samples.begin(), picture.cr.samples.end(), static_cast<uint8_t>(128));
  return picture;
}

std::unique_ptr<FrameModel> Open(const PreparedModel& prepared, FrameModelOptions options = {}) {
  auto model = OpenFrameModel(prepared.get(), std::move(options));
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *std::move(model) : nullptr;
}

// Whether drawing changes anything of the picture, and where the next label goes.
bool Draws(const FrameModel& model, ModelResult result, LabelPlace* labels) {
  PlanarImage picture = Flat(640, 480, 90);
  const std::vector<uint8_t> before = picture.y.samples;
  result.seen = {0, 0, 640, 480};
  model.Draw(result, &picture, labels);
  return picture.y.samples != before;
}

TEST(FrameModel, Classifies) {
  const PreparedModel prepared(ModelWithOutput({1, 4, 6, 3}, DataType::kFloat32, {1, 5}));
  const auto model = Open(prepared, {.name = "five", .labels = {"a", "b", "", "d"}, .top = 3});
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->input_size().width, 6);
  EXPECT_EQ(model->input_size().height, 4);
  EXPECT_EQ(model->input_size().channels, 3);
  ModelStatus status;
  model->Describe(&status);
  EXPECT_EQ(status.name, "five");
  EXPECT_EQ(status.task, "classify");
  EXPECT_THAT(status.partition, HasSubstr("operators on the CPU"));

  ASSERT_TRUE(model->Write(Flat(60, 40, 77), {10, 10, 20, 20}).ok());
  EXPECT_FALSE(model->Write(Flat(60, 40, 77), {50, 10, 20, 20}).ok());
  const AtollTensor* input = AtollInterpreterGetInputTensor(prepared.get(), 0);
  const auto* bytes = static_cast<const uint8_t*>(AtollTensorConstData(input));
  EXPECT_TRUE(std::all_of(bytes, bytes + AtollTensorByteSize(input),
                          [&](uint8_t byte) { return byte == bytes[0]; }));
  ASSERT_TRUE(model->Submit().ok());
  InferenceTimes times;
  ASSERT_TRUE(model->Wait(&times).ok());
  EXPECT_GT(times.total_ns, 0);
  EXPECT_EQ(times.compute_ns, 0);

  prepared.SetOutput<float>(0, {0.25f, 0.5f, 0.125f, 0.75f, 1.0f});
  ModelResult result;
  ASSERT_TRUE(model->Read(&result).ok());
  EXPECT_THAT(result.captions, ElementsAre("class 4 1.00", "d 0.75", "b 0.50"));
  LabelPlace labels = {{5, 7}, 2};
  EXPECT_TRUE(Draws(*model, result, &labels));
  const int height = labels.at.y - 7;
  EXPECT_GT(height, 3 * 2 * 8);
  EXPECT_EQ(labels.at.x, 5);
  EXPECT_TRUE(Draws(*model, result, &labels));
  EXPECT_EQ(labels.at.y, 7 + 2 * height);
}

TEST(FrameModel, Segments) {
  const PreparedModel prepared(ModelWithOutput({1, 4, 4, 3}, DataType::kFloat32, {1, 2, 2, 3}));
  const auto model = Open(prepared, {.labels = {"sky", "sea"}});
  ASSERT_NE(model, nullptr);
  prepared.SetOutput<float>(0, {1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0});
  ModelResult result;
  ASSERT_TRUE(model->Read(&result).ok());
  EXPECT_THAT(result.map.pixels, ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(result.captions, ElementsAre("sea 75%", "sky 25%"));
  LabelPlace labels;
  EXPECT_TRUE(Draws(*model, result, &labels));
  EXPECT_GT(labels.at.y, 0);
}

TEST(FrameModel, FindsPoses) {
  const PreparedModel prepared(ModelWithOutput({1, 8, 8, 3}, DataType::kFloat32, {1, 1, 17, 3}));
  const auto model = Open(prepared, {.threshold = 0.25f});
  ASSERT_NE(model, nullptr);
  ModelStatus status;
  model->Describe(&status);
  EXPECT_EQ(status.task, "pose");
  prepared.SetOutput<float>(0, std::vector<float>(17 * 3, 0.5f));
  ModelResult result;
  ASSERT_TRUE(model->Read(&result).ok());
  EXPECT_THAT(result.captions, ElementsAre("pose 0.50"));
  LabelPlace labels = {{0, 7}, 1};
  EXPECT_TRUE(Draws(*model, result, &labels));
  EXPECT_EQ(labels.at.y, 7);
  prepared.SetOutput<float>(0, std::vector<float>(17 * 3, 0.125f));
  ASSERT_TRUE(model->Read(&result).ok());
  EXPECT_FALSE(Draws(*model, result, &labels));
}

TEST(FrameModel, RefusesOtherModels) {
  const auto error = [](const PreparedModel& prepared, FrameModelOptions options = {}) {
    return OpenFrameModel(prepared.get(), std::move(options)).status().message();
  };
  // An input that takes no picture.
  EXPECT_THAT(error(PreparedModel(DetectorModel(3))), HasSubstr("inputs"));
  const PreparedModel nothing(ModelWithOutput({1, 4, 4, 3}, DataType::kInt64, {1, 1}));
  EXPECT_THAT(error(nothing), HasSubstr("none that a camera can show"));
  const PreparedModel good(ModelWithOutput({1, 4, 6, 3}, DataType::kFloat32, {1, 5}));
  EXPECT_THAT(error(good, {.top = 0}), HasSubstr("at least one class"));
  EXPECT_FALSE(OpenFrameModel(nullptr).ok());
}

}  // namespace
}  // namespace atollrt
