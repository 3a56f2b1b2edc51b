// SPDX-License-Identifier: Apache-2.0
//
// TLS 1.2 and 1.3 for the server's side of connections: by OpenSSL, or, where that was not there
// when this was built, a sentence that says so.
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "atoll/status.h"

namespace atollserve {

enum class ClientCertificate {
  kOptional,  // who comes without one may have a token instead
  kRequired,  // the handshake fails without one
};

struct TlsFiles {
  std::string certificate = {};  // PEM: the server's, then those up to the root; "": no TLS
  std::string key = {};          // PEM, without a passphrase
  std::string client_ca =
      {};  // PEM: who signs certificates of clients; "": nobody is asked for one
  ClientCertificate client_certificate = ClientCertificate::kOptional;
};

// One connection. Its socket does not block, stays that of whoever made this, and outlives it. One
// thread at a time, in which SIGPIPE is blocked or ignored.
class TlsStream {
 public:
  virtual ~TlsStream() = default;

  // Bytes that have come; 0: none for now; -1: the other side has closed, or it is broken.
  virtual ssize_t Read(std::span<char> bytes) = 0;
  // The latest Read goes on when the socket takes bytes, not when some have come.
  virtual bool reads_when_writable() const = 0;
  // Bytes have come that the socket does not tell of.
  virtual bool has_pending() const = 0;
  // Bytes taken; 0: none for now, the same ones come next; -1: it is broken.
  virtual ssize_t Write(std::string_view bytes) = 0;
  // Tells the other side that nothing more comes, if it takes that at once.
  virtual void Close() = 0;

  // The subject of the client's certificate, which the client CA has signed; "": there is none,
  // or the handshake is not over.
  virtual std::string Certificate() const = 0;
};

// What all connections of a server have in common. Any thread.
class TlsContext {
 public:
  virtual ~TlsContext() = default;
  // Null if there is no memory.
  virtual std::unique_ptr<TlsStream> Accept(int socket) const = 0;
};

// kInvalidArgument with the file and what OpenSSL says of it; kUnsupported without OpenSSL.
atollrt::Result<std::shared_ptr<const TlsContext>> LoadTls(const TlsFiles& files);

}  // namespace atollserve
