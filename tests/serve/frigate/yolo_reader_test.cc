// SPDX-License-Identifier: Apache-2.0
#include "serve/frigate/yolo_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "serve/frigate/detector.h"
#include "tests/serve/frigate/temporary_folder.h"
#include "tests/support/picture_models.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Something seen in a model whose picture is 64 wide and 32 high.
struct Seen {
  int class_index;
  float score, left, top, right, bottom;
};
constexpr int kWidth = 64, kHeight = 32;

class Model {
 public:
  Model(const Shape& output, const std::vector<float>& values)
      : model_(ModelWithOutput({1, kHeight, kWidth, 3}, DataType::kFloat32, output)) {
    model_.SetOutput(0, values);
  }
  std::vector<Detection> Read(YoloHead head, float threshold = 0.25f) {
    auto reader = YoloReader::Create(model_.get(), kWidth, kHeight);
    EXPECT_TRUE(reader.ok()) << reader.status().message();
    std::vector<Detection> found;
    if (!reader.ok()) return found;
    by_shape = reader->by_shape();
    status = reader->Read(head, threshold, &found);
    return found;
  }
  YoloHead by_shape = YoloHead::kByShape;
  Status status;

 private:
  PreparedModel model_;
};

void ExpectSeen(const std::vector<Detection>& found, const std::vector<Seen>& expected) {
  ASSERT_THAT(found, SizeIs(expected.size()));
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].class_index, expected[i].class_index) << i;
    EXPECT_FLOAT_EQ(found[i].score, expected[i].score) << i;
    EXPECT_FLOAT_EQ(found[i].left, expected[i].left) << i;
    EXPECT_FLOAT_EQ(found[i].top, expected[i].top) << i;
    EXPECT_FLOAT_EQ(found[i].right, expected[i].right) << i;
    EXPECT_FLOAT_EQ(found[i].bottom, expected[i].bottom) << i;
  }
}

// Eight rows of centre, size and two scores: two things, a weaker box on the first one, one below
// the threshold, one that reaches out of the picture, and rows of numbers that are none.
const std::vector<std::vector<float>> kGenericRows = {
    {16, 16, 16, 8, 0.25f, 0.75f},  {17, 16, 16, 8, 0.5f, 0.125f}, {48, 8, 8, 16, 0.875f, 0},
    {32, 24, 4, 4, 0.125f, 0.125f}, {60, 28, 16, 16, 0, 0.5f},     {kNan, 1, 2, 2, 1, 1},
    {8, 8, kInfinity, 2, 1, 1},     {40, 24, 2, 2, kNan, kNan},
};
const std::vector<Seen> kGenericSeen = {
    {0, 0.875f, 44.f / 64, 0, 52.f / 64, 16.f / 32},
    {1, 0.75f, 8.f / 64, 12.f / 32, 24.f / 64, 20.f / 32},
    {1, 0.5f, 52.f / 64, 20.f / 32, 1, 1},
};

std::vector<float> Flattened(const std::vector<std::vector<float>>& rows) {
  std::vector<float> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}
std::vector<std::vector<float>> Transposed(const std::vector<std::vector<float>>& rows) {
  std::vector<std::vector<float>> turned(rows[0].size(), std::vector<float>(rows.size()));
  for (size_t y = 0; y < rows.size(); ++y) {
    for (size_t x = 0; x < rows[0].size(); ++x) turned[x][y] = rows[y][x];
  }
  return turned;
}

TEST(YoloReader, ReadsRowsOfCentreSizeAndScores) {
  Model rows({1, 8, 6}, Flattened(kGenericRows));
  ExpectSeen(rows.Read(YoloHead::kByShape), kGenericSeen);
  EXPECT_EQ(rows.by_shape, YoloHead::kGeneric);
  ExpectSeen(rows.Read(YoloHead::kGeneric), kGenericSeen);
  Model columns({1, 6, 8}, Flattened(Transposed(kGenericRows)));
  ExpectSeen(columns.Read(YoloHead::kByShape), kGenericSeen);
  // Boxes that overlap stay alone, whatever the threshold.
  EXPECT_THAT(rows.Read(YoloHead::kGeneric, 0.01f), SizeIs(4));
  EXPECT_THAT(rows.Read(YoloHead::kGeneric, 0.9f), IsEmpty());
}

