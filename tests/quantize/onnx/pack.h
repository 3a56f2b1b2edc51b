// SPDX-License-Identifier: Apache-2.0
//
// What the scripts of this folder packed: bytes that zlib compressed, of records that each script
// describes.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "atoll/check.h"
#include "runtime/base/bytes.h"

namespace atollrt {

// The bytes of a file of this folder; none, and a failure of the test, where it is none of zlib's.
inline std::vector<uint8_t> Unpacked(const std::string& name) {
  std::ifstream file(std::string(ATOLL_SOURCE_DIR) + "/tests/quantize/onnx/" + name,
                     std::ios::binary);
  const std::vector<uint8_t> packed((std::istreambuf_iterator<char>(file)), {});
  std::vector<uint8_t> bytes(packed.size() * 64);
  uLongf size = bytes.size();
  const int status = uncompress(bytes.data(), &size, packed.data(), packed.size());
  EXPECT_EQ(status, Z_OK) << name;
  bytes.resize(status == Z_OK ? size : 0);
  return bytes;
}

// Little-endian numbers and bytes, one after the other.
class Records {
 public:
  explicit Records(std::span<const uint8_t> bytes) : rest_(bytes) {}
  bool done() const { return rest_.empty(); }
  std::span<const uint8_t> Take(size_t size) {
    ATOLL_CHECK(size <= rest_.size());
    const auto bytes = rest_.first(size);
    rest_ = rest_.subspan(size);
    return bytes;
  }
  template <typename T>
  T Number() {
    return LoadLittleEndian<T>(Take(sizeof(T)).data());
  }

 private:
  std::span<const uint8_t> rest_;
};

}  // namespace atollrt
