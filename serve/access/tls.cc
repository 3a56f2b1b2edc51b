// SPDX-License-Identifier: Apache-2.0
#include "serve/access/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <utility>

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

struct DeleteContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using Context = std::unique_ptr<SSL_CTX, DeleteContext>;
struct DeleteSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

class OpensslStream : public TlsStream {
 public:
  explicit OpensslStream(SSL* ssl) : ssl_(ssl) {}

  ssize_t Read(std::span<char> bytes) override {
    ERR_clear_error();
    const int got =
        SSL_read(ssl_.get(), bytes.data(), static_cast<int>(std::min(bytes.size(), kMost)));
    reads_when_writable_ = false;
    if (got > 0) return got;
    const int error = SSL_get_error(ssl_.get(), got);
    reads_when_writable_ = error == SSL_ERROR_WANT_WRITE;
    return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? 0 : -1;
  }
  bool reads_when_writable() const override { return reads_when_writable_; }
  bool has_pending() const override { return SSL_pending(ssl_.get()) > 0; }

  ssize_t Write(std::string_view bytes) override {
    ERR_clear_error();
    const int wrote =
        SSL_write(ssl_.get(), bytes.data(), static_cast<int>(std::min(bytes.size(), kMost)));
    if (wrote > 0) return wrote;
    const int error = SSL_get_error(ssl_.get(), wrote);
    return error == SSL_ERROR_WANT_WRITE || error == SSL_ERROR_WANT_READ ? 0 : -1;
  }

  void Close() override {
    if (SSL_is_init_finished(ssl_.get()) == 0) return;
    ERR_clear_error();
    SSL_shutdown(ssl_.get());
  }

  std::string Certificate() const override {
    X509* const certificate = SSL_get0_peer_certificate(ssl_.get());
    if (certificate == nullptr || SSL_get_verify_result(ssl_.get()) != X509_V_OK) return {};
    char* const text = X509_NAME_oneline(X509_get_subject_name(certificate), nullptr, 0);
    std::string subject = text == nullptr || *text == '\0' ? "/" : text;
    OPENSSL_free(text);
    return subject;
  }

 private:
  static constexpr size_t kMost = 1 << 20;

  const std::unique_ptr<SSL, DeleteSsl> ssl_;
  bool reads_when_writable_ = false;
};

class OpensslContext : public TlsContext {
 public:
  explicit OpensslContext(Context context) : context_(std::move(context)) {}

  std::unique_ptr<TlsStream> Accept(int socket) const override {
    SSL* const ssl = SSL_new(context_.get());
    if (ssl == nullptr) return nullptr;
    auto stream = std::make_unique<OpensslStream>(ssl);
    if (SSL_set_fd(ssl, socket) != 1) return nullptr;
    SSL_set_accept_state(ssl);
    return stream;
  }

 private:
  const Context context_;
};

}  // namespace

Result<std::shared_ptr<const TlsContext>> LoadTls(const TlsFiles& files) {
  Context context(SSL_CTX_new(TLS_server_method()));
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
  return std::shared_ptr<const TlsContext>(std::make_shared<OpensslContext>(std::move(context)));
}

}  // namespace atollserve
