// SPDX-License-Identifier: Apache-2.0
#include "serve/access/access.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <fstream>

namespace atollserve {
namespace {

using atollrt::InvalidArgument;
using atollrt::NotFound;
using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;

constexpr size_t kMinTokenBytes = 16, kMaxTokenBytes = 4096;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
std::string Lowercase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), Lower);
  return lower;
}

}  // namespace

Result<Access> OpenAccess(const AccessOptions& options) {
  Access access;
  ATOLL_ASSIGN_OR_RETURN(access.rule.token,
                         ReadToken(options.token_file, options.token_variable.c_str()));
  access.rule.client_certificates = !options.tls.client_ca.empty();
  access.rule.insecure = options.insecure;
  access.rule.names = options.names;
  access.rule.prefix = options.prefix;
  const bool has_tls = !options.tls.certificate.empty();
  if (has_tls == options.tls.key.empty() || (access.rule.client_certificates && !has_tls)) {
    const char* const prefix = options.prefix.c_str();
    return InvalidArgument("%stls-cert and %stls-key go together, and %sclient-ca goes with them",
                           prefix, prefix, prefix);
  }
  if (!has_tls) return access;
  TlsFiles files = options.tls;
  files.client_certificate =
      access.rule.token.empty() ? ClientCertificate::kRequired : ClientCertificate::kOptional;
  ATOLL_ASSIGN_OR_RETURN(access.tls, LoadTls(files));
  return access;
}

Result<std::string> ReadToken(const std::string& file, const char* variable) {
  std::string token, from;
  if (!file.empty()) {
    std::ifstream stream(file, std::ios::binary);
    std::array<char, kMaxTokenBytes + 2> bytes{};
    stream.read(bytes.data(), bytes.size());
    if (!stream.is_open() || stream.bad()) {
      return NotFound("token file '%s' cannot be read", file.c_str());
    }
    token.assign(bytes.data(), static_cast<size_t>(stream.gcount()));
    while (token.ends_with('\n') || token.ends_with('\r')) token.pop_back();
    from = "token file '" + file + "'";
  } else {
    const char* const value = *variable == '\0' ? nullptr : std::getenv(variable);
    if (value == nullptr) return std::string();
    token = value;
    from = std::string("the token in ") + variable;
  }
  if (token.size() < kMinTokenBytes || token.size() > kMaxTokenBytes ||
      !std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 0x7f; })) {
    return InvalidArgument(
        "%s has %zu bytes; a token is %zu to %zu printable characters without spaces, as openssl "
        "rand -hex 32 prints",
        from.c_str(), token.size(), kMinTokenBytes, kMaxTokenBytes);
  }
  return token;
}

Status CheckListener(const ListenerFacts& listener, const AccessRule& rule) {
  if (listener.local || rule.insecure) return {};
  const char* const prefix = rule.prefix.c_str();
  if (!listener.tls) {
    return Status(StatusCode::kPermissionDenied,
                  atollrt::Format("%s can be reached from elsewhere: give a certificate "
                                  "(%stls-cert, %stls-key) and a token (%stoken-file), or "
                                  "%sinsecure to let everybody in",
                                  listener.where.c_str(), prefix, prefix, prefix, prefix));
  }
  if (rule.token.empty() && !rule.client_certificates) {
    return Status(StatusCode::kPermissionDenied,
                  atollrt::Format("%s can be reached from elsewhere: give a token (%stoken-file), "
                                  "or who signs clients' certificates (%sclient-ca), or %sinsecure "
                                  "to let everybody in",
                                  listener.where.c_str(), prefix, prefix, prefix));
  }
  return {};
}

Status CheckServer(const ServerFacts& server, bool insecure) {
  if (server.local || insecure || (server.tls && server.credential)) return {};
  return Status(StatusCode::kPermissionDenied,
                atollrt::Format("%s is elsewhere and %s: give %s, or --insecure to do without",
                                server.where.c_str(),
                                server.tls ? "wants to know who this is" : "has to be encrypted",
                                server.tls ? "a credential (--credentials, --nkey, --tls-cert or "
                                             "--token-file)"
                                           : "tls://HOST:PORT and a credential (--credentials, "
                                             "--nkey, --tls-cert or --token-file)"));
}

