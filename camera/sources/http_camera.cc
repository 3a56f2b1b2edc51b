// SPDX-License-Identifier: Apache-2.0
#include "camera/sources/http_camera.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "camera/sources/http_text.h"
#include "runtime/base/login.h"

namespace atollrt {
namespace {

constexpr std::string_view kScheme = "http://";

// The number that `text` is, and nothing else; nullopt if it is none, or too large.
template <typename T>
std::optional<T> ParseNumber(std::string_view text, int base = 10) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// %41 is A; nullopt if what follows a % is no number.
std::optional<std::string> DecodePercent(std::string_view text) {
  std::string decoded;
  while (!text.empty()) {
    if (text[0] != '%') {
      decoded += text[0];
      text.remove_prefix(1);
      continue;
    }
    const std::optional<uint8_t> code = ParseNumber<uint8_t>(text.substr(1, 2), 16);
    if (text.size() < 3 || !code) return std::nullopt;
    decoded += static_cast<char>(*code);
    text.remove_prefix(3);
  }
  return decoded;
}

std::string Base64(std::string_view text) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string encoded;
  for (size_t i = 0; i < text.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (i + k < text.size() ? static_cast<uint8_t>(text[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) {
      encoded += i + k > text.size() ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
    }
  }
  return encoded;
}

// "host:port", as the Host header and addresses have it.
std::string Authority(const CameraUrl& url) {
  const std::string host = url.host.substr(0, url.host.find('%'));  // without an interface
  std::string authority = host.find(':') == std::string::npos ? host : "[" + host + "]";
  if (url.port != 80) authority += ":" + std::to_string(url.port);
  return authority;
}

bool StartsWithScheme(std::string_view text) {
  return Lowercase(text.substr(0, kScheme.size())) == kScheme;
}

}  // namespace

std::string CameraUrl::Name() const {
  const size_t query = path.find('?');
  std::string name = std::string(kScheme) + Authority(*this) + path.substr(0, query);
  return query == std::string::npos ? name : name + "?...";
}

Result<CameraUrl> ParseCameraUrl(std::string_view text) {
  const auto refuse = [&] {
    return InvalidArgument("camera '%s': an address is http://HOST[:PORT]/PATH",
                           WithoutLogin(text).c_str());
  };
  if (!StartsWithScheme(text) || !IsPlain(text)) return refuse();
  std::string_view rest = text.substr(kScheme.size());
  rest = rest.substr(0, rest.find('#'));
  CameraUrl url;
  const size_t slash = std::min(rest.find_first_of("/?"), rest.size());
  url.path = rest.substr(slash);
  if (!url.path.starts_with('/')) url.path.insert(0, "/");
  rest = rest.substr(0, slash);
  // "user:80/word@host" would be a server called "user", which gets the rest of the password.
  if (rest.find('@') == std::string_view::npos && rest.find(':') != std::string_view::npos &&
      text.substr(0, text.find('?')).find('@') != std::string_view::npos) {
    return InvalidArgument(
        "camera '%s': in a login, write / as %%2F and # as %%23; in a path, @ as %%40",
        WithoutLogin(text).c_str());
  }
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view login = rest.substr(0, at);
    const size_t colon = std::min(login.find(':'), login.size());
    const std::optional<std::string> user = DecodePercent(login.substr(0, colon));
    const std::optional<std::string> password = DecodePercent(login.substr(colon));
    if (!user || !password) {
      return InvalidArgument("camera '%s': in its login, write %% as %%25",
                             WithoutLogin(text).c_str());
    }
    url.login = *user + (password->empty() ? ":" : *password);
    rest.remove_prefix(at + 1);
  }
  const size_t colon = rest.rfind(':');
  if (colon != std::string_view::npos && rest.find(']', colon) == std::string_view::npos) {
    url.port = ParseNumber<int>(rest.substr(colon + 1)).value_or(0);
    rest = rest.substr(0, colon);
  }
  if (rest.size() > 2 && rest.front() == '[' && rest.back() == ']') {
    rest = rest.substr(1, rest.size() - 2);  // IPv6
  }
  url.host = rest;
  if (url.host.empty() || url.host.find_first_of("[]") != std::string::npos || url.port < 1 ||
      url.port > 65535)
    return refuse();
  return url;
}

Result<CameraUrl> FollowRedirect(const CameraUrl& from, std::string_view location) {
  location = location.substr(0, location.find('#'));
  CameraUrl to = from;
  if (StartsWithScheme(location)) {
    Result<CameraUrl> parsed = ParseCameraUrl(location);
    if (!parsed.ok()) {
      return InvalidArgument("the camera sends us on to what is no address");
    }
    to = *std::move(parsed);
  } else if (!IsPlain(location) || location.empty() || location.starts_with("//") ||
             location.find(':') < location.find_first_of("/?")) {
    return InvalidArgument("the camera sends us on to '%s', which is not followed",
                           IsPlain(location) ? WithoutLogin(location.substr(0, 200)).c_str() : "?");
  } else if (location.starts_with('/')) {
    to.path = location;
  } else if (location.starts_with('?')) {
    to.path = from.path.substr(0, from.path.find('?')) + std::string(location);
  } else {
    const size_t folder = from.path.substr(0, from.path.find('?')).rfind('/');
    to.path = from.path.substr(0, folder + 1) + std::string(location);
  }
  if (Lowercase(to.host) != Lowercase(from.host) || to.port != from.port) {
    return InvalidArgument(
        "the camera sends us on to another server, %s; give that as the source if it is yours",
        to.Name().c_str());
  }
  to.login = from.login;
  return to;
}

std::string FormatCameraRequest(const CameraUrl& url) {
  std::string request = "GET " + url.path + " HTTP/1.1\r\nHost: " + Authority(url) +
                        "\r\nUser-Agent: atoll\r\nAccept: multipart/x-mixed-replace, image/jpeg, "
                        "*/*\r\nAccept-Encoding: identity\r\nConnection: close\r\n";
  if (!url.login.empty()) request += "Authorization: Basic " + Base64(url.login) + "\r\n";
  return request + "\r\n";
}

Status CameraAnswer::Receive(std::span<const uint8_t> bytes, std::vector<uint8_t>* body) {
  while (!bytes.empty() && state_ != State::kEnded) {
    if (state_ == State::kBody || state_ == State::kChunk) {
      const size_t size = static_cast<size_t>(std::min<uint64_t>(bytes.size(), left_));
      body->insert(body->end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
      bytes = bytes.subspan(size);
      if (left_ != kUntilClose) left_ -= size;
      if (left_ == 0) state_ = state_ == State::kChunk ? State::kChunkEnd : State::kEnded;
      if (size > 0) head_bytes_ = 0;
      continue;
    }
    const auto newline = std::find(bytes.begin(), bytes.end(), static_cast<uint8_t>('\n'));
    const auto size = static_cast<size_t>(newline - bytes.begin());
    head_bytes_ += size + 1;
    if (head_bytes_ > kMaxHeadBytes) {
      state_ = State::kEnded;
      return InvalidArgument("the camera's answer has more than %zu bytes of headers",
                             kMaxHeadBytes);
    }
    line_.append(bytes.begin(), newline);
    if (newline == bytes.end()) {
      --head_bytes_;
      return Status();
    }
    bytes = bytes.subspan(size + 1);
    if (line_.ends_with('\r')) line_.pop_back();
    Status status = TakeLine();
    line_.clear();
    if (!status.ok()) {
      state_ = State::kEnded;
      return status;
    }
  }
  return Status();
}

Status CameraAnswer::TakeLine() {
  const std::string_view line = line_;
  switch (state_) {
    case State::kStatusLine: {
      std::string_view digits = line.substr(std::min<size_t>(9, line.size()));
      digits = digits.substr(0, digits.find_first_not_of("0123456789"));
      status_ = digits.size() == 3 ? ParseNumber<int>(digits).value_or(0) : 0;
      if (status_ < 100 || status_ > 599 || !line.starts_with("HTTP/1.") || line[8] != ' ') {
        return InvalidArgument("the camera does not answer in HTTP");
      }
      state_ = State::kHead;
      return Status();
    }
    case State::kHead:
      if (!line.empty()) return TakeHeader();
      if (status_ < 200) {  // the answer proper follows; all heads together have the limit
        const size_t head_bytes = head_bytes_;
        *this = CameraAnswer();
        head_bytes_ = head_bytes;
      } else if (status_ != 200) {
        state_ = State::kEnded;
      } else if (chunked_) {
        state_ = State::kChunkSize;
      } else {
        state_ = left_ == 0 ? State::kEnded : State::kBody;
      }
      return Status();
    case State::kChunkSize: {
      const auto size = ParseNumber<uint64_t>(line.substr(0, line.find_first_of("; \t")), 16);
      if (!size) return InvalidArgument("the camera's answer has a chunk whose size is no number");
      left_ = *size;
      state_ = left_ == 0 ? State::kTrailer : State::kChunk;
      return Status();
    }
    case State::kChunkEnd:
      if (!line.empty()) return InvalidArgument("the camera's answer has a chunk without an end");
      state_ = State::kChunkSize;
      return Status();
    case State::kTrailer:
      if (line.empty()) state_ = State::kEnded;
      return Status();
    default:
      return Status();
  }
}

Status CameraAnswer::TakeHeader() {
  const std::string_view line = line_;
  const size_t colon = std::min(line.find(':'), line.size());
  const std::string name = Lowercase(line.substr(0, colon));
  const std::string_view value = Trim(line.substr(std::min(colon + 1, line.size())));
  if (name == "content-type") type_ = Lowercase(value.substr(0, value.find(';')));
  if (name == "content-encoding") encoding_ = Lowercase(value);
  if (name == "www-authenticate") challenge_ += Lowercase(value.substr(0, value.find(' '))) + " ";
  if (name == "location") location_ = value;
  if (name == "transfer-encoding") {
    const std::string coding = Lowercase(value);
    if (coding != "chunked" && coding != "identity") {
      return Unsupported("the camera's answer has a transfer coding that is not read");
    }
    chunked_ = chunked_ || coding == "chunked";
  }
  if (name == "content-length") {
    const std::optional<uint64_t> length = ParseNumber<uint64_t>(value);
    if (!length) return InvalidArgument("the camera's answer has a length that is no number");
    left_ = *length;
  }
  return Status();
}

Status CameraAnswer::Check(bool with_login) const {
  const auto denied = [](const char* sentence) {
    return Status(StatusCode::kPermissionDenied, sentence);
  };
  if (status_ == 401 && !challenge_.empty() && challenge_.find("basic ") == std::string::npos) {
    return Unsupported(
        "the camera wants a login of a kind that is not spoken here (HTTP status 401); basic is, "
        "which many cameras can be set to");
  }
  if (status_ == 401 && with_login) {
    return denied(
        "the camera refuses this login (HTTP status 401); check USER and PASSWORD in "
        "http://USER:PASSWORD@HOST/PATH");
  }
  if (status_ == 401) {
    return denied(
        "the camera wants a login (HTTP status 401); give http://USER:PASSWORD@HOST/PATH");
  }
  if (status_ == 403) {
    return denied(
        "the camera does not let this user see the stream (HTTP status 403); give another login, "
        "http://USER:PASSWORD@HOST/PATH");
  }
  if (status_ == 404) {
    return NotFound(
        "the camera has nothing at this path (HTTP status 404); look up the path of the camera's "
        "MJPEG stream");
  }
  if (status_ != 200) {
    return InvalidArgument("the camera answers with HTTP status %d; %s", status_,
                           status_ >= 500 ? "start it again, or try later"
                                          : "look up the address of its MJPEG stream");
  }
  if (type_.starts_with("text/")) {
    return InvalidArgument(
        "there is a page or a text, and no stream of pictures; look up the path of the camera's "
        "MJPEG stream");
  }
  if (!encoding_.empty() && encoding_ != "identity") {
    return Unsupported("the camera's answer is compressed, though it was not asked to be");
  }
  return Status();
}

}  // namespace atollrt
