// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/array_file.h"

#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

constexpr size_t kArraysMax = 1000;
constexpr size_t kHeaderBytesMax = 1 << 16;

// An IEEE 754 half.
float HalfToFloat(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int mantissa = half & 1023;
  const float magnitude =
      exponent == 31  ? (mantissa == 0 ? std::numeric_limits<float>::infinity() : std::nanf(""))
      : exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                      : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  return half >> 15 != 0 ? -magnitude : magnitude;
}

template <typename T>
float Convert(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return static_cast<float>(value);
}

// A number type: how NumPy calls it, and one value of it in this machine's order of bytes.
struct NumberType {
  std::string_view name;
  size_t size;
  float (*convert)(const uint8_t* bytes);
};
constexpr std::array<NumberType, 12> kNumberTypes = {{
    {"f4", 4, Convert<float>},
    {"f8", 8, Convert<double>},
    {"f2", 2,
     [](const uint8_t* bytes) {
       return HalfToFloat(static_cast<uint16_t>(bytes[0] | bytes[1] << 8));
     }},
    {"i1", 1, Convert<int8_t>},
    {"u1", 1, Convert<uint8_t>},
    {"i2", 2, Convert<int16_t>},
    {"u2", 2, Convert<uint16_t>},
    {"i4", 4, Convert<int32_t>},
    {"u4", 4, Convert<uint32_t>},
    {"i8", 8, Convert<int64_t>},
    {"u8", 8, Convert<uint64_t>},
    {"b1", 1, Convert<uint8_t>},
}};
static_assert(std::endian::native == std::endian::little);

// What stands behind `'key':` in the header, up to the comma or bracket that ends it.
std::optional<std::string_view> FieldOf(std::string_view header, std::string_view key) {
  const size_t found = header.find(fmt::format("'{}':", key));
  if (found == header.npos) return std::nullopt;
  std::string_view field = header.substr(found + key.size() + 3);
  field.remove_prefix(std::min(field.find_first_not_of(' '), field.size()));
  const size_t end = field.starts_with('(') ? field.find(')') : field.find_first_of(",}");
  if (end == field.npos) return std::nullopt;
  return field.substr(0, end);
}

}  // namespace

bool IsArrayFile(std::string_view path) { return path.ends_with(".npz") || path.ends_with(".npy"); }

struct ArrayFile::Stream {
  // Fills in at most so many bytes; 0 at the end, negative if they are damaged.
  std::function<int64_t(void* bytes, size_t size)> read;
  const NumberType* type = nullptr;
  bool swapped = false;  // most significant byte first
  int64_t left = 0;      // values

  bool ReadAll(void* bytes, size_t size) const {
    for (size_t done = 0; done < size;) {
      const int64_t count = read(static_cast<uint8_t*>(bytes) + done, size - done);
      if (count <= 0) return false;
      done += static_cast<size_t>(count);
    }
    return true;
  }
};

ArrayFile::ArrayFile(const std::string& path) : path_(path) {
  if (path.ends_with(".npz")) {
    int error = 0;
    zip_t* const archive = zip_open(path.c_str(), ZIP_RDONLY, &error);
    if (archive == nullptr) {
      zip_error_t reason;
      zip_error_init_with_code(&reason, error);
      const std::string text = zip_error_strerror(&reason);
      zip_error_fini(&reason);
      // As with a .npy file, what cannot be opened is no mistake in the command.
      if (error == ZIP_ER_NOENT || error == ZIP_ER_OPEN || error == ZIP_ER_READ) {
        Fail(ExitCode::kFailure, "cannot open '{}': {}; {}", path, text, AdviseReading(errno));
      }
      Fail(ExitCode::kUsage, "cannot open '{}': {}; give a file that numpy.savez wrote", path,
           text);
    }
    archive_ = std::shared_ptr<void>(
        archive, [](void* opened) { zip_discard(static_cast<zip_t*>(opened)); });
    const zip_int64_t count = zip_get_num_entries(archive, 0);
    if (count < 1 || static_cast<size_t>(count) > kArraysMax) {
      Fail(ExitCode::kUsage, "'{}' has {} arrays, must have from 1 to {}, one for each input", path,
           count, kArraysMax);
    }
    arrays_.resize(static_cast<size_t>(count));
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const char* const name = zip_get_name(archive, i, 0);
      arrays_[i].name = name == nullptr ? "" : name;
      if (arrays_[i].name.ends_with(".npy")) arrays_[i].name.resize(arrays_[i].name.size() - 4);
    }
  } else {
    arrays_.resize(1);
  }
  Rewind();
}

ArrayFile::~ArrayFile() = default;

void ArrayFile::FailWith(size_t array, const std::string& what) const {
  const std::string& name = arrays_[array].name;
  Fail(ExitCode::kUsage, "'{}'{}: {}", path_, name.empty() ? "" : ", array '" + name + "'", what);
}

