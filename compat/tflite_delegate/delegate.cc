// SPDX-License-Identifier: Apache-2.0
#include "compat/tflite_delegate/delegate.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <functional>
#include <set>
#include <utility>

#include "compat/tflite/handshake.h"
#include "compat/tflite_delegate/kernel.h"

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

Delegate::Delegate() {
  shown_.delegate.data_ = this;
  shown_.delegate.Prepare = Prepare;
  // With it the runtime asks the delegate before it prepares operators, which it would fail to do
  // with those of compiled models; and inputs can still be resized afterwards.
  shown_.delegate.flags = kTfLiteDelegateFlagsAllowDynamicTensors;
}

Delegate::~Delegate() { AtollDelegateDelete(device_); }

std::unique_ptr<Delegate> Delegate::Create(const DelegateOptions& options) {
  std::unique_ptr<Delegate> made(new Delegate);
  made->options_ = options;
  AtollDelegateOptions device = ATOLL_DELEGATE_OPTIONS_INIT;
  device.device = options.device.c_str();
  if (!options.performance.empty()) device.performance = options.performance.c_str();
  if (!options.on_device_loss.empty()) device.on_device_loss = options.on_device_loss.c_str();
  if (AtollDelegateCreate(&device, &made->device_) != ATOLL_OK) made->error_ = AtollLastError();
  return made;
}

std::unique_ptr<Delegate> Delegate::Broken(std::string error) {
  std::unique_ptr<Delegate> made(new Delegate);
  made->error_ = std::move(error);
  return made;
}

std::shared_ptr<AtollModel> Delegate::ModelOf(const std::string& bytes, std::string* error) {
  const std::lock_guard lock(mutex_);
  auto& same_hash = models_[std::hash<std::string>()(bytes)];
  std::erase_if(same_hash, [](const auto& entry) { return entry.second.expired(); });
  for (const auto& [known, model] : same_hash) {
    if (known == bytes) return model.lock();
  }
  AtollModel* made = nullptr;
  if (AtollModelCreateFromBuffer(bytes.data(), bytes.size(), &made) != ATOLL_OK) {
    *error = AtollLastError();
    return nullptr;
  }
  std::shared_ptr<AtollModel> model(made, AtollModelDelete);
  same_hash.emplace_back(bytes, model);
  return model;
}

bool Delegate::Takes(TfLiteContext* context, int index) {
  TfLiteNode* node = nullptr;
  TfLiteRegistration* registration = nullptr;
  if (context->GetNodeAndRegistration(context, index, &node, &registration) != kTfLiteOk) {
    return false;
  }
  std::string reason;
  const auto refuse = [&] {
    if (options_.verbosity >= 2) {
      Print("node %d (%s) stays with the runtime: %s", index, OperatorName(*registration).c_str(),
            reason.c_str());
    }
    return false;
  };
  if (std::ranges::find(kNeverTaken, registration->builtin_code) != std::end(kNeverTaken)) {
    reason = "it concerns more than its partition";
    return refuse();
  }
  const std::vector<int> outputs(node->outputs->data, node->outputs->data + node->outputs->size);
  const WrittenModel alone = WriteModel(context, {&index, 1}, outputs);
  reason = alone.error;
  if (!reason.empty()) return refuse();
  // What Atoll says of it alone is what it will say of it among others.
  AtollModel* model = nullptr;
  AtollInterpreter* interpreter = nullptr;
  AtollInterpreterOptions interpreter_options = ATOLL_INTERPRETER_OPTIONS_INIT;
  interpreter_options.num_threads = 1;
  if (options_.operators == Operators::kDevice) interpreter_options.delegate = device_;
  bool taken =
      AtollModelCreateFromBuffer(alone.bytes.data(), alone.bytes.size(), &model) == ATOLL_OK &&
      AtollInterpreterCreate(model, &interpreter_options, &interpreter) == ATOLL_OK;
  if (!taken) {
    reason = AtollLastError();
  } else if (options_.operators == Operators::kDevice) {
    AtollNodeInfo info = {};
    taken = AtollInterpreterGetNodeInfo(interpreter, 0, &info) == ATOLL_OK && info.partition >= 0;
    if (!taken) reason = info.reason != nullptr ? info.reason : "";
  }
  AtollInterpreterDelete(interpreter);
  AtollModelDelete(model);
  return taken || refuse();
}

TfLiteStatus Delegate::TakeNodes(TfLiteContext* context) {
  TfLiteIntArray* plan = nullptr;
  if (context->GetExecutionPlan(context, &plan) != kTfLiteOk) return kTfLiteError;
  const std::vector<int> nodes(plan->data, plan->data + plan->size);  // the array is the runtime's
  std::vector<int> taken;
  for (const int node : nodes) {
    if (Takes(context, node)) taken.push_back(node);
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
      const TfLiteIntArray* const members = partitions[i].nodes_to_replace;
      if (members->size < options_.min_nodes) {
        small.insert(members->data, members->data + members->size);
      }
    }
    std::erase_if(taken, [&](int node) { return small.contains(node); });
  }
  if (options_.verbosity >= 1) {
    Print("Atoll runs %zu of %zu operators", taken.size(), nodes.size());
  }
  const IntArray replaced(taken);
  return context->ReplaceNodeSubsetsWithDelegateKernels(context, KernelRegistration(),
                                                        replaced.array, shown());
}

TfLiteStatus Delegate::Prepare(TfLiteContext* context, TfLiteDelegate* delegate) {
  Delegate* const self = Of(delegate);
  if (Handshake* const handshake = FindHandshake(context); handshake != nullptr) {
    handshake->delegate = self->device_;
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
