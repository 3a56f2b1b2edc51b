// SPDX-License-Identifier: Apache-2.0
#include "driver/profiles/device_profile.h"

#include <cmath>
#include <cstdio>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace atollrt {
namespace {

constexpr ProfileKey kKeys[] = {
    {"array_rows", "R, rows of the array", 1, 1024, 1, &DeviceShape::array_rows},
    {"array_columns", "C, columns of the array and lanes of the vector unit", 1, 1024, 1,
     &DeviceShape::array_columns},
    {"clock_hz", "cycles per second", 1e6, 2e9, 1000, nullptr, &DeviceFigures::clock_hz},
    {"memory_bytes", "on-chip memory", 4096, 2147483648, 1, nullptr, &DeviceShape::memory_bytes},
    {"program_memory_bytes", "program memory, 128 bytes an instruction", 128, 2147483648, 128,
     nullptr, &DeviceShape::program_memory_bytes},
    {"link_bytes_per_second", "usable speed of the link to the host", 1000, 1e12, 1000, nullptr,
     &DeviceFigures::link_bytes_per_second},
    {"host_seconds", "what the host spends on a request beside the transfers; modelled", 0, 60, 0},
};
constexpr size_t kKeyCount = std::size(kKeys);
static_assert(kKeyCount == static_cast<size_t>(ProfileNumber::kHost) + 1);
// What is text, and counted on behind them.
constexpr const char* kTextKeys[] = {"summary", "link"};
constexpr size_t kSummary = kKeyCount, kLink = kKeyCount + 1;
constexpr size_t kSummaryMax = 100;          // bytes
constexpr size_t kProfileFileMax = 1 << 16;  // bytes

// 8388608 is "8 MiB", 1000 "1000 bytes".
std::string SizeText(uint64_t bytes) {
  if (bytes % (1u << 20) == 0) {
    return Format("%llu MiB", static_cast<unsigned long long>(bytes >> 20));
  }
  if (bytes % (1u << 10) == 0) {
    return Format("%llu KiB", static_cast<unsigned long long>(bytes >> 10));
  }
  return Format("%llu bytes", static_cast<unsigned long long>(bytes));
}

std::string SummaryOf(const DeviceProfile& profile) {
  return Format("%ux%u at %g MHz, %s, link of %g MB/s", profile.array_rows, profile.array_columns,
                static_cast<double>(profile.clock_hz) / 1e6, SizeText(profile.memory_bytes).c_str(),
                static_cast<double>(profile.link_bytes_per_second) / 1e6);
}

// What a key from outside looks like in a message.
std::string Quoted(std::string_view text) {
  constexpr size_t kMaxShown = 40;
  std::string quoted = "\"";
  for (const char c : text.substr(0, kMaxShown)) quoted += c >= 0x20 && c < 0x7F ? c : '?';
  if (text.size() > kMaxShown) quoted += "...";
  return quoted + "\"";
}

// Takes the parser's events: one object of numbers and strings. Nothing is kept of other values.
// Of nlohmann's parser this is the part that reports errors instead of throwing them.
class ProfileReader {
 public:
  using Json = nlohmann::json;

  explicit ProfileReader(DeviceProfile* profile) : profile_(*profile) {}

  const Status& status() const { return status_; }
  bool has_summary() const { return seen_[kSummary]; }

  bool start_object(size_t) {
    if (in_object_) return BadType();
    return in_object_ = true;
  }
  bool key(std::string& name) {
    key_ = name;
    for (size_t i = 0; i < std::size(seen_); ++i) {
      if (name != (i < kKeyCount ? kKeys[i].name : kTextKeys[i - kKeyCount])) continue;
      key_index_ = i;
      if (std::exchange(seen_[i], true)) return Duplicate();
      return true;
    }
    std::string known;
    for (const ProfileKey& known_key : kKeys) known += Format("%s, ", known_key.name);
    return Fail(InvalidArgument("%s is no key of a profile; there are: %s%s, %s",
                                Quoted(name).c_str(), known.c_str(), kTextKeys[1], kTextKeys[0]));
  }
  bool number_integer(int64_t value) { return Number(static_cast<double>(value)); }
  bool number_unsigned(uint64_t value) { return Number(static_cast<double>(value)); }
  bool number_float(double value, const std::string&) { return Number(value); }
  bool string(std::string& text) {
    if (!in_object_ || key_index_ < kKeyCount) return BadType();
    if (key_index_ == kLink) {
      profile_.on_pcie = text == "pcie";
      return profile_.on_pcie || text == "usb" ||
             Fail(InvalidArgument("link is %s, must be \"usb\" or \"pcie\"", Quoted(text).c_str()));
    }
    bool printable = !text.empty() && text.size() <= kSummaryMax;
    for (const char c : text) printable = printable && c >= 0x20 && c < 0x7F;
    if (!printable) {
      return Fail(InvalidArgument("%s must be 1 to %zu printable ASCII characters", kTextKeys[0],
                                  kSummaryMax));
    }
    profile_.summary = text;
    return true;
  }
  bool null() { return BadType(); }
  bool boolean(bool) { return BadType(); }
  bool binary(Json::binary_t&) { return BadType(); }
  bool start_array(size_t) { return BadType(); }
  bool end_object() { return true; }
  bool end_array() { return true; }
  bool parse_error(size_t position, const std::string&, const Json::exception&) {
    return Fail(InvalidArgument("no valid JSON at byte %zu; write one object, {\"array_rows\": 64}",
                                position));
  }

