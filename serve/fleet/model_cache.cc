// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/model_cache.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/sha256.h"

namespace atollserve {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".tflite";
constexpr std::string_view kHalf = ".new";
// What is older was left by a process that has gone.
constexpr auto kHalfAge = std::chrono::hours(1);
constexpr size_t kDigits = 64;

bool IsDigest(std::string_view text) {
  return text.size() == kDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

struct CachedFile {
  fs::path path;
  uint64_t bytes = 0;
  fs::file_time_type used = {};
};

}  // namespace

std::optional<std::string> ModelCache::Find(const std::string& sha256, uint64_t bytes) const {
  if (folder_.empty() || !IsDigest(sha256)) return std::nullopt;
  const fs::path path = fs::path(folder_) / (sha256 + std::string(kEnding));
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(path, error)) || error ||
      fs::file_size(path, error) != bytes || error) {
    return std::nullopt;
  }
  std::string found(bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(found.data(), static_cast<std::streamsize>(bytes)) ||
      atollrt::Sha256Hex(found.data(), found.size()) != sha256) {
    return std::nullopt;
  }
  fs::last_write_time(path, fs::file_time_type::clock::now(), error);
  return found;
}

void ModelCache::Keep(const std::string& sha256, std::string_view bytes) const {
  if (folder_.empty() || !IsDigest(sha256) || bytes.size() > max_bytes_) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  const fs::path path = fs::path(folder_) / (sha256 + std::string(kEnding));
  // Nobody sees half of it, and no two processes write the same half.
  const fs::path half = path.string() + "." + std::to_string(getpid()) + std::string(kHalf);
  std::ofstream file(half, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (file) {
    fs::rename(half, path, error);
  }
  if (!file || error) fs::remove(half, error);
  MakeRoom(sha256);
}

void ModelCache::MakeRoom(const std::string& newest) const {
  std::vector<CachedFile> files;
  uint64_t all = 0;
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code gone;  // others may take it meanwhile
    if (!IsDigest(name.substr(0, kDigits)) || !it->is_regular_file(gone) || it->is_symlink(gone)) {
      continue;
    }
    CachedFile file = {.path = it->path(), .bytes = it->file_size(gone)};
    if (!gone) file.used = it->last_write_time(gone);
    if (gone) continue;
    const std::string_view rest = std::string_view(name).substr(kDigits);
    if (rest.ends_with(kHalf)) {
      if (now - file.used > kHalfAge) fs::remove(file.path, gone);
    } else if (rest == kEnding) {
      all += file.bytes;
      // It stays, whatever the clock says.
      if (name.substr(0, kDigits) != newest) files.push_back(std::move(file));
    }
  }
  std::sort(files.begin(), files.end(),
            [](const CachedFile& a, const CachedFile& b) { return a.used < b.used; });
  for (const CachedFile& file : files) {
    if (all <= max_bytes_) return;
    if (fs::remove(file.path, error) || !error) all -= file.bytes;
  }
}

}  // namespace atollserve
