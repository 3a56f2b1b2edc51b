// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/login.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/load_target.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

struct Scheme {
  std::string_view text;
  bool tls, grpc;
};
constexpr Scheme kSchemes[] = {{"oip://", false, false},
                               {"oips://", true, false},
                               {"grpc://", false, true},
                               {"grpcs://", true, true}};
constexpr char kTokenVariable[] = "ATOLL_SERVE_TOKEN";
constexpr size_t kMaxTokenBytes = 4096;

bool IsHost(std::string_view host) {
  if (host.starts_with('[')) {  // an address of IPv6
    if (!host.ends_with(']') || host.size() < 4) return false;
    host = host.substr(1, host.size() - 2);
    return std::all_of(host.begin(), host.end(), [](unsigned char c) {
      return std::isxdigit(c) != 0 || c == ':' || c == '.';
    });
  }
  return !host.empty() && host.size() <= 253 &&
         std::all_of(host.begin(), host.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
         });
}

// An address of IPv4 that begins with 127.
bool IsLoopback(std::string_view host) {
  const std::vector<std::string> parts = Split(host, '.');
  return parts.size() == 4 && parts[0] == "127" &&
         std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
           return ParseNumber<uint8_t>(part).has_value();
         });
}

}  // namespace

bool IsOipAddress(const std::string& text) {
  const size_t scheme = text.find("://");
  if (scheme == text.npos) return false;
  return !text.starts_with("grpc://") || text.find('/', scheme + 3) != text.npos;
}

OipAddress ParseOipAddress(const std::string& text) {
  OipAddress address;
  address.text = text;
  std::string_view rest = text;
  const auto* const scheme =
      std::find_if(std::begin(kSchemes), std::end(kSchemes),
                   [&](const Scheme& one) { return rest.starts_with(one.text); });
  const bool has_scheme = scheme != std::end(kSchemes);
  if (has_scheme) {
    address.tls = scheme->tls;
    address.grpc = scheme->grpc;
    rest.remove_prefix(scheme->text.size());
  }
  const size_t slash = rest.find('/');
  const std::string_view place = rest.substr(0, slash);
  const size_t colon = place.rfind(':');
  const auto port = ParseNumber<int>(colon == place.npos ? "" : place.substr(colon + 1));
  const std::string_view model = slash == rest.npos ? "" : rest.substr(slash + 1);
  const bool is_good = has_scheme && port && *port >= 1 && *port <= 65535 &&
                       IsHost(place.substr(0, colon)) && model.find('/') == model.npos &&
                       model.size() <= 255 && model != "." && model != ".." &&
                       std::none_of(model.begin(), model.end(),
                                    [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (!is_good) {
    Fail(ExitCode::kUsage,
         "'{}' is no address of a server; write oip://HOST:PORT or oip://HOST:PORT/MODEL, with TLS "
         "oips://, or over gRPC grpc://HOST:PORT/MODEL, with TLS grpcs://, all without "
         "a login",
         atollrt::WithoutLogin(text));
  }
  address.host = place.substr(0, colon);
  address.port = *port;
  address.model = model;
  return address;
}

std::string ReadOipToken(const std::string& path) {
  std::string token;
  std::string from = fmt::format("the environment variable {}", kTokenVariable);
  if (!path.empty()) {
    from = fmt::format("'{}'", path);
    token = ReadBeginning(path, kMaxTokenBytes + 3, [&](const char* verb, const std::string& why) {
      Fail(ExitCode::kFailure, "cannot {} '{}' of --token-file: {}", verb, path, why);
    });
    while (token.ends_with('\n') || token.ends_with('\r')) token.pop_back();
  } else if (const char* value = std::getenv(kTokenVariable)) {
    token = value;
    if (token.empty()) return token;
  } else {
    return token;
  }
  const bool is_good =
      !token.empty() && token.size() <= kMaxTokenBytes &&
      std::all_of(token.begin(), token.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (!is_good) {
    Fail(ExitCode::kUsage,
         "{} has no token of 1 to {} printable characters without blanks; write it there", from,
         kMaxTokenBytes);
  }
  return token;
}

void CheckCredentials(const OipAddress& address, const OipCredentials& credentials) {
  if (!address.tls && !credentials.ca_file.empty()) {
    Fail(ExitCode::kUsage, "--ca-file is for oips:// and grpcs://, not for '{}'; leave it out",
         address.text);
  }
  const bool is_local =
      address.host == "localhost" || address.host == "[::1]" || IsLoopback(address.host);
  if (!address.tls && !is_local && !credentials.token.empty()) {
    Fail(ExitCode::kUsage,
         "the token is not sent to '{}', as everybody on the way could read it; write {}",
         address.text, address.grpc ? "grpcs://" : "oips://");
  }
}

}  // namespace atollcmd
