// SPDX-License-Identifier: Apache-2.0
//
// How Atoll's libtensorflowlite_c gets the AtollDelegate behind a TfLiteDelegate, which a wrapper
// of TensorFlow Lite's may hide: it calls Prepare with a context without nodes whose impl_ points
// at a Handshake. Atoll's delegates fill it in; any other finds nothing to do.
#ifndef ATOLL_COMPAT_TFLITE_HANDSHAKE_H_
#define ATOLL_COMPAT_TFLITE_HANDSHAKE_H_

#include <cstring>

#include "atoll/runtime.h"
#include "compat/tflite/abi.h"

namespace atollcompat {

struct Handshake {
  static constexpr char kMagic[16] = {'A', 't', 'o',  'l',    'l',    0x1f,   '\xc3', 'h',
                                      's', 1,   0x07, '\x9e', '\x81', '\xf0', 'k',    '\0'};
  char magic[16];
  // In: null. Out: borrowed from the TfLiteDelegate, which must outlive the call alone if whoever
  // asks makes an interpreter on it at once: interpreters keep their delegate open.
  AtollDelegate* delegate;
  // Out: nonzero if the delegate does nothing by design (XNNPACK's stand-in).
  int32_t does_nothing;
  // Out: why there is no AtollDelegate, of a delegate of Atoll's that could not open its device;
  // borrowed from the TfLiteDelegate. Null otherwise.
  const char* error;
};

// The handshake that `context` stands for; null if it is that of a runtime.
inline Handshake* FindHandshake(const TfLiteContext* context) {
  if (context == nullptr || context->impl_ == nullptr) return nullptr;
  return std::memcmp(context->impl_, Handshake::kMagic, sizeof(Handshake::kMagic)) == 0
             ? static_cast<Handshake*>(context->impl_)
             : nullptr;
}

}  // namespace atollcompat

#endif  // ATOLL_COMPAT_TFLITE_HANDSHAKE_H_
