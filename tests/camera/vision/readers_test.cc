// SPDX-License-Identifier: Apache-2.0
//
// What the readers of the vision library make of output tensors, whatever these hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "atoll/vision.h"
#include "tests/support/picture_models.h"

namespace atollrt {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// ---- Classification -----------------------------------------------------------------------------

std::vector<int> TopClasses(const ClassificationReader& reader, int k) {
  std::vector<ClassScore> top;
  reader.ReadTop(k, &top);
  std::vector<int> classes;
  for (const ClassScore& entry : top) classes.push_back(entry.class_index);
  return classes;
}

TEST(ClassificationReader, OrdersByScoreThenByClass) {
  const PreparedModel model(ModelWithOutput({1, 8, 8, 3}, DataType::kFloat32, {1, 5}));
  const auto reader = ClassificationReader::Create(model.get());
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(reader->class_count(), 5);
  model.SetOutput<float>(0, {0.25f, 0.5f, -1.0f, 0.5f, 0.75f});
  EXPECT_THAT(TopClasses(*reader, 3), ElementsAre(4, 1, 3));
  EXPECT_THAT(TopClasses(*reader, 99), ElementsAre(4, 1, 3, 0, 2));
  EXPECT_THAT(TopClasses(*reader, 0), IsEmpty());
  std::vector<ClassScore> best;
  reader->ReadTop(1, &best);
  EXPECT_EQ(best[0].score, 0.75f);
}

TEST(ClassificationReader, PutsWhatIsNoNumberLast) {
  const PreparedModel model(ModelWithOutput({1, 8, 8, 3}, DataType::kFloat32, {1, 4}));
  const auto reader = ClassificationReader::Create(model.get());
  model.SetOutput<float>(0, {kNan, -5.0f, kNan, kInfinity});
  EXPECT_THAT(TopClasses(*reader, 4), ElementsAre(3, 1, 0, 2));
  EXPECT_THAT(TopClasses(*reader, 1), ElementsAre(3));
  model.SetOutput<float>(0, {kNan, kNan, kNan, kNan});
  EXPECT_THAT(TopClasses(*reader, 1), ElementsAre(0));
}

TEST(ClassificationReader, UsesTheOutputsOwnQuantization) {
  for (const bool is_signed : {true, false}) {
    ModelBuilder m =
        ModelWithOutput({1, 8, 8, 3}, is_signed ? DataType::kInt8 : DataType::kUInt8, {1, 1, 1, 3});
    for (Tensor& tensor : m.graph().tensors) {
      if (tensor.shape == Shape{1, 1, 1, 3}) {
        tensor.quantization = {.scales = {0.25f}, .zero_points = {is_signed ? -128 : 4}};
      }
    }
    const PreparedModel model(m);
    const auto reader = ClassificationReader::Create(model.get());
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    model.SetOutput<uint8_t>(0, {0x80, 0x00, 0x7f});
    std::vector<ClassScore> top;
    reader->ReadTop(1, &top);
    EXPECT_EQ(top[0].class_index, is_signed ? 2 : 0);
    EXPECT_EQ(top[0].score, is_signed ? 0.25f * 255 : 0.25f * 124);
  }
}

TEST(ClassificationReader, RefusesOtherOutputs) {
  const auto refusal = [](DataType type, const Shape& shape) {
    const PreparedModel model(ModelWithOutput({1, 8, 8, 3}, type, shape));
    const auto reader = ClassificationReader::Create(model.get());
    EXPECT_EQ(reader.code(), StatusCode::kUnsupported);
    return reader.status().message();
  };
  EXPECT_THAT(refusal(DataType::kFloat32, {1, 4, 5}), HasSubstr("float32 [1,4,5], but a"));
  EXPECT_THAT(refusal(DataType::kFloat32, {1, 1}), HasSubstr("[1,1]"));
  EXPECT_THAT(refusal(DataType::kFloat32, {5, 1}), HasSubstr("[5,1]"));
  EXPECT_THAT(refusal(DataType::kInt32, {1, 5}), HasSubstr("int32"));
  const PreparedModel detector(DetectorModel(3));
  EXPECT_THAT(ClassificationReader::Create(detector.get()).status().message(),
              HasSubstr("4 outputs"));
}

// ---- Detection ----------------------------------------------------------------------------------

class DetectionReaderTest : public testing::Test {
 protected:
  DetectionReaderTest()
      : model_(DetectorModel(4)), reader_(*DetectionReader::Create(model_.get())) {}

