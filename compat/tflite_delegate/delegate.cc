// SPDX-License-Identifier: Apache-2.0
#include "compat/tflite_delegate/delegate.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "compat/tflite/handshake.h"
#include "compat/tflite_delegate/kernel.h"

namespace atollcompat {
Delegate::Delegate(std::shared_ptr<Device> device, DelegateOptions options)
    : options_(std::move(options)), device_(std::move(device)) {
  shown_.delegate.data_ = this;
  shown_.delegate.Prepare = Prepare;
  // With it the runtime asks the delegate before it prepares operators, which it would fail to do
  // with those of compiled models; and inputs can still be resized afterwards.
  shown_.delegate.flags = kTfLiteDelegateFlagsAllowDynamicTensors;
}

std::unique_ptr<Delegate> Delegate::Broken(std::string error) {
  auto made = std::make_unique<Delegate>(nullptr, DelegateOptions());
  made->error_ = std::move(error);
  return made;
}

Partition Delegate::TakePrepared(const TfLiteContext* context, const TfLiteDelegateParams& params) {
  const std::lock_guard lock(mutex_);
  const auto prepared = prepared_.find(context);
  if (prepared == prepared_.end()) return {};
  const auto is_same = [](const std::vector<int>& numbers, const TfLiteIntArray& array) {
    return std::ranges::equal(numbers.begin(), numbers.end(), array.data, array.data + array.size);
  };
  const auto found = std::ranges::find_if(prepared->second, [&](const ChosenPartition& chosen) {
    return is_same(chosen.nodes, *params.nodes_to_replace) &&
           is_same(chosen.outputs, *params.output_tensors);
  });
  return found != prepared->second.end() ? std::move(found->partition) : Partition();
}

TfLiteStatus Delegate::TakeNodes(TfLiteContext* context) {
  if (options_.external_context != nullptr) {
    context->SetExternalContext(context, kTfLiteEdgeTpuContext, options_.external_context.get());
  }
  Choice choice = Choose(context, device_.get(),
                         {.operators = options_.operators,
                          .min_nodes = options_.min_nodes,
                          .num_threads = ThreadsOf(context, options_.num_threads)});
  if (!choice.error.empty()) {
    context->ReportError(context, "Atoll: %s", choice.error.c_str());
    return kTfLiteDelegateError;
  }
  for (const Choice::Refusal& refusal : choice.refusals) {
    if (options_.verbosity < 2) break;
    TfLiteNode* node = nullptr;
    TfLiteRegistration* registration = nullptr;
    context->GetNodeAndRegistration(context, refusal.node, &node, &registration);
    Print("node %d (%s) stays with the runtime: %s", refusal.node,
          OperatorName(*registration).c_str(), refusal.reason.c_str());
  }
  if (options_.verbosity >= 1) {
    Print("%zu of %zu operators are run here", choice.nodes.size(),
          choice.nodes.size() + choice.refusals.size());
  }
  const std::vector<int> replaced = AsArray(choice.nodes);
  {
    const std::lock_guard lock(mutex_);
    prepared_[context] = std::move(choice.partitions);
  }
  const TfLiteStatus status = context->ReplaceNodeSubsetsWithDelegateKernels(
      context, KernelRegistration(options_.kernel_name),
      reinterpret_cast<const TfLiteIntArray*>(replaced.data()), shown());
  const std::lock_guard lock(mutex_);
  prepared_.erase(context);
  return status;
}

TfLiteStatus Delegate::Prepare(TfLiteContext* context, TfLiteDelegate* delegate) {
  Delegate* const self = Of(delegate);
  if (Handshake* const handshake = FindHandshake(context); handshake != nullptr) {
    if (self->device_ != nullptr) handshake->delegate = self->device_->handle();
    if (!self->error_.empty()) handshake->error = self->error_.c_str();
    return kTfLiteOk;
  }
  if (!self->error_.empty()) {
    context->ReportError(context, "Atoll: %s", self->error_.c_str());
    return kTfLiteDelegateError;
  }
  return self->TakeNodes(context);
}

void Delegate::Print(const char* format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  std::fprintf(stderr, "Atoll: %s\n", text);
}

}  // namespace atollcompat
