// SPDX-License-Identifier: Apache-2.0
#include "driver/broker/messages.h"

#include <algorithm>
#include <chrono>

namespace atollrt {

std::string TextOf(std::span<const uint8_t> tail) {
  std::string text;
  for (const uint8_t byte : tail.first(std::min(tail.size(), kBrokerTextBytes))) {
    text += byte >= 0x20 && byte < 0x7f ? static_cast<char>(byte) : '?';
  }
  return text;
}

std::span<const uint8_t> TailOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), std::min(text.size(), kBrokerTextBytes)};
}

BrokerWelcome WelcomeOf(const DeviceInfo& info) {
  BrokerWelcome welcome;
  welcome.protocol = kBrokerProtocolMax;
  welcome.family = static_cast<uint32_t>(info.family);
  welcome.array_rows = info.array_rows;
  welcome.array_columns = info.array_columns;
  welcome.isa_version = info.isa_version;
  welcome.memory_bytes = info.memory_bytes;
  welcome.program_memory_bytes = info.program_memory_bytes;
  welcome.clock_hz = info.clock_hz;
  welcome.link_bytes_per_second = info.link_bytes_per_second;
  welcome.host_seconds = info.host_seconds;
  welcome.request_timeout_min_ms = static_cast<uint64_t>(info.request_timeout_min.count());
  welcome.emulated = info.emulated ? 1 : 0;
  return welcome;
}

Result<DeviceInfo> DeviceInfoOf(const BrokerWelcome& welcome) {
  constexpr uint64_t kDayMs = uint64_t{24} * 3600 * 1000;
  constexpr uint64_t kMost = uint64_t{1} << 48;
  constexpr uint32_t kMostOfArray = 1 << 16;
  constexpr double kMostHostSeconds = 24 * 3600;
  // Nothing is compiled for a Coral, so nothing is divided by what it has.
  const uint32_t least = welcome.family == static_cast<uint32_t>(DeviceFamily::kAtoll1) ? 1 : 0;
  const auto is_number = [&](uint64_t value) { return value >= least && value <= kMost; };
  const auto is_side = [&](uint32_t value) { return value >= least && value <= kMostOfArray; };
  if (welcome.family > static_cast<uint32_t>(DeviceFamily::kCoral) ||
      !is_side(welcome.array_rows) || !is_side(welcome.array_columns) ||
      !is_number(welcome.memory_bytes) || welcome.program_memory_bytes > kMost ||
      !is_number(welcome.clock_hz) || !is_number(welcome.link_bytes_per_second) ||
      !(welcome.host_seconds >= 0 && welcome.host_seconds <= kMostHostSeconds)) {
    return DeviceLost(
        "the broker describes no device: family %u, an array of %ux%u, %llu bytes of memory and "
        "%llu of programs, %llu Hz, a link of %llu bytes per second, %g s on the host",
        welcome.family, welcome.array_rows, welcome.array_columns,
        static_cast<unsigned long long>(welcome.memory_bytes),
        static_cast<unsigned long long>(welcome.program_memory_bytes),
        static_cast<unsigned long long>(welcome.clock_hz),
        static_cast<unsigned long long>(welcome.link_bytes_per_second), welcome.host_seconds);
  }
  DeviceInfo info;
  info.family = static_cast<DeviceFamily>(welcome.family);
  info.array_rows = welcome.array_rows;
  info.array_columns = welcome.array_columns;
  info.isa_version = welcome.isa_version;
  info.memory_bytes = welcome.memory_bytes;
  info.program_memory_bytes = welcome.program_memory_bytes;
  info.clock_hz = welcome.clock_hz;
  info.link_bytes_per_second = welcome.link_bytes_per_second;
  info.host_seconds = welcome.host_seconds;
  info.request_timeout_min =
      std::chrono::milliseconds(std::min(welcome.request_timeout_min_ms, kDayMs));
  info.emulated = welcome.emulated != 0;
  return info;
}

BrokerWelcome RefusalOf(StatusCode code) {
  BrokerWelcome welcome;
  welcome.code = static_cast<uint32_t>(code);
  return welcome;
}

Status RefusalOf(const BrokerWelcome& welcome, std::string_view sentence) {
  const bool is_known = welcome.code > static_cast<uint32_t>(StatusCode::kOk) &&
                        welcome.code <= static_cast<uint32_t>(StatusCode::kInternal);
  return {is_known ? static_cast<StatusCode>(welcome.code) : StatusCode::kUnsupported,
          std::string(sentence)};
}

BrokerState StateOf(DeviceState state, const DeviceHealth& health) {
  BrokerState message;
  message.state = static_cast<uint32_t>(state);
  message.failures = health.failures;
  message.resets = health.resets;
  message.reopenings = health.reopenings;
  message.losses = health.losses;
  message.replays = health.replays;
  message.fallbacks = health.fallbacks;
  return message;
}

DeviceHealth HealthOf(const BrokerState& state) {
  return {.failures = state.failures,
          .resets = state.resets,
          .reopenings = state.reopenings,
          .losses = state.losses,
          .replays = state.replays,
          .fallbacks = state.fallbacks};
}

BrokerDone DoneOf(uint32_t request, const Status& status, const RequestReport& report) {
  BrokerDone done;
  done.request = request;
  done.code = static_cast<uint32_t>(status.code());
  done.device_cycles = report.device_cycles;
  done.device_seconds = report.device_seconds;
  done.bytes_to_device = report.bytes_to_device;
  done.bytes_from_device = report.bytes_from_device;
  done.bytes_copied = report.bytes_copied;
  done.parameter_bytes = report.parameter_bytes;
  done.queue_ns = report.queue_ns;
  done.link_out_ns = report.link_out_ns;
  done.compute_ns = report.compute_ns;
  done.link_in_ns = report.link_in_ns;
  done.device_clock = report.device_clock;
  done.replays = report.replays;
  done.on_fallback = report.on_fallback ? 1 : 0;
  return done;
}

RequestReport ReportOf(const BrokerDone& done) {
  RequestReport report;
  report.device_cycles = done.device_cycles;
  report.device_seconds = done.device_seconds;
  report.bytes_to_device = done.bytes_to_device;
  report.bytes_from_device = done.bytes_from_device;
  report.bytes_copied = done.bytes_copied;
  report.parameter_bytes = done.parameter_bytes;
  report.queue_ns = done.queue_ns;
  report.link_out_ns = done.link_out_ns;
  report.compute_ns = done.compute_ns;
  report.link_in_ns = done.link_in_ns;
  report.device_clock = done.device_clock;
  report.replays = done.replays;
  report.on_fallback = done.on_fallback != 0;
  return report;
}

Status StatusOf(const BrokerDone& done, std::string_view sentence) {
  if (done.code == static_cast<uint32_t>(StatusCode::kOk)) return {};
  if (done.code > static_cast<uint32_t>(StatusCode::kInternal)) {
    return DeviceLost("the broker answers with the unknown code %u", done.code);
  }
  return {static_cast<StatusCode>(done.code), std::string(sentence)};
}

}  // namespace atollrt
