// SPDX-License-Identifier: Apache-2.0
//
// Arrays as NumPy saves them: .npz (numpy.savez, with or without compression) and .npy files. Their
// bytes are hostile; all failures are CommandErrors that name the file and the array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace atollcmd {

// Whether the name of a file ends in .npz or .npy.
bool IsArrayFile(std::string_view path);

class ArrayFile {
 public:
  // Reads the headers of all arrays.
  explicit ArrayFile(const std::string& path);
  ~ArrayFile();
  ArrayFile(const ArrayFile&) = delete;
  ArrayFile& operator=(const ArrayFile&) = delete;

  struct Array {
    std::string name;  // "" in a .npy file
    std::vector<int64_t> shape;
  };
  const std::vector<Array>& arrays() const { return arrays_; }

  // The next values of an array, in C order, whatever number type the file has. Throws if there are
  // fewer.
  void Read(size_t array, std::span<float> values);
  // The first values of all arrays are next.
  void Rewind();

 private:
  struct Stream;

  // Opens the array's bytes and reads its header.
  Stream Open(size_t array, Array* header) const;
  [[noreturn]] void FailWith(size_t array, const std::string& what) const;

  const std::string path_;
  std::shared_ptr<void> archive_;  // of a .npz file
  std::vector<Array> arrays_;
  std::vector<Stream> streams_;
};

}  // namespace atollcmd
