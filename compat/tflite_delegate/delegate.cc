// SPDX-License-Identifier: Apache-2.0
#include "compat/tflite_delegate/delegate.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <set>
#include <utility>

#include "compat/tflite/handshake.h"
#include "compat/tflite_delegate/kernel.h"
#include "compat/tflite_delegate/model_writer.h"

namespace atollcompat {
namespace {

// Operators that call other subgraphs, or share variables with operators that may be elsewhere.
constexpr int32_t kNeverTaken[] = {
    51,             // another delegate's partition
    118, 119, 129,  // IF, WHILE, CALL_ONCE
    142, 143, 144,  // VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE
};

struct IntArray {
  explicit IntArray(const std::vector<int>& numbers)
      : array(static_cast<TfLiteIntArray*>(
            std::malloc(sizeof(TfLiteIntArray) + numbers.size() * sizeof(int)))) {
    array->size = static_cast<int>(numbers.size());
    std::ranges::copy(numbers, array->data);
  }
  ~IntArray() { std::free(array); }
  IntArray(const IntArray&) = delete;
  IntArray& operator=(const IntArray&) = delete;
  TfLiteIntArray* array;
};

}  // namespace

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

std::string Delegate::WhyNot(TfLiteContext* context, const TfLiteNode& node,
                             const TfLiteRegistration& registration) {
  if (IsEdgeTpuOperator(registration)) return "";
  if (options_.operators == Operators::kCompiled) return "it was not compiled for an Edge TPU";
  if (std::ranges::find(kNeverTaken, registration.builtin_code) != std::end(kNeverTaken)) {
    return "it concerns more than its partition";
  }
  const GraphNode itself = {&node, &registration};
  const std::span<const int> outputs(node.outputs->data, static_cast<size_t>(node.outputs->size));
  const WrittenModel alone = WriteModel(context, {&itself, 1}, outputs);
  if (!alone.error.empty()) return alone.error;
  // What Atoll says of it alone is what it will say of it among others.
  AtollModel* model = nullptr;
  AtollInterpreter* interpreter = nullptr;
  AtollInterpreterOptions interpreter_options = ATOLL_INTERPRETER_OPTIONS_INIT;
  interpreter_options.num_threads = 1;
  if (options_.operators == Operators::kDevice) interpreter_options.delegate = device_->handle();
  std::string reason;
  if (AtollModelCreateFromBuffer(alone.bytes.data(), alone.bytes.size(), &model) != ATOLL_OK ||
      AtollInterpreterCreate(model, &interpreter_options, &interpreter) != ATOLL_OK) {
    reason = AtollLastError();
  } else if (options_.operators == Operators::kDevice) {
    AtollNodeInfo info = {};
    if (AtollInterpreterGetNodeInfo(interpreter, 0, &info) != ATOLL_OK) {
      reason = AtollLastError();
    } else if (info.partition < 0) {
      reason = info.reason != nullptr && *info.reason != '\0' ? info.reason : "it runs on the CPU";
    }
  }
  AtollInterpreterDelete(interpreter);
  AtollModelDelete(model);
  return reason;
}

TfLiteStatus Delegate::TakeNodes(TfLiteContext* context) {
  if (options_.external_context != nullptr) {
    context->SetExternalContext(context, kTfLiteEdgeTpuContext, options_.external_context.get());
  }
  TfLiteIntArray* plan = nullptr;
  if (context->GetExecutionPlan(context, &plan) != kTfLiteOk) return kTfLiteError;
  const std::vector<int> nodes(plan->data, plan->data + plan->size);  // the array is the runtime's
  std::vector<int> taken;
  std::set<int> needed;  // whatever the size of their partition
  for (const int index : nodes) {
    TfLiteNode* node = nullptr;
    TfLiteRegistration* registration = nullptr;
    if (context->GetNodeAndRegistration(context, index, &node, &registration) != kTfLiteOk) {
      return kTfLiteError;
    }
    const std::string reason = WhyNot(context, *node, *registration);
    if (reason.empty()) {
      taken.push_back(index);
      if (IsEdgeTpuOperator(*registration)) needed.insert(index);
    } else if (options_.verbosity >= 2) {
      Print("node %d (%s) stays with the runtime: %s", index, OperatorName(*registration).c_str(),
            reason.c_str());
    }
  }
  if (options_.min_nodes > 1 && !taken.empty()) {
    TfLiteDelegateParams* partitions = nullptr;
    int count = 0;
    const IntArray asked(taken);
    if (context->PreviewDelegatePartitioning(context, asked.array, &partitions, &count) !=
        kTfLiteOk) {
      return kTfLiteError;
    }
    std::set<int> small;
    for (int i = 0; i < count; ++i) {
      const TfLiteIntArray& members = *partitions[i].nodes_to_replace;
      const std::span indices(members.data, static_cast<size_t>(members.size));
      if (members.size < options_.min_nodes &&
          std::ranges::none_of(indices, [&](int node) { return needed.contains(node); })) {
        small.insert(indices.begin(), indices.end());
      }
    }
    std::erase_if(taken, [&](int node) { return small.contains(node); });
  }
  if (options_.verbosity >= 1) {
    Print("Atoll runs %zu of %zu operators", taken.size(), nodes.size());
  }
  const IntArray replaced(taken);
  return context->ReplaceNodeSubsetsWithDelegateKernels(
      context, KernelRegistration(options_.kernel_name), replaced.array, shown());
}

TfLiteStatus Delegate::Prepare(TfLiteContext* context, TfLiteDelegate* delegate) {
  Delegate* const self = Of(delegate);
  if (Handshake* const handshake = FindHandshake(context); handshake != nullptr) {
    if (self->device_ != nullptr) handshake->delegate = self->device_->handle();
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
