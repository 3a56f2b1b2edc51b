// SPDX-License-Identifier: Apache-2.0
//
// The programs to copy from, run as a user would run them: on the bundled models, a detector made
// for this test and the test pattern. What they print is compared with what the command says, or
// with what the model must see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/picture_models.h"

namespace atollrt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kFashion = ATOLL_SOURCE_DIR "/models/fashion/";
const std::string kClassifier = kFashion + "fashion_int8.tflite";
const std::string kLabels = kFashion + "labels.txt";
const std::string kSceneDetector = ATOLL_SOURCE_DIR "/models/scenes/scenes_int8.tflite";
const std::string kCropClassifier = ATOLL_SOURCE_DIR "/models/crops/crops_int8.tflite";
const std::string kScenes = ATOLL_SOURCE_DIR "/tests/golden/scenes/hard";

struct Output {
  int exit_code = -1;
  std::string text;  // stdout and stderr
  std::vector<std::string> lines;
};

Output RunCommand(const std::string& path, const std::vector<std::string>& arguments) {
  std::string command = ATOLL_EMULATOR;
  command += " '" + path + "'";
  for (const std::string& argument : arguments) command += " '" + argument + "'";
  command += " 2>&1";
  Output output;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return output;
  char buffer[4096];
  while (const size_t count = std::fread(buffer, 1, sizeof(buffer), pipe)) {
    output.text.append(buffer, count);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) output.exit_code = WEXITSTATUS(status);
  std::istringstream lines(output.text);
  for (std::string line; std::getline(lines, line);) output.lines.push_back(line);
  return output;
}

Output RunProgram(const std::string& name, const std::vector<std::string>& arguments) {
  return RunCommand(ATOLL_PROGRAMS "/" + name, arguments);
}

// Lines that match an extended regular expression as a whole.
int Count(const Output& output, const std::string& pattern) {
  regex_t compiled;
  EXPECT_EQ(regcomp(&compiled, ("^(" + pattern + ")$").c_str(), REG_EXTENDED | REG_NOSUB), 0)
      << pattern;
  int count = 0;
  for (const std::string& line : output.lines) {
    count += regexec(&compiled, line.c_str(), 0, nullptr, 0) == 0;
  }
  regfree(&compiled);
  return count;
}

class ProgramsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/programsXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    const std::vector<uint8_t> bytes = PictureDetectorModel().Build();
    std::ofstream file(detector(), std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(file.good());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string detector() const { return folder_ + "/detector.tflite"; }

 private:
  std::string folder_;
};

TEST_F(ProgramsTest, ClassifyImage) {
  const std::string picture = kFashion + "ankle_boot.pgm";
  const Output output = RunProgram("classify_image", {kClassifier, picture, kLabels, "emu"});
  EXPECT_EQ(output.exit_code, 0) << output.text;
  // The same classes with the same scores as the command, which prints their numbers, too.
  Output expected = RunCommand(
      ATOLL_COMMAND, {"classify", kClassifier, picture, "--labels", kLabels, "--device", "emu"});
  ASSERT_EQ(expected.lines.size(), 6u) << expected.text;
  expected.lines.erase(expected.lines.begin());
  for (std::string& line : expected.lines) {
    std::istringstream words(line);
    std::string score;
    std::string number;
    std::string name;
    std::getline(words >> score >> number >> std::ws, name);
    line = score + "  " + name;
  }
  EXPECT_EQ(output.lines, expected.lines);
  EXPECT_THAT(output.lines[0], HasSubstr("Ankle boot"));
}

TEST_F(ProgramsTest, ClassifyCamera) {
  const Output output = RunProgram("classify_camera", {kClassifier, kLabels, "test", "4", "emu"});
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_EQ(Count(output, "frame [0-3]: .+ [01]\\.[0-9][0-9]"), 4) << output.text;
  EXPECT_THAT(output.text, HasSubstr("\n4 captured = 4 processed + 0 dropped + 0 failed\n"));
  EXPECT_THAT(output.text, HasSubstr("12 of 12 operators on the device"));
}

TEST_F(ProgramsTest, DetectCamera) {
  const Output output = RunProgram("detect_camera", {detector(), "-", "test", "3", "emu"});
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_EQ(Count(output, "frame [0-2]: 2 found"), 3) << output.text;
  EXPECT_EQ(Count(output, "  class 1 0\\.94 at [0-9]+, [0-9]+, [0-9]+ x [0-9]+"), 3) << output.text;
  EXPECT_EQ(Count(output, "  class 0 0\\.75 at [0-9]+, [0-9]+, [0-9]+ x [0-9]+"), 3) << output.text;
  EXPECT_THAT(output.text, HasSubstr("\n3 captured = 3 processed + 0 dropped + 0 failed\n"));
}

TEST_F(ProgramsTest, TwoModels) {
  const Output output =
      RunProgram("two_models", {detector(), "-", kClassifier, kLabels, "test", "3", "emu"});
  EXPECT_EQ(output.exit_code, 0) << output.text;
  ASSERT_FALSE(output.lines.empty());
  EXPECT_EQ(output.lines[0], "both models stay on the device");
  EXPECT_EQ(Count(output, "frame [0-2]"), 3) << output.text;
  EXPECT_EQ(Count(output, "  A: class 1 0\\.94"), 3) << output.text;
  EXPECT_EQ(Count(output, "  B: [A-Z].+ [01]\\.[0-9][0-9]"), 3) << output.text;
  EXPECT_THAT(output.text, HasSubstr("\n3 captured = 3 processed + 0 dropped + 0 failed\n"));
}

