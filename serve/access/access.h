// SPDX-License-Identifier: Apache-2.0
//
// Who may come in: one rule for everything that listens.
//
// What only this computer reaches (a loopback address, a unix socket) is open to whoever is there.
// Anything else must be encrypted and its clients must show a token or a certificate, unless
// --insecure says aloud that nobody has to. Browsers are let in by name only, so that no page from
// elsewhere can use them to get here (DNS rebinding), and not on behalf of other pages.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/status.h"
#include "serve/access/tls.h"

namespace atollserve {

struct AccessRule {
  std::string token;  // "": none would do
  bool client_certificates = false;
  bool insecure = false;
  std::vector<std::string> names;  // that the server may be called, beside localhost, addresses and
                                   // what the computer calls itself
  std::string prefix = "--";       // of the options that sentences propose: --token-file
};

// The token in a file, without the line end, or in the environment variable; "" if both are "" or
// the variable is not set. Never from a command line, which everybody can read. kNotFound,
// kInvalidArgument: 16 to 4096 printable characters without spaces.
atollrt::Result<std::string> ReadToken(const std::string& file, const char* variable);

// What a program is told about who may come in.
struct AccessOptions {
  std::string token_file = {};  // has the token that clients must show
  std::string token_variable =
      {};             // of the environment, which has it where there is no file; "": none
  TlsFiles tls = {};  // whose client_certificate follows from the rest
  bool insecure = false;
  std::vector<std::string> names = {};
  std::string prefix = "--";  // as of AccessRule
};
struct Access {
  AccessRule rule;
  std::shared_ptr<const TlsContext> tls;  // null: none
};
// Reads all of it. Errors of ReadToken and LoadTls; kInvalidArgument for options that do not go
// together.
atollrt::Result<Access> OpenAccess(const AccessOptions& options);

// Whether a server may listen there. `where` is for the sentence: "0.0.0.0:8000".
struct ListenerFacts {
  std::string where;
  bool local = false;
  bool tls = false;
};
atollrt::Status CheckListener(const ListenerFacts& listener, const AccessRule& rule);

// The same rule for a program that connects to somebody else's server and works for whoever reaches
// that: whether it may.
struct ServerFacts {
  std::string where;  // for the sentence: "nats://10.0.0.1:4222"
  bool local = false;
  bool tls = false;
  bool credential = false;  // it shows who it is
};
atollrt::Status CheckServer(const ServerFacts& server, bool insecure);

// Takes as long for texts that differ in the first byte as for equal ones of that length.
bool EqualInConstantTime(std::string_view a, std::string_view b);

// What a server may be called, by where a request came in.
struct ServedHosts {
  std::string address;             // numeric, without brackets, that it is bound to
  bool loopback = false;           // which that is
  std::vector<std::string> names;  // in small letters, beside localhost
};
// With what this computer calls itself, alone and in its network, unless `loopback`.
ServedHosts HostsOf(const std::string& address, bool loopback,
                    const std::vector<std::string>& names);
// Whether a Host header, with or without port, is one of them: a name of the list, localhost,
// 127.0.0.1, [::1], the address and, unless it is a loopback one, any numeric address. Others may
// be names that somebody else lets point here, for a page of theirs to read what is here; with
// addresses that cannot be done.
bool IsServedHost(std::string_view host, const ServedHosts& hosts);

// What browsers say about the page that asks; "" without such a header.
struct BrowserHeaders {
  std::string_view host = {}, origin = {}, fetch_site = {}, fetch_mode = {}, fetch_dest = {};
};
// Whether a browser asks on behalf of a page from elsewhere, other than by following a link to
// here. `scheme` is that of this server: "http".
bool IsForeign(const BrowserHeaders& headers, std::string_view scheme);

// Whether the value of an Authorization header is "Bearer TOKEN" with this token, or that of a
// login (RFC 7617) with it as the password, whoever the user is.
bool HasToken(std::string_view authorization, std::string_view token);

// RFC 4648, section 4, with or without padding; nullopt if it is something else.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace atollserve