  void SetOutputs(const std::vector<float>& boxes, const std::vector<float>& classes,
                  const std::vector<float>& scores, float count) {
    model_.SetOutput<float>(0, boxes);
    model_.SetOutput<float>(1, classes);
    model_.SetOutput<float>(2, scores);
    model_.SetOutput<float>(3, {count});
  }
  std::vector<int> Classes(float threshold) {
    reader_.Read(threshold, &detections_);
    std::vector<int> classes;
    for (const Detection& detection : detections_) classes.push_back(detection.class_index);
    return classes;
  }

  // top, left, bottom, right
  const std::vector<float> boxes_ = {0.1f, 0.2f, 0.3f, 0.4f, 0, 0, 1, 1,
                                     0.5f, 0.5f, 0.6f, 0.6f, 0, 0, 0, 0};
  const PreparedModel model_;
  const DetectionReader reader_;
  std::vector<Detection> detections_;
};

TEST_F(DetectionReaderTest, GivesTheBestFirst) {
  SetOutputs(boxes_, {7, 3, 5, 2}, {0.5f, 0.25f, 0.75f, 0.5f}, 4);
  EXPECT_THAT(Classes(0), ElementsAre(5, 7, 2, 3));
  EXPECT_THAT(Classes(0.5f), ElementsAre(5, 7, 2));
  EXPECT_EQ(detections_[1].top, 0.1f);
  EXPECT_EQ(detections_[1].left, 0.2f);
  EXPECT_EQ(detections_[1].bottom, 0.3f);
  EXPECT_EQ(detections_[1].right, 0.4f);
  EXPECT_EQ(detections_[1].score, 0.5f);
  EXPECT_EQ(reader_.score_count(), 3);
}

TEST_F(DetectionReaderTest, ReadsNothingFromTheCountOn) {
  SetOutputs(boxes_, {7, 3, 5, 2}, {0.1f, 0.2f, 0.9f, 0.9f}, 2);
  EXPECT_THAT(Classes(0), ElementsAre(3, 7));
  SetOutputs(boxes_, {7, 3, 5, 2}, {0.1f, 0.2f, 0.9f, 0.9f}, 0);
  EXPECT_THAT(Classes(0), IsEmpty());
}

TEST_F(DetectionReaderTest, BelievesNoCountThatCannotBe) {
  for (const float count : {kNan, -1.0f, -kInfinity}) {
    SetOutputs(boxes_, {7, 3, 5, 2}, {0.1f, 0.2f, 0.9f, 0.9f}, count);
    EXPECT_THAT(Classes(0), IsEmpty());
  }
  for (const float count : {5.0f, 1e30f, kInfinity}) {
    SetOutputs(boxes_, {7, 3, 5, 2}, {0.4f, 0.3f, 0.2f, 0.1f}, count);
    EXPECT_THAT(Classes(0), ElementsAre(7, 3, 5, 2));
  }
}

TEST_F(DetectionReaderTest, ClipsBoxesAndOrdersTheirEdges) {
  SetOutputs({-0.5f, 0.75f, 1.5f, 0.25f, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1}, {0, 0, 0, 0},
             {0.9f, 0, 0, 0}, 1);
  reader_.Read(0, &detections_);
  ASSERT_EQ(detections_.size(), 1u);
  EXPECT_EQ(detections_[0].top, 0.0f);
  EXPECT_EQ(detections_[0].bottom, 1.0f);
  EXPECT_EQ(detections_[0].left, 0.25f);
  EXPECT_EQ(detections_[0].right, 0.75f);
}

TEST_F(DetectionReaderTest, LeavesOutWhatIsNoDetection) {
  std::vector<float> boxes = boxes_;
  boxes[2] = kNan;
  boxes[5] = kInfinity;
  SetOutputs(boxes, {1, 2, 3, 4}, {0.9f, 0.9f, 0.9f, 0.9f}, 4);
  EXPECT_THAT(Classes(0), ElementsAre(3, 4));
  SetOutputs(boxes_, {-1, kNan, 1e30f, 4}, {0.9f, 0.9f, 0.9f, kNan}, 4);
  EXPECT_THAT(Classes(0), IsEmpty());
}

TEST_F(DetectionReaderTest, FindsOutputsByTheOperatorWhateverTheirOrder) {
  ModelBuilder m = DetectorModel(2);
  auto& outputs = m.graph().outputs;
  outputs = {outputs[3], outputs[2], outputs[0], outputs[1]};
  const PreparedModel model(m);
  const auto reader = DetectionReader::Create(model.get());
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  model.SetOutput<float>(0, {1});
  model.SetOutput<float>(1, {0.5f, 0.25f});
  model.SetOutput<float>(2, {0, 0, 1, 1, 0, 0, 1, 1});
  model.SetOutput<float>(3, {42, 43});
  reader->Read(0, &detections_);
  ASSERT_EQ(detections_.size(), 1u);
  EXPECT_EQ(detections_[0].class_index, 42);
  EXPECT_EQ(detections_[0].score, 0.5f);
}

TEST_F(DetectionReaderTest, RefusesModelsThatKeepAnOutputToThemselves) {
  ModelBuilder m = DetectorModel(2);
  m.graph().outputs.pop_back();
  const PreparedModel model(m);
  EXPECT_THAT(DetectionReader::Create(model.get()).status().message(),
              AllOf(HasSubstr("3 outputs"), HasSubstr("first four outputs")));
  const PreparedModel other(ModelWithOutput({1, 8, 8, 3}, DataType::kFloat32, {1, 5}));
  EXPECT_EQ(DetectionReader::Create(other.get()).code(), StatusCode::kUnsupported);
}

// ---- Segmentation -------------------------------------------------------------------------------

template <typename T>
std::vector<uint8_t> ReadMap(DataType type, const Shape& shape, const std::vector<T>& values) {
  const PreparedModel model(ModelWithOutput({1, 8, 8, 3}, type, shape));
  const auto reader = SegmentationReader::Create(model.get());
  EXPECT_TRUE(reader.ok()) << reader.status().message();
  if (!reader.ok()) return {};
  model.SetOutput<T>(0, values);
  Image map;
  const Status status = reader->Read(&map);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(map.width, shape[2]);
  EXPECT_EQ(map.height, shape[1]);
  EXPECT_EQ(map.channels, 1);
  return map.pixels;
}

TEST(SegmentationReader, ReadsClassNumbers) {
  const auto wanted = ElementsAre(0, 3, 255, 1, 2, 0);
  EXPECT_THAT(ReadMap<int64_t>(DataType::kInt64, {1, 2, 3}, {0, 3, 255, 1, 2, 0}), wanted);
  EXPECT_THAT(ReadMap<int32_t>(DataType::kInt32, {1, 2, 3, 1}, {0, 3, 255, 1, 2, 0}), wanted);
  EXPECT_THAT(ReadMap<uint8_t>(DataType::kUInt8, {1, 2, 3}, {0, 3, 255, 1, 2, 0}), wanted);
}

TEST(SegmentationReader, RefusesNumbersThatAreNoClass) {
  for (const int32_t bad : {-1, 256, INT32_MIN, INT32_MAX}) {
    const PreparedModel model(ModelWithOutput({1, 8, 8, 3}, DataType::kInt32, {1, 2, 3}));
    const auto reader = SegmentationReader::Create(model.get());
    ASSERT_TRUE(reader.ok());
    model.SetOutput<int32_t>(0, {0, 0, 0, 0, 0, bad});
    Image map;
    EXPECT_THAT(reader->Read(&map).message(),
                AllOf(HasSubstr("class " + std::to_string(bad)), HasSubstr("(2, 1)")));
  }
}

TEST(SegmentationReader, TakesTheFirstOfTheHighestScores) {
  EXPECT_THAT(ReadMap<int8_t>(DataType::kInt8, {1, 2, 2, 3},
                              {-5, 7, 7, 1, 0, 1, -128, -128, -128, -128, -127, 127}),
              ElementsAre(1, 0, 0, 2));
  EXPECT_THAT(ReadMap<uint8_t>(DataType::kUInt8, {1, 2, 2, 2}, {1, 2, 2, 1, 0, 0, 127, 128}),
              ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(ReadMap<float>(DataType::kFloat32, {1, 2, 2, 2},
                             {-1, -0.5f, kNan, -kInfinity, kNan, kNan, 3, kNan}),
              ElementsAre(1, 1, 0, 0));
}

TEST(SegmentationReader, LearnsTheClassCountFromTheArgMax) {
  ModelBuilder m;
  const int32_t axis = m.Integers({}, {3});
  const int32_t map = m.Node(OpType::kARG_MAX, {m.Relu(m.Input({1, 8, 8, 21})), axis}, {1, 8, 8});
  m.tensor(map).type = DataType::kInt32;
  m.tensor(map).quantization = {};
  m.Output(map);
  const PreparedModel model(m);
  const auto reader = SegmentationReader::Create(model.get());
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(reader->class_count(), 21);
}

TEST(SegmentationReader, RefusesOtherOutputs) {
  const auto accepts = [](DataType type, const Shape& shape) {
    const PreparedModel model(ModelWithOutput({1, 8, 8, 3}, type, shape));
    return SegmentationReader::Create(model.get()).ok();
  };
  EXPECT_TRUE(accepts(DataType::kFloat32, {1, 4, 5, 256}));
  EXPECT_FALSE(accepts(DataType::kFloat32, {1, 4, 5, 257}));
  EXPECT_FALSE(accepts(DataType::kFloat32, {1, 4, 5, 1}));
  EXPECT_FALSE(accepts(DataType::kFloat32, {1, 4, 5}));
  EXPECT_FALSE(accepts(DataType::kFloat32, {1, 1, 1, 5}));
  EXPECT_FALSE(accepts(DataType::kInt32, {2, 4, 5}));
  EXPECT_FALSE(accepts(DataType::kInt32, {4, 5}));
}

TEST(SegmentationReader, CountsPixels) {
  Image map;
  map.Reshape(3, 1, 1);
  map.pixels = {7, 0, 7};
  const auto counts = CountPixels(map);
  EXPECT_EQ(counts[7], 2);
  EXPECT_EQ(counts[0], 1);
  EXPECT_EQ(counts[1], 0);
}

// ---- Poses --------------------------------------------------------------------------------------

TEST(PoseReader, ReadsPosenetInPixelsOfTheInput) {
  const PreparedModel model(PosenetModel(3));
  const auto reader = PoseReader::Create(model.get());
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  std::vector<float> keypoints(3 * 17 * 2, 0.0f);
  keypoints[0] = 33.0f / 2;               // y of pose 0, keypoint 0
  keypoints[1] = 49.0f / 4;               // x
  keypoints[(17 + 16) * 2 + 1] = -49.0f;  // x of pose 1, keypoint 16
  std::vector<float> scores(3 * 17, 0.5f);
  scores[17 + 16] = 0.125f;
  model.SetOutput<float>(0, keypoints);
  model.SetOutput<float>(1, scores);
  model.SetOutput<float>(2, {0.25f, 0.75f, 1.0f});
  model.SetOutput<float>(3, {2});
  std::vector<Pose> poses;
  reader->Read(0, &poses);
  ASSERT_EQ(poses.size(), 2u);  // the third is not one
  EXPECT_EQ(poses[0].score, 0.75f);
  EXPECT_EQ(poses[0].keypoints[16].x, -1.0f);
  EXPECT_EQ(poses[0].keypoints[16].score, 0.125f);
  EXPECT_EQ(poses[1].keypoints[0].x, 0.25f);
  EXPECT_EQ(poses[1].keypoints[0].y, 0.5f);
  reader->Read(0.5f, &poses);
  EXPECT_EQ(poses.size(), 1u);
  for (const float count : {kNan, -3.0f}) {
    model.SetOutput<float>(3, {count});
    reader->Read(0, &poses);
    EXPECT_THAT(poses, IsEmpty());
  }
  model.SetOutput<float>(3, {1e9f});
  reader->Read(0, &poses);
  EXPECT_EQ(poses.size(), 3u);
}

TEST(PoseReader, ReadsMovenetAsOnePose) {
  const PreparedModel model(ModelWithOutput({1, 8, 8, 3}, DataType::kFloat32, {1, 1, 17, 3}));
  const auto reader = PoseReader::Create(model.get());
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  std::vector<float> output;
  for (int k = 0; k < 17; ++k) {
    output.insert(output.end(), {0.25f, 0.5f, k < 9 ? 1.0f : 0.0f});
  }
  model.SetOutput<float>(0, output);
  std::vector<Pose> poses;
  reader->Read(0.5f, &poses);
  ASSERT_EQ(poses.size(), 1u);
  EXPECT_NEAR(poses[0].score, 9.0 / 17, 1e-6);
  EXPECT_EQ(poses[0].keypoints[3].y, 0.25f);
  EXPECT_EQ(poses[0].keypoints[3].x, 0.5f);
  reader->Read(0.6f, &poses);
  EXPECT_THAT(poses, IsEmpty());
  output[7] = kNan;
  model.SetOutput<float>(0, output);
  reader->Read(-1, &poses);
  EXPECT_THAT(poses, IsEmpty());
}

TEST(PoseReader, RefusesOtherOutputs) {
  const PreparedModel model(ModelWithOutput({1, 8, 8, 3}, DataType::kFloat32, {1, 1, 17, 2}));
  EXPECT_THAT(PoseReader::Create(model.get()).status().message(), HasSubstr("[1,1,17,2]"));
}

TEST(PoseReader, HasASkeletonOfAllKeypoints) {
  std::vector<bool> used(kKeypointCount);
  for (const auto& [from, to] : kSkeleton) {
    ASSERT_LT(from, to);
    used[static_cast<size_t>(from)] = used[static_cast<size_t>(to)] = true;
  }
  EXPECT_THAT(used, testing::Each(true));
}

// ---- Which reader -------------------------------------------------------------------------------

TEST(IdentifyTask, NamesTheReaderThatAccepts) {
  const auto task_of = [](const ModelBuilder& m) {
    const PreparedModel model(m);
    return IdentifyTask(model.get());
  };
  const auto with_output = [](DataType type, const Shape& shape) {
    return ModelWithOutput({1, 8, 8, 3}, type, shape);
  };
  EXPECT_EQ(task_of(DetectorModel(3)), Task::kDetect);
  EXPECT_EQ(task_of(PosenetModel(3)), Task::kPose);
  EXPECT_EQ(task_of(with_output(DataType::kFloat32, {1, 1, 17, 3})), Task::kPose);
  EXPECT_EQ(task_of(with_output(DataType::kInt64, {1, 8, 8})), Task::kSegment);
  EXPECT_EQ(task_of(with_output(DataType::kFloat32, {1, 10})), Task::kClassify);
  EXPECT_EQ(task_of(with_output(DataType::kInt32, {1, 10})), Task::kNone);
}

}  // namespace
}  // namespace atollrt
