// SPDX-License-Identifier: Apache-2.0
//
// The kernel of "edgetpu-custom-op" for programs that add it to their resolver instead of giving
// the runtime a delegate.
#include <string>
#include <utility>

#include "compat/edgetpu/edgetpu.h"
#include "compat/edgetpu/manager.h"
#include "compat/tflite_delegate/kernel.h"

namespace atollcompat {
namespace {

struct CustomOp {
  const char* package;  // in the model, which the runtime keeps
  size_t size;
  std::unique_ptr<Kernel> kernel;  // from the first Prepare on
};

void* Init(TfLiteContext* /*context*/, const char* buffer, size_t length) {
  return new CustomOp{buffer, length, nullptr};
}

void Free(TfLiteContext* /*context*/, void* op) { delete static_cast<CustomOp*>(op); }

TfLiteStatus Fail(TfLiteContext* context, const char* why) {
  context->ReportError(context, "Failed to retrieve TPU context. %s", why);
  return kTfLiteError;
}

TfLiteStatus Prepare(TfLiteContext* context, TfLiteNode* node) {
  auto* const op = static_cast<CustomOp*>(node->user_data);
  if (op == nullptr) {
    context->ReportError(context, "Null custom op data.");
    return kTfLiteError;
  }
  Kernel::Setup setup;
  std::string error;
  if (const TfLiteExternalContext* const external =
          context->GetExternalContext(context, kTfLiteEdgeTpuContext);
      external != nullptr) {
    setup.device = Manager::Get().Find(external, &setup.kept);
    if (setup.device == nullptr) {
      return Fail(context, "The interpreter's external context is no EdgeTpuContext that is open.");
    }
  } else {
    const auto any = Manager::Get().OpenShared(DeviceRequest::Parse(""), {}, &error);
    if (any == nullptr) return Fail(context, error.c_str());
    setup.device = any->device();
    setup.kept = any;
  }
  if (op->kernel == nullptr || op->kernel->device() != setup.device) {
    TfLiteRegistration registration = {};
    registration.builtin_code = kCustomOperator;
    registration.custom_name = kEdgeTpuOperator;
    registration.version = 1;
    TfLiteNode with_package = *node;
    with_package.custom_initial_data = op->package;
    with_package.custom_initial_data_size = static_cast<int>(op->size);
    const GraphNode itself = {&with_package, &registration};
    const std::span<const int> outputs(node->outputs->data,
                                       static_cast<size_t>(node->outputs->size));
    op->kernel = std::make_unique<Kernel>(context, std::span(&itself, 1), outputs, setup);
  }
  return op->kernel->Prepare(context);
}

TfLiteStatus Invoke(TfLiteContext* context, TfLiteNode* node) {
  const auto* const op = static_cast<CustomOp*>(node->user_data);
  if (op == nullptr || op->kernel == nullptr) return Fail(context, "The operator is not prepared.");
  return op->kernel->Invoke(context);
}

}  // namespace
}  // namespace atollcompat

TfLiteRegistration* edgetpu::RegisterCustomOp() {
  static TfLiteRegistration registration = {.init = atollcompat::Init,
                                            .free = atollcompat::Free,
                                            .prepare = atollcompat::Prepare,
                                            .invoke = atollcompat::Invoke,
                                            .version = 1};
  return &registration;
}