 private:
  bool Fail(Status status) {
    status_ = std::move(status);
    return false;
  }
  bool Duplicate() {
    return Fail(InvalidArgument("%s is there twice; keep one", Quoted(key_).c_str()));
  }
  bool Number(double value) {
    if (!in_object_ || key_index_ >= kKeyCount) return BadType();
    Status status = SetProfileNumber(static_cast<ProfileNumber>(key_index_), kKeys[key_index_].name,
                                     value, &profile_);
    return status.ok() || Fail(std::move(status));
  }
  bool BadType() {
    if (!in_object_) {
      return Fail(InvalidArgument("a profile is one JSON object, {\"array_rows\": 64}"));
    }
    return Fail(InvalidArgument("%s must be a %s", Quoted(key_).c_str(),
                                key_index_ >= kKeyCount ? "string" : "number"));
  }

  DeviceProfile& profile_;
  Status status_;
  bool in_object_ = false;
  bool seen_[kKeyCount + std::size(kTextKeys)] = {};
  size_t key_index_ = kSummary;  // in kKeys, kSummary or kLink
  std::string key_;
};

struct EmbeddedProfile {
  const char* name;
  const char* text;
};
constexpr EmbeddedProfile kEmbedded[] = {
#include "driver/device_profiles.inc"  // made from driver/profiles/*.json, in the build tree
};

const std::vector<DeviceProfile>& BuiltIn() {
  static const std::vector<DeviceProfile> profiles = [] {
    std::vector<DeviceProfile> parsed;
    for (const EmbeddedProfile& embedded : kEmbedded) {
      Result<DeviceProfile> profile = ParseDeviceProfile(embedded.name, embedded.text);
      ATOLL_CHECK(profile.ok());
      parsed.push_back(*std::move(profile));
    }
    return parsed;
  }();
  return profiles;
}

Result<DeviceProfile> ReadProfileFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) {
    return NotFound("device profile '%s': there is no such file, or it cannot be read",
                    path.c_str());
  }
  std::string text(kProfileFileMax + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) {
    return NotFound("device profile '%s' cannot be read; it must be a file", path.c_str());
  }
  if (text.size() > kProfileFileMax) {
    return InvalidArgument("device profile '%s' has more than %zu bytes; is it a profile?",
                           path.c_str(), kProfileFileMax);
  }
  return ParseDeviceProfile(path, text);
}

}  // namespace

std::span<const DeviceProfile> DeviceProfiles() { return BuiltIn(); }

std::span<const ProfileKey> ProfileKeys() { return kKeys; }

Status SetProfileNumber(ProfileNumber number, const char* what, double value,
                        DeviceProfile* profile) {
  const ProfileKey& key = kKeys[static_cast<size_t>(number)];
  const bool is_multiple = key.step == 0 || std::fmod(value, key.step) == 0;
  if (value >= key.min && value <= key.max && is_multiple) {
    if (key.small != nullptr) {
      profile->*key.small = static_cast<uint32_t>(value);
    } else if (key.large != nullptr) {
      profile->*key.large = static_cast<uint64_t>(value);
    } else {
      profile->host_seconds = value;
    }
    return {};
  }
  const std::string kind = key.step > 1    ? Format("a multiple of %g", key.step)
                           : key.step == 1 ? "a whole number"
                                           : "a number";
  return InvalidArgument("%s is %.17g, must be %s from %.17g to %.17g", what, value, kind.c_str(),
                         key.min, key.max);
}

Result<DeviceProfile> ParseDeviceProfile(std::string name, std::string_view text) {
  DeviceProfile profile;
  profile.name = std::move(name);
  ProfileReader reader(&profile);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  if (!reader.status().ok()) {
    return Status(reader.status()).WithContext("device profile '" + profile.name + "'");
  }
  if (!reader.has_summary()) profile.summary = SummaryOf(profile);
  return profile;
}

Result<DeviceProfile> FindDeviceProfile(std::string_view name) {
  if (name.empty()) return BuiltIn()[0];
  if (name.ends_with(".json")) return ReadProfileFile(std::string(name));
  std::string known;
  for (const DeviceProfile& profile : BuiltIn()) {
    if (name == profile.name) return profile;
    known += profile.name + ", ";
  }
  return NotFound(
      "no device profile '%.*s'; there are: %sor the path of a profile of your own, "
      "which ends in .json",
      static_cast<int>(name.size()), name.data(), known.c_str());
}

}  // namespace atollrt
