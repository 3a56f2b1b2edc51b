// SPDX-License-Identifier: Apache-2.0
#include "driver/recording/pcapng.h"

#include <cerrno>
#include <cstring>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

constexpr uint32_t kSectionBlock = 0x0A0D0D0A;
constexpr uint32_t kInterfaceBlock = 1;
constexpr uint32_t kPacketBlock = 6;
constexpr uint32_t kByteOrderMagic = 0x1A2B3C4D;
constexpr uint16_t kVersion = 1;           // and minor 0
constexpr uint16_t kResolutionOption = 9;  // if_tsresol
constexpr uint8_t kNanoseconds = 9;
constexpr size_t kBlockHeadBytes = 8;    // type, total length
constexpr size_t kBlockFrameBytes = 12;  // those and the length once more at the end
constexpr size_t kPacketStartBytes = 20;
constexpr size_t kInterfaceStartBytes = 8;
constexpr uint64_t kNanosecondsInMicrosecond = 1000;

struct Interface {
  uint16_t link_type = 0;
  bool nanoseconds = false;
};

// An interface block's body: whether its option for the resolution says nanoseconds.
bool HasNanoseconds(std::span<const uint8_t> body) {
  size_t at = kInterfaceStartBytes;
  while (at + 4 <= body.size()) {
    const auto code = LoadLittleEndian<uint16_t>(&body[at]);
    const auto length = LoadLittleEndian<uint16_t>(&body[at + 2]);
    if (code == 0 || length > body.size() - at - 4) return false;
    if (code == kResolutionOption && length == 1) return body[at + 4] == kNanoseconds;
    at += 4 + AlignUp(length, 4);
  }
  return false;
}

}  // namespace

Result<PcapngWriter> PcapngWriter::Create(const std::string& path,
                                          std::span<const uint16_t> link_types) {
  FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) {
    return InvalidArgument("cannot write the recording '%s': %s", path.c_str(),
                           std::strerror(errno));
  }
  PcapngWriter writer(file);
  uint8_t section[16] = {};
  StoreLittleEndian<uint32_t>(section, kByteOrderMagic);
  StoreLittleEndian<uint16_t>(section + 4, kVersion);
  StoreLittleEndian<uint64_t>(section + 8, UINT64_MAX);  // of unknown length
  writer.WriteBlock(kSectionBlock, section, {}, {});
  for (const uint16_t link_type : link_types) {
    uint8_t interface[kInterfaceStartBytes + 12] = {};
    StoreLittleEndian<uint16_t>(interface, link_type);
    StoreLittleEndian<uint16_t>(interface + 8, kResolutionOption);
    StoreLittleEndian<uint16_t>(interface + 10, 1);
    interface[12] = kNanoseconds;
    writer.WriteBlock(kInterfaceBlock, interface, {}, {});
  }
  return writer;
}

void PcapngWriter::WriteBlock(uint32_t type, std::span<const uint8_t> start,
                              std::span<const uint8_t> head, std::span<const uint8_t> body) {
  const size_t content = start.size() + head.size() + body.size();
  const size_t padding = AlignUp(content, 4) - content;
  uint8_t frame[kBlockHeadBytes];
  StoreLittleEndian<uint32_t>(frame, type);
  StoreLittleEndian(frame + 4, static_cast<uint32_t>(kBlockFrameBytes + content + padding));
  constexpr uint8_t kZeros[4] = {};
  const std::span<const uint8_t> parts[] = {
      frame, start, head, body, std::span(kZeros).first(padding), std::span(frame).subspan(4)};
  for (const std::span<const uint8_t> part : parts) {
    if (part.empty()) continue;
    failed_ |= std::fwrite(part.data(), 1, part.size(), file_.get()) != part.size();
  }
}

