// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as each file that `atoll quantize` and `atoll evaluate` take samples from: arrays of
// NumPy's, .npy and .npz, pictures as COCO describes them, and those of Fashion-MNIST. The first
// byte says which. All that may come of it is a CommandError; what is accepted is read to its end.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "atoll/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/allocation_meter.h"
#include "tools/atoll/array_file.h"
#include "tools/atoll/dataset.h"
#include "tools/atoll/exit_code.h"

namespace atollcmd::samples_fuzzer {

namespace {

// Of the process, and in memory where there is such a file system.
class Folder {
 public:
  Folder() {
    std::error_code error;
    const bool in_memory = std::filesystem::is_directory("/dev/shm", error);
    path_ = std::string(in_memory ? "/dev/shm" : "/tmp") + "/atoll_samples_XXXXXX";
    ATOLL_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  std::string Write(const std::string& name, std::string_view bytes) const {
    const std::string file = path_ + "/" + name;
    std::ofstream(file, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
    return file;
  }

 private:
  std::string path_;
};

void ReadArrays(const std::string& path) {
  ArrayFile file(path);
  ATOLL_CHECK(!file.arrays().empty());
  for (size_t i = 0; i < file.arrays().size(); ++i) {
    int64_t values = 1;
    for (const int64_t size : file.arrays()[i].shape) {
      ATOLL_CHECK(size >= 0);
      values *= size;  // which the reader has seen to fit
    }
    std::array<float, 999> piece;
    for (; values > 0; values -= static_cast<int64_t>(piece.size())) {
      const auto count = static_cast<size_t>(std::min<int64_t>(values, piece.size()));
      file.Read(i, std::span(piece).first(count));
    }
  }
  file.Rewind();
}

void ReadData(const std::string& path, const std::vector<std::string>& labels) {
  const auto data = OpenDataSet(path, "", labels);
  ATOLL_CHECK(data->size() > 0);
  for (size_t i = 0; i < std::min<size_t>(data->size(), 10); ++i) {
    const KnownPicture known = data->Load(i, 1);
    ATOLL_CHECK(known.label >= 0 && known.label < std::max(data->class_count(), 1));
  }
}

}  // namespace

ATOLL_FUZZ_TARGET(samples) {
  static const Folder folder;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  // What an entry of an archive takes to unpack is a matter of zlib's, for each of a thousand.
  const atollrt::MemoryLimit limit(atollrt::ProportionalBytes(size, int64_t{96} << 20));
  try {
    switch (data[0] % 4) {
      case 0:
        ReadArrays(folder.Write("a.npy", bytes));
        break;
      case 1:
        ReadArrays(folder.Write("a.npz", bytes));
        break;
      case 2:
        ReadData(folder.Write("instances.json", bytes), {"person", "dog"});
        break;
      default: {
        // As many classes as the header says, if the file could have so many pictures.
        std::string classes("\0\0\x08\x01", 4);
        classes += bytes.substr(0, 8).substr(std::min<size_t>(bytes.size(), 4));
        classes.resize(8 + std::min<size_t>(bytes.size(), 1000));
        folder.Write("t10k-labels-idx1-ubyte", classes);
        folder.Write("t10k-images-idx3-ubyte", bytes);
        ReadData(folder.path(), {});
      }
    }
  } catch (const CommandError& error) {
    ATOLL_CHECK(!std::string_view(error.what()).empty());
  }
  return 0;
}

}  // namespace atollcmd::samples_fuzzer
