// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <utility>

#include "atoll/camera/frame_source.h"
#include "camera/picture/file_io.h"

namespace atollrt {
namespace {

constexpr const char* kClassFolder = "/sys/class/video4linux";

// The first line of a short file, fit for one line of a terminal; "" if there is none.
std::string ReadLine(const std::string& path) {
  std::vector<uint8_t> bytes;
  if (!ReadFile(path, &bytes).ok()) return "";
  std::string line(bytes.begin(), std::find(bytes.begin(), bytes.end(), '\n'));
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return line;
}

std::string GroupName(gid_t id) {
  group entry = {};
  group* found = nullptr;
  std::array<char, 4096> buffer;
  if (getgrgid_r(id, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
    return found->gr_name;
  }
  return std::to_string(id);
}

// N of "videoN"; -1 for other names.
int NumberOf(const std::string& name) {
  const std::string prefix = "video";
  if (!name.starts_with(prefix)) return -1;
  int number = -1;
  const char* const end = name.data() + name.size();
  const auto [number_end, error] = std::from_chars(name.data() + prefix.size(), end, number);
  return error == std::errc() && number_end == end ? number : -1;
}

std::vector<int> Numbers(const std::string& folder) {
  std::vector<int> numbers;
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) return numbers;
  while (const dirent* entry = readdir(entries)) {
    if (const int number = NumberOf(entry->d_name); number >= 0) numbers.push_back(number);
  }
  closedir(entries);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

}  // namespace

std::vector<CameraDevice> ListCameras(const std::string& root) {
  std::vector<CameraDevice> cameras;
  for (const int number : Numbers(root + kClassFolder)) {
    const std::string node = "video" + std::to_string(number);
    const std::string folder = root + kClassFolder + "/" + node;
    // The first node of a camera gives its pictures, the next ones what belongs to them.
    const std::string index = ReadLine(folder + "/index");
    if (!index.empty() && index != "0") continue;
    CameraDevice camera = {.path = "/dev/" + node, .name = ReadLine(folder + "/name")};
    struct stat info = {};
    const std::string path = root + camera.path;
    camera.has_node = stat(path.c_str(), &info) == 0;
    if (camera.has_node) {
      camera.permitted = faccessat(AT_FDCWD, path.c_str(), R_OK | W_OK, AT_EACCESS) == 0;
      camera.group = GroupName(info.st_gid);
    }
    cameras.push_back(std::move(camera));
  }
  return cameras;
}

std::string CameraHint(const std::string& path, int error,
                       const std::vector<CameraDevice>& cameras) {
  const auto close = [](char* text) { std::free(text); };
  const std::unique_ptr<char, decltype(close)> real(realpath(path.c_str(), nullptr), close);
  const std::string node = real ? real.get() : path;
  const auto same =
      std::find_if(cameras.begin(), cameras.end(), [&](const auto& c) { return c.path == node; });
  if (error == EACCES || error == EPERM) {
    const bool has_group = same != cameras.end() && same->has_node;
    const std::string group = has_group ? same->group : "video";
    return "it belongs to the group '" + group + "': sudo usermod -aG " + group +
           " $USER, then log in again";
  }
  if (error == EBUSY) return "another program has it";
  if (same != cameras.end()) {
    return "the kernel has this camera (" + same->name +
           "), but here is no node of it: a container gets it with --device " + same->path;
  }
  std::string others;
  for (const CameraDevice& camera : cameras) {
    others += (others.empty() ? "there is " : ", ") + camera.path + " (" + camera.name + ")";
  }
  if (!others.empty()) return others;
  return "no camera is connected (a Raspberry Pi's own comes as 'rpicam-vid -t 0 --codec mjpeg -o "
         "- "
         "| atoll camera MODEL --source -')";
}

}  // namespace atollrt
