// SPDX-License-Identifier: Apache-2.0
#include "camera/sources/byte_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/fashion_files.h"

namespace atollrt {
namespace {

// Of std::vector: counts the elements that are made, be it by filling, copying or moving on.
template <typename T>
struct CountingAllocator : std::allocator<T> {
  template <typename... Arguments>
  void construct(T* place, Arguments&&... arguments) {
    ++made;
    new (static_cast<void*>(place)) T(std::forward<Arguments>(arguments)...);
  }
  static inline size_t made = 0;
};

// A pass over the frame for each piece would be hundreds of them.
TEST(ByteStream, LooksAtEachByteOnce) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  constexpr size_t kBytes = size_t{1} << 22;
  std::thread writer([&] {
    const int fd = open(path.c_str(), O_WRONLY);
    const std::vector<uint8_t> piece(4096, 77);
    for (size_t sent = 0; sent < kBytes; sent += piece.size()) {
      EXPECT_EQ(write(fd, piece.data(), piece.size()), 4096);
    }
    close(fd);
  });
  const auto stream = ByteStream::Open(path, nullptr);
  std::vector<uint8_t, CountingAllocator<uint8_t>> bytes;
  ASSERT_TRUE(stream.ok());
  EXPECT_TRUE((*stream)->TakeUpTo(kBytes, &bytes).ok());
  writer.join();
  EXPECT_EQ(bytes.size(), kBytes);
  // With what a vector that grows moves.
  EXPECT_GE(CountingAllocator<uint8_t>::made, kBytes);
  EXPECT_LE(CountingAllocator<uint8_t>::made, 4 * kBytes);
  unlink(path.c_str());
}

}  // namespace
}  // namespace atollrt
