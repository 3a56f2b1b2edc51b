// SPDX-License-Identifier: Apache-2.0
#include "compat/tflite_delegate/partition.h"

#include <algorithm>
#include <utility>

namespace atollcompat {

std::vector<int> AsArray(std::span<const int> numbers) {
  std::vector<int> array = {static_cast<int>(numbers.size())};
  array.insert(array.end(), numbers.begin(), numbers.end());
  return array;
}

int ThreadsOf(const TfLiteContext* context, int num_threads) {
  constexpr int kMost = 256;  // that interpreters take
  return std::clamp(num_threads != 0 ? num_threads : context->recommended_num_threads, 0, kMost);
}

Partition MakePartition(const TfLiteContext* context, std::span<const GraphNode> nodes,
                        std::span<const int> outputs, Device* device, AtollDelegate* delegate,
                        int num_threads) {
  Partition made;
  made.num_threads = num_threads;
  made.written = WriteModel(context, nodes, outputs);
  const FileBytes bytes = std::move(made.written.bytes);
  if (!made.written.error.empty()) {
    made.error = made.written.error;
    return made;
  }
  for (const int input : made.written.inputs) {
    const TfLiteIntArray& dims = *context->tensors[input].dims;
    made.dims.emplace_back(dims.data, dims.data + dims.size);
  }
  made.model = device->ModelOf(bytes.span(), &made.error);
  if (made.model == nullptr) return made;
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  options.delegate = delegate;
  options.num_threads = num_threads;
  AtollInterpreter* interpreter = nullptr;
  const AtollStatus status = AtollInterpreterCreate(made.model.get(), &options, &interpreter);
  if (status != ATOLL_OK) {
    made.error = AtollLastError();
    made.is_lost = status == ATOLL_DEVICE_LOST || status == ATOLL_TIMEOUT ||
                   status == ATOLL_DEVICE_BUSY || status == ATOLL_CANCELLED;
    return made;
  }
  made.interpreter.reset(interpreter);
  return made;
}

}  // namespace atollcompat
