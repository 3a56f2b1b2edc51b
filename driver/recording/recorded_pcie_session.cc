// SPDX-License-Identifier: Apache-2.0
#include "driver/recording/recorded_pcie_session.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "driver/recording/pcapng.h"

namespace atollrt {
namespace {

// Words of the kinds, in their order.
constexpr std::string_view kPcieWords[] = {"read",    "write", "await", "present", "allocate",
                                           "vectors", "reset", "open",  "list"};

// What PcieWords wrote, and the answer.
void ReadCall(LineReader* line, PcieEvent* event) {
  PcieCall& call = event->call;
  switch (call.kind) {
    case PcieKind::kRead:
    case PcieKind::kWrite:
      call.bar = static_cast<uint32_t>(line->Number());
      call.place = line->Number(16, UINT64_MAX);
      call.bits = static_cast<uint32_t>(line->Number());
      (call.kind == PcieKind::kRead ? event->answer : call.value) = line->Number(16, UINT64_MAX);
      return;
    case PcieKind::kAwait:
      call.value = line->Number(16, UINT64_MAX);
      event->answer = line->Number(16, UINT64_MAX);
      return;
    case PcieKind::kAllocate:
      call.value = line->Number(10, UINT64_MAX);
      call.direction =
          static_cast<DmaDirection>(line->Number(10, static_cast<uint64_t>(DmaDirection::kBoth)));
      event->number = line->Number(10, UINT64_MAX);
      event->answer = line->Number(16, UINT64_MAX);
      return;
    case PcieKind::kVectors:
      call.value = line->Number();
      return;
    case PcieKind::kOpen:
      call.address = line->Word();
      return;
    default:
      return;
  }
}

}  // namespace

PcieCall RegisterCall(PcieKind kind, uint32_t bar, uint64_t offset, uint32_t bits, uint64_t value) {
  return {.kind = kind, .bar = bar, .bits = bits, .place = offset, .value = value};
}

std::string PcieWords(const PcieCall& call) {
  std::string word(kPcieWords[static_cast<size_t>(call.kind)]);
  switch (call.kind) {
    case PcieKind::kRead:
      return word + Format(" %u %llx %u", call.bar, Wide(call.place), call.bits);
    case PcieKind::kWrite:
      return word +
             Format(" %u %llx %u %llx", call.bar, Wide(call.place), call.bits, Wide(call.value));
    case PcieKind::kAwait:
      return word + Format(" %llx", Wide(call.value));
    case PcieKind::kAllocate:
      return word + Format(" %llu %u", Wide(call.value), static_cast<unsigned>(call.direction));
    case PcieKind::kVectors:
      return word + Format(" %llu", Wide(call.value));
    case PcieKind::kOpen:
      return word + " " + std::string(call.address);
    default:
      return word;
  }
}

std::string DescribePcie(const PcieCall& call) {
  switch (call.kind) {
    case PcieKind::kRead:
      return Format("a read of register %llx of BAR %u, %u bits", Wide(call.place), call.bar,
                    call.bits);
    case PcieKind::kWrite:
      return Format("writing %llx to register %llx of BAR %u, %u bits", Wide(call.value),
                    Wide(call.place), call.bar, call.bits);
    case PcieKind::kAwait:
      return Format("a wait for vectors %llx", Wide(call.value));
    case PcieKind::kPresent:
      return "a look whether the function is there";
    case PcieKind::kAllocate:
      return Format("memory of %llu bytes for the device", Wide(call.value));
    case PcieKind::kVectors:
      return Format("connecting %llu vectors", Wide(call.value));
    case PcieKind::kReset:
      return "a reset";
    case PcieKind::kOpen:
      return Format("opening %s", std::string(call.address).c_str());
    case PcieKind::kList:
      break;
  }
  return "a look at the bus";
}

Status PcieEvent::status() const {
  return code == StatusCode::kOk ? Status() : Status(code, std::string(message));
}

std::vector<PcieDeviceInfo> RecordedPcieSession::DevicesOf(size_t event) const {
  const size_t begin = event == 0 ? 0 : events[event - 1].devices_end;
  return {devices.begin() + static_cast<ptrdiff_t>(begin),
          devices.begin() + static_cast<ptrdiff_t>(events[event].devices_end)};
}

Result<std::unique_ptr<const RecordedPcieSession>> RecordedPcieSession::Read(
    std::span<const uint8_t> recording) {
  if (!IsPcieRecording(recording)) {
    ATOLL_RETURN_IF_ERROR(ReadPcapng(recording).status());
    return InvalidArgument("no session on PCIe is recorded there");
  }
  auto session = std::make_unique<RecordedPcieSession>();
  session->recording.assign(recording.begin(), recording.end());
  ATOLL_ASSIGN_OR_RETURN(const std::vector<PcapngPacket> packets, ReadPcapng(session->recording));
  for (const PcapngPacket& packet : packets) {
    if (packet.link_type == kLinkTypeUser0) ATOLL_RETURN_IF_ERROR(session->Add(packet.bytes));
  }
  if (session->events.empty()) return InvalidArgument("nothing is recorded there");
  return std::unique_ptr<const RecordedPcieSession>(std::move(session));
}

Status RecordedPcieSession::Add(std::span<const uint8_t> packet) {
  std::string_view text(reinterpret_cast<const char*>(packet.data()), packet.size());
  LineReader line(Cut(&text, '\n'));
  const std::string_view word = line.Word();
  if (word == "note") {
    notes.Read(line);
    return {};
  }
  if (word == "host" || word == "device") {
    const uint64_t mapping = line.Number(10, UINT64_MAX);
    const uint64_t offset = line.Number(16, UINT64_MAX);
    if (!line.ok()) return InvalidArgument("a change of memory that cannot be read");
    changes.push_back({mapping, offset, TextBytes(text)});
    return {};
  }
  const auto found = std::find(std::begin(kPcieWords), std::end(kPcieWords), word);
  if (found == std::end(kPcieWords)) return {};  // of a later version
  PcieEvent event;
  event.call.kind = static_cast<PcieKind>(found - std::begin(kPcieWords));
  ReadCall(&line, &event);
  line.ReadStatus(&event.code, &event.message);
  while (event.call.kind == PcieKind::kList && !text.empty() && line.ok()) {
    LineReader entry(Cut(&text, '\n'));
    PcieDeviceInfo& info = devices.emplace_back();
    info.id.vendor = static_cast<uint16_t>(entry.Number(16, UINT16_MAX));
    info.id.device = static_cast<uint16_t>(entry.Number(16, UINT16_MAX));
    info.link_lanes = static_cast<uint32_t>(entry.Number());
    info.link_generation = static_cast<uint32_t>(entry.Number());
    info.address = std::string(entry.Word());
    info.driver = std::string(entry.rest());
    if (!entry.ok()) return InvalidArgument("a list of devices that cannot be read");
  }
  if (!line.ok()) {
    return InvalidArgument("a line that cannot be read: '%.*s'",
                           static_cast<int>(std::min<size_t>(packet.size(), 80)),
                           reinterpret_cast<const char*>(packet.data()));
  }
  event.devices_end = devices.size();
  event.changes_end = changes.size();
  events.push_back(event);
  return {};
}

}  // namespace atollrt