TEST(YoloReader, ReadsFractionsOfThePicture) {
  std::vector<std::vector<float>> rows = kGenericRows;
  for (auto& row : rows) {
    row[0] /= kWidth;
    row[1] /= kHeight;
    row[2] /= kWidth;
    row[3] /= kHeight;
  }
  Model model({1, 6, 8}, Flattened(Transposed(rows)));
  ExpectSeen(model.Read(YoloHead::kByShape), kGenericSeen);
}

TEST(YoloReader, ReadsCellsOfYolox) {
  // 8 x 4 cells of stride 8, 4 x 2 of 16, 2 x 1 of 32; scores are multiplied.
  std::vector<std::vector<float>> rows(32 + 8 + 2, std::vector<float>(7));
  rows[10] = {0.5f, 0.25f, std::log(2.f), 0, 0.5f, 0.25f, 0.75f};             // stride 8, at 2, 1
  rows[32 + 7] = {0.5f, 0.5f, 0, 0, 1, 0.5f, 0};                              // stride 16, at 3, 1
  rows[41] = {-0.5f, 0.5f, std::log(0.5f), std::log(0.25f), 0.75f, 1, 0.5f};  // stride 32, at 1, 0
  Model model({1, 42, 7}, Flattened(rows));
  const std::vector<Seen> expected = {
      {0, 0.75f, 8.f / 64, 12.f / 32, 24.f / 64, 20.f / 32},
      {0, 0.5f, 48.f / 64, 16.f / 32, 1, 1},
      {1, 0.375f, 12.f / 64, 6.f / 32, 28.f / 64, 14.f / 32},
  };
  // The first and the last one overlap, by less than what makes one of them go.
  ExpectSeen(model.Read(YoloHead::kByShape), expected);
  EXPECT_EQ(model.by_shape, YoloHead::kYolox);
  ExpectSeen(model.Read(YoloHead::kYolox), expected);
}

TEST(YoloReader, ReadsWhatYoloNasHasChosen) {
  Model model({4, 7}, {0, 8,  4, 24, 12, 0.75f, 3,   //
                       0, 32, 8, 64, 32, 0.5f,  0,   //
                       0, 1,  1, 2,  2,  0.9f,  -1,  //
                       0, 9,  9, 2,  2,  0.9f,  1});
  ExpectSeen(model.Read(YoloHead::kNas), {{3, 0.75f, 8.f / 64, 4.f / 32, 24.f / 64, 12.f / 32},
                                          {0, 0.5f, 0.5f, 8.f / 32, 1, 1}});
  EXPECT_EQ(model.by_shape, YoloHead::kNas);
}

TEST(YoloReader, ReadsCornersAndScoresOfYoloNas) {
  ModelBuilder m = ModelWithOutput({1, kHeight, kWidth, 3}, DataType::kFloat32, {1, 3, 2});
  const int32_t zeros = m.Constant(DataType::kFloat32, {1, 3, 4}, std::vector<uint8_t>(3 * 4 * 4));
  const int32_t copy = m.Reshape(zeros, {1, 3, 4});
  m.tensor(copy).type = DataType::kFloat32;
  m.Output(copy);
  const PreparedModel model(m);
  model.SetOutput<float>(0, {0.25f, 0.75f, 0.5f, 0.375f, 0.125f, 0});
  model.SetOutput<float>(1, {8, 4, 24, 12, 32, 8, 64, 32, 1, 1, 2, 2});
  auto reader = YoloReader::Create(model.get(), kWidth, kHeight);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  std::vector<Detection> found;
  for (const YoloHead head : {YoloHead::kByShape, YoloHead::kNas}) {
    ASSERT_TRUE(reader->Read(head, 0.25f, &found).ok());
    ExpectSeen(found, {{1, 0.75f, 8.f / 64, 4.f / 32, 24.f / 64, 12.f / 32},
                       {0, 0.5f, 0.5f, 8.f / 32, 1, 1}});
  }
  EXPECT_EQ(reader->Read(YoloHead::kGeneric, 0.25f, &found).code(), StatusCode::kUnsupported);
}

