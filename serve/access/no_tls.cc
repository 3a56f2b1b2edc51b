// SPDX-License-Identifier: Apache-2.0
#include "serve/access/tls.h"

namespace atollserve {

atollrt::Result<std::shared_ptr<const TlsContext>> LoadTls(const TlsFiles& files) {
  return atollrt::Unsupported(
      "certificate '%s': there is no TLS, as OpenSSL was not installed when this was built; build "
      "with libssl-dev, or listen on a loopback address and put a proxy with TLS in front",
      files.certificate.c_str());
}

}  // namespace atollserve
