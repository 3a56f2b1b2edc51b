// SPDX-License-Identifier: Apache-2.0
#ifndef ATOLL_COMPAT_TFLITE_DELEGATE_KERNEL_H_
#define ATOLL_COMPAT_TFLITE_DELEGATE_KERNEL_H_

#include "compat/tflite/abi.h"

namespace atollcompat {

// What a runtime calls for each partition: its nodes as a model of their own, in an interpreter of
// Atoll's. Inputs and outputs are the runtime's memory where that is possible, else copies.
TfLiteRegistration KernelRegistration();

}  // namespace atollcompat

#endif  // ATOLL_COMPAT_TFLITE_DELEGATE_KERNEL_H_