void PcapngWriter::Write(uint32_t interface, uint64_t time_ns, std::span<const uint8_t> head,
                         std::span<const uint8_t> body) {
  const auto length = static_cast<uint32_t>(head.size() + body.size());
  uint8_t start[kPacketStartBytes];
  StoreLittleEndian(start, interface);
  StoreLittleEndian(start + 4, static_cast<uint32_t>(time_ns >> 32));
  StoreLittleEndian(start + 8, static_cast<uint32_t>(time_ns));
  StoreLittleEndian(start + 12, length);
  StoreLittleEndian(start + 16, length);
  WriteBlock(kPacketBlock, start, head, body);
}

Status PcapngWriter::Close() {
  FILE* const file = file_.release();
  failed_ |= file != nullptr && std::fclose(file) != 0;
  if (failed_) return ResourceExhausted("the recording could not be written; is the disk full?");
  return {};
}

Status CheckPcapngStart(std::span<const uint8_t> bytes) {
  if (bytes.size() < kBlockFrameBytes + 4 ||
      LoadLittleEndian<uint32_t>(&bytes[0]) != kSectionBlock ||
      LoadLittleEndian<uint32_t>(&bytes[8]) != kByteOrderMagic) {
    return InvalidArgument("not a pcapng file of little-endian byte order");
  }
  const auto version = LoadLittleEndian<uint16_t>(&bytes[12]);
  if (version == kVersion) return {};
  return InvalidArgument("a pcapng file of version %u, only %u is known", version, kVersion);
}

Result<std::vector<PcapngPacket>> ReadPcapng(std::span<const uint8_t> bytes) {
  std::vector<PcapngPacket> packets;
  std::vector<Interface> interfaces;
  size_t at = 0;
  while (at < bytes.size()) {
    const std::span<const uint8_t> rest = bytes.subspan(at);
    if (rest.size() < kBlockFrameBytes) {
      return InvalidArgument("not a whole pcapng file: %zu bytes behind offset %zu", rest.size(),
                             at);
    }
    const auto type = LoadLittleEndian<uint32_t>(rest.data());
    const auto length = LoadLittleEndian<uint32_t>(&rest[4]);
    if (at == 0) ATOLL_RETURN_IF_ERROR(CheckPcapngStart(bytes));
    if (length < kBlockFrameBytes || length % 4 != 0 || length > rest.size() ||
        LoadLittleEndian<uint32_t>(&rest[length - 4]) != length) {
      return InvalidArgument("not a whole pcapng file: the block at offset %zu has length %u", at,
                             length);
    }
    const std::span<const uint8_t> body = rest.subspan(kBlockHeadBytes, length - kBlockFrameBytes);
    if (type == kInterfaceBlock) {
      if (body.size() < kInterfaceStartBytes) {
        return InvalidArgument("the interface at offset %zu has %zu bytes", at, body.size());
      }
      interfaces.push_back({LoadLittleEndian<uint16_t>(body.data()), HasNanoseconds(body)});
    } else if (type == kPacketBlock) {
      if (body.size() < kPacketStartBytes) {
        return InvalidArgument("the packet at offset %zu has %zu bytes", at, body.size());
      }
      const auto interface = LoadLittleEndian<uint32_t>(body.data());
      const auto captured = LoadLittleEndian<uint32_t>(&body[12]);
      if (interface >= interfaces.size() || captured > body.size() - kPacketStartBytes ||
          captured != LoadLittleEndian<uint32_t>(&body[16])) {
        return InvalidArgument("the packet at offset %zu is not whole, or of no interface", at);
      }
      uint64_t time = uint64_t{LoadLittleEndian<uint32_t>(&body[4])} << 32 |
                      LoadLittleEndian<uint32_t>(&body[8]);
      if (!interfaces[interface].nanoseconds) time *= kNanosecondsInMicrosecond;
      packets.push_back(
          {interfaces[interface].link_type, time, body.subspan(kPacketStartBytes, captured)});
    }
    at += length;
  }
  return packets;
}

}  // namespace atollrt