bool EqualInConstantTime(std::string_view a, std::string_view b) {
  // The length of what was sent is no secret; that of the token does not matter either way.
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const unsigned other = b.empty() ? 0 : static_cast<unsigned char>(b[i % b.size()]);
    difference |= static_cast<unsigned char>(a[i]) ^ other;
  }
  // The compiler must not know that it may stop.
  asm volatile("" : "+r"(difference));
  return difference == 0;
}

ServedHosts HostsOf(const std::string& address, bool loopback,
                    const std::vector<std::string>& names) {
  ServedHosts hosts = {.address = address, .loopback = loopback, .names = {}};
  for (const std::string& name : names) hosts.names.push_back(Lowercase(name));
  if (loopback) return hosts;
  std::array<char, HOST_NAME_MAX + 1> text = {};
  if (gethostname(text.data(), text.size() - 1) == 0 && text[0] != '\0') {
    const std::string name = Lowercase(text.data());
    const std::string first = name.substr(0, name.find('.'));
    hosts.names.insert(hosts.names.end(), {name, first, first + ".local"});
  }
  return hosts;
}

bool IsServedHost(std::string_view host, const ServedHosts& hosts) {
  // An IPv6 address is in brackets, so outside of them there is one colon at most.
  const size_t end = host.starts_with('[') ? host.find(']') + 1 : host.find(':');
  const std::string_view name = host.substr(0, end);
  const std::string_view port = host.substr(name.size());
  if (!port.empty() && (port[0] != ':' || !std::all_of(port.begin() + 1, port.end(), IsDigit))) {
    return false;
  }
  const bool v6 = name.starts_with('[');
  const std::string bare(v6 ? name.substr(1, name.size() - 2) : name);
  if (v6 || bare.find(':') != std::string::npos) {
    in6_addr ignored;
    if (!v6 || inet_pton(AF_INET6, bare.c_str(), &ignored) != 1) return false;
    return !hosts.loopback || bare == "::1" || bare == hosts.address;
  }
  in_addr ignored;
  if (inet_pton(AF_INET, bare.c_str(), &ignored) == 1) {
    return !hosts.loopback || bare == "127.0.0.1" || bare == hosts.address;
  }
  std::string lower = Lowercase(bare);
  if (lower.ends_with('.')) lower.pop_back();  // the same name, spelled out
  return lower == "localhost" ||
         std::find(hosts.names.begin(), hosts.names.end(), lower) != hosts.names.end();
}

bool IsForeign(const BrowserHeaders& headers, std::string_view scheme) {
  // Browsers send it with requests for other origins, and with none that our page makes.
  if (!headers.origin.empty() &&
      headers.origin != std::string(scheme) + "://" + std::string(headers.host)) {
    return true;
  }
  const std::string_view site = headers.fetch_site;
  if (site.empty() || site == "same-origin" || site == "none") return false;
  return headers.fetch_mode != "navigate" || headers.fetch_dest != "document";
}

bool HasToken(std::string_view authorization, std::string_view token) {
  const size_t space = std::min(authorization.find(' '), authorization.size());
  const std::string scheme = Lowercase(authorization.substr(0, space));
  const std::string_view value = authorization.substr(std::min(space + 1, authorization.size()));
  if (token.empty() || value.empty()) return false;
  if (scheme == "bearer") return EqualInConstantTime(value, token);
  if (scheme != "basic") return false;
  const std::optional<std::string> login = DecodeBase64(value);
  const size_t colon = login ? login->find(':') : std::string::npos;
  return colon != std::string::npos &&
         EqualInConstantTime(std::string_view(*login).substr(colon + 1), token);
}

// RFC 4648, section 4, with or without padding; nullopt if it is something else.
std::optional<std::string> DecodeBase64(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    uint32_t value = 0;
    if (c >= 'A' && c <= 'Z') {
      value = static_cast<uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      value = static_cast<uint32_t>(c - 'a' + 26);
    } else if (c >= '0' && c <= '9') {
      value = static_cast<uint32_t>(c - '0' + 52);
    } else if (c == '+' || c == '/') {
      value = c == '+' ? 62 : 63;
    } else {
      return std::nullopt;
    }
    bits = bits << 6 | value;
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 0xff);
    }
  }
  if (text.size() % 4 == 1) return std::nullopt;
  return bytes;
}

}  // namespace atollserve