TEST_F(ProgramsTest, Cascade) {
  const Output output =
      RunProgram("cascade", {detector(), "-", kClassifier, kLabels, "test", "3", "emu"});
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_EQ(Count(output, "frame [0-2]: 2 found"), 3) << output.text;
  EXPECT_EQ(Count(output, "  class [01] 0\\.[0-9]+ at .*: [A-Z].+ [01]\\.[0-9][0-9]"), 6)
      << output.text;
  EXPECT_THAT(output.text, HasSubstr("fashion_int8: 1 partition with 12 of 12 operators on the "
                                     "device, 0 on the CPU; median of 6: "));
}

// A piece of clothing in a scene, with its corners in pixels.
struct Piece {
  double left, top, right, bottom;
  std::string name;
};

// What is in each of the golden scenes, by their order.
std::vector<std::vector<Piece>> ReadPieces() {
  std::vector<std::string> names;
  std::ifstream labels(kLabels);
  for (std::string name; std::getline(labels, name);) names.push_back(name);
  std::vector<std::vector<Piece>> scenes;
  std::ifstream truth(kScenes + "/truth.txt");
  std::string file;
  size_t name = 0;
  Piece piece;
  while (truth >> file >> name >> piece.top >> piece.left >> piece.bottom >> piece.right) {
    const size_t scene = std::stoul(file);
    scenes.resize(std::max(scenes.size(), scene + 1));
    const double width = scene % 2 == 0 ? 256 : 320, height = scene % 2 == 0 ? 192 : 180;
    scenes[scene].push_back({piece.left * width, piece.top * height, piece.right * width,
                             piece.bottom * height, names.at(name)});
  }
  return scenes;
}

double Overlap(const Piece& a, const Piece& b) {
  const double width = std::min(a.right, b.right) - std::max(a.left, b.left);
  const double height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  if (width <= 0 || height <= 0) return 0;
  const auto area = [](const Piece& box) {
    return (box.right - box.left) * (box.bottom - box.top);
  };
  return width * height / (area(a) + area(b) - width * height);
}

// The bundled classifier of crops says what is in the boxes of the bundled detector.
TEST_F(ProgramsTest, CascadeIsRightAboutWhatIsInTheBoxes) {
  const std::vector<std::vector<Piece>> scenes = ReadPieces();
  ASSERT_EQ(scenes.size(), 64u);
  const Output output = RunProgram(
      "cascade", {kSceneDetector, kLabels, kCropClassifier, kLabels, kScenes, "64", "emu"});
  ASSERT_EQ(output.exit_code, 0) << output.text;
  unsigned frame = 0;
  int boxes = 0;
  int right = 0;
  for (const std::string& line : output.lines) {
    if (std::sscanf(line.c_str(), "frame %u:", &frame) == 1) continue;
    const size_t place = line.rfind(" at ");
    int left = 0, top = 0, width = 0, height = 0, end = 0;
    if (place == std::string::npos || std::sscanf(line.c_str() + place, " at %d, %d, %d x %d: %n",
                                                  &left, &top, &width, &height, &end) != 4) {
      continue;
    }
    const std::string seen = line.substr(place + static_cast<size_t>(end));
    const Piece box = {static_cast<double>(left), static_cast<double>(top),
                       static_cast<double>(left + width), static_cast<double>(top + height), seen};
    ASSERT_LT(frame, scenes.size());
    const Piece* best = nullptr;
    for (const Piece& piece : scenes[frame]) {
      if (Overlap(piece, box) >= (best == nullptr ? 0.5 : Overlap(*best, box))) best = &piece;
    }
    if (best == nullptr) continue;
    ++boxes;
    right += seen.substr(0, seen.rfind(' ')) == best->name;
  }
  std::printf("%d of %d boxes right\n", right, boxes);
  EXPECT_GE(boxes, 100);
  EXPECT_GE(right, 0.92 * boxes);  // 192 of 206 as shipped
}

TEST_F(ProgramsTest, SayWhatIsWrong) {
  for (const char* program :
       {"cascade", "classify_camera", "classify_image", "detect_camera", "two_models"}) {
    const Output output = RunProgram(program, {});
    EXPECT_EQ(output.exit_code, 2) << program;
    EXPECT_THAT(output.text, StartsWith("usage: ")) << program;
  }
  struct Case {
    std::string program;
    std::vector<std::string> arguments;
    std::string named;
  };
  const Case cases[] = {
      {"classify_image", {"absent.tflite", "x.jpg", kLabels}, "absent.tflite"},
      {"classify_image", {kClassifier, "absent.jpg", kLabels}, "absent.jpg"},
      {"classify_camera", {kClassifier, kLabels, "test", "1", "toaster"}, "toaster"},
      {"classify_camera", {kClassifier, "absent.txt", "test", "1"}, "absent.txt"},
      {"classify_camera", {kClassifier, kLabels, "/absent"}, "/absent"},
      {"detect_camera", {kLabels, "-", "test", "1"}, kLabels},
  };
  for (const Case& wrong : cases) {
    const Output output = RunProgram(wrong.program, wrong.arguments);
    EXPECT_EQ(output.exit_code, 1) << output.text;
    EXPECT_THAT(output.lines, ElementsAre(HasSubstr(wrong.named)));
  }
}

}  // namespace
}  // namespace atollrt
