// SPDX-License-Identifier: Apache-2.0
#include "runtime/tflite/flexbuffer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

// The format (flatbuffers.dev, "FlexBuffers internals"), from the end: the root value, its packed
// type, its width in bytes. A packed type is type << 2 | log2(width of what it refers to). Offsets
// are unsigned, count backwards from where they stand, and are as wide as what surrounds them.
// A map is
//     offset of the vector of keys, width of the keys, count | values ... | one packed type each
// and is referred to by the position of the bar; the keys are offsets of NUL-terminated strings.
enum FlexType : uint8_t {
  kInt = 1,
  kUInt = 2,
  kFloat = 3,
  kString = 5,
  kIndirectInt = 6,
  kIndirectUInt = 7,
  kIndirectFloat = 8,
  kMap = 9,
  kVector = 10,
  kLastTypedVector = 15,  // of numbers, keys or strings
  kBlob = 25,
  kBool = 26,
};

// No custom operator has more options, or longer names for them. Many nodes may have the same bytes
// as their options, and each reads them, so that must not take long.
constexpr uint64_t kMaxFields = 256;
constexpr std::ptrdiff_t kMaxKeyBytes = 1024;

// Positions are indices into the bytes. Every read checks its bounds; a failed one gives 0 and is
// remembered.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  void Fail() { ok_ = false; }
  size_t size() const { return bytes_.size(); }

  const uint8_t* At(uint64_t position, uint64_t count) {
    if (position > bytes_.size() || count > bytes_.size() - position) {
      ok_ = false;
      return nullptr;
    }
    return bytes_.data() + position;
  }

  uint64_t Unsigned(uint64_t position, int width) {
    uint64_t value = 0;
    const uint8_t* at = At(position, static_cast<uint64_t>(width));
    if (at != nullptr) std::memcpy(&value, at, static_cast<size_t>(width));
    return value;
  }

  int64_t Signed(uint64_t position, int width) {
    const int unused = 64 - 8 * width;
    return static_cast<int64_t>(Unsigned(position, width) << unused) >> unused;
  }

  double Float(uint64_t position, int width) {
    const uint8_t* at = At(position, static_cast<uint64_t>(width));
    if (at == nullptr || width < 4) {  // half floats exist in the format only
      ok_ = false;
      return 0;
    }
    return width == 4 ? static_cast<double>(LoadLittleEndian<float>(at))
                      : LoadLittleEndian<double>(at);
  }

  // Where the offset stored at `position` leads.
  uint64_t Follow(uint64_t position, int width) {
    const uint64_t distance = Unsigned(position, width);
    if (!ok_ || distance > position) {
      ok_ = false;
      return 0;
    }
    return position - distance;
  }

  // Fails if it is longer than kMaxKeyBytes: fields may share a key, so finding its end must be
  // cheap.
  std::string_view Key(uint64_t position) {
    if (At(position, 0) == nullptr) return "";
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(position);
    const auto last = begin + std::min<std::ptrdiff_t>(kMaxKeyBytes + 1, bytes_.end() - begin);
    const auto end = std::find(begin, last, uint8_t{0});
    if (end == last) ok_ = false;
    return {reinterpret_cast<const char*>(bytes_.data() + position),
            static_cast<size_t>(end - begin)};
  }

 private:
  const std::span<const uint8_t> bytes_;
  bool ok_ = true;
};

int64_t Truncated(double value) {
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (std::isnan(value)) return 0;
  if (value >= kLimit) return INT64_MAX;
  if (value < -kLimit) return INT64_MIN;
  return static_cast<int64_t>(value);
}

bool IsWidth(uint64_t width) { return width == 1 || width == 2 || width == 4 || width == 8; }

Status BadMap(std::span<const uint8_t> bytes) {
  return CorruptModel("the %zu bytes of its options are no valid FlexBuffers map", bytes.size());
}

// Where the value of one entry stands.
struct MapField {
  std::string_view key;
  uint64_t position = 0;
  int width = 0;
  uint8_t packed_type = 0;
};

