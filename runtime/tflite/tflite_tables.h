// SPDX-License-Identifier: Apache-2.0
//
// What reading the tables of a verified file takes: strings, buffers, and an account of what their
// copies need. For the files of this folder that read flatbuffers.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "atoll/status.h"
#include "runtime/base/bytes.h"
#include "tflite_generated.h"

namespace atollrt {

// Bytes of memory that graphs, nodes, tensors, their names and lists may take: for each byte of the
// file, and for any file. Any number of places of it may refer to one table, so that a small file
// could ask for terabytes. Files of converters need less than a quarter of this.
inline constexpr size_t kMaxCopiesOfByte = 24;
inline constexpr size_t kCopiesOfSmallFile = 16 << 10;

inline std::string String(const flatbuffers::String* text) {
  return text == nullptr ? std::string() : text->str();
}

// Bytes that a copy of it needs.
inline size_t BytesOf(const flatbuffers::String* text) {
  return text == nullptr ? 0 : text->size();
}
template <typename T>
size_t BytesOf(const flatbuffers::Vector<T>* values) {
  return values == nullptr ? 0 : size_t{values->size()} * sizeof(T);
}

// The contents of a buffer of the model, in the file; kCorruptModel, with the numbers, if it is not
// there.
inline Result<std::span<const uint8_t>> BufferBytes(std::span<const uint8_t> bytes,
                                                    const tflite::Model& model, uint32_t buffer) {
  if (buffer >= model.buffers()->size()) {
    return CorruptModel("buffer index %u, but there are %u buffers", buffer,
                        model.buffers()->size());
  }
  const tflite::Buffer* stored = model.buffers()->Get(buffer);
  if (stored == nullptr) return std::span<const uint8_t>();
  if (stored->data() != nullptr && stored->data()->size() > 0) {
    return std::span<const uint8_t>(stored->data()->data(), stored->data()->size());
  }
  // Files over 2 GiB keep buffers behind the flatbuffer. Offsets 0 and 1 mean "none".
  if (stored->offset() > 1) {
    uint64_t end = 0;
    if (!CheckedAdd(stored->offset(), stored->size(), &end) || end > bytes.size()) {
      return CorruptModel("buffer %u ends at byte %llu of %zu", buffer,
                          static_cast<unsigned long long>(end), bytes.size());
    }
    return bytes.subspan(stored->offset(), stored->size());
  }
  return std::span<const uint8_t>();
}

// What tables of the file take in memory, all together.
class CopyBudget {
 public:
  explicit CopyBudget(size_t file_bytes) : file_bytes_(file_bytes) {}

  // kResourceExhausted if it is out of proportion.
  Status Count(size_t bytes) {
    copied_bytes_ += bytes;
    const size_t allowed = kMaxCopiesOfByte * file_bytes_ + kCopiesOfSmallFile;
    if (copied_bytes_ <= allowed) return Status();
    return ResourceExhausted(
        "the tables of the file, which has %zu bytes, take more than %zu in memory; many must be "
        "the same",
        file_bytes_, allowed);
  }

 private:
  const size_t file_bytes_;
  size_t copied_bytes_ = 0;
};

}  // namespace atollrt
