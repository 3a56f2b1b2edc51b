// SPDX-License-Identifier: Apache-2.0
//
// The bundled detector on scenes of pictures that it was not trained on, through the public
// interface: it is as good as promised, and the emulated device gives the CPU's bytes for every
// scene. models/scenes/evaluate.py --golden wrote the scenes and what is in them: the first ones of
// both exams. The whole exams are integration/scene_exam_test.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "atoll/delegate.h"
#include "atoll/picture/image.h"
#include "atoll/vision/picture_input.h"
#include "atoll/vision/readers.h"
#include "tests/support/average_precision.h"

namespace atollrt {
namespace {

constexpr char kModel[] = ATOLL_SOURCE_DIR "/models/scenes/scenes_int8.tflite";
constexpr char kScenes[] = ATOLL_SOURCE_DIR "/tests/golden/scenes/";
constexpr int kClasses = 10;

struct Exam {
  const char* name;  // also of its folder
  double precision;  // mean average precision of the model as shipped, on these scenes
};
constexpr Exam kExams[] = {{"hard", 0.9034}, {"easy", 0.9465}};
constexpr double kTolerance = 0.01;

using Scenes = std::map<std::string, std::vector<Detection>>;  // what is in each file

Scenes ReadTruth(const std::string& folder) {
  Scenes scenes;
  std::ifstream lines(folder + "truth.txt");
  std::string file;
  Detection box;
  while (lines >> file >> box.class_index >> box.top >> box.left >> box.bottom >> box.right) {
    scenes[folder + file].push_back(box);
  }
  return scenes;
}

struct Outcome {
  std::vector<JudgedPicture> pictures;
  std::vector<uint8_t> bytes;  // of all outputs for all scenes
};

// What the model finds, on the CPU if `delegate` is null; with a failure, less.
Outcome RunAll(const AtollModel* model, AtollDelegate* delegate, const Scenes& scenes) {
  Outcome outcome;
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  options.delegate = delegate;
  AtollInterpreter* interpreter = nullptr;
  EXPECT_EQ(AtollInterpreterCreate(model, &options, &interpreter), ATOLL_OK) << AtollLastError();
  if (interpreter == nullptr) return outcome;
  const Result<PictureInput> input = PictureInput::Create(interpreter);
  const Result<DetectionReader> reader = DetectionReader::Create(interpreter);
  EXPECT_TRUE(input.ok() && reader.ok());
  for (const auto& [file, truth] : scenes) {
    if (!input.ok() || !reader.ok()) break;
    const Result<Image> scene = ReadImageFile(file);
    EXPECT_TRUE(scene.ok()) << scene.status().message();
    if (!scene.ok()) break;
    const Result<Image> resized = Resize(*scene, input->width(), input->height());
    EXPECT_TRUE(resized.ok() && input->Write(*resized).ok()) << file;
    EXPECT_EQ(AtollInterpreterInvoke(interpreter), ATOLL_OK) << AtollLastError();
    outcome.pictures.push_back({truth, {}});
    reader->Read(0, &outcome.pictures.back().detections);
    for (int32_t i = 0; i < AtollInterpreterGetOutputTensorCount(interpreter); ++i) {
      const AtollTensor* output = AtollInterpreterGetOutputTensor(interpreter, i);
      const auto* data = static_cast<const uint8_t*>(AtollTensorConstData(output));
      outcome.bytes.insert(outcome.bytes.end(), data, data + AtollTensorByteSize(output));
    }
  }
  AtollInterpreterDelete(interpreter);
  return outcome;
}

class SceneDetector : public testing::TestWithParam<Exam> {};

TEST_P(SceneDetector, IsAsGoodAsPromisedAndTheSameOnTheEmulator) {
  const Scenes scenes = ReadTruth(std::string(kScenes) + GetParam().name + "/");
  ASSERT_EQ(scenes.size(), 64u);
  AtollModel* model = nullptr;
  ASSERT_EQ(AtollModelCreateFromFile(kModel, &model), ATOLL_OK) << AtollLastError();
  AtollDelegateOptions options = ATOLL_DELEGATE_OPTIONS_INIT;
  options.device = "emu";
  AtollDelegate* emulator = nullptr;
  ASSERT_EQ(AtollDelegateCreate(&options, &emulator), ATOLL_OK) << AtollLastError();
  const Outcome on_cpu = RunAll(model, nullptr, scenes);
  const Outcome on_emulator = RunAll(model, emulator, scenes);
  AtollDelegateDelete(emulator);
  AtollModelDelete(model);

  EXPECT_EQ(on_cpu.bytes, on_emulator.bytes);
  ASSERT_EQ(on_emulator.pictures.size(), scenes.size());
  const double precision = MeanAveragePrecision(on_emulator.pictures, kClasses, 0.5f);
  std::printf("%s: mean average precision %.4f on %zu scenes\n", GetParam().name, precision,
              scenes.size());
  EXPECT_GE(precision, GetParam().precision - kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Exams, SceneDetector, testing::ValuesIn(kExams),
                         [](const auto& exam) { return std::string(exam.param.name); });

// ---- The measure itself -------------------------------------------------------------------------

Detection Box(float left, float right, float score, int class_index = 0) {
  return {left, 0, right, 0.5f, class_index, score};
}

TEST(AveragePrecision, IsTheAreaBelowTheCurve) {
  // Right, wrong (elsewhere), right: precision 1 up to a recall of 1/3, 2/3 up to 2/3, then 0.
  const std::vector<JudgedPicture> pictures = {
      {{Box(0, 0.2f, 0), Box(0.5f, 0.9f, 0)}, {Box(0, 0.2f, 0.9f), Box(0.5f, 0.9f, 0.3f)}},
      {{Box(0, 0.4f, 0)}, {Box(0.6f, 1, 0.5f)}}};
  EXPECT_NEAR(AveragePrecision(pictures, 0, 0.5f), (1 + 2.0 / 3) / 3, 1e-12);
}

TEST(AveragePrecision, RaisesPrecisionToWhatFollows) {
  // Wrong, right, right: precisions 1/2 and 2/3 become 2/3 both.
  const std::vector<JudgedPicture> pictures = {
      {{Box(0, 0.2f, 0), Box(0.5f, 0.7f, 0)},
       {Box(0.8f, 1, 0.9f), Box(0, 0.2f, 0.8f), Box(0.5f, 0.7f, 0.7f)}}};
  EXPECT_NEAR(AveragePrecision(pictures, 0, 0.5f), 2.0 / 3, 1e-12);
}

TEST(AveragePrecision, CountsEveryBoxOnceAndOnlyWithEnoughOverlap) {
  const std::vector<JudgedPicture> twice = {
      {{Box(0, 0.2f, 0)}, {Box(0, 0.2f, 1), Box(0, 0.2f, 1)}}};
  EXPECT_EQ(AveragePrecision(twice, 0, 0.5f), 1);
  // 0.3 of 0.5: an overlap of 0.6.
  const std::vector<JudgedPicture> shifted = {{{Box(0, 0.4f, 0)}, {Box(0.1f, 0.5f, 1)}}};
  EXPECT_EQ(AveragePrecision(shifted, 0, 0.55f), 1);
  EXPECT_EQ(AveragePrecision(shifted, 0, 0.65f), 0);
}

TEST(AveragePrecision, KeepsClassesApart) {
  const std::vector<JudgedPicture> pictures = {{{Box(0, 0.2f, 0, 0), Box(0.5f, 0.9f, 0, 1)},
                                                {Box(0, 0.2f, 1, 1), Box(0.5f, 0.9f, 0.5f, 1)}}};
  EXPECT_EQ(AveragePrecision(pictures, 0, 0.5f), 0);
  EXPECT_EQ(AveragePrecision(pictures, 1, 0.5f), 0.5);
  EXPECT_EQ(AveragePrecision(pictures, 2, 0.5f), 0);
  EXPECT_EQ(MeanAveragePrecision(pictures, 2, 0.5f), 0.25);
}

}  // namespace
}  // namespace atollrt