TEST(YoloReader, SaysWhatItCannotRead) {
  Model rows({1, 8, 6}, Flattened(kGenericRows));
  for (const YoloHead head : {YoloHead::kYolox, YoloHead::kNas}) {
    EXPECT_THAT(rows.Read(head), IsEmpty());
    EXPECT_EQ(rows.status.code(), StatusCode::kUnsupported);
  }
  for (const Shape& shape :
       {Shape{1, 8, 4}, Shape{2, 8, 6}, Shape{1, 10}, Shape{1, 2, 3, 85}, Shape{8}}) {
    const PreparedModel model(ModelWithOutput({1, 8, 8, 3}, DataType::kFloat32, shape));
    const auto reader = YoloReader::Create(model.get(), 8, 8);
    EXPECT_EQ(reader.code(), StatusCode::kUnsupported);
    EXPECT_THAT(reader.status().message(), HasSubstr("its outputs are '"));
  }
  const PreparedModel wide(ModelWithOutput({1, 8, 8, 3}, DataType::kInt32, {1, 8, 6}));
  EXPECT_EQ(YoloReader::Create(wide.get(), 8, 8).code(), StatusCode::kUnsupported);
}

TEST(YoloHeadOf, KnowsFrigatesNames) {
  EXPECT_EQ(YoloHeadOf("yologeneric"), YoloHead::kGeneric);
  EXPECT_EQ(YoloHeadOf("yolox"), YoloHead::kYolox);
  EXPECT_EQ(YoloHeadOf("yolonas"), YoloHead::kNas);
  EXPECT_EQ(YoloHeadOf("ssd"), YoloHead::kByShape);
  EXPECT_EQ(YoloHeadOf(""), YoloHead::kByShape);
}

// A file of a model that says the same of every picture: int8, in steps of 1/64 from -2.
TEST(YoloDetector, ReadsItsModel) {
  std::vector<std::vector<float>> rows(8, std::vector<float>(6));
  rows[2] = {0.5f, 0.25f, 0.25f, 0.5f, 0.125f, 0.75f};
  rows[5] = {0.75f, 0.75f, 0.125f, 0.25f, 0.5f, 0.25f};
  ModelBuilder m;
  const int32_t input = m.Input({1, kHeight, kWidth, 3});
  m.Relu(input);
  std::vector<uint8_t> bytes;
  for (const float value : Flattened(Transposed(rows))) {
    bytes.push_back(static_cast<uint8_t>(static_cast<int8_t>(value * 64)));
  }
  const int32_t constant = m.Constant(DataType::kInt8, {1, 6, 8}, bytes);
  m.tensor(constant).quantization = {.scales = {1.0f / 64}, .zero_points = {0}};
  const int32_t copy = m.Reshape(constant, {1, 6, 8});
  m.tensor(copy).type = DataType::kInt8;
  m.tensor(copy).quantization = m.tensor(constant).quantization;
  m.Output(copy);
  const TemporaryFolder folder;
  const std::string path = folder / "yolo.tflite";
  const std::vector<uint8_t> file = m.Build();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  auto detector = ObjectDetector::Load(path, {}, 1);
  ASSERT_TRUE(detector.ok()) << detector.status().message();
  Image image;
  image.Reshape(kWidth, kHeight, 3);
  const auto later = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  for (const YoloHead head : {YoloHead::kByShape, YoloHead::kGeneric}) {
    const auto found = (*detector)->Detect(image, 0.25f, later, head);
    ASSERT_TRUE(found.ok()) << found.status().message();
    ExpectSeen(*found,
               {{1, 0.75f, 0.375f, 0, 0.625f, 0.5f}, {0, 0.5f, 0.6875f, 0.625f, 0.8125f, 0.875f}});
    const DetectionRows frigate = RowsOf(*found);
    EXPECT_EQ(std::vector<float>(frigate.begin(), frigate.begin() + 6),
              (std::vector<float>{1, 0.75f, 0, 0.375f, 0.5f, 0.625f}));
  }
  const auto wrong = (*detector)->Detect(image, 0.25f, later, YoloHead::kNas);
  EXPECT_EQ(wrong.code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace atollrt
