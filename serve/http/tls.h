// SPDX-License-Identifier: Apache-2.0
//
// TLS 1.2 and 1.3 for the server's side of a connection, by OpenSSL.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "atoll/status.h"

namespace atollserve {

enum class ClientCertificate {
  kOptional,  // who comes without one may have a token instead
  kRequired,  // the handshake fails without one
};

struct TlsFiles {
  std::string certificate;  // PEM: the server's, then those up to the root
  std::string key;          // PEM, without a passphrase
  std::string client_ca;    // PEM: who signs certificates of clients; "": nobody is asked for one
  ClientCertificate client_certificate = ClientCertificate::kOptional;
};

struct DeleteTlsContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using TlsContext = std::unique_ptr<SSL_CTX, DeleteTlsContext>;

// kNotFound or kInvalidArgument, with the file and what OpenSSL says of it.
atollrt::Result<TlsContext> LoadTls(const TlsFiles& files);

}  // namespace atollserve