ArrayFile::Stream ArrayFile::Open(size_t array, Array* header) const {
  Stream stream;
  if (archive_) {
    zip_t* const archive = static_cast<zip_t*>(archive_.get());
    zip_file_t* const opened = zip_fopen_index(archive, array, 0);
    if (opened == nullptr) FailWith(array, zip_strerror(archive));
    stream.read = [file = std::shared_ptr<zip_file_t>(opened, zip_fclose), archive = archive_](
                      void* bytes, size_t size) {
      return int64_t{zip_fread(file.get(), bytes, size)};
    };
  } else {
    std::FILE* const opened = std::fopen(path_.c_str(), "rb");
    if (opened == nullptr) {
      Fail(ExitCode::kFailure, "cannot open '{}': {}; {}", path_, std::strerror(errno),
           AdviseReading(errno));
    }
    stream.read = [file = std::shared_ptr<std::FILE>(opened, std::fclose)](void* bytes,
                                                                           size_t size) {
      return static_cast<int64_t>(std::fread(bytes, 1, size, file.get()));
    };
  }

  // "\x93NUMPY", the version, the length of the text, and the text: a dictionary of Python.
  std::array<uint8_t, 12> start = {};
  if (!stream.ReadAll(start.data(), 10) || std::memcmp(start.data(), "\x93NUMPY", 6) != 0 ||
      start[6] < 1 || start[6] > 3) {
    FailWith(array, "this is no array of NumPy's; save it with numpy.save or numpy.savez");
  }
  size_t length = static_cast<size_t>(start[8]) | static_cast<size_t>(start[9]) << 8;
  if (start[6] > 1) {
    if (!stream.ReadAll(start.data() + 10, 2)) FailWith(array, "it ends within its header");
    length |= static_cast<size_t>(start[10]) << 16 | static_cast<size_t>(start[11]) << 24;
  }
  if (length > kHeaderBytesMax) {
    FailWith(array, fmt::format("its header has {} bytes, may have {}", length, kHeaderBytesMax));
  }
  std::string text(length, '\0');
  if (!stream.ReadAll(text.data(), length)) FailWith(array, "it ends within its header");

  const auto descr = FieldOf(text, "descr");
  const auto fortran = FieldOf(text, "fortran_order");
  const auto shape = FieldOf(text, "shape");
  if (!descr || !fortran || !shape || !shape->starts_with('(')) {
    FailWith(array, "its header lacks type, order or shape; save it again");
  }
  std::string_view type = *descr;
  if (type.size() > 2 && type.front() == '\'' && type.back() == '\'') {
    type = type.substr(1, type.size() - 2);
  }
  const std::string_view name = type.empty() ? type : type.substr(1);
  const auto known =
      std::find_if(kNumberTypes.begin(), kNumberTypes.end(),
                   [&](const NumberType& candidate) { return candidate.name == name; });
  if (known == kNumberTypes.end() || std::string_view("<>|=").find(type[0]) == type.npos) {
    FailWith(array, fmt::format("its type is {}, must be of numbers: float32 is best", *descr));
  }
  stream.type = &*known;
  stream.swapped = type[0] == '>';
  if (*fortran != "False") {
    FailWith(array, "it is in Fortran's order; save numpy.ascontiguousarray of it");
  }
  header->shape.clear();
  stream.left = 1;
  for (const std::string& part : Split(shape->substr(1), ',')) {
    const size_t digits = part.find_first_not_of(' ');
    if (digits == part.npos) continue;  // behind the last comma
    const auto size = ParseNumber<int64_t>(std::string_view(part).substr(digits));
    if (!size || *size < 0) FailWith(array, fmt::format("its shape is {})", *shape));
    header->shape.push_back(*size);
    if (__builtin_mul_overflow(stream.left, *size, &stream.left)) {
      FailWith(array, fmt::format("its shape is {}), too large", *shape));
    }
  }
  return stream;
}

void ArrayFile::Rewind() {
  streams_.clear();
  for (size_t i = 0; i < arrays_.size(); ++i) streams_.push_back(Open(i, &arrays_[i]));
}

void ArrayFile::Read(size_t array, std::span<float> values) {
  constexpr const char* kDamaged = "it has fewer values than its shape says, or is damaged";
  Stream& stream = streams_[array];
  if (static_cast<int64_t>(values.size()) > stream.left) FailWith(array, kDamaged);
  stream.left -= static_cast<int64_t>(values.size());
  const size_t size = stream.type->size;
  std::vector<uint8_t> piece(std::min<size_t>(values.size(), 4096) * size);
  while (!values.empty()) {
    const size_t count = std::min<size_t>(values.size(), 4096);
    if (!stream.ReadAll(piece.data(), count * size)) {
      FailWith(array, kDamaged);
    }
    for (size_t i = 0; i < count; ++i) {
      uint8_t* const bytes = piece.data() + i * size;
      if (stream.swapped) std::reverse(bytes, bytes + size);
      values[i] = stream.type->convert(bytes);
    }
    values = values.subspan(count);
  }
  // Archives know at the end whether their bytes are those that were written.
  if (uint8_t beyond = 0; stream.left == 0 && stream.read(&beyond, 1) < 0) {
    FailWith(array, "its bytes are damaged: the checksum is another; save it again");
  }
}

}  // namespace atollcmd
