// SPDX-License-Identifier: Apache-2.0
//
// Files in the format of packet captures, pcapng (IETF draft-ietf-opsawg-pcapng), as far as a
// recording of USB needs them: one section, interfaces with their link types, packets with times in
// nanoseconds. Wireshark reads what PcapngWriter writes.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"

namespace atollrt {

inline constexpr uint16_t kLinkTypeUsbLinux = 220;  // usbmon's header of 64 bytes in front
inline constexpr uint16_t kLinkTypeUser0 = 147;     // for private use

// One thread at a time.
class PcapngWriter {
 public:
  // Interface I has link type link_types[I]. kInvalidArgument if the file cannot be made.
  static Result<PcapngWriter> Create(const std::string& path, std::span<const uint16_t> link_types);

  // The bytes of a packet are `head` and then `body`. Errors of the disk come with Close.
  void Write(uint32_t interface, uint64_t time_ns, std::span<const uint8_t> head,
             std::span<const uint8_t> body);
  // kResourceExhausted if something could not be written.
  Status Close();

 private:
  explicit PcapngWriter(FILE* file) : file_(file, std::fclose) {}
  void WriteBlock(uint32_t type, std::span<const uint8_t> start, std::span<const uint8_t> head,
                  std::span<const uint8_t> body);
  std::unique_ptr<FILE, int (*)(FILE*)> file_;
  bool failed_ = false;
};

struct PcapngPacket {
  uint16_t link_type = 0;
  uint64_t time_ns = 0;
  std::span<const uint8_t> bytes;  // of what was given to ReadPcapng
};

// kInvalidArgument unless a file that begins so is one that ReadPcapng reads, as far as that shows.
Status CheckPcapngStart(std::span<const uint8_t> bytes);

// Takes hostile bytes. kInvalidArgument names what does not fit and where. Packets must be whole;
// blocks of other kinds are passed over.
Result<std::vector<PcapngPacket>> ReadPcapng(std::span<const uint8_t> bytes);

}  // namespace atollrt
