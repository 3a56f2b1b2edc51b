// SPDX-License-Identifier: Apache-2.0
#include "serve/broker/client.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <tuple>

namespace atollrt {
namespace {

constexpr uint64_t kTimeoutMostMs = uint64_t{24} * 3600 * 1000;

unsigned long long Long(uint64_t number) { return number; }

// A buffer, in order of arenas.
struct Range {
  uint32_t arena;
  uint64_t begin, end;
  bool is_output;
};

Status CheckOverlaps(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::tie(a.arena, a.begin) < std::tie(b.arena, b.begin);
  });
  uint64_t end = 0;
  uint64_t outputs_end = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const Range& range = ranges[i];
    if (i == 0 || ranges[i - 1].arena != range.arena) end = outputs_end = 0;
    if (range.begin < outputs_end || (range.is_output && range.begin < end)) {
      return InvalidArgument("an output at %llu overlaps another buffer", Long(range.begin));
    }
    end = std::max(end, range.end);
    if (range.is_output) outputs_end = std::max(outputs_end, range.end);
  }
  return {};
}

}  // namespace

bool BrokerConnection::IsUnderWay(uint32_t request) const {
  return running.contains(request) ||
         std::any_of(queue.begin(), queue.end(),
                     [&](const BrokerPending& other) { return other.request == request; });
}

void BrokerConnection::Enqueue(BrokerPending pending) {
  const auto behind = std::find_if(queue.rbegin(), queue.rend(), [&](const BrokerPending& other) {
    return other.priority >= pending.priority;
  });
  queue.insert(behind.base(), std::move(pending));
}

Result<BrokerPending> ReadBrokerSubmit(const std::shared_ptr<BrokerConnection>& client,
                                       const BrokerReceived<BrokerSubmit>& submit) {
  const BrokerSubmit& message = submit.message;
  if (client->IsUnderWay(message.request)) {
    return InvalidArgument("request %u is under way already", message.request);
  }
  const auto executable = client->executables.find(message.executable);
  if (executable == client->executables.end()) {
    return InvalidArgument("there is no executable %u", message.executable);
  }
  const AnyExecutable& layers = *executable->second->loaded->executable;
  const size_t inputs = layers.inputs.size();
  const size_t count = inputs + layers.outputs.size();
  if (message.buffers != count || submit.tail.size() != count * sizeof(BrokerBuffer)) {
    return InvalidArgument("executable %u has %zu inputs and outputs, the request %u",
                           message.executable, count, message.buffers);
  }
  BrokerPending pending;
  std::vector<Range> ranges;
  for (size_t i = 0; i < count; ++i) {
    BrokerBuffer buffer;
    std::memcpy(&buffer, submit.tail.data() + i * sizeof(buffer), sizeof(buffer));
    const auto arena = client->arenas.find(buffer.arena);
    if (arena == client->arenas.end()) return InvalidArgument("there is no arena %u", buffer.arena);
    const bool is_output = i >= inputs;
    const uint64_t bytes = (is_output ? layers.outputs[i - inputs] : layers.inputs[i]).bytes;
    const std::span<uint8_t> memory = arena->second->memory.bytes();
    if (buffer.offset > memory.size() || bytes > memory.size() - buffer.offset) {
      return InvalidArgument("buffer %zu of %llu bytes at %llu is beyond its arena of %zu", i,
                             Long(bytes), Long(buffer.offset), memory.size());
    }
    pending.buffers.push_back(memory.subspan(buffer.offset, bytes));
    if (pending.arenas.empty() || pending.arenas.back() != arena->second) {
      pending.arenas.push_back(arena->second);
    }
    if (bytes > 0)
      ranges.push_back({buffer.arena, buffer.offset, buffer.offset + bytes, is_output});
  }
  ATOLL_RETURN_IF_ERROR(CheckOverlaps(std::move(ranges)));
  pending.client = client;
  pending.request = message.request;
  pending.executable = executable->second;
  pending.priority = std::min(message.priority, client->share.priority_max);
  pending.came = Clock::now();
  pending.deadline =
      pending.came + std::chrono::milliseconds(std::min(message.timeout_ms, kTimeoutMostMs));
  return pending;
}

}  // namespace atollrt
