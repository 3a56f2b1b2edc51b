// SPDX-License-Identifier: Apache-2.0
//
// Which cameras there are, and whether this user may open them, from what the kernel shows in /sys
// and /dev. None is opened.
#pragma once

#include <string>
#include <vector>

namespace atollrt {

struct CameraDevice {
  std::string path;        // "/dev/video0"
  std::string name;        // "HD Webcam", from the device: any bytes but control characters
  bool has_node = false;   // else the kernel knows it, but there is nothing in /dev
  bool permitted = false;  // to this user
  std::string group = {};  // of the node; its number if it has no name
};

// The video nodes that a camera's pictures come from, in the order of their numbers. (A camera has
// others, for what is no picture.) `root`: the folder with a copy of another computer's /sys and
// /dev; "" for this one's.
std::vector<CameraDevice> ListCameras(const std::string& root = "");

// What helps when opening `path` failed with `error`, an errno, and these cameras are there: the
// end of a sentence.
std::string CameraHint(const std::string& path, int error,
                       const std::vector<CameraDevice>& cameras);

}  // namespace atollrt
