// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/subjects.h"

#include <sys/random.h>

#include <algorithm>
#include <array>

#include "atoll/check.h"
#include "serve/inference/model_files.h"

namespace atollserve {
namespace {

constexpr size_t kJobIdBytes = 16;
constexpr size_t kJobIdCharacters = 22;
constexpr size_t kMaxTokenBytes = 200;
constexpr size_t kMaxPlainNameBytes = 64;
constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::string_view kHex = "0123456789ABCDEF";

bool IsPlain(char c) { return kAlphabet.find(c) != std::string_view::npos; }

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  // So few come all at once or not at all.
  ATOLL_CHECK(getrandom(bytes.data(), count, 0) == static_cast<ssize_t>(count));
  return bytes;
}

std::string Unpadded(std::string text) {
  while (text.ends_with('=')) text.pop_back();
  return text;
}

}  // namespace

std::string EncodeToken(std::string_view text) {
  std::string token;
  for (const char c : text) {
    if (IsPlain(c)) {
      token += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      token += '%';
      token += kHex[byte >> 4];
      token += kHex[byte & 15];
    }
  }
  return token;
}

std::optional<std::string> DecodeToken(std::string_view token) {
  std::string text;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] != '%') {
      if (!IsPlain(token[i])) return std::nullopt;
      text += token[i];
      continue;
    }
    if (token.size() - i < 3) return std::nullopt;
    const size_t high = kHex.find(token[i + 1]), low = kHex.find(token[i + 2]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    const char c = static_cast<char>(high << 4 | low);
    if (IsPlain(c)) return std::nullopt;  // there is one token for a text
    text += c;
    i += 2;
  }
  return text;
}

bool IsFleetModelName(std::string_view name) {
  return IsModelName(name) && EncodeToken(name).size() <= kMaxTokenBytes;
}

bool IsDomain(std::string_view name) {
  return !name.empty() && name.size() <= kMaxPlainNameBytes &&
         std::all_of(name.begin(), name.end(), IsPlain);
}

bool IsWorkerId(std::string_view id) { return IsDomain(id) && id != kDefaultPlacement; }

std::string MakeWorkerId(std::string_view host) {
  std::string id(host.substr(0, 40));
  std::replace_if(
      id.begin(), id.end(), [](char c) { return !IsPlain(c); }, '-');
  return (id.empty() ? "worker" : id) + "-" + Unpadded(Base64Url(RandomBytes(6)));
}

std::string MakeJobId() { return Unpadded(Base64Url(RandomBytes(kJobIdBytes))); }

bool IsJobId(std::string_view id) {
  return id.size() == kJobIdCharacters && std::all_of(id.begin(), id.end(), IsPlain);
}

std::string Base64Url(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const std::string_view group = bytes.substr(i, 3);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < group.size() ? static_cast<unsigned char>(group[k]) : 0U);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += k <= group.size() ? kAlphabet[bits >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

std::optional<std::string> DecodeBase64Url(std::string_view text) {
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t value = kAlphabet.find(c);
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 0xff);
    }
  }
  if ((bits & ((1U << count) - 1)) != 0) return std::nullopt;
  return bytes;
}

std::string InferSubject(std::string_view model) { return "atoll.infer." + EncodeToken(model); }
std::string InferSubject(std::string_view model, std::string_view worker) {
  return InferSubject(model) + "." + std::string(worker);
}
std::string WorkSubject(std::string_view model, int priority) {
  return "atoll.work." + EncodeToken(model) + "." + std::to_string(priority);
}
std::string ResultSubject(std::string_view job) { return "atoll.result." + std::string(job); }
std::string DoneSubject(std::string_view job) { return "atoll.done." + std::string(job); }
std::string DrainSubject(std::string_view worker) {
  return "atoll.worker." + std::string(worker) + ".drain";
}
std::string ConsumerName(std::string_view model, int priority) {
  std::string name = EncodeToken(model);
  // Servers make formats for numbers of it, so that '%' would be one of theirs.
  std::replace(name.begin(), name.end(), '%', '=');
  return name + "_" + std::to_string(priority);
}
std::string KeySubject(std::string_view bucket, std::string_view key) {
  return "$KV." + std::string(bucket) + "." + std::string(key);
}

std::optional<WorkAddress> ParseWorkSubject(std::string_view subject) {
  constexpr std::string_view kPrefix = "atoll.work.";
  if (!subject.starts_with(kPrefix)) return std::nullopt;
  subject.remove_prefix(kPrefix.size());
  const size_t dot = subject.find('.');
  if (dot == std::string_view::npos || subject.size() != dot + 2) return std::nullopt;
  const int priority = subject[dot + 1] - '0';
  const auto model = DecodeToken(subject.substr(0, dot));
  if (!model || !IsFleetModelName(*model) || priority < 0 || priority >= kPriorities) {
    return std::nullopt;
  }
  return WorkAddress{.model = *model, .priority = priority};
}

}  // namespace atollserve
