// SPDX-License-Identifier: Apache-2.0
#include "serve/http/tls.h"

#include <openssl/err.h>

namespace atollserve {
namespace {

using atollrt::InternalError;
using atollrt::InvalidArgument;
using atollrt::Result;

// The first thing that went wrong since the last call.
std::string LastTlsError() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "it cannot be read" : reason;
}

}  // namespace

Result<TlsContext> LoadTls(const TlsFiles& files) {
  TlsContext context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr) return InternalError("TLS: %s", LastTlsError().c_str());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                         SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(context.get(), files.certificate.c_str()) != 1) {
    return InvalidArgument("certificate '%s': %s; give a PEM file, the server's certificate first",
                           files.certificate.c_str(), LastTlsError().c_str());
  }
  // One with a passphrase would ask for it on the terminal.
  SSL_CTX_set_default_passwd_cb(context.get(), [](char*, int, int, void*) { return 0; });
  if (SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context.get()) != 1) {
    return InvalidArgument(
        "key '%s': %s; give the PEM file of the certificate's key, without a passphrase",
        files.key.c_str(), LastTlsError().c_str());
  }
  if (!files.client_ca.empty()) {
    if (SSL_CTX_load_verify_file(context.get(), files.client_ca.c_str()) != 1) {
      return InvalidArgument("client CA '%s': %s; give a PEM file of certificates",
                             files.client_ca.c_str(), LastTlsError().c_str());
    }
    SSL_CTX_set_client_CA_list(context.get(), SSL_load_client_CA_file(files.client_ca.c_str()));
    int mode = SSL_VERIFY_PEER;
    if (files.client_certificate == ClientCertificate::kRequired) {
      mode |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    }
    SSL_CTX_set_verify(context.get(), mode, nullptr);
    const unsigned char session_context[] = "atoll";
    SSL_CTX_set_session_id_context(context.get(), session_context, sizeof(session_context) - 1);
  }
  return context;
}

}  // namespace atollserve
