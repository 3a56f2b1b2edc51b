// SPDX-License-Identifier: Apache-2.0
//
// Directories for a test, and files for them that look like those of Fashion-MNIST.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace atollrt {

// A directory that disappears with its files.
class TemporaryDirectory {
 public:
  TemporaryDirectory() : path_(testing::TempDir() + "files_XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "mkdtemp " << path_;
  }
  ~TemporaryDirectory() {
    for (const std::string& file : files_) std::remove(file.c_str());
    rmdir(path_.c_str());
  }
  const std::string& path() const { return path_; }

  std::string Write(const std::string& name, const std::vector<uint8_t>& bytes) {
    const std::string file = Add(name);
    std::FILE* out = std::fopen(file.c_str(), "wb");
    for (const uint8_t byte : bytes) std::fputc(byte, out);
    std::fclose(out);
    return file;
  }
  std::string WriteGzip(const std::string& name, const std::vector<uint8_t>& bytes) {
    const std::string file = Add(name);
    gzFile out = gzopen(file.c_str(), "wb");
    EXPECT_EQ(gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size())),
              static_cast<int>(bytes.size()));
    gzclose(out);
    return file;
  }

 private:
  std::string Add(const std::string& name) {
    files_.push_back(path_ + "/" + name);
    return files_.back();
  }
  std::string path_;
  std::vector<std::string> files_;
};

// IDX files: a header with sizes below 256, pictures of 28 x 28 gray levels, labels.
inline std::vector<uint8_t> IdxHeader(uint8_t dimensions, const std::vector<uint8_t>& sizes) {
  std::vector<uint8_t> out = {0, 0, 8, dimensions};
  for (const uint8_t size : sizes) out.insert(out.end(), {0, 0, 0, size});
  return out;
}

inline std::vector<uint8_t> IdxImages(uint8_t count) {
  std::vector<uint8_t> out = IdxHeader(3, {count, 28, 28});
  for (int i = 0; i < count * 28 * 28; ++i) out.push_back(static_cast<uint8_t>(i * 7));
  return out;
}

inline std::vector<uint8_t> IdxLabels(const std::vector<uint8_t>& labels) {
  std::vector<uint8_t> out = IdxHeader(1, {static_cast<uint8_t>(labels.size())});
  out.insert(out.end(), labels.begin(), labels.end());
  return out;
}

}  // namespace atollrt