// The entries of the map at the root, in its bytes.
Result<std::vector<MapField>> ReadFields(std::span<const uint8_t> bytes, Reader* reader) {
  const Status corrupt = BadMap(bytes);
  const size_t size = bytes.size();
  if (size < 3) return corrupt;
  const int root_width = bytes[size - 1];
  const uint8_t root_type = bytes[size - 2];
  if (!IsWidth(static_cast<uint64_t>(root_width)) || root_type >> 2 != kMap ||
      size < 2 + static_cast<size_t>(root_width)) {
    return corrupt;
  }
  const uint64_t values = reader->Follow(size - 2 - static_cast<size_t>(root_width), root_width);
  const uint64_t width = uint64_t{1} << (root_type & 3);
  const int value_width = static_cast<int>(width);
  if (!reader->ok() || values < 3 * width) return corrupt;
  const uint64_t count = reader->Unsigned(values - width, value_width);
  const uint64_t key_width = reader->Unsigned(values - 2 * width, value_width);
  const uint64_t keys = reader->Follow(values - 3 * width, value_width);
  // Each entry has at least a value and a type, which bounds the products below.
  if (!reader->ok() || !IsWidth(key_width) || count > size / (width + 1)) return corrupt;
  if (count > kMaxFields) {
    return ResourceExhausted("its options have %llu fields, at most %llu are read",
                             static_cast<unsigned long long>(count),
                             static_cast<unsigned long long>(kMaxFields));
  }
  std::vector<MapField> fields;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t key = reader->Follow(keys + i * key_width, static_cast<int>(key_width));
    if (!reader->ok()) return corrupt;
    fields.push_back(
        {.key = reader->Key(key),
         .position = values + i * width,
         .width = value_width,
         .packed_type = static_cast<uint8_t>(reader->Unsigned(values + count * width + i, 1))});
    if (!reader->ok()) return corrupt;
  }
  return fields;
}

// Reads a number; false if the field is none.
bool ReadNumber(Reader* reader, const MapField& field, FlexbufferEntry* entry) {
  uint64_t position = field.position;
  int width = field.width;
  uint8_t type = field.packed_type >> 2;
  if (type == kIndirectInt || type == kIndirectUInt || type == kIndirectFloat) {
    position = reader->Follow(position, width);
    width = 1 << (field.packed_type & 3);
    type = static_cast<uint8_t>(type - kIndirectInt + kInt);
  }
  switch (type) {
    case kInt:
      entry->integer = reader->Signed(position, width);
      entry->real = static_cast<double>(entry->integer);
      return true;
    case kUInt:
    case kBool: {
      const uint64_t value = reader->Unsigned(position, width);
      entry->integer = static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX));
      entry->real = static_cast<double>(value);
      return true;
    }
    case kFloat:
      entry->real = reader->Float(position, width);
      entry->integer = Truncated(entry->real);
      return true;
    default:
      return false;
  }
}

// Reads a string, blob or vector; false if the field is none.
bool ReadBytes(Reader* reader, const MapField& field, FlexbufferBytes* entry) {
  const uint8_t type = field.packed_type >> 2;
  const bool is_bytes = type == kString || type == kBlob;
  entry->is_vector = type >= kVector && type <= kLastTypedVector;
  if (!is_bytes && !entry->is_vector) return false;
  const uint64_t begin = reader->Follow(field.position, field.width);
  const uint64_t width = uint64_t{1} << (field.packed_type & 3);
  if (begin < width) reader->Fail();
  if (!reader->ok()) return false;
  const uint64_t size = reader->Unsigned(begin - width, static_cast<int>(width));
  if (entry->is_vector) {
    entry->elements = size;
  } else if (const uint8_t* at = reader->At(begin, size)) {
    entry->bytes = {at, size};
  }
  return true;
}

// Those entries of the map that `read` can read.
template <typename Entry>
Result<std::vector<Entry>> ReadMap(std::span<const uint8_t> bytes,
                                   bool (*read)(Reader*, const MapField&, Entry*)) {
  Reader reader(bytes);
  ATOLL_ASSIGN_OR_RETURN(const std::vector<MapField> fields, ReadFields(bytes, &reader));
  std::vector<Entry> entries;
  for (const MapField& field : fields) {
    Entry entry{.key = field.key};
    const bool is_wanted = read(&reader, field, &entry);
    if (!reader.ok()) return BadMap(bytes);
    if (is_wanted) entries.push_back(entry);
  }
  return entries;
}

}  // namespace

Result<std::vector<FlexbufferEntry>> ReadFlexbufferMap(std::span<const uint8_t> bytes) {
  return ReadMap(bytes, ReadNumber);
}

Result<std::vector<FlexbufferBytes>> ReadFlexbufferBytes(std::span<const uint8_t> bytes) {
  return ReadMap(bytes, ReadBytes);
}

}  // namespace atollrt
