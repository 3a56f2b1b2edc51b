// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tools/atoll/load_target.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

constexpr std::string_view kScheme = "oip://";

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

}  // namespace

bool IsOipAddress(std::string_view text) { return text.starts_with(kScheme); }

OipAddress ParseOipAddress(const std::string& text) {
  OipAddress address;
  address.text = text;
  std::string_view rest = text;
  if (IsOipAddress(rest)) rest.remove_prefix(kScheme.size());
  const size_t slash = rest.find('/');
  const std::string_view place = rest.substr(0, slash);
  const size_t colon = place.rfind(':');
  const auto port = ParseNumber<int>(colon == place.npos ? "" : place.substr(colon + 1));
  const std::string_view model = slash == rest.npos ? "" : rest.substr(slash + 1);
  const bool is_good = IsOipAddress(text) && port && *port >= 1 && *port <= 65535 &&
                       IsHost(place.substr(0, colon)) && model.find('/') == model.npos &&
                       model.size() <= 255 && model != "." && model != ".." &&
                       std::none_of(model.begin(), model.end(),
                                    [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (!is_good) {
    Fail(ExitCode::kUsage,
         "'{}' is no address of a server; write oip://HOST:PORT or oip://HOST:PORT/MODEL", text);
  }
  address.host = place.substr(0, colon);
  address.port = *port;
  address.model = model;
  return address;
}

}  // namespace atollcmd
