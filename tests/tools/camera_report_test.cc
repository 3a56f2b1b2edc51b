// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/camera_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

namespace atollcmd {
namespace {

using testing::HasSubstr;

TEST(ProgressLine, HasWhatThereIsToSay) {
  EXPECT_EQ(ProgressLine({.processed = 30, .fps = 29.97, .behind_ms = 12.34, .seen = "cat 0.93"}),
            "30 frames, 30.0 fps, 12.3 ms behind the camera, cat 0.93");
  // Nothing in the frame, as of a detector on an empty street, leaves no comma behind.
  EXPECT_EQ(ProgressLine({.processed = 30, .wanted = 100, .fps = 29.97, .behind_ms = 12.34}),
            "30 of 100 frames, 30.0 fps, 12.3 ms behind the camera");
  EXPECT_EQ(ProgressLine({.failed = 7}), "0 frames, 0.0 fps, 7 failed");
}

TEST(CameraHint, SaysWhatHelps) {
  const std::vector<atollrt::CameraDevice> cameras = {
      {.path = "/dev/video990", .name = "Door", .has_node = true, .group = "cameras"},
      {.path = "/dev/video992", .name = "Garden"}};
  const auto hint = [&](const char* path, int error) {
    return atollrt::CameraHint(path, error, cameras);
  };
  EXPECT_EQ(hint("/dev/video990", EACCES),
            "it belongs to the group 'cameras': sudo usermod -aG cameras $USER, then log in again");
  EXPECT_THAT(hint("/dev/video994", EACCES), HasSubstr("the group 'video'"));
  EXPECT_EQ(hint("/dev/video990", EBUSY), "another program has it");
  EXPECT_THAT(hint("/dev/video992", ENOENT), HasSubstr("(Garden), but here is no node of it"));
  EXPECT_EQ(hint("/dev/video994", ENOENT), "there is /dev/video990 (Door), /dev/video992 (Garden)");
  EXPECT_THAT(atollrt::CameraHint("/dev/video0", ENOENT, {}), HasSubstr("no camera is connected"));
}

}  // namespace
}  // namespace atollcmd
